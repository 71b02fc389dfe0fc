# SPDX-License-Identifier: Apache-2.0
"""Place each new connection of a service on the NIC with the fewest connections.

The client's host follows: its frames go back by the same path. Source: Paradise paper, section
3.2.2. There the server counts established connections per interface, and takes the interface with
the fewest, or the one with the lowest number on a tie. Here the server's host does that, and
programs need not know.

A row in `Table.PLACED` says by which path the frames of one connection go (reg1), and nothing more.
The rows of `by_path` say whether that path is alive, and they are planned like all other rows.
Without such a row the pair's slot table decides.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from ri2n_sdn.fabric.model import Fabric, Host, NicId, Path, PathKey
from ri2n_sdn.pipeline.layout import (
    COOKIE_FOLLOWED,
    COOKIE_PLACED,
    ETH_IPV4,
    ETH_IPV6,
    LOCAL,
    Table,
    group_id,
    path_of_register,
    path_register,
)
from ri2n_sdn.pipeline.messages import (
    Bucket,
    Distinguish,
    Flow,
    Follow,
    Goto,
    Group,
    LookBack,
    Match,
    Rows,
    SetField,
    ToController,
    ToGroup,
    first_live,
    otherwise,
    row,
)
from ri2n_sdn.pipeline.priorities import Classify, Follows, Send

__all__ = [
    "FIN_TIMEOUT_S",
    "FOLLOWED_IDLE_S",
    "HALF_OPEN_S",
    "IDLE_TIMEOUT_S",
    "MAX_CONNECTIONS",
    "Connection",
    "Load",
    "PlacedRow",
    "by_path",
    "choose",
    "cookie_of",
    "ended_by_client",
    "follow_flows",
    "host_flows",
    "incoming_actions",
    "path_back",
    "path_of_cookie",
    "read_syn_ack",
    "server_of",
]

MAX_CONNECTIONS = 4096
"""The largest number of rows of placed connections on a server's host.

Any host may learn that many rows of followed connections too.
"""

IDLE_TIMEOUT_S = 900
"""The row of a connection ends when its server has been silent for this long.

If the server sends again, its packets go by the slot table.
"""

FOLLOWED_IDLE_S = 30
"""The learned row of a client ends when the client has been silent for this long.

If the client sends again, its packets go by the slot table until the server answers; then its host
learns the row anew. The time is short, since the row of a connection that has ended may be learned
once more. Open vSwitch counts what its datapath sent up to 0.5 s later. When a table changed
meanwhile, a server's packet counts as one that came after the FIN or RST.
"""

FIN_TIMEOUT_S = 1
"""The row of a closed connection ends this long after the connection's last packet."""

HALF_OPEN_S = 75.0
"""A server that has sent only its answer to the request for this long has no connection.

Linux gives up after 63 s.
"""

_TCP, _NO_TAG = 6, 0
_SYN_ACK = (0x12, 0x12)
_FIN = (0x01, 0x01)
_RST = (0x04, 0x04)
_BY_FLOWS = 1  # the value of reg3 that means "not for the helper", as in pipeline.striping
_LOOK_UP = (SetField("reg3", _BY_FLOWS), Goto(Table.PLACED), Goto(Table.SEND))
_BY_PATH = 7
_ETHER = struct.Struct("!6s6sH")


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection as the server's host sends its packets: `source` is the server's end.

    The addresses are text.
    """

    source: str
    source_port: int
    target: str
    target_port: int
    target_mac: str

    @property
    def match(self) -> Match:
        """The match of the row that places the connection."""
        prefix, family = ("ipv6", ETH_IPV6) if ":" in self.source else ("ipv4", ETH_IPV4)
        return {
            "eth_type": family,
            "eth_dst": self.target_mac,
            "ip_proto": _TCP,
            f"{prefix}_src": self.source,
            f"{prefix}_dst": self.target,
            "tcp_src": self.source_port,
            "tcp_dst": self.target_port,
        }


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A row of a placed connection as a switch reports it: its path, age and packets."""

    connection: Connection
    path: PathKey
    age_s: float
    packets: int

    @property
    def half_open(self) -> bool:
        """Whether the client never completed the connection.

        The row counts only packets that the server sends after its answer to the request.
        """
        return not self.packets and self.age_s > HALF_OPEN_S


