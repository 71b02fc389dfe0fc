# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan check`: what probes between all NICs say about the switches.

The check finds faults of ports, cables, VLANs and address learning. A probe tells only whether a
frame of one VLAN gets from one NIC to another. A probe that arrives exonerates all links that its
planned path crosses; what is left of the paths of the others is named. So:

* The check can tell that one VLAN is missing on a cable that works in other VLANs. It cannot tell
  which end of the cable lacks it.
* The check cannot tell a cable that is cut from one that leads elsewhere. Two such cables at one
  switch may be swapped with each other.
* The check does not see cables that are swapped between ports with the same VLANs; they do no harm.
* Where a leaf has a single NIC, the check cannot tell a fault of its port from one of its cable.
* A NIC that is heard in no VLAN says nothing about switches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ri2n_sdn.contract.wording import vlan_text
from ri2n_sdn.discovery.fault_causes import Cause, find_causes
from ri2n_sdn.discovery.tree_state import End, TreeProbe
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.vlan.trees import Trees

__all__ = ["LearningTest", "findings", "learning_findings", "learning_tests", "sweep"]


@dataclass(frozen=True)
class LearningStep:
    """A frame to send from NIC `sender` in a tree's VLAN, to address `target` or to all when None.

    Its source address is `source`, or the NIC's own when that is None. The frame must arrive at NIC
    `expect`, unless that is None.
    """

    sender: NicId
    tree: int
    source: str | None
    target: str | None
    expect: NicId | None = None


@dataclass(frozen=True)
class LearningTest:
    """Steps, to be done in order, that show whether `switch` learns addresses per VLAN.

    The frames cross `others`, too; if one of these learns wrongly, the test fails as well.
    """

    switch: str
    others: tuple[str, ...]
    steps: tuple[LearningStep, ...]


def sweep(trees: Trees, leaf_of: Mapping[NicId, int]) -> list[TreeProbe]:
    """Probes of every NIC in every VLAN, to and from one NIC of its own leaf and one of another.

    `leaf_of` is the leaf that each NIC is plugged into. The NICs of a leaf take NICs of different
    other leaves in turn.
    """
    nics_at = _by_leaf(leaf_of)
    probes: dict[TreeProbe, None] = {}
    for tree in range(trees.count):
        paths = trees.paths(tree)
        rings: dict[int, list[int]] = {}
        for leaf in nics_at:
            if paths.joined(leaf, leaf):
                first = next((other for other in rings if paths.joined(other, leaf)), leaf)
                rings.setdefault(first, []).append(leaf)
        for leaves in rings.values():
            for place, leaf in enumerate(leaves):
                own = nics_at[leaf]
                for i, nic in enumerate(own):
                    others = [own[(i + 1) % len(own)]]
                    if len(leaves) > 1:
                        further = place + 1 + i % (len(leaves) - 1)
                        other_nics = nics_at[leaves[further % len(leaves)]]
                        others.append(other_nics[i % len(other_nics)])
                    for other in others:
                        if other != nic:
                            probes[TreeProbe(nic, other, tree)] = None
                            probes[TreeProbe(other, nic, tree)] = None
    return list(probes)


