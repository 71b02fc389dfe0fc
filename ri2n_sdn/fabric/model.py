"""The fabric as the controller sees it now: hosts, NICs, networks, and the paths between two
hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from ri2n_sdn.fabric.classes import TrafficClass

__all__ = [
    "MAX_NIC_PORT",
    "UNTAGGED",
    "Fabric",
    "Guest",
    "Host",
    "LinkNumbers",
    "Nic",
    "NicId",
    "PairKey",
    "Path",
    "PathKey",
    "Route",
    "Routing",
]

NicId = tuple[str, int]
"""(host name, OpenFlow port number)."""

PairKey: TypeAlias = tuple[str, str]  # (sender host, receiver host)
PathKey = tuple[int, int, int]
"""(sender's OpenFlow port, receiver's OpenFlow port, VLAN ID of its frames) of a path between
two hosts.
"""

UNTAGGED = 0
"""In place of a VLAN ID:

no tag, as frames of a network's first tree go (and all where a network is one switch).
"""

MAX_NIC_PORT = 1023
"""The highest port number of a NIC that is used: a path has to fit a register (pipeline.layout)."""

LinkNumbers = Mapping[tuple[str, str], Mapping[PathKey, int]]
"""(host, host with the greater name) -> (the two ports, VLAN) -> the link's number
(fabric.links).
"""


@dataclass(frozen=True, slots=True)
class Nic:
    """A port of a host's bridge that leads to a switch; what was learned of it is `network` and the
    two `*_alive`.

    `switch` is the one that it is plugged into, as declared, where a network has several.
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
        """Frames sent on this NIC reach its network."""
        return self.up and self.tx_alive

    @property
    def receives(self) -> bool:
        """Frames for this NIC arrive."""
        return self.up and self.rx_alive

    @property
    def id(self) -> NicId:
        return (self.host, self.port)


@dataclass(frozen=True, slots=True, order=True)
class Guest:
    """A MAC address of a container or virtual machine that has the OpenFlow port `port` of its
    host's bridge.
    """

    port: int
    mac: str


