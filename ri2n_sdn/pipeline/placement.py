"""Connections placed one by one: each new one of a service goes by the NIC with the fewest; the
client's host follows.

Source: Paradise paper, 3.2.2: the server counts established connections per interface, takes the
one with the fewest, and the lowest number on a tie. Here the server's host does that for programs
that know nothing of it.

A row in `Table.PLACED` says by which path one connection's frames go (reg1), and nothing more.
Whether that path lives is what the rows of `by_path` say, which are planned like all others:
without one the pair's slot table decides.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from ri2n_sdn.fabric.model import Fabric, Host, Nic, NicId, Path, PathKey
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
    Action,
    Bucket,
    Distinguish,
    Flow,
    Follow,
    Goto,
    Group,
    LookBack,
    MatchValue,
    SetField,
    ToController,
    ToGroup,
    row,
)

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
    "meets",
    "path_of_cookie",
    "read_syn_ack",
    "server_of",
    "way_back",
]

MAX_CONNECTIONS = 4096
"""Rows of placed connections that a server's host holds, and of followed ones that any host
learns.
"""

IDLE_TIMEOUT_S = 900
"""A connection whose server is silent for longer is forgotten, and goes by the slot table if it
ever speaks again.
"""

FOLLOWED_IDLE_S = 30
"""The same of a client: what it says then goes by the slot table until the server answers, which
teaches it anew.

Short, for the row of a connection that has ended may be learned once more: Open vSwitch counts what
its datapath sent up to 0.5 s later, and when a table changed meanwhile, a server's packet counts as
one that came after the FIN or RST.
"""

FIN_TIMEOUT_S = 1
"""How long a connection's row outlives its last packet once the connection was closed."""

HALF_OPEN_S = 75.0
"""A server that sent nothing but its answer to the request for that long has no connection:

Linux gives up at 63 s.
"""

_TCP, _NO_TAG = 6, 0
_SYN_ACK = (0x12, 0x12)
_FIN = (0x01, 0x01)
_RST = (0x04, 0x04)
_BY_FLOWS = 1  # in reg3: not for the helper, as in pipeline.striping
_LOOK_UP = (SetField("reg3", _BY_FLOWS), Goto(Table.PLACED), Goto(Table.SEND))
_BY_PATH = 7
_ETHER = struct.Struct("!6s6sH")


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection as the server's host sends its packets: `source` is the server's end.

    Addresses as text.
    """

    source: str
    source_port: int
    target: str
    target_port: int
    target_mac: str

    @property
    def match(self) -> dict[str, MatchValue]:
        """The match of its row."""
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
    """A row of a placed connection as a switch reports it:

    its path, its age and what it has counted.
    """

    connection: Connection
    path: PathKey
    age_s: float
    packets: int

    @property
    def half_open(self) -> bool:
        """The client never came back: only what a server sends after that is counted."""
        return not self.packets and self.age_s > HALF_OPEN_S


@dataclass
class Load:
    """Placed connections: by NIC, at either end, and by VLAN of those that a host sends."""

    nics: Counter[NicId] = field(default_factory=Counter)
    vlans: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, server: str, client: str, path: PathKey) -> None:
        """Count a connection that `server` sends by `path`."""
        self.nics[server, path[0]] += 1
        self.nics[client, path[1]] += 1
        self.vlans[server, path[2]] += 1


def choose(paths: Iterable[Path], load: Load) -> Path | None:
    """The live path whose own NIC has the fewest connections, then whose peer's NIC has, then the
    least used VLAN.

    Each time the lowest number on a tie. None when no path lives.
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
    """The path that such a cookie tells."""
    return path_of_register(cookie & 0xFFFFFFFF)


def server_of(
    placement: Mapping[str, Sequence[int]],
    source: str,
    source_port: int,
    target: str,
    target_port: int,
) -> str | None:
    """Which of the two hosts of a TCP connection has it placed, as its server.

    None when neither has.
    """
    for name, port in ((source, source_port), (target, target_port)):
        if name in placement and (not placement[name] or port in placement[name]):
            return name
    return None


def read_syn_ack(frame: bytes) -> tuple[Connection, str] | None:
    """The connection that a server's answer is about, and the frame's source MAC.

    None for any other frame.
    """
    if len(frame) < 54:
        return None
    target_mac, source_mac, ether_type = _ETHER.unpack_from(frame)
    if ether_type == ETH_IPV4:
        start, protocol, addresses = (
            14 + (frame[14] & 15) * 4,
            frame[23],
            (frame[26:30], frame[30:34]),
        )
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


# ---- rows and groups (docs/pipeline.md, "Placed connections")


def host_flows(host: Host, fabric: Fabric) -> Iterator[Flow]:
    """Rows of table 0 for what the host sends of such connections, as their server and as a client
    of others'.

    The answer to a request goes on by the slot table, and a copy of it asks the controller: a
    connection never waits.
    """
    if host.name in fabric.placement:
        ends: dict[str, MatchValue] = {"in_port": LOCAL, "eth_src": host.mac}
        for match in _services(fabric.placement[host.name], "src"):
            ask: dict[str, MatchValue] = {**ends, **match, "tcp_flags": _SYN_ACK}
            yield row(
                Table.CLASSIFY,
                107,
                ask,
                [ToController(), SetField("reg3", _BY_FLOWS), Goto(Table.SEND)],
            )
            yield _look_up({**ends, **match})
    for name, ports in fabric.placement.items():
        if name != host.name and name in fabric.hosts:
            for match in _services(ports, "dst"):
                match |= {"in_port": LOCAL, "eth_src": host.mac, "eth_dst": fabric.hosts[name].mac}
                yield _look_up(match)
                yield from _end(match)


