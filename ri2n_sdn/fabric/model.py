# SPDX-License-Identifier: Apache-2.0
"""The fabric as the controller sees it now: hosts, NICs, networks, and paths between hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from ri2n_sdn.fabric.classes import TrafficClass

__all__ = [
    "MAX_NIC_PORT",
    "UNTAGGED",
    "Fabric",
    "Guest",
    "HelperLinkNumbers",
    "Host",
    "Nic",
    "NicId",
    "PairKey",
    "Path",
    "PathKey",
    "Reserved",
    "Route",
    "Routing",
]

NicId = tuple[str, int]
"""A NIC: (name of its host, OpenFlow port number)."""

PairKey: TypeAlias = tuple[str, str]
"""A pair: (name of the sender, name of the receiver)."""

PathKey = tuple[int, int, int]
"""A path of a pair: (sender's OpenFlow port, receiver's OpenFlow port, VLAN ID of its frames)."""

UNTAGGED = 0
"""The value in place of a VLAN ID that means "no tag".

Frames of a network's first tree have no tag. If a network is one switch, no frame has one.
"""

MAX_NIC_PORT = 1023
"""The highest port number of a NIC that is used: a path has to fit a register (pipeline.layout)."""

HelperLinkNumbers = Mapping[tuple[str, str], Mapping[PathKey, int]]
"""(host, host with the greater name) -> path -> number of the helper link (fabric.helper_links)."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC of a managed host: a port of its bridge that is plugged into a switch.

    The controller learned `network`, `tx_alive` and `rx_alive` by probes. `switch` is the switch
    that the NIC is plugged into, as configured, where a network has several switches.
    """

    host: str
    name: str
    port: int
    mac: str
    rate_bps: int
    up: bool = True
    network: str | None = None
    tx_alive: bool = True
    rx_alive: bool = True
    switch: str | None = None

    @property
    def sends(self) -> bool:
        """Whether frames sent on this NIC reach its network."""
        return self.up and self.tx_alive

    @property
    def receives(self) -> bool:
        """Whether frames for this NIC arrive."""
        return self.up and self.rx_alive

    @property
    def id(self) -> NicId:
        """The NIC's id: (host name, OpenFlow port number)."""
        return (self.host, self.port)


@dataclass(frozen=True, slots=True, order=True)
class Guest:
    """A container or virtual machine: its OpenFlow port at its host's bridge, and its MAC."""

    port: int
    mac: str


@dataclass(frozen=True, slots=True)
class Host:
    """A managed host.

    * `mac`: the address of its LOCAL port, to which its IP address belongs.
    * `extra_macs`: addresses behind its LOCAL port (containers with a macvlan there). `guests`:
      those with ports of their own. Their frames are handled as those of unmanaged hosts.
    * `hash_algorithm`: what its select groups hash by (pipeline.messages.Group).
    * `control_port`: the TCP port of its controller, which it may reach over the fabric.
    * `accepts_wire`: its receiving tables are known to be installed, so peers may send it frames
      that carry the addresses of NICs. Before that, they must use the host's own address.
    * `helper`: it has the two TAPs of `ri2n-reorder`. `helper_up`: the helper runs. `helper_hangs`:
      the helper's process holds the TAPs and does nothing. `may_stripe`: the configuration of the
      cluster allows to use the helper. Rows for frames between helpers do not depend on
      `may_stripe`, so that frames that are under way when striping is turned off still arrive.
    """

    name: str
    dpid: int
    mac: str
    nics: tuple[Nic, ...]
    accepts_wire: bool = False
    connected: bool = True
    extra_macs: tuple[str, ...] = ()
    guests: tuple[Guest, ...] = ()
    hash_algorithm: int = 0
    control_port: int | None = None
    helper: bool = False
    helper_up: bool = False
    may_stripe: bool = True
    helper_hangs: bool = False

    def nic(self, port: int) -> Nic | None:
        """The NIC with an OpenFlow port number; None if there is none."""
        return next((nic for nic in self.nics if nic.port == port), None)


@dataclass(frozen=True, slots=True)
class Route:
    """A route through the switches of a network: its VLAN, and the links that it crosses.

    `rate_bps` is the rate of the slowest link. It is None when there is no link, since both NICs
    are on the same switch.
    """

    vlan: int = UNTAGGED
    links: tuple[str, ...] = ()
    alive: bool = True
    rate_bps: int | None = None


