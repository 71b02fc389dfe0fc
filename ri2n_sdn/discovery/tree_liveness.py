"""Which ways through the switches work in which VLAN: learned from probes, at a cost that grows
with the leaves.

In every tree the leaves form a ring in depth-first order: their probes cross each directed link
between leaves once. Each leaf is represented by one of its NICs, by another one every round. A
probe that is lost is repeated; when that is lost too, an inquiry sends more of them over other
ways: what arrives exonerates all that it crossed, and what is left of the ways of the silent ones
is dead. Probes go on over what is dead, and three that arrive bring it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ri2n_sdn.discovery.tree_inquiry import LivenessSettings, TreeInquiry
from ri2n_sdn.discovery.tree_state import DEAD_COST, Direction, End, Port, TreeProbe, TreeState
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.vlan.trees import Trees

__all__ = ["Direction", "LivenessSettings", "TreeLiveness", "TreeProbe"]


@dataclass
class _Pending:
    """A ring probe that was not heard yet."""

    sent_s: float
    tries: int = 1


@dataclass
class _Dead:
    """A link or port that is dead:

    how many probes over it were heard in a row, and the newest of them.
    """

    since_s: float
    heard_s: float = -1e9
    count: int = 0
    probe: TreeProbe | None = None


class TreeLiveness:
    """What works of the trees. Pure: the caller gives the time, sends the probes of `tick` and
    reports those `heard`.

    A NIC of which nothing arrives in any VLAN says nothing about the trees: that is for wiring to
    find.
    """

    def __init__(
        self,
        trees: Trees,
        settings: LivenessSettings | None = None,
        label: Callable[[NicId], str] = "{0[0]}:{0[1]}".format,
    ) -> None:
        """`label` names a NIC in `events`.

        `lag_s`, set by the caller, is how late probes are reported at present.
        """
        self.trees = trees
        self.settings = settings or LivenessSettings()
        self.events: list[str] = []
        self.changed = False
        self.lag_s = 0.0
        self._label = label
        self._known = TreeState(trees)
        self._dead: dict[tuple[int, int], _Dead] = {}
        self._dead_ports: dict[Port, _Dead] = {}
        self._covers: list[list[tuple[int, int]]] = [[] for _ in trees.vlans]
        self._stale: set[int] = set()
        self._ring: list[tuple[int, int, int]] = []
        self._place = 0
        self._round = 0
        self._pending: dict[TreeProbe, _Pending] = {}
        self._waiting: deque[tuple[float, TreeProbe]] = deque()
        self._inquiries: dict[int, TreeInquiry] = {}
        self._told: dict[str, str] = {}
        self._untold: tuple[float, float] | None = (
            None  # since when, and until when there is something to tell
        )
        self._next_ring_s = self._next_recover_s = -1e9
        self._last_tick_s: float | None = None

    # What is known

    @property
    def dead(self) -> frozenset[tuple[int, int]]:
        """(tree, directed link) of all that is dead."""
        return frozenset(self._dead)

    @property
    def dead_ports(self) -> frozenset[Port]:
        """(NIC, tree, direction):

        what it sends in that VLAN, or what is sent to it, does not pass its own leaf.
        """
        return frozenset(self._dead_ports)

    @property
    def interval_s(self) -> float:
        """How long a round of the ring takes."""
        return max(self.settings.probe_s, len(self._ring) / self.settings.probes_per_s)

    @property
    def faults(self) -> list[str]:
        """What is dead, by its cause, as the last events said."""
        return [f"{element}: {text}" for element, text in sorted(self._told.items())]

    @property
    def hosts_under_test(self) -> set[str]:
        """Hosts that inquiries ask:

        they must answer echo requests, sent after the probes, for a verdict.
        """
        return {
            nic[0]
            for inquiry in self._inquiries.values()
            for probe, asked in inquiry.asked.items()
            if not asked.heard and not asked.proof.holds
            for nic in (probe.sender, probe.target)
        }

    def port_alive(self, nic: NicId, tree: int) -> tuple[bool, bool]:
        """(what the NIC sends in that VLAN passes its leaf, what is sent to it does)."""
        return self._known.port_alive(nic, tree)

    def way_alive(self, tree: int, a: int, b: int) -> bool:
        """The tree has a way from leaf a to leaf b and nothing on it is dead.

        Ask again for the way back.
        """
        return self._known.way_alive(tree, a, b)

    # What happens

    def set_nics(self, leaf_of: Mapping[NicId, int], usable: Collection[NicId]) -> None:
        """All NICs with the leaf each is plugged into, and those of them that work and whose
        host can be asked.
        """
        usable = frozenset(nic for nic in usable if nic in leaf_of)
        if usable == self._known.usable and leaf_of == self._known.leaf_of:
            return
        gone = {nic for nic, leaf in self._known.leaf_of.items() if leaf_of.get(nic) != leaf}
        self._known.set_nics(leaf_of, usable)
        for port in [port for port in self._dead_ports if port[0] in gone]:
            del self._dead_ports[port]
            self._turned(port[1], self._last_tick_s or 0.0)
        self._pending = {
            probe: state for probe, state in self._pending.items() if self._known.can(probe)
        }
        for inquiry in self._inquiries.values():
            inquiry.forget(self._known)
        self._stale.update(range(self.trees.count))

    def heard(self, sender: NicId, receiver: NicId, tree: int, now_s: float) -> None:
        """`receiver` reports a probe of `sender` that came in that tree's VLAN."""
        a, b = self._known.leaf_of.get(sender), self._known.leaf_of.get(receiver)
        if a is None or b is None or sender == receiver or not 0 <= tree < self.trees.count:
            return
        ways = self._known.of(tree)
        if a != b and not ways.joined(a, b):
            return
        probe = TreeProbe(sender, receiver, tree)
        self._pending.pop(probe, None)
        dead = self._known.dead_in(tree)
        way = ways.way(a, b) if dead or tree in self._inquiries else ()
        for inquiry in self._inquiries.values():
            inquiry.heard(probe, way, now_s)
        links = [
            link
            for link in way
            if link in dead and self._recovers(self._dead[tree, link], probe, now_s)
        ]
        ports: list[Port] = [(nic, tree, direction) for nic, direction in probe.ends]
        ports = [
            port
            for port in ports
            if port in self._dead_ports and self._recovers(self._dead_ports[port], probe, now_s)
        ]
        for link in links:
            del self._dead[tree, link]
        for port in ports:
            del self._dead_ports[port]
        if links or ports:
            self._turned(tree, now_s)

    def tick(self, now_s: float, answered_s: Callable[[str], float]) -> list[TreeProbe]:
        """Probes to send now; call it every 25 ms or so, and send `hosts_under_test` an echo
        request after them.

        `answered_s(host)` is when the newest echo request that the host has answered was sent, as
        for Wiring.tick. Silence counts for nothing while an end's host does not answer, or while
        this loop was not run in time.
        """
        settings = self.settings
        if self._last_tick_s is not None and now_s - self._last_tick_s > 2 * settings.probe_s:
            self._forgive()
        self._last_tick_s = now_s
        probes: list[TreeProbe] = []
        if now_s >= self._next_ring_s - 1e-6:
            self._next_ring_s = now_s + settings.probe_s
            probes += self._ring_slice(now_s)
        probes += self._repeat(now_s)
        if now_s >= self._next_recover_s - 1e-6 and (self._dead or self._dead_ports):
            self._next_recover_s = now_s + self._recover_interval_s()
            probes += self._recovery(now_s)
        probes += self._inquire(now_s, answered_s)
        if self._untold is not None:
            # What has one cause is found and recovers in pieces: wait for the others.
            first_s, last_s = self._untold
            quiet = not self._inquiries and now_s >= last_s + max(
                settings.recover_s, self.interval_s / 4
            )
            if quiet or now_s > first_s + max(settings.patience_s, 2 * self.interval_s):
                self._tell()
        return probes

    # The ring

    def _ring_slice(self, now_s: float) -> list[TreeProbe]:
        """The next probes of the round: all of it, or as many as `probes_per_s` allows."""
        if self._stale:
            for tree in self._stale:
                self._covers[tree] = self._cover(tree)
            self._stale.clear()
            self._ring = [(tree, a, b) for tree, cover in enumerate(self._covers) for a, b in cover]
        settings, probes = self.settings, []
        for _ in range(min(len(self._ring), max(1, int(settings.probes_per_s * settings.probe_s)))):
            if self._place >= len(self._ring):
                self._place = 0
                self._round += 1
            tree, a, b = self._ring[self._place]
            self._place += 1
            senders, receivers = self._known.ends(tree, a, "tx"), self._known.ends(tree, b, "rx")
            if not senders or not receivers:
                continue
            turn = self._round + tree
            probe = TreeProbe(
                senders[turn % len(senders)], receivers[(turn + (a == b)) % len(receivers)], tree
            )
            if probe.sender == probe.target:
                continue
            probes.append(probe)
            if probe not in self._pending:
                self._pending[probe] = _Pending(now_s)
                self._waiting.append((now_s, probe))
        return probes

    def _cover(self, tree: int) -> list[tuple[int, int]]:
        """Pairs of leaves whose live ways cross every link that a live way crosses:

        the ring when nothing is dead.
        """
        ways, dead = self._known.of(tree), self._known.dead_in(tree)
        sources, sinks = self._known.leaves(tree, "tx"), self._known.leaves(tree, "rx")
        ring = ways.ring(sources & sinks)
        alone = {leaf for leaf in sources & sinks if ways.joined(leaf, leaf)} - {a for a, _ in ring}
        pairs = [(leaf, leaf) for leaf in sorted(alone) if len(self._known.nics_at[leaf]) > 1]
        if not dead and sources == sinks:
            return ring + pairs
        covered: set[int] = set()
        wanted: set[int] = set()
        for a, b in ways.ring(sources | sinks):
            way = ways.way(a, b)
            wanted.update(way)
            if a in sources and b in sinks and dead.isdisjoint(way):
                pairs.append((a, b))
                covered.update(way)
        costs = dict.fromkeys(dead, DEAD_COST)
        left = wanted - covered - dead
        for link, (a, b, cost) in sorted(ways.crossings(left, sources, sinks, costs).items()):
            if cost == 0 and link not in covered:
                pairs.append((a, b))
                covered.update(ways.way(a, b))
        return pairs

    def _repeat(self, now_s: float) -> list[TreeProbe]:
        """Repeat probes that were lost once; those that were lost twice are looked into."""
        probes = []
        late_s = now_s - self.settings.wait_s - self.lag_s
        silent: dict[int, list[TreeProbe]] = {}
        while self._waiting and self._waiting[0][0] <= late_s:
            sent_s, probe = self._waiting.popleft()
            state = self._pending.get(probe)
            if state is None or state.sent_s != sent_s:
                continue
            if not self._known.explained(probe):
                inquiry = self._inquiries.get(probe.tree)
                if state.tries < 2 or (inquiry is not None and inquiry.turn > 1):
                    state.tries += 1
                    state.sent_s = now_s
                    self._waiting.append((now_s, probe))
                    probes.append(probe)
                    continue
                silent.setdefault(probe.tree, []).append(probe)
            del self._pending[probe]
        for tree, lost in silent.items():
            inquiry = self._inquiries.setdefault(tree, TreeInquiry(tree, now_s, self.settings))
            inquiry.silent += [probe for probe in lost if probe not in inquiry.silent]
        return probes

    # Inquiries

    def _inquire(self, now_s: float, answered_s: Callable[[str], float]) -> list[TreeProbe]:
        settings = self.settings
        probes: list[TreeProbe] = []
        calm = [tree for tree in range(self.trees.count) if tree not in self._inquiries]
        for inquiry in list(self._inquiries.values()):
            probes += inquiry.step(
                self._known, now_s, self.lag_s, calm, settings.probes_per_tick - len(probes)
            )
            if inquiry.over(now_s, self.lag_s, answered_s):
                del self._inquiries[inquiry.tree]
                self._bury(*inquiry.verdict(self._known, self.lag_s), inquiry.tree, now_s)
        return probes

    def _bury(
        self, links: Collection[int], ports: Collection[End], tree: int, now_s: float
    ) -> None:
        """An inquiry found these dead."""
        self._dead.update({(tree, link): _Dead(now_s) for link in links})
        self._dead_ports.update({(nic, tree, direction): _Dead(now_s) for nic, direction in ports})
        if links or ports:
            self._turned(tree, now_s)

    # What is dead

    def _recover_interval_s(self) -> float:
        """Probes over what is dead are no more than a quarter of `probes_per_s`."""
        count = len(self._dead) + len(self._dead_ports)
        return max(self.settings.recover_s, 4 * count / self.settings.probes_per_s)

    def _recovery(self, now_s: float) -> list[TreeProbe]:
        """A probe over each thing that is dead:

        the one that was heard last, or over another way each time.
        """
        interval_s = self._recover_interval_s()
        turn = int(now_s / interval_s)
        fresh_s = now_s - 1.5 * interval_s - self.lag_s
        found: dict[TreeProbe, None] = {}
        wanted: dict[int, list[int]] = {}
        for (tree, link), state in self._dead.items():
            if (
                state.probe is not None
                and state.heard_s >= fresh_s
                and self._known.can(state.probe)
            ):
                found[state.probe] = None
            else:
                wanted.setdefault(tree, []).append(link)
        for tree, links in wanted.items():
            costs = dict.fromkeys(self._known.dead_in(tree), 1)
            sources, sinks = self._known.leaves(tree, "tx"), self._known.leaves(tree, "rx")
            for a, b, _ in (
                self._known.of(tree).crossings(links, sources, sinks, costs, turn).values()
            ):
                senders, receivers = (
                    self._known.ends(tree, a, "tx"),
                    self._known.ends(tree, b, "rx"),
                )
                found[
                    TreeProbe(senders[turn % len(senders)], receivers[turn % len(receivers)], tree)
                ] = None
        for (nic, tree, direction), state in self._dead_ports.items():
            if (
                state.probe is not None
                and state.heard_s >= fresh_s
                and self._known.can(state.probe)
            ):
                found[state.probe] = None
            elif nic in self._known.usable:
                other = self._partner(nic, tree, direction, turn)
                if other is not None:
                    found[
                        TreeProbe(nic, other, tree)
                        if direction == "tx"
                        else TreeProbe(other, nic, tree)
                    ] = None
        return list(found)

    def _partner(self, nic: NicId, tree: int, direction: Direction, turn: int) -> NicId | None:
        """A NIC that works in the tree, of the same leaf where there is one, to try the port of
        another one with.
        """
        leaf, back = self._known.leaf_of[nic], direction == "rx"
        far: Direction = "tx" if back else "rx"
        others = [other for other in self._known.ends(tree, leaf, far) if other != nic]
        if not others:
            for there in sorted(self._known.leaves(tree, far) - {leaf}):
                if self.way_alive(tree, *((there, leaf) if back else (leaf, there))):
                    others += self._known.ends(tree, there, far)[:1]
        return others[turn % len(others)] if others else None

    def _recovers(self, state: _Dead, probe: TreeProbe, now_s: float) -> bool:
        """One more was heard; those of the same round count once."""
        interval_s = self._recover_interval_s()
        gap_s = now_s - state.heard_s
        if gap_s < interval_s / 2 or now_s < state.since_s + self.lag_s:
            return False
        state.count = state.count + 1 if gap_s <= 2.5 * interval_s + self.lag_s else 1
        state.heard_s, state.probe = now_s, probe
        return state.count >= self.settings.recover_after

    def _turned(self, tree: int, now_s: float) -> None:
        """Something died or came back."""
        self._known.set_dead(self._dead, self._dead_ports)
        self._stale.add(tree)
        self.changed = True
        self._untold = (now_s if self._untold is None else self._untold[0], now_s)

    def _tell(self) -> None:
        """Put into words what is different from what was told before."""
        self._untold = None
        now = self._known.in_words(self._label)
        for element in sorted(self._told.keys() - now.keys()):
            self.events.append(f"{element}: works again")
        for element, text in now.items():
            if self._told.get(element) != text:
                self.events.append(f"{element}: {text}")
        self._told = now

    def _forgive(self) -> None:
        """What was not heard up to now counts for nothing: it is the listener that was late."""
        self._pending.clear()
        self._waiting.clear()
        self._inquiries.clear()
