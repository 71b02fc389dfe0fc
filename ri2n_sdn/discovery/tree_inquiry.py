# SPDX-License-Identifier: Apache-2.0
"""One inquiry into lost probes of a tree: which probes to send, and which links are dead.

A lost probe only says that some part of its path is dead, or that a NIC or host at its end does not
work. So the inquiry sends the probe again, and other probes over each link and port that may be the
cause. A probe that arrives exonerates every link that it crossed, and both its ends. What is left
of the paths of silent probes is dead. Probes between the same ends in another VLAN tell whether the
NICs work at all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ri2n_sdn.discovery.inquiry import Inquiry, Proof
from ri2n_sdn.discovery.nic_state import Direction
from ri2n_sdn.discovery.tree_state import DEAD_COST, End, TreeProbe, TreeState
from ri2n_sdn.fabric.model import NicId

__all__ = ["LivenessSettings", "TreeInquiry"]


@dataclass(frozen=True)
class LivenessSettings:
    """Intervals in seconds, and limits.

    A round of the ring takes `probe_s` at least; it takes longer when it would exceed
    `probes_per_s`. A probe that was not heard after `wait_s` (plus `TreeLiveness.lag_s`) is lost.
    An inquiry sends `bursts` of probes, `burst_s` apart; all inquiries together send no more than
    `probes_per_tick` at once. It ends after `verdict_s`, or when a host is slow to answer, after
    `patience_s` at the latest. A link is dead when at least `silences` probes over it were lost.
    Dead links are probed every `recover_s`, and work again once `recover_after` of these probes in
    a row were heard.
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
    """What became of one probe that an inquiry sent, once or several times."""

    sent_s: list[float] = field(default_factory=list)
    heard: bool = False
    proof: Proof = field(default_factory=Proof)


