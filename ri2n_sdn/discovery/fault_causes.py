"""Dead links by their physical cause: a switch, a cable, one direction of it, or some of its VLANs.

And in words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from ri2n_sdn.vlan.trees import Trees

__all__ = ["Cause", "causes", "in_words", "vlan_text"]


@dataclass(frozen=True)
class Cause:
    """All cables of `switch` (`cable` is None then), or one cable, seen from its end at `switch`,
    in some trees.

    `both` ways or only from `switch` on; `whole` when that is so in all trees of which anything is
    known. `certain` that the switch itself is dead.
    """

    switch: int
    cable: int | None
    trees: frozenset[int]
    both: bool = True
    whole: bool = True
    certain: bool = False

    def name(self, trees: Trees) -> str:
        """`up1`, or `leaf1 port 5 to up1`."""
        graph = trees.graph
        if self.cable is None:
            return graph.names[self.switch]
        end = int(graph.ends[self.cable, 0] != self.switch)
        far = graph.names[graph.ends[self.cable, 1 - end]]
        return f"{graph.names[self.switch]} port {graph.ports[self.cable, end]} to {far}"


def causes(
    trees: Trees,
    dead: Iterable[tuple[int, int]],
    spanned: Callable[[int], Collection[int]],
    leaves: Collection[int],
) -> list[Cause]:
    """What explains the `dead` (tree, directed link), as few things as possible.

    `spanned(tree)` are the cables that lie between two leaves with NICs: nothing is known of the
    others. `leaves` are the switches with NICs that work, which are therefore not dead themselves.
    """
    graph = trees.graph
    by_link: dict[int, set[int]] = {}
    for tree, link in dead:
        by_link.setdefault(link, set()).add(tree)
    crossed: dict[int, set[int]] = {}

    def known(cable: int) -> set[int]:
        """The trees in which something is known of the cable."""
        if cable not in crossed:
            users = np.nonzero((trees.cable == cable).any(axis=1))[0].tolist()
            crossed[cable] = {tree for tree in users if cable in spanned(tree)}
        return crossed[cable]

    def gone(link: int) -> set[int]:
        return by_link.get(link, set())

    left = sorted({link // 2 for link in by_link})
    whole = {
        cable
        for cable in left
        if gone(2 * cable) >= known(cable) and gone(2 * cable + 1) >= known(cable)
    }
    found = []
    touched = sorted({int(end) for cable in whole for end in graph.ends[cable]})
    cables_of = {
        switch: [cable for _, cable in graph.neighbours[switch] if known(cable)]
        for switch in touched
    }
    for switch in sorted(
        touched, key=lambda switch: (switch in leaves, -len(cables_of[switch]), switch)
    ):
        cables = cables_of[switch]
        if len(cables) > 1 and whole.issuperset(cables):
            whole.difference_update(cables)
            left = [cable for cable in left if cable not in cables]
            all_trees = frozenset(tree for cable in cables for tree in known(cable))
            found.append(
                Cause(switch, None, all_trees, certain=len(cables) > 2 and switch not in leaves)
            )
    for cable in left:
        forth, back = gone(2 * cable), gone(2 * cable + 1)
        a, b = graph.ends[cable].tolist()
        below = (
            a if trees.cable[min(forth | back), a] == cable else b
        )  # people call it an uplink of that one
        for switch, which, both in (
            (below, forth & back, True),
            (a, forth - back, False),
            (b, back - forth, False),
        ):
            if which:
                found.append(Cause(switch, cable, frozenset(which), both, which >= known(cable)))
    return found


def in_words(trees: Trees, cause: Cause) -> tuple[str, str]:
    """(The element, what is wrong with it and in which VLANs)."""
    if cause.cable is None:
        return cause.name(
            trees
        ), "is dead" if cause.certain else "nothing gets through any of its cables"
    vlans = "" if cause.whole else f" in {vlan_text(trees.vlans[tree] for tree in cause.trees)}"
    return cause.name(trees), ("dead" if cause.both else "nothing gets through this way") + vlans


def vlan_text(vlans: Iterable[int]) -> str:
    """VLAN 101; VLANs 101, 103; VLANs 101 to 104, 107."""
    runs: list[list[int]] = []
    for vlan in sorted(vlans):
        if runs and vlan == runs[-1][-1] + 1:
            runs[-1].append(vlan)
        else:
            runs.append([vlan])
    parts = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else list(map(str, run))
    return f"VLAN{'s' if len(runs) > 1 or len(runs[0]) > 1 else ''} {', '.join(parts)}"