@dataclass
class Load:
    """The numbers of placed connections: by NIC, at both ends, and by sending host and VLAN."""

    nics: Counter[NicId] = field(default_factory=Counter)
    vlans: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, server: str, client: str, path: PathKey) -> None:
        """Count a connection whose packets `server` sends by `path`."""
        self.nics[server, path[0]] += 1
        self.nics[client, path[1]] += 1
        self.vlans[server, path[2]] += 1


def choose(paths: Iterable[Path], load: Load) -> Path | None:
    """The live path whose own NIC has the fewest connections; None when no path is alive.

    On a tie the NIC with the lowest port wins. Among the paths of that NIC, the same rule decides
    on the peer's NIC, and then on the VLAN.
    """

    def rank(path: Path) -> tuple[int, int, int, int, int, int]:
        own, peer, vlan = path.own, path.peer, path.route.vlan
        return (
            load.nics[own.id],
            own.port,
            load.nics[peer.id],
            peer.port,
            load.vlans[own.host, vlan],
            vlan,
        )

    return min((path for path in paths if path.alive), key=rank, default=None)


def cookie_of(path: PathKey) -> int:
    """The cookie of a row that places a connection on a path."""
    return COOKIE_PLACED | path_register(*path)


def path_of_cookie(cookie: int) -> PathKey:
    """The path that the cookie of such a row stands for."""
    return path_of_register(cookie & 0xFFFFFFFF)


def server_of(
    placement: Mapping[str, Sequence[int]],
    source: str,
    source_port: int,
    target: str,
    target_port: int,
) -> str | None:
    """The host of a TCP connection that is its server and places it; None when there is none.

    `placement` has the ports of each host that places connections; no ports mean all ports.
    """
    for name, port in ((source, source_port), (target, target_port)):
        if name in placement and (not placement[name] or port in placement[name]):
            return name
    return None


def read_syn_ack(frame: bytes) -> tuple[Connection, str] | None:
    """The connection whose request a server answers with `frame`, and the frame's source MAC.

    None for any frame that is not such an answer (a TCP segment with SYN and ACK).
    """
    if len(frame) < 54:
        return None
    target_mac, source_mac, ether_type = _ETHER.unpack_from(frame)
    if ether_type == ETH_IPV4:
        start, protocol = 14 + (frame[14] & 15) * 4, frame[23]
        addresses = frame[26:30], frame[30:34]
        later_fragment = bool(int.from_bytes(frame[20:22], "big") & 0x1FFF)
    elif ether_type == ETH_IPV6:
        start, protocol, addresses = 54, frame[20], (frame[22:38], frame[38:54])
        later_fragment = False
    else:
        return None
    if protocol != _TCP or later_fragment or start < 34 or len(frame) < start + 20:
        return None
    if frame[start + 13] & _SYN_ACK[1] != _SYN_ACK[0]:
        return None
    source, target = (str(ip_address(address)) for address in addresses)
    source_port, target_port = struct.unpack_from("!HH", frame, start)
    return Connection(
        source, source_port, target, target_port, target_mac.hex(":")
    ), source_mac.hex(":")


# ---- Rows and groups (docs/pipeline.md, "Placed connections")


def host_flows(host: Host, fabric: Fabric) -> Iterator[Flow]:
    """Rows of table 0 for packets of placed connections that the host sends.

    The host may be their server, or a client of other servers. A server's answer to a request goes
    by the slot table at once, and a copy of it goes to the controller. So a connection never waits
    for the controller.
    """
    if host.name in fabric.placement:
        ask = (ToController(), SetField("reg3", _BY_FLOWS), Goto(Table.SEND))
        for _, match in _services(fabric.placement[host.name], "src"):
            match |= {"in_port": LOCAL, "eth_src": host.mac}
            yield row(Classify.HANDSHAKE, {**match, "tcp_flags": _SYN_ACK}, ask)
            yield row(Classify.PLACED, match, _LOOK_UP)
    for name, ports in fabric.placement.items():
        if name != host.name and name in fabric.hosts:
            for family, match in _services(ports, "dst"):
                match |= {"in_port": LOCAL, "eth_src": host.mac, "eth_dst": fabric.hosts[name].mac}
                yield row(Classify.PLACED, match, _LOOK_UP)
                yield from _end(family, match)