def findings(
    trees: Trees,
    leaf_of: Mapping[NicId, int],
    sent: Iterable[TreeProbe],
    heard: Collection[TreeProbe],
    label: Callable[[NicId], str] = "{0[0]}:{0[1]}".format,
) -> list[str]:
    """Texts that name each element which is not as it should be; none when all is well.

    `sent` are the probes whose two hosts were there to send and report them, `heard` those that
    arrived at least once. Each should be sent a few times, since a probe that is lost by chance
    accuses what it crosses. `label` names a NIC with its switch port, as in `leaf1 port 3
    (n3:nic0)`.
    """
    sent = list(sent)
    heard = frozenset(heard).intersection(sent)

    def path(probe: TreeProbe) -> tuple[int, ...]:
        return trees.paths(probe.tree).path(leaf_of[probe.sender], leaf_of[probe.target])

    good_links = {(probe.tree, link) for probe in heard for link in path(probe)}
    good_ends = {(end, probe.tree) for probe in heard for end in probe.ends}
    working_ends = {end for end, _ in good_ends}
    sends = {nic for nic, direction in working_ends if direction == "tx"}
    receives = {nic for nic, direction in working_ends if direction == "rx"}
    dead: set[tuple[int, int]] = set()
    dead_ends: dict[End, set[int]] = defaultdict(set)
    # A probe of a NIC that is heard in no VLAN accuses nothing else.
    lost = [probe for probe in sent if probe not in heard and working_ends.issuperset(probe.ends)]
    for probe in lost:
        dead |= {(probe.tree, link) for link in path(probe)} - good_links
    for probe in lost:
        if not any((probe.tree, link) in dead for link in path(probe)):
            for end in probe.ends:
                if (end, probe.tree) not in good_ends:
                    dead_ends[end].add(probe.tree)
    spanned: dict[int, set[int]] = defaultdict(set)
    for probe in sent:
        spanned[probe.tree].update(link // 2 for link in path(probe))
    silent = {nic for probe in sent for nic, _ in probe.ends} - (sends & receives)
    working = {leaf for nic, leaf in leaf_of.items() if nic in sends | receives}
    texts = []
    for nic in sorted(silent):
        what = "nothing it sends arrives" if nic in receives else "nothing works"
        what = "nothing arrives" if nic in sends else what
        texts.append(
            f"{label(nic)}: {what}, in any VLAN: not plugged in there, or its host's fault"
        )
    for nic in sorted({nic for nic, _ in dead_ends}):
        tx_trees, rx_trees = dead_ends[nic, "tx"], dead_ends[nic, "rx"]
        for in_trees, what in (
            (tx_trees & rx_trees, "missing"),
            (tx_trees - rx_trees, "not taken from the host"),
            (rx_trees - tx_trees, "not given to the host"),
        ):
            if in_trees:
                vlans = vlan_text(trees.vlans[tree] for tree in in_trees)
                texts.append(f"{label(nic)}: {vlans} {'are' if len(in_trees) > 1 else 'is'} {what}")
    return texts + _cable_texts(trees, find_causes(trees, dead, spanned.__getitem__, working))


def learning_tests(trees: Trees, leaf_of: Mapping[NicId, int]) -> list[LearningTest]:
    """Tests that show, where possible, whether a switch learns addresses for all VLANs together.

    NIC A announces an address in VLAN x. NIC B, behind another port, announces the same address in
    VLAN y. A frame to it in VLAN x must arrive at A. A switch that learns for all VLANs together
    sends it towards B, or drops it when it came from there.

    A leaf can be tested if it has two NICs. Any other switch can be tested if it has leaves behind
    two ports. A switch that is in one tree only needs no test: it can do no harm.
    """
    nics_at = _by_leaf(leaf_of)
    tests = []
    for switch, name in enumerate(trees.graph.names):
        mac = f"06:52:49:32:{switch >> 8 & 255:02x}:{switch & 255:02x}"
        reached = [tree for tree in range(trees.count) if trees.paths(tree).joined(switch, switch)]
        if len(reached) < 2:
            continue
        nics = nics_at.get(switch, [])
        if len(nics) > 1:
            a, b, c = nics[0], nics[1], nics[2] if len(nics) > 2 else nics[1]
            tests.append(LearningTest(name, (), _steps(a, b, c, reached[0], reached[1], mac)))
        elif not nics:
            test = _far_test(trees, nics_at, switch, reached, mac)
            if test is not None:
                tests.append(test)
    return tests


def learning_findings(
    tests: Sequence[LearningTest], arrived: Collection[tuple[int, int]]
) -> list[str]:
    """Texts that name the switches that learn addresses for all VLANs together.

    `arrived` are (number of test, number of step) of the frames that arrived where they should.
    The texts are valid only when `findings` returns none: a frame that is lost for another reason
    looks the same.
    """
    failed = [
        test
        for number, test in enumerate(tests)
        if any(
            step.expect is not None and (number, place) not in arrived
            for place, step in enumerate(test.steps)
        )
    ]
    clear = {test.switch for test in tests} - {test.switch for test in failed}
    guilty = [test.switch for test in failed if not test.others]
    suspects = [
        " or ".join([test.switch, *(other for other in test.others if other not in clear)])
        for test in failed
        if test.others and not set(test.others) & set(guilty)
    ]
    shared = "learns MACs for all VLANs together (shared learning)"
    return [f"{names}: {shared}" for names in (*guilty, *suspects)]


def _steps(a: NicId, b: NicId, c: NicId, x: int, y: int, mac: str) -> tuple[LearningStep, ...]:
    return (
        LearningStep(a, x, mac, None),
        LearningStep(b, y, mac, None),
        LearningStep(c, x, None, mac, expect=a),
    )


def _far_test(
    trees: Trees,
    nics_at: Mapping[int, list[NicId]],
    switch: int,
    reached: list[int],
    mac: str,
) -> LearningTest | None:
    """A test of a switch without NICs, from leaves behind different ports of it."""
    behind = [
        {leaf: paths.path(switch, leaf) for leaf in nics_at if paths.joined(switch, leaf)}
        for paths in map(trees.paths, reached)
    ]
    for x, to_x in zip(reached, behind, strict=True):
        a = next(iter(to_x), None)
        c = next((leaf for leaf in to_x if a is not None and to_x[leaf][0] != to_x[a][0]), None)
        if a is None or c is None:
            continue
        for y, to_y in zip(reached, behind, strict=True):
            b = next((leaf for leaf in to_y if to_y[leaf][0] != to_x[a][0]), None)
            if y != x and b is not None:
                ends = trees.graph.ends
                crossed = {int(end) for link in (*to_x[a], *to_x[c]) for end in ends[link // 2]}
                others = tuple(trees.graph.names[other] for other in sorted(crossed - {switch}))
                nics = nics_at[a][0], nics_at[b][0], nics_at[c][-1]
                return LearningTest(trees.graph.names[switch], others, _steps(*nics, x, y, mac))
    return None


def _cable_texts(trees: Trees, causes: list[Cause]) -> list[str]:
    """A text for each cause; two cables of one switch that are dead as a whole may be swapped."""
    texts = []
    dead_at = Counter(
        end for cause in causes if _is_cut(cause) for end in trees.graph.ends[cause.cable].tolist()
    )
    for cause in causes:
        name = cause.name(trees)
        vlans = vlan_text(trees.vlans[tree] for tree in cause.trees)
        if cause.cable is None:
            what = "is dead"
            if not cause.certain:
                what = "its cables are cut, or lead to other ports than they should"
            texts.append(f"{name}: nothing gets through it: {what}")
        elif _is_cut(cause):
            near = [end for end in trees.graph.ends[cause.cable].tolist() if dead_at[end] > 1]
            text = f"{name.replace(' to ', ' seems not to lead to ', 1)}: cut, or wrong cable"
            if near:
                text += f", or swapped with the other one of {trees.graph.names[near[0]]}"
            texts.append(text)
        elif cause.both:
            texts.append(f"{name}: {vlans} missing")
        elif cause.whole:
            texts.append(f"{name}: unidirectional: nothing gets through in this direction")
        else:
            gets = "get" if len(cause.trees) > 1 else "gets"
            texts.append(f"{name}: {vlans} {gets} through in the other direction only")
    return texts


def _is_cut(cause: Cause) -> bool:
    return cause.cable is not None and cause.both and cause.whole


def _by_leaf(leaf_of: Mapping[NicId, int]) -> dict[int, list[NicId]]:
    nics_at: dict[int, list[NicId]] = {}
    for nic in sorted(leaf_of):
        nics_at.setdefault(leaf_of[nic], []).append(nic)
    return dict(sorted(nics_at.items()))