def by_path(
    host: Host, peer: Host, out: Sequence[Path], slots: Group
) -> tuple[list[Flow], list[Group]]:
    """A row per live path for frames that shall go by it, and its group: the path while it can,
    else the table `slots`.

    All peers with the same table share these groups, since the path is in reg1 already.
    """
    flows, groups = [], {}
    for path in out:
        if not path.alive:
            continue
        number = group_id(_BY_PATH, (path.own.port, slots.group_id))
        send = Bucket(path.own.port, (Goto(Table.SEND_COUNT),))
        fallback = Bucket(None, (ToGroup(slots.group_id),), watch_group=slots.group_id)
        groups[number] = Group(number, Group.FAST_FAILOVER, (send, fallback))
        match: dict[str, MatchValue] = {
            "eth_src": host.mac,
            "eth_dst": peer.mac,
            "reg1": path_register(*path.key),
        }
        flows.append(row(Table.SEND, 115, match, [ToGroup(number)]))
    return flows, list(groups.values())


def follow_flows(server: Host, ports: Sequence[int]) -> Iterator[Flow]:
    """Rows that learn from a server's frames by which path the connection's own shall go back.

    A RST ends that.
    """
    for match in _services(ports, "src"):
        eth_type = match["eth_type"]
        assert isinstance(eth_type, int)
        follow = Follow(
            Table.PLACED, eth_type, FOLLOWED_IDLE_S, FIN_TIMEOUT_S, MAX_CONNECTIONS, COOKIE_FOLLOWED
        )
        yield row(Table.FOLLOW, 100, {"eth_src": server.mac, **match}, [follow])
        # Before that one: nobody answers a RST, so what it taught would stay.
        yield row(
            Table.FOLLOW, 110, {"eth_src": server.mac, **match, "tcp_flags": _RST}, _ended(eth_type)
        )


def ended_by_client(host: Host, ports: Sequence[int]) -> Iterator[Flow]:
    """Rows by which a client's RST ends the server's row, which no packet of the server itself
    will do.
    """
    for match in _services(ports, "dst"):
        eth_type = match["eth_type"]
        assert isinstance(eth_type, int)
        yield row(
            Table.FOLLOW, 110, {"eth_dst": host.mac, **match, "tcp_flags": _RST}, _ended(eth_type)
        )


def _ended(eth_type: int) -> list[Action]:
    return [LookBack(Table.PLACED, eth_type)]


def meets(places: bool, follows: bool, back: PathKey | None) -> tuple[SetField | Goto, ...]:
    """What a frame of a peer meets on its way in, besides being delivered.

    `places`: this host places connections, which the peer may reset. `follows`: the peer places its
    own, which go back by the path `back`; None when no path leads there.
    """
    if follows:
        return () if back is None else (SetField("reg5", path_register(*back)), Goto(Table.FOLLOW))
    return (Goto(Table.FOLLOW),) if places else ()


def way_back(path: Path, out: Iterable[Path]) -> PathKey | None:
    """The path of `out` between the same two NICs as `path`, which comes in:

    in the same VLAN if there is one.
    """
    between = [each for each in out if _same(each.own, path.peer) and _same(each.peer, path.own)]
    between.sort(
        key=lambda each: (each.route.vlan != path.route.vlan, not each.alive, each.route.vlan)
    )
    return between[0].key if between else None


def _same(one: Nic, other: Nic) -> bool:
    return one.id == other.id


def _look_up(match: Mapping[str, MatchValue]) -> Flow:
    return row(Table.CLASSIFY, 106, match, _LOOK_UP)


def _end(match: Mapping[str, MatchValue]) -> Iterator[Flow]:
    """The same for what ends a client's connection, by rows of their own: so a datapath asks, and
    its row ends.

    What a datapath cached before that row was learned holds for 0.25 s more, maybe for many
    connections at once: that one of them ended meanwhile would be seen by no row.
    """
    eth_type = match["eth_type"]
    assert isinstance(eth_type, int)
    for flag in (_FIN, _RST):
        yield row(
            Table.CLASSIFY, 107, {**match, "tcp_flags": flag}, [Distinguish(eth_type), *_LOOK_UP]
        )


def _services(ports: Sequence[int], end: str) -> Iterator[dict[str, MatchValue]]:
    """TCP from (`src`) or to (`dst`) these ports, or all, by address family.

    Without a tag of the host's own.
    """
    for family in (ETH_IPV4, ETH_IPV6):
        match: dict[str, MatchValue] = {"eth_type": family, "ip_proto": _TCP, "vlan_vid": _NO_TAG}
        if not ports:
            yield match
        for port in ports:
            yield {**match, f"tcp_{end}": port}
