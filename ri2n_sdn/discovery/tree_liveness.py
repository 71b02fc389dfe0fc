# SPDX-License-Identifier: Apache-2.0
"""Learns from probes which paths through the switches work in which VLAN.

* Ring: in every tree the leaves form a ring in depth-first order, and each leaf sends a probe to
  the next. These probes cross each directed link between leaves exactly once, so a round costs one
  probe for each leaf and tree. (If all leaves probed all, it would cost the square.) One NIC speaks
  for its leaf, another one every round.
* Inquiry: a lost probe is repeated; when the repeat is lost too, an inquiry finds the links and
  ports that are dead (tree_inquiry.py).
* Recovery: probes go on over everything that is dead. Three that arrive in a row bring it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ri2n_sdn.contract.events import Event
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.discovery.nic_state import Direction
from ri2n_sdn.discovery.tree_inquiry import LivenessSettings, TreeInquiry
from ri2n_sdn.discovery.tree_state import DEAD_COST, Element, Port, TreeProbe, TreeState
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.vlan.trees import Trees

__all__ = ["LivenessSettings", "TreeLiveness", "TreeProbe"]

# The event that a part works again, by the first key of its subject.
_WORKS_AGAIN = {
    "switch": "switch_works_again",
    "cable": "cable_works_again",
    "host": "nic_vlans_work_again",
}


@dataclass
class _Pending:
    """A ring probe that was not heard yet."""

    sent_s: float
    tries: int = 1


@dataclass
class _Dead:
    """A link or port that is dead: how many probes over it were heard in a row, and the last."""

    since_s: float
    heard_s: float = -1e9
    count: int = 0
    probe: TreeProbe | None = None


class TreeLiveness:
    """What works of the trees.

    Pure: the caller gives the time, sends the probes that `tick` returns, and reports with `heard`
    those that arrived. `events` are for operators, `changed` is set with each change; the
    caller empties and resets them. `lag_s`, set by the caller, is how late reports of probes are.
    `state` is what is known of NICs and of what is dead.

    A NIC that is heard in no VLAN says nothing about the trees: `Wiring` finds such NICs.
    """

    def __init__(
        self,
        trees: Trees,
        settings: LivenessSettings | None = None,
        name: Callable[[NicId], str] = "{0[1]}".format,
    ) -> None:
        """Nothing is dead at first, and there are no NICs; `name` is a NIC's name at its host."""
        self.trees = trees
        self.settings = settings or LivenessSettings()
        self.events: list[Event] = []
        self.changed = False
        self.lag_s = 0.0
        self._name = name
        self.state = TreeState(trees)
        self._dead: dict[tuple[int, int], _Dead] = {}
        self._dead_ports: dict[Port, _Dead] = {}
        # By tree: the pairs of leaves that probe each other (`_cover`), and the trees for which
        # they have to be computed anew.
        self._covers: list[list[tuple[int, int]]] = [[] for _ in trees.vlans]
        self._stale: set[int] = set()
        # All (tree, leaf, leaf) of a round, and where the round has got to.
        self._ring: list[tuple[int, int, int]] = []
        self._place = 0
        self._round = 0
        # Ring probes that were not heard yet, and the order in which they were sent.
        self._pending: dict[TreeProbe, _Pending] = {}
        self._waiting: deque[tuple[float, TreeProbe]] = deque()
        self._inquiries: dict[int, TreeInquiry] = {}
        # What the last events said, by element; and when the first and the last of the changes
        # happened that no event has reported yet.
        self._reported: dict[Element, list[Problem]] = {}
        self._unreported: tuple[float, float] | None = None
        self._next_ring_s = self._next_recover_s = -1e9
        self._last_tick_s: float | None = None

    # What is known

    @property
    def dead(self) -> frozenset[tuple[int, int]]:
        """Every dead (tree, directed link)."""
        return frozenset(self._dead)

    @property
    def dead_ports(self) -> frozenset[Port]:
        """Every dead (NIC, tree, direction).

        What the NIC sends in that VLAN ("tx"), or what is sent to it ("rx"), does not pass its own
        leaf.
        """
        return frozenset(self._dead_ports)

    @property
    def interval_s(self) -> float:
        """How many seconds a round of the ring takes."""
        return max(self.settings.probe_s, len(self._ring) / self.settings.probes_per_s)

    @property
    def problems(self) -> list[Problem]:
        """What is dead, by its cause, as the last events said."""
        return [each for key in sorted(self._reported) for each in self._reported[key]]

    @property
    def hosts_under_test(self) -> set[str]:
        """Hosts that must answer an echo request before there is a verdict (`tick`)."""
        return {
            nic[0]
            for inquiry in self._inquiries.values()
            for probe, asked in inquiry.asked.items()
            if not asked.heard and not asked.proof.holds
            for nic in (probe.sender, probe.target)
        }

    # What happens

    def set_nics(self, leaf_of: Mapping[NicId, int], usable: Collection[NicId]) -> None:
        """The leaf that each NIC is plugged into, and the NICs that work and can be asked."""
        usable = frozenset(nic for nic in usable if nic in leaf_of)
        if usable == self.state.usable and leaf_of == self.state.leaf_of:
            return
        gone = {nic for nic, leaf in self.state.leaf_of.items() if leaf_of.get(nic) != leaf}
        self.state.set_nics(leaf_of, usable)
        for port in [port for port in self._dead_ports if port[0] in gone]:
            del self._dead_ports[port]
            self._changed_in(port[1], self._last_tick_s or 0.0)
        self._pending = {
            probe: state for probe, state in self._pending.items() if self.state.can(probe)
        }
        for inquiry in self._inquiries.values():
            inquiry.forget(self.state)
        self._stale.update(range(self.trees.count))

    def heard(self, sender: NicId, receiver: NicId, tree: int, now_s: float) -> None:
        """`receiver` reports a probe of `sender` that it received in that tree's VLAN."""
        a, b = self.state.leaf_of.get(sender), self.state.leaf_of.get(receiver)
        if a is None or b is None or sender == receiver or not 0 <= tree < self.trees.count:
            return
        paths = self.state.paths(tree)
        if a != b and not paths.joined(a, b):
            return
        probe = TreeProbe(sender, receiver, tree)
        self._pending.pop(probe, None)
        dead = self.state.dead_in(tree)
        path = paths.path(a, b) if dead or tree in self._inquiries else ()
        for inquiry in self._inquiries.values():
            inquiry.heard(probe, path, now_s)
        links = [
            link
            for link in path
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
            self._changed_in(tree, now_s)

    def tick(self, now_s: float, answered_s: Callable[[str], float]) -> list[TreeProbe]:
        """Returns the probes to send now.

        The caller calls it every 25 ms or so, and sends an echo request to `hosts_under_test` after
        the probes. `answered_s(host)` is when the newest echo request that the host has answered
        was sent, as for `Wiring.tick`. Silence does not count while the host of an end does not
        answer, nor when this method was called too late.
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
        if self._unreported is not None:
            # Things with one cause are found, and recover, one after another. So nothing is
            # reported until all of them are known; otherwise a dead switch would be reported as
            # many dead cables.
            first_s, last_s = self._unreported
            quiet_s = last_s + max(settings.recover_s, self.interval_s / 4)
            quiet = not self._inquiries and now_s >= quiet_s
            if quiet or now_s > first_s + max(settings.patience_s, 2 * self.interval_s):
                self._report()
        return probes

    # The ring

    def _ring_slice(self, now_s: float) -> list[TreeProbe]:
        """The next probes of the round: all of them, or as many as `probes_per_s` allows."""
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
            if not self.state.ends(tree, a, "tx") or not self.state.ends(tree, b, "rx"):
                continue
            probe = self._probe(tree, a, b, self._round + tree)
            if probe.sender == probe.target:
                continue
            probes.append(probe)
            if probe not in self._pending:
                self._pending[probe] = _Pending(now_s)
                self._waiting.append((now_s, probe))
        return probes

    def _probe(self, tree: int, a: int, b: int, turn: int) -> TreeProbe:
        """A probe from a NIC of leaf a to one of leaf b, other ones each `turn`."""
        senders, receivers = self.state.ends(tree, a, "tx"), self.state.ends(tree, b, "rx")
        target = receivers[(turn + (a == b)) % len(receivers)]
        return TreeProbe(senders[turn % len(senders)], target, tree)

    def _cover(self, tree: int) -> list[tuple[int, int]]:
        """Pairs of leaves whose live paths cross every link that any live path crosses.

        When nothing is dead, that is the ring. A ring path over a dead link says nothing about the
        other links that it crosses, so pairs are added whose paths cross those links and no dead
        one. Two NICs of a leaf that is alone in its tree probe each other.
        """
        paths, dead = self.state.paths(tree), self.state.dead_in(tree)
        sources, sinks = self.state.leaves(tree, "tx"), self.state.leaves(tree, "rx")
        ring = paths.ring(sources & sinks)
        in_tree = {leaf for leaf in sources & sinks if paths.joined(leaf, leaf)}
        alone = in_tree.difference(a for a, _ in ring)
        pairs = [(leaf, leaf) for leaf in sorted(alone) if len(self.state.nics_at[leaf]) > 1]
        if not dead and sources == sinks:
            return ring + pairs
        covered: set[int] = set()
        wanted: set[int] = set()
        for a, b in paths.ring(sources | sinks):
            path = paths.path(a, b)
            wanted.update(path)
            if a in sources and b in sinks and dead.isdisjoint(path):
                pairs.append((a, b))
                covered.update(path)
        costs = dict.fromkeys(dead, DEAD_COST)
        left = wanted - covered - dead
        for link, (a, b, cost) in sorted(paths.crossings(left, sources, sinks, costs).items()):
            if cost == 0 and link not in covered:
                pairs.append((a, b))
                covered.update(paths.path(a, b))
        return pairs

    def _repeat(self, now_s: float) -> list[TreeProbe]:
        """Repeat the probes that were lost once; begin inquiries into those that were lost twice.

        One loss may be chance, and an inquiry costs many probes.
        """
        probes = []
        late_s = now_s - self.settings.wait_s - self.lag_s
        silent: dict[int, list[TreeProbe]] = {}
        while self._waiting and self._waiting[0][0] <= late_s:
            sent_s, probe = self._waiting.popleft()
            state = self._pending.get(probe)
            if state is None or state.sent_s != sent_s:
                continue
            if not self.state.explained(probe):
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
        """Send the probes of all inquiries, and act on the verdicts of those that are over."""
        settings = self.settings
        probes: list[TreeProbe] = []
        calm = [tree for tree in range(self.trees.count) if tree not in self._inquiries]
        for inquiry in list(self._inquiries.values()):
            probes += inquiry.step(
                self.state, now_s, self.lag_s, calm, settings.probes_per_tick - len(probes)
            )
            if inquiry.over(now_s, self.lag_s, answered_s):
                del self._inquiries[inquiry.tree]
                tree, (links, ports) = inquiry.tree, inquiry.verdict(self.state, self.lag_s)
                self._dead.update({(tree, link): _Dead(now_s) for link in links})
                self._dead_ports.update({(nic, tree, way): _Dead(now_s) for nic, way in ports})
                if links or ports:
                    self._changed_in(tree, now_s)
        return probes

    # What is dead

    def _recover_interval_s(self) -> float:
        """Seconds between probes over one dead thing.

        All of them together are no more than a quarter of `probes_per_s`.
        """
        count = len(self._dead) + len(self._dead_ports)
        return max(self.settings.recover_s, 4 * count / self.settings.probes_per_s)

    def _recovery(self, now_s: float) -> list[TreeProbe]:
        """One probe over each link and port that is dead.

        If a probe over it was heard a moment ago, that one is sent again, since several in a row
        have to be heard. Otherwise the probe takes another path each time: the path itself may
        cross other dead links.
        """
        interval_s = self._recover_interval_s()
        turn = int(now_s / interval_s)
        fresh_s = now_s - 1.5 * interval_s - self.lag_s
        probes: dict[TreeProbe, None] = {}
        wanted: dict[int, list[int]] = {}

        def again(dead: _Dead) -> bool:
            if dead.probe is None or dead.heard_s < fresh_s or not self.state.can(dead.probe):
                return False
            probes[dead.probe] = None
            return True

        for (tree, link), dead in self._dead.items():
            if not again(dead):
                wanted.setdefault(tree, []).append(link)
        for tree, links in wanted.items():
            costs = dict.fromkeys(self.state.dead_in(tree), 1)
            sources, sinks = self.state.leaves(tree, "tx"), self.state.leaves(tree, "rx")
            crossings = self.state.paths(tree).crossings(links, sources, sinks, costs, turn)
            for a, b, _ in crossings.values():
                probes[self._probe(tree, a, b, turn)] = None
        for (nic, tree, direction), dead in self._dead_ports.items():
            if not again(dead) and nic in self.state.usable:
                other = self._partner(nic, tree, direction, turn)
                if other is not None:
                    ends = (nic, other) if direction == "tx" else (other, nic)
                    probes[TreeProbe(*ends, tree)] = None
        return list(probes)

    def _partner(self, nic: NicId, tree: int, direction: Direction, turn: int) -> NicId | None:
        """A NIC with which the dead port of `nic` is tried; None when there is none.

        It works in the tree. It is of the same leaf if that has one, else of a leaf that is reached
        over live links.
        """
        leaf, receives = self.state.leaf_of[nic], direction == "rx"
        far: Direction = "tx" if receives else "rx"
        others = [other for other in self.state.ends(tree, leaf, far) if other != nic]
        if not others:
            for other_leaf in sorted(self.state.leaves(tree, far) - {leaf}):
                ends = (other_leaf, leaf) if receives else (leaf, other_leaf)
                if self.state.path_alive(tree, *ends):
                    others += self.state.ends(tree, other_leaf, far)[:1]
        return others[turn % len(others)] if others else None

    def _recovers(self, state: _Dead, probe: TreeProbe, now_s: float) -> bool:
        """One more probe over something dead was heard: whether enough were heard in a row.

        Probes of the same round count once; a gap of more than two rounds begins a new row.
        """
        interval_s = self._recover_interval_s()
        gap_s = now_s - state.heard_s
        if gap_s < interval_s / 2 or now_s < state.since_s + self.lag_s:
            return False
        state.count = state.count + 1 if gap_s <= 2.5 * interval_s + self.lag_s else 1
        state.heard_s, state.probe = now_s, probe
        return state.count >= self.settings.recover_after

    def _changed_in(self, tree: int, now_s: float) -> None:
        """Something died in this tree, or came back."""
        self.state.set_dead(self._dead, self._dead_ports)
        self._stale.add(tree)
        self.changed = True
        self._unreported = (now_s if self._unreported is None else self._unreported[0], now_s)

    def _report(self) -> None:
        """Add an event for each element of which something else is wrong than before."""
        self._unreported = None
        before, self._reported = self._reported, self.state.problems(self._name)
        for element in sorted(before.keys() - self._reported.keys()):
            was = before[element][0]
            code = _WORKS_AGAIN[next(iter(was.subject))]
            self.events.append(Event(code, was.subject, was.args))
        for element, found in self._reported.items():
            new = [each for each in found if each not in before.get(element, ())]
            self.events += [Event(each.code, each.subject, each.args) for each in new]

    def _forgive(self) -> None:
        """Probes that were not heard up to now do not count: it is this loop that was late."""
        self._pending.clear()
        self._waiting.clear()
        self._inquiries.clear()