class TreeInquiry(Inquiry):
    """An inquiry into lost probes of one tree, begun at `start_s`.

    `asked` are the probes of the tree that it sent; `links` and `ports` are exonerated, since
    probes over them were heard after the inquiry began.
    """

    def __init__(self, tree: int, start_s: float, settings: LivenessSettings) -> None:
        super().__init__(start_s, settings.bursts, start_s)
        self.tree, self.settings = tree, settings
        self.silent: list[TreeProbe] = []
        """The lost probes that it is about; the ring may add some before the second burst."""
        self.turn = 0
        """How many bursts were sent."""
        self.asked: dict[TreeProbe, _Asked] = {}
        self.links: set[int] = set()
        self.ports: set[End] = set()
        self._queue: deque[TreeProbe] = deque()
        # Since when each end of a silent probe has been probed in another VLAN, too.
        self._compared_s: dict[NicId, float] = {}
        # When each end was first and last heard, in any VLAN.
        self._witnesses: dict[End, tuple[float, float]] = {}

    def heard(self, probe: TreeProbe, path: Sequence[int], now_s: float) -> None:
        """A probe of any tree was heard, which crossed these links."""
        for end in probe.ends:
            self._witnesses[end] = (self._witnesses.get(end, (now_s, now_s))[0], now_s)
        if probe.tree == self.tree:
            self.links.update(path)
            self.ports.update(probe.ends)
            if probe in self.asked:
                self.asked[probe].heard = True

    def forget(self, state: TreeState) -> None:
        """Forget the probes of NICs that are not usable any more."""
        self.asked = {probe: asked for probe, asked in self.asked.items() if state.can(probe)}
        self.silent = [probe for probe in self.silent if state.can(probe)]
        self._queue = deque(probe for probe in self._queue if state.can(probe))

    def step(
        self, state: TreeState, now_s: float, lag_s: float, calm: Sequence[int], max_probes: int
    ) -> list[TreeProbe]:
        """The probes to send now, at most `max_probes`; `calm` are trees without an inquiry."""
        if self.bursts_left and not self._queue and self.due(now_s):
            # What is heard of one burst decides about the next, so lag makes the pause longer.
            self.burst_sent(now_s, self.settings.burst_s + lag_s / 4)
            self._queue.extend(self._burst(state, now_s, lag_s, calm))
            self.turn += 1
        probes = [self._queue.popleft() for _ in range(min(max_probes, len(self._queue)))]
        for probe in probes:
            if probe.tree == self.tree:
                self.asked.setdefault(probe, _Asked()).sent_s.append(now_s)
        return probes

    def over(self, now_s: float, lag_s: float, answered_s: Callable[[str], float]) -> bool:
        """Whether all probes were sent, and their hosts have answered or have had enough time."""
        if self._queue or self.bursts_left:
            return False
        proved = [
            asked.proof.look(asked.sent_s[-1], now_s, probe.sender[0], probe.target[0], answered_s)
            for probe, asked in self.asked.items()
            if not asked.heard
        ]
        settings = self.settings
        ends_s = self.start_s + (settings.verdict_s if all(proved) else settings.patience_s)
        last_s = max((asked.sent_s[-1] for asked in self.asked.values()), default=now_s)
        return now_s >= max(ends_s, last_s + settings.burst_s) + lag_s - 1e-6

    def verdict(self, state: TreeState, lag_s: float) -> tuple[list[int], list[End]]:
        """The links and ports that are dead.

        A silent probe accuses the links of its path that no probe has exonerated; where there are
        none, it accuses its ends. Only silences count that were sent while both ends were heard in
        some VLAN: outside that time it is rather a host that is late, or a NIC that does not work
        at all. A link or port with fewer than `silences` such silences is not dead.
        """
        settings = self.settings
        links: Counter[int] = Counter()
        ports: Counter[End] = Counter()
        for probe, asked in self.asked.items():
            if asked.heard or not asked.proof.holds or state.explained(probe):
                continue
            spans = [self._witnesses.get(end, (1e9, -1e9)) for end in probe.ends]
            from_s = max(first_s for first_s, _ in spans) - settings.burst_s - lag_s
            until_s = min(last_s for _, last_s in spans) + 3 * settings.burst_s
            count = sum(from_s <= sent_s <= until_s for sent_s in asked.sent_s)
            path = state.path(probe)
            left = [link for link in path if link not in self.links]
            if left:
                links.update(dict.fromkeys(left, count))
            else:
                ports.update({end: count for end in probe.ends if end not in self.ports})
        return (
            [link for link, count in links.items() if count >= settings.silences],
            [end for end, count in ports.items() if count >= settings.silences],
        )

    def _burst(
        self, state: TreeState, now_s: float, lag_s: float, calm: Sequence[int]
    ) -> list[TreeProbe]:
        """The silent probes again, and others over each link and each port that is still suspect.

        Probes over a suspect link go between ends that are heard, and cross as few other suspects
        as possible, so that a single dead link is found although many links are suspect. There are
        none over links that are known to be dead.
        """
        tree, turn, paths = self.tree, self.turn, state.paths(self.tree)
        lost = [probe for probe in self.silent if not state.explained(probe)]
        early_s = now_s - 1.5 * self.settings.burst_s - lag_s
        silent = lost + [
            probe
            for probe, asked in self.asked.items()
            if not asked.heard and asked.sent_s[0] <= early_s and probe not in lost
        ]
        if all(probe in self.asked and self.asked[probe].heard for probe in lost):
            silent = []
        dead = state.dead_in(tree)
        costs = dict.fromkeys(dead, DEAD_COST)
        for probe in silent:
            path = state.path(probe)
            costs.update((link, 1) for link in path if link not in self.links and link not in dead)
        suspects = [link for link, cost in costs.items() if cost == 1]
        # Ends that are heard in no VLAN at all say nothing about links.
        compared = [nic for nic, since_s in self._compared_s.items() if since_s <= early_s]
        mute = {nic for nic in compared if (nic, "tx") not in self._witnesses}
        deaf = {nic for nic in compared if (nic, "rx") not in self._witnesses}
        sources = {leaf for leaf in state.nics_at if set(state.ends(tree, leaf, "tx")) - mute}
        sinks = {leaf for leaf in state.nics_at if set(state.ends(tree, leaf, "rx")) - deaf}
        probes = dict.fromkeys(lost if silent else ())
        for a, b, cost in paths.crossings(suspects, sources, sinks, costs, turn).values():
            if cost < DEAD_COST:
                sender = self._witness(state, a, "tx", mute)
                target = self._witness(state, b, "rx", deaf)
                probes[TreeProbe(sender, target, tree)] = None
        for probe in silent:
            for nic, direction in probe.ends:
                if (nic, direction) not in self.ports:
                    far: Direction = "rx" if direction == "tx" else "tx"
                    at_leaf = state.ends(tree, state.leaf_of[nic], far)
                    others = [other for other in at_leaf if other != nic]
                    if others:
                        other = others[turn % len(others)]
                        ends = (nic, other) if direction == "tx" else (other, nic)
                        probes[TreeProbe(*ends, tree)] = None
        calm = calm or [other for other in range(state.trees.count) if other != tree]
        for probe in silent:
            for nic, _ in probe.ends:
                self._compared_s.setdefault(nic, now_s)
            if calm:
                other_tree = calm[(turn + tree) % len(calm)]
                a, b = state.leaf_of[probe.sender], state.leaf_of[probe.target]
                if state.path_alive(other_tree, a, b):
                    probes[TreeProbe(probe.sender, probe.target, other_tree)] = None
        return list(probes)

    def _witness(
        self, state: TreeState, leaf: int, direction: Direction, useless: set[NicId]
    ) -> NicId:
        """A NIC of the leaf, another one each burst; if possible, its port works in that tree."""
        nics = [nic for nic in state.ends(self.tree, leaf, direction) if nic not in useless]
        nics = [nic for nic in nics if (nic, direction) in self.ports] or nics
        return nics[self.turn % len(nics)]