def by_path(host: Host, peer: Host, out: Sequence[Path], slots: Group) -> Rows:
    """A row per live path for frames that shall go by it, and the groups of these rows.

    A group sends by the path while the path's own NIC has carrier, else by the slot table `slots`.
    All peers with the same table share these groups, since reg1 has the path already.
    """
    for path in out:
        if not path.alive:
            continue
        number = group_id(_BY_PATH, (path.own.port, slots.group_id))
        send = Bucket(path.own.port, (Goto(Table.SEND_COUNT),))
        yield first_live(number, send, otherwise(slots.group_id))
        register = path_register(*path.key)
        match: Match = {"eth_src": host.mac, "eth_dst": peer.mac, "reg1": register}
        yield row(Send.BY_PATH, match, [ToGroup(number)])


def follow_flows(server: Host, ports: Sequence[int]) -> Iterator[Flow]:
    """Rows that learn from a server's frames by which path this host's frames shall go back.

    A RST of the server ends the learned row.
    """
    for family, match in _services(ports, "src"):
        follow = Follow(
            Table.PLACED, family, FOLLOWED_IDLE_S, FIN_TIMEOUT_S, MAX_CONNECTIONS, COOKIE_FOLLOWED
        )
        yield row(Follows.LEARN, {"eth_src": server.mac, **match}, [follow])
        # This row has the higher priority. Nobody answers a RST, so a row learned from it would
        # stay.
        reset: Match = {"eth_src": server.mac, **match, "tcp_flags": _RST}
        yield row(Follows.RESET, reset, [LookBack(Table.PLACED, family)])


def ended_by_client(host: Host, ports: Sequence[int]) -> Iterator[Flow]:
    """Rows by which a client's RST ends the server's row.

    The server answers no RST, so no packet of its own would end that row.
    """
    for family, match in _services(ports, "dst"):
        reset: Match = {"eth_dst": host.mac, **match, "tcp_flags": _RST}
        yield row(Follows.RESET, reset, [LookBack(Table.PLACED, family)])


def incoming_actions(
    places: bool, follows: bool, back: PathKey | None
) -> tuple[SetField | Goto, ...]:
    """The actions for a frame of a peer that comes in, besides its delivery.

    `places` says that this host places connections, which the peer may reset. `follows` says that
    the peer places connections, whose frames go back by the path `back` (None: by no path).
    """
    if follows:
        return () if back is None else (SetField("reg5", path_register(*back)), Goto(Table.FOLLOW))
    return (Goto(Table.FOLLOW),) if places else ()


def path_back(path: Path, out: Iterable[Path]) -> PathKey | None:
    """The path of `out` that leads back between the two NICs of `path`; None if there is none.

    `path` leads to this host, the paths of `out` lead away from it. A path in the same VLAN comes
    first, then a live one, then the lowest VLAN.
    """
    between = [
        other for other in out if other.own.id == path.peer.id and other.peer.id == path.own.id
    ]
    between.sort(
        key=lambda other: (other.route.vlan != path.route.vlan, not other.alive, other.route.vlan)
    )
    return between[0].key if between else None


def _end(family: int, match: Match) -> Iterator[Flow]:
    """Rows that look up packets which end a client's connection (FIN, RST), one by one.

    The learned row ends only if it sees such a packet. But what a datapath cached before the row
    was learned holds for up to 0.25 s more, maybe for many connections at once, and then no row of
    them would see the packet. So these packets have rows of their own, and what a datapath caches
    of them holds for one connection only.
    """
    for flag in (_FIN, _RST):
        packets: Match = {**match, "tcp_flags": flag}
        yield row(Classify.HANDSHAKE, packets, [Distinguish(family), *_LOOK_UP])


def _services(ports: Sequence[int], end: str) -> Iterator[tuple[int, Match]]:
    """(address family, match) of TCP from (`src`) or to (`dst`) these ports, or all ports.

    Frames with a VLAN tag of the host's own do not match.
    """
    for family in (ETH_IPV4, ETH_IPV6):
        match: Match = {"eth_type": family, "ip_proto": _TCP, "vlan_vid": _NO_TAG}
        if not ports:
            yield family, match
        for port in ports:
            yield family, {**match, f"tcp_{end}": port}
