# SPDX-License-Identifier: Apache-2.0
"""Learns from probe frames which NICs share a network, and which of them work.

* Ring: every NIC of a network sends probes to the next one, so n NICs cost n probes a round. (If
  all probed all, n hosts would cost n^2.)
* Inquiry: when an edge of the ring falls silent, its two ends exchange probes with other NICs. That
  tells a NIC that cannot send from one that cannot receive (edge_inquiry.py).
* Beacon: one NIC of each network floods a probe into it once a second or so. A NIC that hears it
  belongs to the network.
* Discovery: a NIC of which nothing is known waits for the beacons. If it hears none, it founds a
  network of its own by flooding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ri2n_sdn.contract.events import Event
from ri2n_sdn.discovery.edge_inquiry import EdgeInquiry, WiringSettings
from ri2n_sdn.discovery.moves import Moves, evidence_of
from ri2n_sdn.discovery.nic_state import Direction, NicState, Probe
from ri2n_sdn.fabric.model import NicId

__all__ = ["Probe", "Wiring", "WiringSettings"]


class Wiring:
    """The learned wiring.

    Pure: the caller gives the time, sends the probes that `tick` returns, and reports with `heard`
    those that arrived.

    `events` are for operators, `changed` is set with each change; the caller empties and resets
    them. `deaths` counts the directions of NICs that were taken for dead. `lag_s`, set by the
    caller, is how late reports of probes are at present.
    """

    def __init__(
        self,
        name: Callable[[NicId], str] = "{0[1]}".format,
        switch: Callable[[NicId], str | None] = lambda _: None,
    ) -> None:
        """Nothing is known at first; `name` is a NIC's name at its host, for `events`.

        `switch` gives the switch that a NIC is plugged into, where that is declared and its network
        has several switches. Such a NIC is judged only by other NICs of its switch, and it is not
        cut off for what happens between switches: `TreeLiveness` looks at that.
        """
        self.settings = WiringSettings()
        self._name = name
        self._switch = switch
        self.events: list[Event] = []
        self.changed = False
        self.deaths = 0
        self.lag_s = 0.0
        self._nics: dict[NicId, NicState] = {}
        # The networks and the faults of NICs that are not known yet, as an earlier controller knew
        # them.
        self._believed: dict[NicId, tuple[int, Collection[str]]] = {}
        # By network: the NIC that floods, and since when it is the one.
        self._beacons: dict[int, tuple[NicId, float]] = {}
        self._moves = Moves()
        # When a probe was last heard on each edge (sender, receiver).
        self._edges: dict[tuple[NicId, NicId], float] = {}
        self._inquiries: dict[tuple[NicId, NicId], EdgeInquiry] = {}
        # When a NIC without a network was last made known, and the last time that all networks
        # were asked for such NICs.
        self._newest_s = -1e9
        self._asked_networks_s = -1e9
        self._next_step_s = -1e9
        # The hosts whose floods the next step of discovery waits for, and when they were asked.
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
        """Every NIC that can be asked has a network."""
        return not any(nic.usable and nic.network is None for nic in self._nics.values())

    @property
    def hosts_under_test(self) -> set[str]:
        """Hosts that must answer an echo request before there is a verdict or a next step.

        The caller sends it after the probes. The hosts are at the ends of silent edges, or were
        asked to flood for NICs of which nothing is known.
        """
        return {nic[0] for edge in self._inquiries for nic in edge} | self._flooding

    def knows(self, nic: NicId) -> bool:
        """Whether the NIC was made known and its host is connected."""
        state = self._nics.get(nic)
        return state is not None and state.connected

    def network(self, nic: NicId) -> str | None:
        """The name of the NIC's network, such as `n1`; None when it is not known."""
        state = self._nics.get(nic)
        return None if state is None or state.network is None else f"n{state.network}"

    def alive(self, nic: NicId) -> tuple[bool, bool]:
        """(Whether what the NIC sends arrives, whether it receives); both for an unknown NIC."""
        state = self._nics.get(nic)
        return (True, True) if state is None else (state.tx_ok, state.rx_ok)

    # What happens

    def believe(
        self, networks: Mapping[NicId, str], faults: Mapping[NicId, Collection[str]]
    ) -> None:
        """Take these NICs to be in these networks, such as `n1`, when they are made known.

        `faults` are what does not work of a NIC: some of the words link, tx and rx. It is what an
        earlier controller knew. Probes find out what is wrong now, as they do when a NIC is plugged
        in elsewhere or works again. Other names are left out.
        """
        for nic, name in networks.items():
            if nic not in self._nics and name[:1] == "n" and name[1:].isdecimal():
                self._believed[nic] = int(name[1:]), faults.get(nic, ())

    def recall(self, nic: NicId, now_s: float) -> None:
        """A NIC that is believed to be in a network is there, and its host cannot be asked.

        Nothing happens when its network is not known, or when the NIC is.
        """
        if nic not in self._believed or nic in self._nics:
            return
        _, faults = self._believed[nic]
        self._nics[nic] = state = NicState("link" not in faults, False, now_s)
        self._join_believed(nic, state, now_s)
        self.changed = True

    def _join_believed(self, nic: NicId, state: NicState, now_s: float) -> None:
        """Take a NIC that has just been made known to be as it is believed to be."""
        network, faults = self._believed.pop(nic)
        state.join(network, now_s)
        for direction in ("tx", "rx"):
            if direction in faults:
                state.kill(direction)

    def doubt(self, nics: Collection[NicId]) -> None:
        """Believe nothing of these NICs any more."""
        for nic in nics:
            self._believed.pop(nic, None)

    def set_nic(self, nic: NicId, up: bool, now_s: float) -> None:
        """The NIC exists, its host is connected, and it has carrier when `up`.

        A NIC whose carrier comes back is on probation: a switch port may take seconds before it
        forwards. While a host was not connected, nothing could be heard of its NICs, so their
        silence counts only from now on.
        """
        state = self._nics.get(nic)
        if state is None:
            self._nics[nic] = state = NicState(up, True, now_s)
            if nic in self._believed:
                self._join_believed(nic, state, now_s)
            else:
                self._newest_s = now_s
            self.changed = True
            return
        if not state.connected:
            state.forgive_probes(now_s)
            state.beacon_s = max(state.beacon_s, now_s - self.settings.beacon_s)
            if state.network is None:
                self._newest_s = now_s
        if up and not state.up and state.network is not None:
            state.kill("tx")
            state.kill("rx")
        if up != state.up or not state.connected:
            self.changed = True
        state.up, state.connected = up, True
        self._drop_edges(nic)

    def remove_nic(self, nic: NicId) -> None:
        """The NIC is gone; nothing happens when it is not known."""
        self._believed.pop(nic, None)
        self._moves.gone(nic)
        if self._nics.pop(nic, None) is not None:
            self._drop_edges(nic)
            self.changed = True

    def disconnect(self, host: str) -> None:
        """The host cannot be asked any more.

        What is known of its NICs stays as it is, since they may well work.
        """
        for nic, state in self._nics.items():
            if nic[0] == host:
                state.connected = False
                self._drop_edges(nic)

    def heard(self, sender: NicId, receiver: NicId, flooded: bool, now_s: float) -> None:
        """`receiver` reports a probe of `sender`, which was `flooded` or sent to it alone."""
        tx, rx = self._nics.get(sender), self._nics.get(receiver)
        if tx is None or rx is None or sender == receiver:
            return
        if flooded:
            self._heard_flood(sender, tx, receiver, rx, now_s)
        if tx.network is None or tx.network != rx.network:
            return
        tx.tx_s = rx.rx_s = now_s
        self._edges[sender, receiver] = now_s
        if not tx.tx_ok:
            tx.tx_recovered += 1
            if tx.tx_recovered >= self.settings.recover_after:
                tx.tx_ok = True
                self._note("nic_sends_again", sender)
        if not rx.rx_ok:
            rx.rx_recovered += 1
            if rx.rx_recovered >= self.settings.recover_after:
                rx.rx_ok = True
                rx.beacon_s = now_s
                self._note("nic_receives_again", receiver)

    def strange(self, receiver: NicId, now_s: float) -> None:
        """`receiver` reports a probe that no NIC here has sent."""
        state = self._nics.get(receiver)
        if state is None:
            return
        if now_s - state.strange_since_s > 1.0:
            state.strange, state.strange_since_s = 0, now_s
        state.strange += 1
        if state.strange > self.settings.flood_per_s:
            state.flooded_s = now_s

    def flooded(self, now_s: float) -> list[NicId]:
        """NICs that receive so many probes of strangers that silence of others says nothing."""
        return [nic for nic, state in self._nics.items() if self._is_flooded(state, now_s)]

    def _is_flooded(self, state: NicState, now_s: float) -> bool:
        return now_s - state.flooded_s < self.settings.flood_s

    def tick(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        """Returns the probes to send now.

        The caller calls it every 25 ms or so, and sends an echo request to `hosts_under_test` after
        the probes. Every host is sent one at least twice a second. `answered_s(host)` is when the
        newest echo request that the host has answered was sent: the host has done all that it was
        asked before that. Silence does not count while a host does not answer, nor when this method
        was called too late.
        """
        last_s = now_s if self._last_tick_s is None else self._last_tick_s
        late_s = now_s - last_s - 2 * self.settings.probe_s
        self._last_tick_s = now_s
        if late_s > 0:
            self._forgive(now_s, late_s)
        probes = self._discover(now_s, answered_s)
        if now_s >= self._next_beacon_s or self._asks_who_moved(now_s):
            self._next_beacon_s, self._beacons_s = now_s + self.settings.beacon_s, now_s
            probes += self._beacon_round(now_s, answered_s)
        if now_s >= self._next_ring_s:
            rings = self._rings()
            # A controller that is behind asks for less: otherwise the reports that it reads would
            # all be too old to count.
            interval_s = max(
                self.settings.probe_s,
                self.lag_s / 4,
                sum(map(len, rings.values())) / self.settings.probes_per_s,
            )
            self._next_ring_s, self._interval_s = now_s + interval_s, interval_s
            self._round += 1
            for (_, switch), nics in rings.items():
                if switch is not None and len(nics) == 1:
                    # No other NIC of its switch could tell whether it works.
                    self._nics[nics[0]].tx_ok = self._nics[nics[0]].rx_ok = True
                probes += self._ring_round(nics, now_s, interval_s, answered_s)
        probes += self._inquire(now_s, answered_s)
        self._say_who_moved(now_s, answered_s)
        return probes

    # Discovery

    def _discover(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        """The floods that find the networks of NICs that have none yet, one step at a time."""
        without_network = sorted(
            nic for nic, state in self._nics.items() if state.usable and state.network is None
        )
        if not without_network:
            self._flooding.clear()
            return []
        if now_s < self._next_step_s or now_s < self._newest_s + self.settings.gather_s:
            return []
        if self._flooding:
            # A step waits until the floods of the one before are done. Without that, late reports
            # on a busy machine would cause more and more floods.
            late = any(answered_s(host) < self._flooded_s for host in self._flooding)
            if late and now_s < self._flooded_s + self.settings.patience_s + 2 * self.lag_s:
                return []
            self._flooding.clear()
            if self.lag_s > self.settings.step_s:
                self._next_step_s = now_s + self.lag_s
                return []
        self._next_step_s = now_s + self.settings.step_s
        probes = self._discovery_step(without_network, now_s, answered_s)
        self._flooding, self._flooded_s = {probe.sender[0] for probe in probes}, now_s
        return probes

    def _discovery_step(
        self, without_network: list[NicId], now_s: float, answered_s: Callable[[str], float]
    ) -> list[Probe]:
        """Flood the networks that are known; when that was done already, found one more.

        The founder floods its new network twice; every other NIC without a network that hears it
        joins.
        """
        if self._newest_s >= self._asked_networks_s and self._members():
            self._asked_networks_s = now_s
            return self._beacon_round(now_s, answered_s)
        founder = without_network[0]
        used = {state.network for state in self._nics.values()}
        used |= {network for network, _ in self._believed.values()}
        number = next(n for n in range(1, len(used) + 2) if n not in used)
        self._nics[founder].network = number
        self._moves.founded(founder)
        self._beacons[number] = (founder, now_s)
        self._asked_networks_s = now_s
        self.changed = True
        return [Probe(founder, None), Probe(founder, None)]

    def _heard_flood(
        self, sender: NicId, tx: NicState, receiver: NicId, rx: NicState, now_s: float
    ) -> None:
        """A flooded probe shows that both NICs are in one network now.

        If their networks differed so far, there are three explanations. The receiver has been
        plugged in elsewhere: it joins the sender's network. The sender has: it joins the receiver's
        network when it hears a beacon of that. Or the two networks have been connected: they are
        merged, but only after a second such beacon, since a NIC that has moved looks like that for
        a moment.

        A NIC that still hears its own network has not moved, and neither has one that its own
        network still hears. The sender's silence counts after a shorter time than the receiver's:
        the last probe before a cable was pulled may have been from either. When both are silent,
        the receiver may just have been waiting for the sender, until an inquiry has had others
        probe it: so it is given twice the time.
        """
        if tx.network is None:
            return
        self._moves.contact(sender, rx.network)
        if rx.network == tx.network:
            rx.conflicts = 0
            rx.beacon_s = now_s
            self._moves.met(sender)
            return
        if rx.network is None:
            self._join(receiver, rx, tx.network, now_s)
            return
        members = self._members()
        fresh_s, silent_s = 2 * self._interval_s + self.lag_s, 3 * self._interval_s + self.lag_s
        others = [
            nic for nic in members.get(tx.network, ()) if nic != sender and self._nics[nic].healthy
        ]
        sender_moved = bool(others) and now_s - tx.tx_s > fresh_s
        alone = len(members.get(rx.network, ())) <= 1
        if alone or not rx.rx_ok or now_s - rx.rx_s > (2 if sender_moved else 1) * silent_s:
            self._moves.left(receiver, rx.network, tx.network, now_s)
            self._join(receiver, rx, tx.network, now_s)
            return
        self._moves.contact(receiver, tx.network)
        if sender_moved:
            return
        # Two networks that have been connected are flooded once per round, for longer than it takes
        # to see that one of the two NICs has moved. Conflicts that are further apart than a round
        # do not add up. A beacon hears no flood of its own network, which would end the row.
        if now_s - rx.conflict_s > 1.5 * self.settings.beacon_s + self.lag_s:
            rx.conflicts, rx.conflict_since_s = 0, now_s
        rx.conflict_s = now_s
        rx.conflicts += 1
        if rx.conflicts >= 2 and now_s - rx.conflict_since_s > silent_s:
            kept, merged = sorted((tx.network, rx.network))
            networks = {"other": f"n{merged}", "network": f"n{kept}"}
            self._note("networks_joined", receiver, **networks)
            for nic, state in self._nics.items():
                if state.network == merged:
                    self._join(nic, state, kept, now_s)
            self._moves.merged(kept, merged)
            self._beacons.pop(merged, None)

    def _say_who_moved(self, now_s: float, answered_s: Callable[[str], float]) -> None:
        """Say which NICs have moved, once that is proven (moves.py)."""
        span_s = 2 * self.settings.beacon_s + self.lag_s
        evidence = evidence_of(self._nics, answered_s, span_s)
        for nic, former in self._moves.proven(now_s, span_s, *evidence):
            network = f"n{self._nics[nic].network}"
            self._note("nic_moved", nic, before=f"n{former}", network=network)

    def _asks_who_moved(self, now_s: float) -> bool:
        """Whether to flood all networks early: a silent NIC may have been plugged in elsewhere.

        It is asked after the first burst of an inquiry, and not more often than every quarter of
        `beacon_s`, or than `probes_per_s` allows when every NIC reports every flood.
        """
        spaced_s = max(self.settings.beacon_s / 4, len(self._nics) / self.settings.probes_per_s)
        return now_s > self._beacons_s + spaced_s and any(
            now_s > inquiry.start_s + self.settings.burst_s for inquiry in self._inquiries.values()
        )

    def _join(self, nic: NicId, state: NicState, network: int, now_s: float) -> None:
        state.join(network, now_s)
        self._moves.met(nic)
        self._drop_edges(nic)
        self.changed = True

    def _beacon_round(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        """Flood each network, and cut off the NICs that hear nothing of it.

        A NIC that no longer hears its network's beacon is in another network now, or in none. But a
        host that has lost its connection to the controller neither floods nor reports, and that
        must not be taken for a network that has fallen apart. So a NIC is cut off only when the
        beacon's host has answered an echo request since the NIC heard it last (it has flooded), and
        the NIC's own host has answered after that (it would have reported). A host that does not
        answer is no beacon.
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
                # The network does not hear its beacon, which may have been plugged in elsewhere:
                # another NIC floods as well.
                deputy = max(healthy, key=lambda nic: self._nics[nic].tx_s)
                if deputy != beacon:
                    probes.append(Probe(deputy, None))
            for nic in nics:
                state = self._nics[nic]
                heard_s = max(state.beacon_s, since_s, state.since_s)
                declared = self._switch(nic) is not None
                if (
                    nic != beacon
                    and not declared
                    and state.healthy
                    and not self._is_flooded(state, now_s)
                    and now_s - heard_s > 3.5 * beacon_s + self.lag_s
                    and answered_s(beacon[0]) > heard_s + 2.2 * beacon_s
                    and answered_s(nic[0]) > heard_s + 2.5 * beacon_s
                ):
                    self._note("nic_cut_off", nic, network=f"n{network}")
                    state.network = None
                    self._newest_s = now_s
                    self._drop_edges(nic)
        return probes

    # Liveness

    def _members(self) -> dict[int, list[NicId]]:
        """By network, its NICs that can be asked, sorted."""
        members: dict[int, list[NicId]] = {}
        for nic in sorted(self._nics):
            state = self._nics[nic]
            if state.network is not None and state.usable:
                members.setdefault(state.network, []).append(nic)
        return members

    def _rings(self) -> dict[tuple[int, str | None], list[NicId]]:
        """By network, and by switch where that is declared: the NICs that probe each other."""
        rings: dict[tuple[int, str | None], list[NicId]] = {}
        for network, nics in self._members().items():
            for nic in nics:
                rings.setdefault((network, self._switch(nic)), []).append(nic)
        return rings

    def _ring_round(
        self, nics: list[NicId], now_s: float, interval_s: float, answered_s: Callable[[str], float]
    ) -> list[Probe]:
        """One round of a ring: each healthy NIC probes the next one; silence starts an inquiry.

        A NIC with a dead direction is out of the ring. It exchanges probes with two others a round,
        other ones each time, which show when it works again.
        """
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
                self._inquiries[edge] = EdgeInquiry(*edge, now_s, self.settings)
        current = set(ring)
        members = set(nics)
        for edge in [edge for edge in self._edges if edge[0] in members and edge not in current]:
            del self._edges[edge]
            self._inquiries.pop(edge, None)
        for nic in nics:
            if not self._nics[nic].healthy:
                others = [other for other in healthy or nics if other != nic]
                flooded = any(self._is_flooded(self._nics[member], now_s) for member in nics)
                for other in self._some(others, 2):
                    probes += [Probe(nic, other), Probe(other, nic)]
                self._check_unhealthy(
                    nic, now_s, interval_s, -1e9 if flooded else answered_s(nic[0])
                )
        return probes

    def _check_unhealthy(
        self, nic: NicId, now_s: float, interval_s: float, answered_s: float
    ) -> None:
        """Judge both directions of a NIC that is out of the ring by the probes of `_ring_round`.

        One direction of it is dead; the other may die too. Silence counts up to the echo request
        that its host has answered last: a NIC whose host cannot be heard is not judged.
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
        """Send the probes of all inquiries (edge_inquiry.py), and act on their verdicts.

        An inquiry ends without a verdict when its edge is heard again, or when its ends are no
        longer in one network.
        """
        if not self._inquiries:
            return []
        probes: list[Probe] = []
        rings = self._rings()
        healthy: dict[str, dict[NicId, NicState]] = {}
        for nic, state in self._nics.items():
            if state.healthy:
                healthy.setdefault(nic[0], {})[nic] = state
        for edge, inquiry in list(self._inquiries.items()):
            tx, rx = self._nics[inquiry.sender], self._nics[inquiry.receiver]
            heard = self._edges.get(edge, -1e9) >= inquiry.start_s
            if heard or tx.network is None or tx.network != rx.network:
                del self._inquiries[edge]
                continue
            if inquiry.due(now_s):
                ring = rings.get((tx.network, self._switch(inquiry.sender)), ())
                others = self._some([nic for nic in ring if nic not in edge], 3)
                probes += inquiry.burst(others, now_s, self._interval_s)
            dead = inquiry.verdict(healthy, tx, rx, now_s, self.lag_s, answered_s)
            if dead is None:
                continue
            del self._inquiries[edge]
            self._edges[edge] = now_s
            if not self._is_flooded(rx, now_s):
                for nic, direction in dead:
                    self._kill(nic, direction)
        return probes

    def _kill(self, nic: NicId, direction: Direction) -> None:
        self._nics[nic].kill(direction)
        self.deaths += 1
        self._note("nic_sends_nothing" if direction == "tx" else "nic_receives_nothing", nic)

    def _some(self, nics: list[NicId], count: int) -> list[NicId]:
        """Up to `count` of `nics`, other ones every round."""
        start = self._round * count
        return [nics[(start + i) % len(nics)] for i in range(min(count, len(nics)))]

    def _forgive(self, now_s: float, late_s: float) -> None:
        """Probes that were not heard up to now do not count: it is this loop that was late.

        Silence of beacons is only set back by `late_s`. It is noticed after seconds, and a
        controller that is late all the time must notice it, too.
        """
        for edge in self._edges:
            self._edges[edge] = now_s
        for state in self._nics.values():
            state.forgive_probes(now_s)
            state.beacon_s = min(now_s, state.beacon_s + late_s)
        self._inquiries.clear()

    def _drop_edges(self, nic: NicId) -> None:
        for edge in [edge for edge in self._edges if nic in edge]:
            del self._edges[edge]
        for edge in [edge for edge in self._inquiries if nic in edge]:
            del self._inquiries[edge]

    def _note(self, code: str, nic: NicId, **args: str) -> None:
        self.events.append(Event(code, {"host": nic[0], "nic": self._name(nic)}, args))
        self.changed = True
