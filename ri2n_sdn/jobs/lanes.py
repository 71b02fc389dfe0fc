# SPDX-License-Identifier: Apache-2.0
"""Lanes, which can be given away as a whole, and the names of paths.

A name is NETWORK (`net1`), NETWORK/VLAN (`net1/12`), vlan:VLAN (`vlan:12`), HOST:NIC (`A:eth1`),
or NIC (`eth1`, the sender's NIC of that name). VLAN 0 is the untagged tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ri2n_sdn.contract.names import natural
from ri2n_sdn.fabric.model import UNTAGGED, Fabric, Path

__all__ = [
    "Lane",
    "LaneMap",
    "chosen",
    "concerns",
    "first_few",
    "matches",
    "order_of",
]

_NAMED = 3
"""How many names a line has before it counts the others."""


class Lane(NamedTuple):
    """A network, or one of the VLANs of a network that has several (a fat tree)."""

    network: str
    vlan: int


class LaneMap:
    """The lanes of a fabric's paths. What was asked for once is kept."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._fat = frozenset(
            network
            for network, nics in fabric.networks.items()
            if fabric.routing is not None and len(fabric.routing.vlans(nics[0])) > 1
        )
        self._pairs: dict[tuple[tuple[str, str], bool], frozenset[Lane | None]] = {}

    def of(self, path: Path) -> Lane | None:
        """The lane of a path; None when nobody can have the path for himself.

        In a fat tree, a path between two NICs of one switch crosses no other link than those of the
        two NICs, and all VLANs share these. Such a path is in no lane: it is there for all.
        """
        if not path.route.links and path.network in self._fat:
            return None
        return Lane(path.network, path.route.vlan)

    def of_all(self, paths: Iterable[Path]) -> frozenset[Lane | None]:
        """The lanes of several paths."""
        return frozenset(self.of(path) for path in paths)

    def of_pair(self, pair: tuple[str, str], *, living: bool) -> frozenset[Lane | None]:
        """The lanes of the paths of a pair that count (`counted`)."""
        if (pair, living) not in self._pairs:
            self._pairs[pair, living] = self.of_all(self.counted(pair, living=living))
        return self._pairs[pair, living]

    def counted(self, pair: tuple[str, str], *, living: bool) -> Sequence[Path]:
        """The paths of a pair that count: all, or with `living` the live ones, if one is alive.

        A host that is down counts as if it were up, so that it does not make a job easier to
        accept.
        """
        paths = self.fabric.paths(*pair)
        return ([path for path in paths if path.alive] if living else paths) or paths

    def is_vlan(self, lane: Lane) -> bool:
        """Whether a lane shares its NICs with other lanes: it is a VLAN of several."""
        return lane.network in self._fat

    def text(self, lane: Lane) -> str:
        """A lane as a name of paths: `net1`, or `net1/12` and `net1/0` in a network with VLANs."""
        plain = lane.vlan == UNTAGGED and not self.is_vlan(lane)
        return lane.network if plain else f"{lane.network}/{lane.vlan}"

    def texts(self, lanes: Iterable[Lane]) -> str:
        """Several lanes, in order; the first few of many."""
        return first_few([self.text(lane) for lane in sorted(lanes, key=order_of)])


def first_few(names: Sequence[str]) -> str:
    """Names for a message: the first few, and how many more there are."""
    more = len(names) - _NAMED
    first = ", ".join(names[:_NAMED])
    return f"{first} and {more} more" if more > 0 else first


def order_of(lane: Lane) -> tuple[object, ...]:
    """The key by which lanes are in order: net2 before net10, and VLANs by number."""
    return (natural(lane.network), lane.vlan)


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
