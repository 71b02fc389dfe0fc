# SPDX-License-Identifier: Apache-2.0
"""What Slurm is told of the network: a tree of switches with each host in one leaf.

Slurm's plugin topology/tree gives a job hosts below as few switches as it can. A host of RI2N has
NICs in several networks, but Slurm wants it in one leaf. So a leaf is not a switch: it is the hosts
that are plugged into the same set of switches, and reach each other by all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count, islice
from typing import NamedTuple

from ri2n_sdn.contract.names import is_host_name, natural

__all__ = ["SlurmSwitch", "SlurmTree", "slurm_tree", "write_conf", "write_yaml"]

# What may stand in Slurm's files without a meaning of its own: names come from the network.
_SWITCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_NOTE_PAIRS = 4


@dataclass(frozen=True, slots=True)
class SlurmSwitch:
    """A switch as Slurm sees it, with hosts or with other switches below it.

    `places` are the real switches, or networks, of which it was made.
    """

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlurmTree:
    """The switches, children before parents, and lines about what the tree cannot say."""

    switches: tuple[SlurmSwitch, ...]
    notes: tuple[str, ...] = ()


class _Group(NamedTuple):
    """Some switches of the tree that are joined, by their topmost one."""

    top: SlurmSwitch
    reach: frozenset[str]


def slurm_tree(
    places: Mapping[str, Iterable[str]], cables: Iterable[tuple[str, str]] = ()
) -> SlurmTree:
    """The tree of hosts that are plugged into `places`, which `cables` join.

    `places` are, by host, the names of switches where these are declared, and elsewhere the names
    of learned networks. `cables` are pairs of switches.

    * Hosts with the same places are one leaf.
    * Leaves are joined step by step, the nearest first: those that share a place, then those whose
      places have a common neighbour switch, then those that are two cables from a common switch,
      and so on. In a fat tree these are the pods and then the core, and each of these levels is one
      switch for Slurm, however many there are.
    * Leaves that no cable and no place joins stay apart. Slurm then gives no job hosts of both.
    """
    notes: list[str] = []
    leaves: dict[frozenset[str], list[str]] = {}
    for host in sorted(places, key=lambda host: (natural(host), host)):
        own = frozenset(places[host])
        if not is_host_name(host):
            notes.append(f"host {host!a} is left out: Slurm cannot have a node of this name")
        elif not own:
            notes.append(f"host {host} is left out: none of its NICs is known to be in a network")
        else:
            leaves.setdefault(own, []).append(host)
    names = _leaf_names(leaves)
    # Each leaf is where its first host is.
    made = [
        SlurmSwitch(names[own], nodes=tuple(hosts), places=tuple(sorted(own)))
        for own, hosts in leaves.items()
    ]
    neighbours = _neighbours(cables)
    notes += _strangers(leaves, neighbours)
    groups = [_Group(leaf, frozenset(leaf.places)) for leaf in made]
    taken = {leaf.name for leaf in made}
    level = 0
    while True:
        groups, new = _joined(groups, level, taken)
        made += new
        # Each group also reaches what is one cable further away.
        grown = [
            _Group(top, reach.union(*(neighbours.get(place, ()) for place in reach)))
            for top, reach in groups
        ]
        if [group.reach for group in grown] == [group.reach for group in groups]:
            return SlurmTree(tuple(made), tuple(notes))
        groups, level = grown, level + 1


def write_conf(tree: SlurmTree) -> str:
    """The text of topology.conf, for `TopologyPlugin=topology/tree`."""
    lines = _head(tree)
    for switch in tree.switches:
        below = f"Nodes={','.join(switch.nodes)}" if switch.nodes else ""
        below = below or f"Switches={','.join(switch.children)}"
        lines.append(f"SwitchName={switch.name} {below}")
    return "\n".join(lines) + "\n"


def write_yaml(tree: SlurmTree) -> str:
    """The text of topology.yaml, which Slurm reads from version 25.05 on."""
    lines = _head(tree)
    lines += ["- topology: ri2n", "  cluster_default: true", "  tree:", "    switches:"]
    for switch in tree.switches:
        # JSON strings are YAML strings; a name such as 1e3 or yes would be something else.
        lines.append(f'      - switch: "{switch.name}"')
        if switch.nodes:
            lines.append(f'        nodes: "{",".join(switch.nodes)}"')
        else:
            lines.append(f'        children: "{",".join(switch.children)}"')
    return "\n".join(lines) + "\n"


def _head(tree: SlurmTree) -> list[str]:
    """Comments: among them a line for each leaf whose name does not say what it is made of."""
    return ["# Written by `ri2n slurm topology` from the learned networks."] + [
        f"# {switch.name}: hosts on {' '.join(ascii(place)[1:-1] for place in switch.places)}"
        for switch in tree.switches
        if switch.places and switch.places != (switch.name,)
    ]


def _leaf_names(leaves: Collection[frozenset[str]]) -> dict[frozenset[str], str]:
    """A name for each leaf: that of its only place, or `leafN`."""
    alone = [next(iter(own)) for own in leaves if len(own) == 1]
    taken = {place for place in alone if _SWITCH.match(place)}
    free = _free("leaf", taken)
    names = {}
    for own in leaves:
        place = next(iter(own))
        names[own] = place if len(own) == 1 and place in taken else next(free)
    return names


def _free(prefix: str, taken: Collection[str]) -> Iterator[str]:
    """Names with numbers that nothing has."""
    return (name for number in count(1) if (name := f"{prefix}{number}") not in taken)


def _neighbours(cables: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one, other in cables:
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


def _joined(
    groups: Sequence[_Group], level: int, taken: Collection[str]
) -> tuple[list[_Group], list[SlurmSwitch]]:
    """The groups after those with a common place were joined, and the switches that join them."""
    result, new = [], []
    free = _free(f"level{level + 1}-", taken)
    for members in _classes([group.reach for group in groups]):
        parts = [groups[index] for index in members]
        if len(parts) == 1:
            result.append(parts[0])
            continue
        top = SlurmSwitch(next(free), children=tuple(part.top.name for part in parts))
        new.append(top)
        result.append(_Group(top, frozenset().union(*(part.reach for part in parts))))
    return result, new


def _classes(sets: Sequence[Iterable[str]]) -> list[list[int]]:
    """The numbers of the sets that overlap, directly or by way of others, in order."""
    parent = list(range(len(sets)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = index = parent[parent[index]]
        return index

    first: dict[str, int] = {}
    for index, members in enumerate(sets):
        for member in members:
            one, other = root(first.setdefault(member, index)), root(index)
            parent[max(one, other)] = min(one, other)
    found: dict[int, list[int]] = {}
    for index in range(len(sets)):
        found.setdefault(root(index), []).append(index)
    return list(found.values())


def _strangers(
    leaves: Mapping[frozenset[str], Sequence[str]], neighbours: Mapping[str, set[str]]
) -> list[str]:
    """A line when hosts of one tree share no network.

    A tree cannot say that A reaches B and B reaches C, but A does not reach C.
    """
    every = sorted({place for own in leaves for place in own} | set(neighbours))
    network: dict[str, str] = {}
    for members in _classes([[place, *neighbours.get(place, ())] for place in every]):
        network |= {every[index]: every[members[0]] for index in members}
    hosts = [names[0] for names in leaves.values()]
    networks = [{network[place] for place in own} for own in leaves]
    strangers = (
        f"{hosts[one]} and {hosts[other]}"
        for members in _classes(networks)
        for one, other in combinations(members, 2)
        if networks[one].isdisjoint(networks[other])
    )
    shown = list(islice(strangers, _NOTE_PAIRS + 1))
    if not shown:
        return []
    more = ", and more" if len(shown) > _NOTE_PAIRS else ""
    return [
        "hosts share no network, but Slurm may give them to one job: "
        f"{', '.join(shown[:_NOTE_PAIRS])}{more}"
    ]
