"""Which NICs share a network, and which of them work: learned from probe frames, at a cost that
grows with the NICs.

Every NIC of a network sends a probe to the next one (a ring), so n NICs cost n probes a round. A
silent edge of the ring is looked into: its two ends exchange probes with others, which tells a NIC
that cannot send from one that cannot receive. One NIC per network, its beacon, floods a probe now
and then: who hears it belongs to the network. NICs of which nothing is known wait for the beacons;
one that hears none founds a network of its own by flooding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ri2n_sdn.discovery.inquiry import Inquiry, Proof
from ri2n_sdn.fabric.model import NicId

__all__ = ["Probe", "Wiring", "WiringSettings"]


@dataclass(frozen=True)
class WiringSettings:
    """Intervals. `probe_s` is the shortest ring interval; it grows with lag, and so that
    `probes_per_s` is kept to.

    A silent NIC is judged after `verdict_s`; after `patience_s` when its host's other NICs are
    silent too, since then it is rather the host (a busy Open vSwitch, a full connection) that is
    late. A NIC that gets more strange probes than `flood_per_s` is not judged by silence for
    `flood_s`: its host reports no more than some of all that come.
    """

    probe_s: float = 0.1
    probes_per_s: float = 1000.0
    beacon_s: float = 1.0
    step_s: float = 0.08
    gather_s: float = 0.05
    burst_s: float = 0.025
    bursts: int = 6
    verdict_s: float = 0.2
    patience_s: float = 1.0
    recover_after: int = 3
    flood_per_s: int = 200
    flood_s: float = 1.5


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe to send from NIC `sender`; to NIC `target`, or flooded into the network when None."""

    sender: NicId
    target: NicId | None


@dataclass
class _Nic:
    up: bool
    connected: bool
    since_s: float
    network: int | None = None
    tx_ok: bool = True
    rx_ok: bool = True
    tx_s: float = -1e9
    rx_s: float = -1e9
    own_rx_s: float = -1e9
    beacon_s: float = -1e9
    tx_recovered: int = 0
    rx_recovered: int = 0
    conflicts: int = 0
    conflict_s: float = -1e9
    conflict_since_s: float = -1e9
    strange: int = 0
    strange_since_s: float = -1e9
    flooded_s: float = -1e9

    @property
    def usable(self) -> bool:
        return self.up and self.connected

    @property
    def healthy(self) -> bool:
        return self.usable and self.tx_ok and self.rx_ok


@dataclass
class _EdgeInquiry(Inquiry):
    """A silent edge of a ring under test."""

    proof: Proof = field(default_factory=Proof)