class Reserved(Protocol):
    """The paths that jobs have for themselves (jobs.assign)."""

    def common(self, sender: str, receiver: str, paths: Sequence[Path]) -> tuple[Path, ...]:
        """The paths of a pair that everybody may use; never none where the pair has any."""
        ...


class Routing(Protocol):
    """The routes through networks of several switches (vlan.routing)."""

    def vlans(self, nic: Nic) -> tuple[int, ...]:
        """The VLAN IDs with which frames may come in by a NIC."""
        ...

    def flood_vlans(self, network: str, nics: tuple[Nic, ...]) -> tuple[int, ...]:
        """One or two VLANs that reach all of a network's `nics` now, the best one first.

        UNTAGGED may be among them. Broadcast goes into the first VLAN. Frames that must arrive even
        while one of the VLANs breaks go into both.
        """
        ...

    def routes(self, own: Nic, peer: Nic) -> tuple[Route, ...]:
        """The routes that two NICs of one network may use, dead ones too, in order of VLANs."""
        ...

    def capacities_bps(self) -> Mapping[str, float]:
        """The rate of every link between switches, by the names in `Route.links`."""
        ...


_ONE_SWITCH = (Route(),)
_PathsOfPairs: TypeAlias = "dict[PairKey, tuple[Path, ...]]"


@dataclass(frozen=True, slots=True)
class Path:
    """A path from one NIC of the sender to one NIC of the receiver in the same network.

    It takes one of the routes through that network.
    """

    own: Nic
    peer: Nic
    route: Route = _ONE_SWITCH[0]

    @property
    def key(self) -> PathKey:
        """The key of the path among those of its pair."""
        return (self.own.port, self.peer.port, self.route.vlan)

    @property
    def alive(self) -> bool:
        """Whether both NICs and the route are alive."""
        return self.own.sends and self.peer.receives and self.route.alive

    @property
    def network(self) -> str:
        """The network of the two NICs."""
        assert self.own.network is not None
        return self.own.network

    @property
    def rate_bps(self) -> int:
        """The rate of the slowest link of the path."""
        return min(self.own.rate_bps, self.peer.rate_bps, self.route.rate_bps or self.own.rate_bps)

    @property
    def links(self) -> tuple[str, ...]:
        """The ids of the links that the path crosses, in order (weights.counters)."""
        return (
            f"{self.own.host}:{self.own.port}>",
            *self.route.links,
            f">{self.peer.host}:{self.peer.port}",
        )


