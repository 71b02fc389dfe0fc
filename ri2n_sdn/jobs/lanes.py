"""Lanes, which can be given away as a whole, and the names of paths.

A name is NETWORK (`net1`), NETWORK/VLAN (`net1/12`), vlan:VLAN (`vlan:12`), HOST:NIC (`A:eth1`),
or NIC (`eth1`, the sender's NIC of that name). VLAN 0 is the untagged tree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ri2n_sdn.fabric.model import UNTAGGED, Fabric, Path

__all__ = [
    "Lane",
    "chosen",
    "concerns",
    "in_fat_tree",
    "lane_of",
    "lane_text",
    "matches",
    "natural",
]


class Lane(NamedTuple):
    """A network, or one of the VLANs of a network that has several (a fat tree)."""

    network: str
    vlan: int


def lane_text(fabric: Fabric, lane: Lane) -> str:
    """A lane as a name of paths: `net1`, or `net1/12` and `net1/0` in a network with VLANs."""
    plain = lane.vlan == UNTAGGED and not in_fat_tree(fabric, lane.network)
    return lane.network if plain else f"{lane.network}/{lane.vlan}"


def in_fat_tree(fabric: Fabric, network: str) -> bool:
    """Whether a network has several VLANs to choose from."""
    nics = fabric.networks.get(network, ())
    return fabric.routing is not None and bool(nics) and len(fabric.routing.vlans(nics[0])) > 1


def lane_of(fabric: Fabric, path: Path) -> Lane | None:
    """The lane of a path; None when nobody can have the path for himself.

    In a fat tree, a path between two NICs of one switch crosses no other link than those of the two
    NICs, and all VLANs share these. Such a path is in no lane: it is there for all.
    """
    if not path.route.links and in_fat_tree(fabric, path.network):
        return None
    return Lane(path.network, path.route.vlan)


def chosen(paths: Sequence[Path], names: Sequence[str]) -> tuple[Path, ...]:
    """The paths of one pair that at least one of the names matches; all when there are no names.

    HOST:NIC says nothing about a pair without HOST. If nothing else is named, such a pair may use
    all paths.
    """
    if not paths:
        return ()
    hosts = (paths[0].own.host, paths[0].peer.host)
    own = [name for name in names if concerns(name, hosts)]
    if not own:
        return tuple(paths)
    networks = {path.network for path in paths}
    return tuple(path for path in paths if any(matches(path, name, networks) for name in own))


def concerns(name: str, hosts: tuple[str, str]) -> bool:
    """Whether a name says something about the paths between two hosts."""
    host, colon, _ = name.partition(":")
    return not colon or host == "vlan" or host in hosts


def matches(path: Path, name: str, networks: set[str]) -> bool:
    """Whether a name matches a path. `networks` are those of the pair.

    A name that is both a network's and a NIC's means the network.
    """
    host, colon, nic = name.partition(":")
    if colon:
        if host == "vlan" and nic.isdigit():
            return path.route.vlan == int(nic)
        return name in (f"{path.own.host}:{path.own.name}", f"{path.peer.host}:{path.peer.name}")
    network, slash, vlan = name.partition("/")
    if slash:
        return path.network == network and path.route.vlan == int(vlan)
    return path.network == name if name in networks else path.own.name == name


@lru_cache(maxsize=4096)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which net2 comes before net10."""
    return tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.findall(r"[0-9]{1,18}|[^0-9]+", text)
    )