class Wiring:
    """The learned wiring. Pure:

    the caller gives the time, sends the probes of `tick` and reports those `heard`.
    """

    def __init__(
        self,
        settings: WiringSettings | None = None,
        label: Callable[[NicId], str] = "{0[0]}:{0[1]}".format,
        switch: Callable[[NicId], str | None] = lambda _: None,
    ) -> None:
        """`label` names a NIC in `events`, `deaths` counts directions of NICs that were taken for
        dead. `lag_s`, set by the caller, is how late probes are reported at present.

        `switch` is what a NIC is plugged into, where that is declared and its network has several:
        such NICs are judged by others on the same switch alone, and none is cut off for what
        happens between switches (tree_liveness).
        """
        self.settings = settings or WiringSettings()
        self._label = label
        self._switch = switch
        self.events: list[str] = []
        self.changed = False
        self.deaths = 0
        self.lag_s = 0.0
        self._nics: dict[NicId, _Nic] = {}
        self._beacons: dict[int, tuple[NicId, float]] = {}
        self._edges: dict[tuple[NicId, NicId], float] = {}
        self._inquiries: dict[tuple[NicId, NicId], _EdgeInquiry] = {}
        self._newest_s = -1e9
        self._beaconed_s = -1e9
        self._next_step_s = -1e9
        self._flooding: set[str] = set()
        self._flooded_s = -1e9
        self._next_ring_s = -1e9
        self._interval_s = self.settings.probe_s
        self._next_beacon_s = self._beacons_s = -1e9
        self._last_tick_s: float | None = None
        self._round = 0

    # What is known

    @property
    def settled(self) -> bool:
        """No NIC that could be asked is without a network."""
        return not any(nic.usable and nic.network is None for nic in self._nics.values())

    @property
    def hosts_under_test(self) -> set[str]:
        """Hosts that must answer echo requests, sent after the probes, before there is a verdict or
        a next step.

        They are at the ends of silent edges, or were asked to flood for NICs of which nothing is
        known.
        """
        return {nic[0] for edge in self._inquiries for nic in edge} | self._flooding

    def knows(self, nic: NicId) -> bool:
        """The NIC was made known, and its host is connected."""
        state = self._nics.get(nic)
        return state is not None and state.connected

    def network(self, nic: NicId) -> str | None:
        state = self._nics.get(nic)
        return None if state is None or state.network is None else f"n{state.network}"

    def alive(self, nic: NicId) -> tuple[bool, bool]:
        """(what it sends arrives, it receives)."""
        state = self._nics.get(nic)
        return (True, True) if state is None else (state.tx_ok, state.rx_ok)

    # What happens

    def set_nic(self, nic: NicId, up: bool, now_s: float) -> None:
        """A NIC exists (its host is connected) and has carrier or not.

        One that comes back is on probation: a switch port may take seconds before it forwards. Of a
        host whose connection comes back nothing was heard meanwhile, so its NICs' silence counts
        from now on.
        """
        state = self._nics.get(nic)
        if state is None:
            self._nics[nic] = _Nic(up, True, now_s)
            self._newest_s = now_s
            self.changed = True
            return
        if not state.connected:
            self._forgive_nic(state, now_s)
            if state.network is None:
                self._newest_s = now_s
        if up and not state.up and state.network is not None:
            state.tx_ok = state.rx_ok = False
            state.tx_recovered = state.rx_recovered = 0
        if up != state.up or not state.connected:
            self.changed = True
        state.up, state.connected = up, True
        self._drop_edges(nic)

    def remove_nic(self, nic: NicId) -> None:
        if self._nics.pop(nic, None) is not None:
            self._drop_edges(nic)
            self.changed = True

    def disconnect(self, host: str) -> None:
        """The host cannot be asked any more.

        What was known of its NICs stays, since they may well work.
        """
        for nic, state in self._nics.items():
            if nic[0] == host:
                state.connected = False
                self._drop_edges(nic)

    def heard(self, sender: NicId, receiver: NicId, flooded: bool, now_s: float) -> None:
        """`receiver` reports a probe of `sender`."""
        tx, rx = self._nics.get(sender), self._nics.get(receiver)
        if tx is None or rx is None or sender == receiver:
            return
        if flooded:
            self._heard_flood(sender, tx, receiver, rx, now_s)
        if tx.network is None or tx.network != rx.network:
            return
        tx.tx_s = rx.rx_s = rx.own_rx_s = now_s
        self._edges[sender, receiver] = now_s
        if not tx.tx_ok:
            tx.tx_recovered += 1
            if tx.tx_recovered >= self.settings.recover_after:
                tx.tx_ok = True
                self._note(f"{self._label(sender)} sends again")
        if not rx.rx_ok:
            rx.rx_recovered += 1
            if rx.rx_recovered >= self.settings.recover_after:
                rx.rx_ok = True
                rx.beacon_s = now_s
                self._note(f"{self._label(receiver)} receives again")

    def strange(self, receiver: NicId, now_s: float) -> None:
        """`receiver` reports a probe that nobody here has sent."""
        state = self._nics.get(receiver)
        if state is None:
            return
        if now_s - state.strange_since_s > 1.0:
            state.strange, state.strange_since_s = 0, now_s
        state.strange += 1
        if state.strange > self.settings.flood_per_s:
            state.flooded_s = now_s

    def flooded(self, now_s: float) -> list[NicId]:
        """NICs that get so many strange probes that silence of others says nothing."""
        return [nic for nic, state in self._nics.items() if self._is_flooded(state, now_s)]

    def _is_flooded(self, state: _Nic, now_s: float) -> bool:
        return now_s - state.flooded_s < self.settings.flood_s

    def tick(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        """Probes to send now; call it every 25 ms or so, and send `hosts_under_test` an echo
        request after them.

        `answered_s(host)` is when the newest echo request that the host has answered was sent, so
        that it has done all that it was asked before; every host is sent one at least twice a
        second. Silence of probes counts for nothing while the host does not answer, or while this
        loop was not run in time.
        """
        late_s = (
            now_s - self._last_tick_s - 2 * self.settings.probe_s
            if self._last_tick_s is not None
            else 0.0
        )
        self._last_tick_s = now_s
        if late_s > 0:
            self._forgive(now_s, late_s)
        probes = self._discover(now_s, answered_s)
        if now_s >= self._next_beacon_s or self._asks_who_moved(now_s):
            self._next_beacon_s, self._beacons_s = now_s + self.settings.beacon_s, now_s
            probes += self._beacon_round(now_s, answered_s)
        if now_s >= self._next_ring_s:
            rings = self._rings()
            # A controller that is behind asks for less, or it would only come to reports that are
            # too old to count.
            interval_s = max(
                self.settings.probe_s,
                self.lag_s / 4,
                sum(map(len, rings.values())) / self.settings.probes_per_s,
            )
            self._next_ring_s, self._interval_s = now_s + interval_s, interval_s
            self._round += 1
            for (_, switch), nics in rings.items():
                if switch is not None and len(nics) == 1:
                    self._nics[nics[0]].tx_ok = self._nics[nics[0]].rx_ok = (
                        True  # nobody there who could tell
                    )
                probes += self._ring_round(nics, now_s, interval_s, answered_s)
        probes += self._inquire(now_s, answered_s)
        return probes

    # Discovery

    def _discover(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        unknown = sorted(
            nic for nic, state in self._nics.items() if state.usable and state.network is None
        )
        if not unknown:
            self._flooding.clear()
            return []
        if now_s < self._next_step_s or now_s < self._newest_s + self.settings.gather_s:
            return []
        if self._flooding:
            # One step after the other: on a busy machine, floods whose reports are late would call
            # for more of them.
            late = any(answered_s(host) < self._flooded_s for host in self._flooding)
            if late and now_s < self._flooded_s + self.settings.patience_s + 2 * self.lag_s:
                return []
            self._flooding.clear()
            if self.lag_s > self.settings.step_s:
                self._next_step_s = now_s + self.lag_s
                return []
        self._next_step_s = now_s + self.settings.step_s
        probes = self._discovery_step(unknown, now_s, answered_s)
        self._flooding, self._flooded_s = {probe.sender[0] for probe in probes}, now_s
        return probes

    def _discovery_step(
        self, unknown: list[NicId], now_s: float, answered_s: Callable[[str], float]
    ) -> list[Probe]:
        """Ask the networks that are known for new members; without an answer, found one more."""
        if self._newest_s >= self._beaconed_s and self._members():
            self._beaconed_s = now_s
            return self._beacon_round(now_s, answered_s)
        founder = unknown[0]
        used = {state.network for state in self._nics.values()}
        number = next(n for n in range(1, len(self._nics) + 2) if n not in used)
        self._nics[founder].network = number
        self._beacons[number] = (founder, now_s)
        self._beaconed_s = now_s
        self.changed = True
        return [Probe(founder, None), Probe(founder, None)]

    def _heard_flood(
        self, sender: NicId, tx: _Nic, receiver: NicId, rx: _Nic, now_s: float
    ) -> None:
        if tx.network is None:
            return
        if rx.network == tx.network:
            rx.conflicts = 0
            rx.beacon_s = now_s
            return
        if rx.network is None:
            self._join(receiver, rx, tx.network, now_s)
            return
        # One of the two NICs has been plugged in elsewhere, or the networks are one. Who still
        # hears its own network has not moved, nor has who is still heard by its own. The sender's
        # network is asked for less long, since the last probe before a cable was pulled may have
        # been from either. When both are silent the receiver may just have been waiting for the
        # sender, until an inquiry has had others probe it.
        members = self._members()
        fresh_s, silent_s = 2 * self._interval_s + self.lag_s, 3 * self._interval_s + self.lag_s
        others = [
            nic for nic in members.get(tx.network, ()) if nic != sender and self._nics[nic].healthy
        ]
        astray = bool(others) and now_s - tx.tx_s > fresh_s
        alone = len(members.get(rx.network, ())) <= 1
        if alone or not rx.rx_ok or now_s - rx.own_rx_s > (2 * silent_s if astray else silent_s):
            self._note(f"{self._label(receiver)} moved from n{rx.network} to n{tx.network}")
            self._join(receiver, rx, tx.network, now_s)
            return
        if astray:
            return
        # Networks that are one are flooded once per round, for longer than it takes to see that one
        # of the two NICs has moved; what strays now and then must not add up. The NIC that floods
        # its own network hears no flood of it that would say so.
        if now_s - rx.conflict_s > 1.5 * self.settings.beacon_s + self.lag_s:
            rx.conflicts, rx.conflict_since_s = 0, now_s
        rx.conflict_s = now_s
        rx.conflicts += 1
        if rx.conflicts >= 2 and now_s - rx.conflict_since_s > silent_s:
            kept, merged = sorted((tx.network, rx.network))
            self._note(
                f"n{merged} and n{kept} are one network ({self._label(receiver)} hears both)"
            )
            for nic, state in self._nics.items():
                if state.network == merged:
                    self._join(nic, state, kept, now_s)
            self._beacons.pop(merged, None)

    def _asks_who_moved(self, now_s: float) -> bool:
        """Whether to flood all networks early:

        a NIC that fell silent may have been plugged in elsewhere.
        """
        spaced_s = max(self.settings.beacon_s / 4, len(self._nics) / self.settings.probes_per_s)
        return now_s > self._beacons_s + spaced_s and any(
            now_s > inquiry.start_s + self.settings.burst_s for inquiry in self._inquiries.values()
        )

    def _join(self, nic: NicId, state: _Nic, network: int, now_s: float) -> None:
        state.network = network
        state.tx_ok = state.rx_ok = True
        state.conflicts = 0
        state.rx_s = state.own_rx_s = state.tx_s = state.beacon_s = now_s
        self._drop_edges(nic)
        self.changed = True

    def _beacon_round(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        """Flood each network, and cut off NICs that hear nothing of it.

        A host whose connection to the controller is lost floods nothing, and its reports do not
        come: neither may be taken for a network that has fallen apart. So the beacon's host must
        have done what it was asked since a NIC heard it last, and the NIC's host must have answered
        after that; and a host that does not answer is no beacon.
        """
        probes = []
        beacon_s = self.settings.beacon_s
        for network, nics in self._members().items():
            healthy = [nic for nic in nics if self._nics[nic].healthy] or nics
            beacon, since_s = self._beacons.get(network, (healthy[0], now_s))
            answering = [
                nic for nic in healthy if now_s - answered_s(nic[0]) < 1.5 * beacon_s + self.lag_s
            ]
            if beacon not in healthy or (answering and beacon not in answering):
                beacon, since_s = (answering or healthy)[0], now_s
            self._beacons[network] = (beacon, since_s)
            probes.append(Probe(beacon, None))
            if now_s - self._nics[beacon].tx_s > 2 * self._interval_s + self.lag_s:
                # Its own network does not hear it, maybe since it was plugged in elsewhere: another
                # one floods as well.
                deputy = max(healthy, key=lambda nic: self._nics[nic].tx_s)
                if deputy != beacon:
                    probes.append(Probe(deputy, None))
            for nic in nics:
                state = self._nics[nic]
                heard_s = max(state.beacon_s, since_s, state.since_s)
                placed = self._switch(nic) is not None
                if (
                    nic != beacon
                    and not placed
                    and state.healthy
                    and not self._is_flooded(state, now_s)
                    and now_s - heard_s > 3.5 * beacon_s + self.lag_s
                    and answered_s(beacon[0]) > heard_s + 2.2 * beacon_s
                    and answered_s(nic[0]) > heard_s + 2.5 * beacon_s
                ):
                    self._note(f"{self._label(nic)} is cut off from the rest of n{network}")
                    state.network = None
                    self._newest_s = now_s
                    self._drop_edges(nic)
        return probes

    # Liveness

    def _members(self) -> dict[int, list[NicId]]:
        """NICs of each network that can be asked, sorted."""
        found: dict[int, list[NicId]] = {}
        for nic in sorted(self._nics):
            state = self._nics[nic]
            if state.network is not None and state.usable:
                found.setdefault(state.network, []).append(nic)
        return found

    def _rings(self) -> dict[tuple[int, str | None], list[NicId]]:
        """NICs that probe each other: of one network, and of one switch where that is declared."""
        found: dict[tuple[int, str | None], list[NicId]] = {}
        for network, nics in self._members().items():
            for nic in nics:
                found.setdefault((network, self._switch(nic)), []).append(nic)
        return found

    def _ring_round(
        self, nics: list[NicId], now_s: float, interval_s: float, answered_s: Callable[[str], float]
    ) -> list[Probe]:
        if len(nics) < 2:
            return []
        healthy = [nic for nic in nics if self._nics[nic].healthy]
        probes = []
        ring = (
            list(zip(healthy, healthy[1:] + healthy[:1], strict=True)) if len(healthy) > 1 else []
        )
        for edge in ring:
            probes.append(Probe(*edge))
            heard_s = self._edges.setdefault(edge, now_s)
            if now_s - heard_s > 2.6 * interval_s + self.lag_s and edge not in self._inquiries:
                self._inquiries[edge] = _EdgeInquiry(now_s, self.settings.bursts, now_s)
        current = set(ring)
        members = set(nics)
        for edge in [edge for edge in self._edges if edge[0] in members and edge not in current]:
            del self._edges[edge]
            self._inquiries.pop(edge, None)
        for nic in nics:
            if not self._nics[nic].healthy:
                others = [other for other in healthy or nics if other != nic]
                flooded = any(self._is_flooded(self._nics[each], now_s) for each in nics)
                for other in self._some(others, 2):
                    probes += [Probe(nic, other), Probe(other, nic)]
                self._check_unhealthy(
                    nic, now_s, interval_s, -1e9 if flooded else answered_s(nic[0])
                )
        return probes

    def _check_unhealthy(
        self, nic: NicId, now_s: float, interval_s: float, answered_s: float
    ) -> None:
        """A NIC of which one direction is dead is out of the ring: its other direction is judged by
        its own probes.

        Silence counts up to what its host has answered last: who cannot be heard is not judged.
        """
        state = self._nics[nic]
        limit_s = 6 * interval_s + self.lag_s
        if state.tx_ok and answered_s - state.tx_s > limit_s:
            self._kill(nic, "tx")
        if state.rx_ok and answered_s - state.rx_s > limit_s:
            self._kill(nic, "rx")
        if now_s - state.tx_s > limit_s:
            state.tx_recovered = 0
        if now_s - state.rx_s > limit_s:
            state.rx_recovered = 0

    def _inquire(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        probes: list[Probe] = []
        rings = self._rings() if self._inquiries else {}
        healthy: dict[str, dict[NicId, _Nic]] = {}
        for nic, state in self._nics.items() if self._inquiries else ():
            if state.healthy:
                healthy.setdefault(nic[0], {})[nic] = state
        for edge, inquiry in list(self._inquiries.items()):
            sender, receiver = edge
            tx, rx = self._nics[sender], self._nics[receiver]
            if (
                self._edges.get(edge, -1e9) >= inquiry.start_s
                or tx.network != rx.network
                or tx.network is None
            ):
                del self._inquiries[edge]
                continue
            if inquiry.due(now_s):
                # After the bursts at the pace of the ring, up to the verdict: whom others still
                # reach has not moved.
                inquiry.burst_sent(
                    now_s, self.settings.burst_s if inquiry.bursts_left else self._interval_s
                )
                ring = rings.get((tx.network, self._switch(sender)), ())
                others = [nic for nic in ring if nic not in edge]
                probes.append(Probe(sender, receiver))
                probes += [Probe(sender, other) for other in self._some(others, 3)]
                probes += [Probe(other, receiver) for other in self._some(others, 3)]
            asked_s = inquiry.start_s + self.settings.burst_s
            counts = inquiry.proof.look(asked_s, now_s, sender[0], receiver[0], answered_s)
            if (
                not counts
                or inquiry.bursts_left
                or now_s < inquiry.start_s + self.settings.verdict_s + self.lag_s
            ):
                continue
            since_s = inquiry.start_s + self.settings.verdict_s / 2
            mute, deaf = tx.tx_s < inquiry.start_s, rx.rx_s < inquiry.start_s
            # A host that fell silent meanwhile was heard on its other NICs before: only what came
            # since then says that the probes should have come too.
            if now_s < inquiry.start_s + self.settings.patience_s + self.lag_s and (
                (mute and _others_silent(healthy, sender, "tx_s", since_s))
                or (deaf and _others_silent(healthy, receiver, "rx_s", since_s))
            ):
                continue
            del self._inquiries[edge]
            self._edges[edge] = now_s
            if self._is_flooded(rx, now_s):
                continue
            if mute:
                self._kill(sender, "tx")
            if deaf:
                self._kill(receiver, "rx")
        return probes

    def _kill(self, nic: NicId, direction: str) -> None:
        state = self._nics[nic]
        self.deaths += 1
        if direction == "tx":
            state.tx_ok, state.tx_recovered = False, 0
            self._note(f"{self._label(nic)}: nothing it sends arrives")
        else:
            state.rx_ok, state.rx_recovered = False, 0
            self._note(f"{self._label(nic)}: nothing arrives")

    def _some(self, nics: list[NicId], count: int) -> list[NicId]:
        """Up to `count` of `nics`, others every round."""
        start = self._round * count
        return [nics[(start + i) % len(nics)] for i in range(min(count, len(nics)))]

    def _forgive(self, now_s: float, late_s: float) -> None:
        """What was not heard up to now counts for nothing: it is the listener that was late.

        Silence of beacons goes on where it was: it takes seconds, and who is late all the time must
        find it, too.
        """
        for edge in self._edges:
            self._edges[edge] = now_s
        for state in self._nics.values():
            beacon_s = min(now_s, state.beacon_s + late_s)
            self._forgive_nic(state, now_s)
            state.beacon_s = beacon_s
        self._inquiries.clear()

    def _forgive_nic(self, state: _Nic, now_s: float) -> None:
        state.tx_s, state.rx_s = max(state.tx_s, now_s - 0.1), max(state.rx_s, now_s - 0.1)
        state.own_rx_s = max(state.own_rx_s, now_s - 0.1)
        state.beacon_s = max(state.beacon_s, now_s - self.settings.beacon_s)

    def _drop_edges(self, nic: NicId) -> None:
        for edge in [edge for edge in self._edges if nic in edge]:
            del self._edges[edge]
        for edge in [edge for edge in self._inquiries if nic in edge]:
            del self._inquiries[edge]

    def _note(self, text: str) -> None:
        self.events.append(text)
        self.changed = True


def _others_silent(
    healthy: dict[str, dict[NicId, _Nic]], nic: NicId, heard: str, since_s: float
) -> bool:
    """The host of `nic` has other healthy NICs, and none of them was heard (`tx_s` or `rx_s`)
    either.
    """
    others = [state for each, state in healthy.get(nic[0], {}).items() if each != nic]
    return bool(others) and all(getattr(state, heard) < since_s for state in others)