@dataclass(frozen=True)
class Fabric:
    """All managed hosts at one moment. It is immutable, so that a plan has one consistent view.

    * `by_flows`: classes of traffic that helpers do not get, whoever sends them to whom.
    * `routing`: the routes through networks of several switches. Without it every network is one
      switch.
    * `placement`: the hosts whose TCP services have each new connection placed on a path of its
      own, and the ports of these services. No ports mean all ports (pipeline.placement).
    * `reserved`: which paths jobs have for themselves. Without it everybody may use all paths.
    """

    hosts: Mapping[str, Host] = field(default_factory=dict)
    helper_link_numbers: HelperLinkNumbers = field(default_factory=dict)
    by_flows: tuple[TrafficClass, ...] = ()
    routing: Routing | None = None
    placement: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reserved: Reserved | None = None
    # The paths and the common paths of the pairs asked for so far. Every round asks for all pairs
    # several times.
    _paths: _PathsOfPairs = field(default_factory=dict, init=False, repr=False, compare=False)
    _common: _PathsOfPairs = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def networks(self) -> dict[str, tuple[Nic, ...]]:
        """The NICs of each network, in order of (host, port)."""
        nics: dict[str, list[Nic]] = {}
        for name in sorted(self.hosts):
            for nic in self.hosts[name].nics:
                if nic.network is not None:
                    nics.setdefault(nic.network, []).append(nic)
        return {network: tuple(nics[network]) for network in sorted(nics)}

    def paths(self, sender: str, receiver: str) -> tuple[Path, ...]:
        """All paths of a pair, dead ones too, in order of their keys.

        There are none when the two hosts share no network.
        """
        paths = self._paths.get((sender, receiver))
        if paths is None:
            paths = self._paths[sender, receiver] = tuple(
                Path(own, peer, route)
                for own in self.hosts[sender].nics
                for peer in self.hosts[receiver].nics
                if own.network is not None and own.network == peer.network
                for route in (
                    _ONE_SWITCH if self.routing is None else self.routing.routes(own, peer)
                )
            )
        return paths

    def common_paths(self, sender: str, receiver: str) -> tuple[Path, ...]:
        """The paths of a pair that everybody may use, dead ones too, in order of their keys.

        They are all paths but those that jobs have for themselves.
        """
        if self.reserved is None:
            return self.paths(sender, receiver)
        paths = self._common.get((sender, receiver))
        if paths is None:
            paths = self.reserved.common(sender, receiver, self.paths(sender, receiver))
            self._common[sender, receiver] = paths
        return paths

    def helper_links(self, sender: str, receiver: str) -> dict[int, Path]:
        """The helper links of a pair by number, in order of numbers, dead ones too."""
        swapped = sender > receiver
        low, high = sorted((sender, receiver))
        numbers = self.helper_link_numbers.get((low, high), {})
        links = {}
        for path in self.paths(sender, receiver) if numbers else ():
            own_port, peer_port, vlan = path.key
            number = numbers.get((peer_port, own_port, vlan) if swapped else path.key)
            if number is not None:
                links[number] = path
        return dict(sorted(links.items()))

    def stripes(self, sender: str, receiver: str) -> bool:
        """Whether `sender` gives frames for `receiver` to its helper, as long as that helper runs.

        By the carrier of the TAPs, the sender's bridge knows whether its helper runs. It cannot
        know that the helper hangs.
        """
        one, other = self.hosts[sender], self.hosts[receiver]
        both = all(host.may_stripe and host.helper for host in (one, other))
        usable = both and not one.helper_hangs and other.helper_up
        return usable and bool(self.helper_links(sender, receiver))

    def striped(self, one: str, other: str) -> bool:
        """Whether the frames of both directions go through the helpers now."""
        return self.hosts[one].helper_up and self.stripes(one, other) and self.stripes(other, one)

    def attachments(self, host: str) -> dict[str, tuple[Nic, ...]]:
        """The NICs of a host by network.

        The first NIC of a network is used for broadcast and for unmanaged hosts. Live NICs come
        first, then the order is that of ports. The order of networks is that of the host's ports,
        not of their names: a controller that starts anew may find the same networks in another
        order, and shall change nothing.
        """
        nics: dict[str, list[Nic]] = {}
        for nic in sorted(self.hosts[host].nics, key=lambda nic: nic.port):
            if nic.network is not None:
                nics.setdefault(nic.network, []).append(nic)
        return {
            name: tuple(sorted(members, key=lambda nic: not (nic.sends and nic.receives)))
            for name, members in nics.items()
        }

    @cached_property
    def unconnected_pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of hosts that share no network, each once, in order.

        They are asked for again and again, so not every pair is looked at: hosts on the same
        networks are taken together. Two hosts without a common network have no path, and two on one
        switch have one. Elsewhere the routes decide.
        """
        alike: dict[frozenset[str], list[str]] = {}
        for name, host in self.hosts.items():
            networks = frozenset(nic.network for nic in host.nics if nic.network is not None)
            alike.setdefault(networks, []).append(name)
        found: set[tuple[str, str]] = set()
        for one, some in alike.items():
            for other, others in alike.items():
                if one.isdisjoint(other):
                    found |= {(a, b) for a in some for b in others if a < b}
                elif self.routing is not None:
                    found |= {
                        (a, b) for a in some for b in others if a < b and not self.paths(a, b)
                    }
        return tuple(sorted(found))

    def capacities_bps(self) -> dict[str, float]:
        """The rate of every link, by the ids of `Path.links`."""
        rates = dict(self.routing.capacities_bps()) if self.routing is not None else {}
        for host in self.hosts.values():
            for nic in host.nics:
                rates[f"{host.name}:{nic.port}>"] = float(nic.rate_bps)
                rates[f">{host.name}:{nic.port}"] = float(nic.rate_bps)
        return rates
