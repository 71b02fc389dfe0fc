"""One inquiry into lost probes: what to ask, and what follows from what was heard and what was
not.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ri2n_sdn.discovery.inquiry import Inquiry, Proof
from ri2n_sdn.discovery.tree_state import DEAD_COST, Direction, End, TreeProbe, TreeState
from ri2n_sdn.fabric.model import NicId

__all__ = ["LivenessSettings", "TreeInquiry"]


@dataclass(frozen=True)
class LivenessSettings:
    """Intervals. `probe_s` is the shortest ring interval; it grows so that `probes_per_s` is not
    exceeded.

    A probe that is not heard after `wait_s` (and `TreeLiveness.lag_s`) is lost. An inquiry sends
    `bursts` of probes, of all inquiries together no more than `probes_per_tick` at once. It ends
    after `verdict_s`, or later when a host is slow to answer, but after `patience_s` without it. A
    link is dead when at least `silences` probes over it were lost. Dead links are probed every
    `recover_s`.
    """

    probe_s: float = 0.1
    probes_per_s: float = 1000.0
    wait_s: float = 0.07
    burst_s: float = 0.025
    bursts: int = 8
    probes_per_tick: int = 100
    verdict_s: float = 0.2
    patience_s: float = 1.0
    silences: int = 4
    recover_s: float = 0.3
    recover_after: int = 3


@dataclass
class _Asked:
    """The probes of an inquiry between two NICs."""

    sent_s: list[float] = field(default_factory=list)
    heard: bool = False
    proof: Proof = field(default_factory=Proof)


class TreeInquiry(Inquiry):
    """Lost probes of one tree under test, and what those that were heard since `start_s`
    exonerate.
    """

    def __init__(self, tree: int, start_s: float, settings: LivenessSettings) -> None:
        super().__init__(start_s, settings.bursts, start_s)
        self.tree, self.settings = tree, settings
        self.silent: list[TreeProbe] = []
        """The probes that it is about; the ring may add some before the second burst."""
        self.turn = 0
        self.asked: dict[TreeProbe, _Asked] = {}
        self.links: set[int] = set()
        self.ports: set[End] = set()
        self._queue: deque[TreeProbe] = deque()
        self._compared_s: dict[NicId, float] = {}
        self._witnesses: dict[
            End, tuple[float, float]
        ] = {}  # when first and last heard, in whatever VLAN

    def heard(self, probe: TreeProbe, way: Sequence[int], now_s: float) -> None:
        """A probe of any tree was heard."""
        for end in probe.ends:
            self._witnesses[end] = (self._witnesses.get(end, (now_s, now_s))[0], now_s)
        if probe.tree == self.tree:
            self.links.update(way)
            self.ports.update(probe.ends)
            if probe in self.asked:
                self.asked[probe].heard = True

    def forget(self, known: TreeState) -> None:
        """NICs are not usable any more."""
        self.asked = {probe: asked for probe, asked in self.asked.items() if known.can(probe)}
        self.silent = [probe for probe in self.silent if known.can(probe)]
        self._queue = deque(probe for probe in self._queue if known.can(probe))

    def step(
        self, known: TreeState, now_s: float, lag_s: float, calm: Sequence[int], most: int
    ) -> list[TreeProbe]:
        """At most so many probes to send now; `calm` are trees without an inquiry."""
        if self.bursts_left and not self._queue and self.due(now_s):
            self.burst_sent(
                now_s, self.settings.burst_s + lag_s / 4
            )  # what is heard says what to ask next
            self._queue.extend(self._burst(known, now_s, lag_s, calm))
            self.turn += 1
        probes = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        for probe in probes:
            if probe.tree == self.tree:
                self.asked.setdefault(probe, _Asked()).sent_s.append(now_s)
        return probes

    def over(self, now_s: float, lag_s: float, answered_s: Callable[[str], float]) -> bool:
        """All was asked, and the hosts have answered or had their time."""
        if self._queue or self.bursts_left:
            return False
        waits = False
        for probe, asked in self.asked.items():
            if not asked.heard:
                counts = asked.proof.look(
                    asked.sent_s[-1], now_s, probe.sender[0], probe.target[0], answered_s
                )
                waits = waits or not counts
        ends_s = self.start_s + (self.settings.patience_s if waits else self.settings.verdict_s)
        last_s = max((asked.sent_s[-1] for asked in self.asked.values()), default=now_s)
        return now_s >= max(ends_s, last_s + self.settings.burst_s) + lag_s - 1e-6

    def verdict(self, known: TreeState, lag_s: float) -> tuple[list[int], list[End]]:
        """What is left of the ways of silent probes is dead:

        links first, ports where no link is left.
        """
        settings = self.settings
        links: Counter[int] = Counter()
        ports: Counter[End] = Counter()
        for probe, asked in self.asked.items():
            if asked.heard or not asked.proof.holds or known.explained(probe):
                continue
            spans = [self._witnesses.get(end, (1e9, -1e9)) for end in probe.ends]
            from_s = max(first_s for first_s, _ in spans) - settings.burst_s - lag_s
            until_s = min(last_s for _, last_s in spans) + 3 * settings.burst_s
            # Outside that it is rather the host that is late, or a NIC that does not work at all.
            count = sum(from_s <= sent_s <= until_s for sent_s in asked.sent_s)
            way = known.way(probe)
            left = [link for link in way if link not in self.links]
            if left:
                links.update(dict.fromkeys(left, count))
            else:
                ports.update({end: count for end in probe.ends if end not in self.ports})
        return (
            [link for link, count in links.items() if count >= settings.silences],
            [end for end, count in ports.items() if count >= settings.silences],
        )

    def _burst(
        self, known: TreeState, now_s: float, lag_s: float, calm: Sequence[int]
    ) -> list[TreeProbe]:
        """The silent probes again, and others over each link and each port that is still
        suspect.
        """
        tree, turn, ways = self.tree, self.turn, known.of(self.tree)
        lost = [probe for probe in self.silent if not known.explained(probe)]
        early_s = now_s - 1.5 * self.settings.burst_s - lag_s
        silent = lost + [
            probe
            for probe, asked in self.asked.items()
            if not asked.heard and asked.sent_s[0] <= early_s and probe not in lost
        ]
        if all(probe in self.asked and self.asked[probe].heard for probe in lost):
            silent = []
        dead = known.dead_in(tree)
        costs = dict.fromkeys(dead, DEAD_COST)
        for probe in silent:
            way = known.way(probe)
            costs.update((link, 1) for link in way if link not in self.links and link not in dead)
        suspects = [link for link, cost in costs.items() if cost == 1]
        # Ends that are heard in no VLAN at all can bear no witness.
        compared = [nic for nic, since_s in self._compared_s.items() if since_s <= early_s]
        mute = {nic for nic in compared if (nic, "tx") not in self._witnesses}
        deaf = {nic for nic in compared if (nic, "rx") not in self._witnesses}
        sources = {
            leaf for leaf in known.leaves(tree, "tx") if set(known.ends(tree, leaf, "tx")) - mute
        }
        sinks = {
            leaf for leaf in known.leaves(tree, "rx") if set(known.ends(tree, leaf, "rx")) - deaf
        }
        found = dict.fromkeys(lost if silent else ())
        for a, b, cost in ways.crossings(suspects, sources, sinks, costs, turn).values():
            if cost < DEAD_COST:
                sender = self._witness(known, a, "tx", mute)
                target = self._witness(known, b, "rx", deaf)
                found[TreeProbe(sender, target, tree)] = None
        for probe in silent:
            for nic, direction in ((probe.sender, "tx"), (probe.target, "rx")):
                if (nic, direction) not in self.ports:
                    at_leaf = known.ends(
                        tree, known.leaf_of[nic], "rx" if direction == "tx" else "tx"
                    )
                    others = [other for other in at_leaf if other != nic]
                    if others:
                        other = others[turn % len(others)]
                        ends = (nic, other) if direction == "tx" else (other, nic)
                        found[TreeProbe(*ends, tree)] = None
        calm = calm or [each for each in range(known.trees.count) if each != tree]
        for probe in silent:
            self._compared_s.setdefault(probe.sender, now_s)
            self._compared_s.setdefault(probe.target, now_s)
            if calm:
                other_tree = calm[(turn + tree) % len(calm)]
                a, b = known.leaf_of[probe.sender], known.leaf_of[probe.target]
                if known.way_alive(other_tree, a, b):
                    found[TreeProbe(probe.sender, probe.target, other_tree)] = None
        return list(found)

    def _witness(
        self, known: TreeState, leaf: int, direction: Direction, useless: set[NicId]
    ) -> NicId:
        """A NIC of the leaf whose port is known to work in that tree, or another one each burst."""
        nics = [nic for nic in known.ends(self.tree, leaf, direction) if nic not in useless]
        nics = [nic for nic in nics if (nic, direction) in self.ports] or nics
        return nics[self.turn % len(nics)]