@dataclass(frozen=True, slots=True)
class Host:
    """A managed host. `mac` is the one of its LOCAL port, which its IP address belongs to.

    `extra_macs` are behind its LOCAL port (containers with a macvlan there), `guests` behind ports
    of their own: their frames are handled as those of unmanaged hosts are. `hash_algorithm` is what
    its select groups hash by (pipeline.messages.Group). `control_port` is the TCP port of its
    controller, which may be reached over the fabric. `accepts_wire` says that its receiving tables
    are known to be installed, so that peers may send it frames that carry NIC addresses (before,
    they must use the host's own). `helper` says that it has the two TAPs of `ri2n-reorder`,
    `helper_up` that the helper runs, `helper_hangs` that its process holds them and does nothing,
    and `may_stripe` that the cluster's configuration lets it be used. Rows for helpers' frames do
    not ask for the latter: what is on its way when striping is turned off still arrives.
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
        return next((nic for nic in self.nics if nic.port == port), None)


@dataclass(frozen=True, slots=True)
class Route:
    """A way through the switches of a network: the VLAN that leads along it, and the directed links
    that it crosses.

    `rate_bps` is the slowest one's; None when there is none, since both NICs are on one switch.
    """

    vlan: int = UNTAGGED
    links: tuple[str, ...] = ()
    alive: bool = True
    rate_bps: int | None = None


class Routing(Protocol):
    """The ways through networks of several switches (vlan.routing)."""

    def vlans(self, nic: Nic) -> tuple[int, ...]:
        """VLAN IDs with which frames may come in by a NIC."""
        ...

    def flood_vlans(self, network: str, nics: tuple[Nic, ...]) -> tuple[int, ...]:
        """VLANs (UNTAGGED among them) that reach all of a network's `nics` now, best first; never
        empty, two at most.

        Broadcast goes into the first one; what must arrive even while one of them breaks, into
        both.
        """
        ...

    def routes(self, own: Nic, peer: Nic) -> tuple[Route, ...]:
        """Those that this pair of NICs of one network may use, in order of their VLANs.

        Dead ones too.
        """
        ...

    def capacities_bps(self) -> Mapping[str, float]:
        """The rate of every directed link between switches, by the names in `Route.links`."""
        ...


_ONE_SWITCH = (Route(),)


@dataclass(frozen=True, slots=True)
class Path:
    """From one NIC of the sender to one NIC of the receiver on the same network, along one of
    its routes.
    """

    own: Nic
    peer: Nic
    route: Route = _ONE_SWITCH[0]

    @property
    def key(self) -> PathKey:
        return (self.own.port, self.peer.port, self.route.vlan)

    @property
    def alive(self) -> bool:
        return self.own.sends and self.peer.receives and self.route.alive

    @property
    def network(self) -> str:
        assert self.own.network is not None
        return self.own.network

    @property
    def rate_bps(self) -> int:
        return min(self.own.rate_bps, self.peer.rate_bps, self.route.rate_bps or self.own.rate_bps)

    @property
    def links(self) -> tuple[str, ...]:
        """Ids of the directed, capacitated links that the path crosses (weights.loop)."""
        return (
            f"{self.own.host}:{self.own.port}>",
            *self.route.links,
            f">{self.peer.host}:{self.peer.port}",
        )


@dataclass(frozen=True)
class Fabric:
    """All managed hosts at one moment; immutable, so that a plan is computed from one consistent
    view.

    `by_flows` is what helpers are not given, whoever sends it to whom. `routing` knows the ways
    through networks of several switches; without it every network is one switch. `placement` has
    the hosts whose TCP services get each new connection placed on a path of its own, and the
    services' ports; none: all ports (pipeline.placement).
    """

    hosts: Mapping[str, Host] = field(default_factory=dict)
    link_numbers: LinkNumbers = field(default_factory=dict)
    by_flows: tuple[TrafficClass, ...] = ()
    routing: Routing | None = None
    placement: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def _paths(self) -> dict[tuple[str, str], tuple[Path, ...]]:
        """Paths that were asked for: every round asks for all pairs, several times."""
        return {}

    @cached_property
    def networks(self) -> dict[str, tuple[Nic, ...]]:
        """Members of each network, in order of (host, port)."""
        found: dict[str, list[Nic]] = {}
        for name in sorted(self.hosts):
            for nic in self.hosts[name].nics:
                if nic.network is not None:
                    found.setdefault(nic.network, []).append(nic)
        return {name: tuple(found[name]) for name in sorted(found)}

    def paths(self, sender: str, receiver: str) -> tuple[Path, ...]:
        """All paths of a pair, dead ones too, in order of their keys.

        Empty when they share no network.
        """
        found = self._paths.get((sender, receiver))
        if found is None:
            found = self._paths[sender, receiver] = self._find_paths(sender, receiver)
        return found

    def _find_paths(self, sender: str, receiver: str) -> tuple[Path, ...]:
        return tuple(
            Path(own, peer, route)
            for own in self.hosts[sender].nics
            for peer in self.hosts[receiver].nics
            if own.network is not None and own.network == peer.network
            for route in (_ONE_SWITCH if self.routing is None else self.routing.routes(own, peer))
        )

    def links(self, sender: str, receiver: str) -> dict[int, Path]:
        """The paths of a pair that have a number, dead ones too, in order of their numbers."""
        swapped = sender > receiver
        numbers = self.link_numbers.get((receiver, sender) if swapped else (sender, receiver), {})
        found = {}
        for path in self.paths(sender, receiver) if numbers else ():
            own_port, peer_port, vlan = path.key
            number = numbers.get((peer_port, own_port, vlan) if swapped else path.key)
            if number is not None:
                found[number] = path
        return dict(sorted(found.items()))

    def stripes(self, sender: str, receiver: str) -> bool:
        """Whether `sender` gives its helper what is for `receiver`, as long as its own helper runs.

        Its own bridge knows by the TAPs' carrier whether that runs, but not that it hangs.
        """
        one, other = self.hosts[sender], self.hosts[receiver]
        wanted = (
            one.may_stripe
            and other.may_stripe
            and one.helper
            and other.helper
            and not one.helper_hangs
        )
        return wanted and other.helper_up and bool(self.links(sender, receiver))

    def striped(self, one: str, other: str) -> bool:
        """Whether both directions go through the helpers now."""
        return self.hosts[one].helper_up and self.stripes(one, other) and self.stripes(other, one)

    def attachments(self, host: str) -> dict[str, tuple[Nic, ...]]:
        """A host's NICs by network, the one in charge of broadcast and of unmanaged hosts first
        (live, lowest port).

        Networks are in order of the host's ports, not of their names: a controller that starts anew
        may find the same networks in another order, and shall change nothing.
        """
        found: dict[str, list[Nic]] = {}
        for nic in sorted(self.hosts[host].nics, key=lambda nic: nic.port):
            if nic.network is not None:
                found.setdefault(nic.network, []).append(nic)
        return {
            name: tuple(
                sorted(members, key=lambda nic: (not (nic.sends and nic.receives), nic.port))
            )
            for name, members in found.items()
        }

    def unconnected_pairs(self) -> list[tuple[str, str]]:
        """Pairs of hosts that share no network, each once."""
        names = sorted(self.hosts)
        return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if not self.paths(a, b)]

    def capacities_bps(self) -> dict[str, float]:
        """Rate of every directed link, by the ids of `Path.links`."""
        rates = dict(self.routing.capacities_bps()) if self.routing is not None else {}
        for host in self.hosts.values():
            for nic in host.nics:
                rates[f"{host.name}:{nic.port}>"] = float(nic.rate_bps)
                rates[f">{host.name}:{nic.port}"] = float(nic.rate_bps)
        return rates
