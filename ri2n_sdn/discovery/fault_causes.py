# SPDX-License-Identifier: Apache-2.0
"""The physical causes of dead links, and the problems that they are.

A dead switch makes links dead in many trees and on many cables. People have to know what to
replace, so dead links are summed up as few causes: a switch, a cable, one direction of a cable, or
some of the VLANs of a cable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.vlan.trees import Trees

__all__ = ["Cause", "find_causes", "problem_of"]


@dataclass(frozen=True)
class Cause:
    """A switch (`cable` is None), or a cable seen from its end at `switch`, dead in some trees.

    A cable is dead in `both` directions, or only from `switch` to its other end. It is `whole` when
    it is dead in all trees of which anything is known. `certain` says that the switch itself is
    dead; without it, only all its cables are known to be dead.
    """

    switch: int
    cable: int | None
    trees: frozenset[int]
    both: bool = True
    whole: bool = True
    certain: bool = False

    def name(self, trees: Trees) -> str:
        """The name of a switch or cable, such as `up1` or `leaf1 port 5 to up1`."""
        graph = trees.graph
        if self.cable is None:
            return graph.names[self.switch]
        end = int(graph.ends[self.cable, 0] != self.switch)
        far = graph.names[graph.ends[self.cable, 1 - end]]
        return f"{graph.names[self.switch]} port {graph.ports[self.cable, end]} to {far}"


def find_causes(
    trees: Trees,
    dead: Iterable[tuple[int, int]],
    spanned: Callable[[int], Collection[int]],
    leaves: Collection[int],
) -> list[Cause]:
    """The fewest causes that explain the `dead` (tree, directed link).

    A switch is named when all its cables of which anything is known (two at least) are dead as a
    whole; its cables are not named then. Switches with many such cables come first, and leaves with
    working NICs last, since these are not dead themselves. With only two dead cables it is not
    certain that the switch is the cause. All other cables are named one by one.

    `spanned(tree)` are the cables that lie between two leaves with NICs: nothing is known of the
    others. `leaves` are the switches with NICs that work.
    """
    graph = trees.graph
    dead_trees: dict[int, set[int]] = defaultdict(set)
    for tree, link in dead:
        dead_trees[link].add(tree)

    @cache
    def known_trees(cable: int) -> set[int]:
        """The trees in which something is known of the cable."""
        users = np.nonzero((trees.cable == cable).any(axis=1))[0].tolist()
        return {tree for tree in users if cable in spanned(tree)}

    cables_left = sorted({link // 2 for link in dead_trees})
    whole = {
        cable
        for cable in cables_left
        if dead_trees[2 * cable] & dead_trees[2 * cable + 1] >= known_trees(cable)
    }
    causes = []
    touched = sorted({int(end) for cable in whole for end in graph.ends[cable]})
    cables_of = {
        switch: [cable for _, cable in graph.neighbours[switch] if known_trees(cable)]
        for switch in touched
    }
    for switch in sorted(
        touched, key=lambda switch: (switch in leaves, -len(cables_of[switch]), switch)
    ):
        cables = cables_of[switch]
        if len(cables) > 1 and whole.issuperset(cables):
            whole.difference_update(cables)
            cables_left = [cable for cable in cables_left if cable not in cables]
            all_trees = frozenset(tree for cable in cables for tree in known_trees(cable))
            causes.append(
                Cause(switch, None, all_trees, certain=len(cables) > 2 and switch not in leaves)
            )
    for cable in cables_left:
        forth, back = dead_trees[2 * cable], dead_trees[2 * cable + 1]
        a, b = graph.ends[cable].tolist()
        # The cable is named from its lower end: people call it an uplink of that switch.
        below = a if trees.cable[min(forth | back), a] == cable else b
        for switch, in_trees, both in (
            (below, forth & back, True),
            (a, forth - back, False),
            (b, back - forth, False),
        ):
            if in_trees:
                causes.append(
                    Cause(switch, cable, frozenset(in_trees), both, in_trees >= known_trees(cable))
                )
    return causes


def problem_of(trees: Trees, cause: Cause) -> Problem:
    """A cause as a problem of a switch or a cable."""
    name = cause.name(trees)
    if cause.cable is None:
        return Problem("switch_dead" if cause.certain else "switch_cut_off", {"switch": name})
    code = "cable_dead" if cause.both else "cable_one_way"
    if cause.whole:
        return Problem(code, {"cable": name})
    vlans = sorted(trees.vlans[tree] for tree in cause.trees)
    return Problem(f"{code}_in_vlans", {"cable": name}, {"vlans": vlans})
