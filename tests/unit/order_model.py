# SPDX-License-Identifier: Apache-2.0
"""A model of a change of plan, with frames of every kind sent through each state in between.

The change is sent as the trunk app sends it. A frame that arrives before the change and after it
must arrive once at every moment in between, whichever bridge is faster. The change answers to an
event; carrier, cables and learned addresses are those after that event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations, zip_longest
from typing import Protocol

from ri2n_sdn.fabric.model import Fabric, Host
from ri2n_sdn.pipeline import messages as m
from ri2n_sdn.pipeline.diff import (
    AddFlow,
    AddGroup,
    Change,
    DeleteFlows,
    Installed,
    Message,
    Phase,
    apply,
    batches,
    difference,
    part,
)
from ri2n_sdn.pipeline.layout import (
    COOKIE_OURS,
    ETH_RI2N,
    ETH_STRIPED,
    HELPER_VLAN,
    LOCAL,
    PLAIN_PORT,
    WIRE_PORT,
    Table,
    path_register,
)
from tests.unit.one_bridge import CONTROLLER, Bridge, Frame, Refused, Trace, connection_of, matches

BROADCAST = "ff:ff:ff:ff:ff:ff"
ND_MULTICAST = "33:33:ff:00:00:01"
LLDP = "01:80:c2:00:00:0e"
WIRE = -1
"""In place of a port: the frame is put on the wire of the NIC whose number is added."""


class World(Protocol):
    """The part of bridge_model.Cluster and fat_model.FatCluster that matters here."""

    bridges: dict[str, Bridge]
    fabric: Fabric
    plain: dict[str, str]

    def plain_mac(self, name: str) -> str: ...
    def outcome(self, sent: Sent) -> Counter[Arrival]: ...
    @contextmanager
    def undone(self) -> Iterator[None]: ...
    def still(self) -> None: ...


@dataclass(frozen=True)
class Sent:
    """A frame that a host sends. `in_port` may be the port of its helper, a guest or a NIC."""

    host: str
    frame: Frame
    in_port: int = LOCAL
    wire: bool = False


Arrival = tuple[str, int, Frame]
"""A frame that arrived: (host, port, frame). The port is LOCAL, CONTROLLER, a TAP or a guest's."""


# ---- The frames


def frames_of(
    world: World,
    fabrics: Iterable[Fabric],
    before: Mapping[str, m.Wanted],
    after: Mapping[str, m.Wanted],
) -> list[Sent]:
    """Frames of every kind, between all hosts, guests and plain hosts of the fabrics."""
    frames: dict[Sent, None] = {}
    for fabric in fabrics:
        for host in fabric.hosts.values():
            frames.update(dict.fromkeys(_to_all(fabric, host)))
            frames.update(dict.fromkeys(_with_plain(world, host)))
        for a, b in permutations(fabric.hosts, 2):
            hashes = _hashes(fabric.hosts[a], fabric.hosts[b], before.get(a), after.get(a))
            frames.update(dict.fromkeys(_of_pair(fabric, fabric.hosts[a], fabric.hosts[b], hashes)))
    return list(frames)


def _to_all(fabric: Fabric, host: Host) -> Iterator[Sent]:
    for mac in (host.mac, *host.extra_macs):
        yield Sent(host.name, Frame(mac, BROADCAST, payload="broadcast"))
        yield Sent(host.name, Frame(mac, BROADCAST, 0x0806, payload="who has"))
        yield Sent(host.name, Frame(mac, ND_MULTICAST, 0x86DD, ip_proto=58, icmpv6_type=135))
    for guest in host.guests:
        for kind in (0x0800, 0x0806):
            yield Sent(
                host.name, Frame(guest.mac, BROADCAST, kind, payload="of a guest"), guest.port
            )
        yield Sent(host.name, Frame(guest.mac, host.mac, payload="to its host"), guest.port)
        yield Sent(host.name, Frame(host.mac, guest.mac, payload="to its guest"))
    for nic in host.nics:
        for target in (BROADCAST, LLDP, "03:00:00:52:49:33"):
            yield Sent(
                host.name, Frame(nic.mac, target, ETH_RI2N, payload=nic.name), nic.port, wire=True
            )
        yield Sent(host.name, Frame(nic.mac, LLDP, 0x88CC), nic.port, wire=True)
    if host.helper:
        yield Sent(
            host.name, Frame(host.mac, BROADCAST, ETH_STRIPED, tags=((HELPER_VLAN, 0),)), WIRE_PORT
        )
        for target in (host.mac, BROADCAST):
            yield Sent(
                host.name, Frame("06:00:00:00:99:00", target, payload="in order"), PLAIN_PORT
            )


def _with_plain(world: World, host: Host) -> Iterator[Sent]:
    for name in world.plain:
        mac = world.plain_mac(name)
        for own in (host.mac, *host.extra_macs):
            yield Sent(host.name, Frame(own, mac, payload="to plain"))
            yield Sent(name, Frame(mac, own, payload="from plain"))
        for guest in host.guests:
            yield Sent(host.name, Frame(guest.mac, mac, payload="guest to plain"), guest.port)
            yield Sent(name, Frame(mac, guest.mac, payload="plain to guest"))
        if host.control_port is not None:
            yield Sent(host.name, Frame(host.mac, mac, ip_proto=6, tcp_dst=host.control_port))
        yield Sent(name, Frame(mac, BROADCAST, payload="plain broadcast"))
        yield Sent(name, Frame(mac, BROADCAST, 0x0806, payload="plain asks"))


def _of_pair(fabric: Fabric, a: Host, b: Host, hashes: Iterable[int]) -> Iterator[Sent]:
    plain = Frame(a.mac, b.mac)
    for number in hashes:
        yield Sent(a.name, replace(plain, hash=number))
        if a.helper:  # handed back
            yield Sent(a.name, replace(plain, hash=number, payload="handed back"), WIRE_PORT)
    yield Sent(a.name, replace(plain, tags=((7, 0),)))
    yield Sent(a.name, replace(plain, eth_type=0x0806))
    yield Sent(a.name, replace(plain, eth_type=0x86DD, ip_proto=58, icmpv6_type=136))
    for mac in a.extra_macs:
        yield Sent(a.name, replace(plain, eth_src=mac))
    for mac in b.extra_macs:
        yield Sent(a.name, replace(plain, eth_dst=mac))
    for guest in a.guests:
        yield Sent(a.name, replace(plain, eth_src=guest.mac), guest.port)
    for guest in b.guests:
        yield Sent(a.name, replace(plain, eth_dst=guest.mac))
    for each in fabric.by_flows:
        number = {None: 17, "tcp": 6, "udp": 17, "icmp": 1}[each.proto]
        of_class = replace(plain, ip_proto=number, ip_dscp=each.dscp or 0)
        if each.port is not None:
            of_class = replace(of_class, **{f"{each.proto}_dst": each.port})  # type: ignore[arg-type]
        yield Sent(a.name, of_class)
    for number in fabric.helper_links(a.name, b.name) if a.helper else ():
        yield Sent(a.name, Frame(a.mac, b.mac, ETH_STRIPED, tags=((number + 1, 0),)), WIRE_PORT)
    if {a.name, b.name} & fabric.placement.keys():
        for sent, _ in placed_frames(fabric, a, b):
            yield sent


def placed_frames(fabric: Fabric, a: Host, b: Host) -> Iterator[tuple[Sent, int]]:
    """Frames from `a` to `b` of placed connections, one per path, each with that path's register.

    `a` is the server or the client of the connections.
    """
    for server in (a, b):
        ports = fabric.placement.get(server.name)
        if ports is None:
            continue
        service = ports[0] if ports else 80
        for place, path in enumerate(fabric.paths(a.name, b.name)):
            ends = (service, 5000 + place) if server is a else (5000 + place, service)
            frame = Frame(
                a.mac,
                b.mac,
                ip_proto=6,
                ipv4_src=a.mac,
                ipv4_dst=b.mac,
                tcp_src=ends[0],
                tcp_dst=ends[1],
                hash=place,
            )
            for flags in (0x10, 0x12, 0x11, 0x04):
                yield Sent(a.name, replace(frame, tcp_flags=flags)), path_register(*path.key)


def _hashes(a: Host, b: Host, *plans: m.Wanted | None) -> list[int]:
    """One hash for each combination of paths that a frame of the pair can take by these plans."""
    columns = []
    place = (Table.SEND, 100, (("eth_dst", b.mac), ("eth_src", a.mac)))
    for plan in plans:
        for flow in plan.flows.values() if plan is not None else ():
            if (flow.table, flow.priority, flow.match) == place and plan is not None:
                (action,) = flow.actions
                assert isinstance(action, m.ToGroup)
                columns.append([bucket.actions for bucket in plan.groups[action.group_id].buckets])
    hash_of = {
        tuple(column[number % len(column)] for column in columns): number
        for number in range(63, -1, -1)
    }
    return sorted(hash_of.values())


# ---- The change


def check_change(world: World, wanted: Mapping[str, m.Wanted], fabric: Fabric) -> None:
    """Bring the bridges to their new plans, in each order that the sender can produce.

    The bridges of `world` keep the new plans.
    """
    held = {
        name: (bridge.installed, bridge.tables, bridge.groups)
        for name, bridge in world.bridges.items()
    }
    changes = {name: difference(wanted[name], held[name][0]) for name in wanted}
    before = {name: bridge.wanted for name, bridge in world.bridges.items()}
    sent = frames_of(world, (world.fabric, fabric), before, wanted)
    for order in _ORDERS:
        for name, (_, tables, groups) in held.items():
            world.bridges[name].tables = {table: list(rows) for table, rows in tables.items()}
            world.bridges[name].groups = dict(groups)
        with world.undone():
            _set_connections(world, (world.fabric, fabric))
            _settle(world, sent)
            _walk(world, sent, changes, held, wanted, order)


def _set_connections(world: World, fabrics: Iterable[Fabric]) -> None:
    """Make rows of placed connections on each path."""
    for fabric in fabrics:
        for a, b in permutations(fabric.hosts.values(), 2):
            for sent, path in placed_frames(fabric, a, b):
                rows = (
                    world.bridges[a.name].placed
                    if a.name in fabric.placement
                    else world.bridges[a.name].followed
                )
                rows[connection_of(sent.frame)] = path


def _settle(world: World, sent: Iterable[Sent]) -> None:
    """Let switches and bridges learn from frames sent before the change, and then no more."""
    for each in sent:
        if not each.frame.tcp_flags:
            world.outcome(each)
    world.still()


class _Watch:
    """The outcome of each frame now, kept up to date with every message that a bridge takes.

    A frame is sent again only if the message concerns rows or groups that it met (its traces).
    """

    def __init__(self, world: World, sent: list[Sent]) -> None:
        self.world, self.sent = world, sent
        self.now: list[Counter[Arrival]] = [Counter() for _ in sent]
        self._traces: list[dict[str, Trace]] = [{} for _ in sent]
        self._met: dict[str, set[int]] = defaultdict(set)
        for number in range(len(sent)):
            self._run(number)

    def _run(self, number: int) -> None:
        traces = {name: Trace() for name in self.world.bridges}
        for name, bridge in self.world.bridges.items():
            bridge.trace = traces[name]
        self.now[number] = self.world.outcome(self.sent[number])
        for bridge in self.world.bridges.values():
            bridge.trace = None
        self._traces[number] = {name: trace for name, trace in traces.items() if trace.rows}
        for name in self._traces[number]:
            self._met[name].add(number)

    def take(self, name: str, message: Message) -> list[int]:
        """Give a bridge a message. Returns the numbers of frames whose outcome may differ."""
        self.world.bridges[name].take(message)
        changed = [
            number
            for number in sorted(self._met[name])
            if name in self._traces[number] and _concerns(message, self._traces[number][name])
        ]
        for number in changed:
            self._run(number)
        return changed


def _concerns(message: Message, trace: Trace) -> bool:
    if isinstance(message, AddFlow):
        flow = message.flow
        return any(
            table == flow.table
            and (found is None or flow.priority >= found.priority)
            and matches(flow, state)
            for table, state, found in trace.rows
        )
    if isinstance(message, DeleteFlows):
        return any(
            found is not None and found.cookie == message.cookie for _, _, found in trace.rows
        )
    if isinstance(message, AddGroup):
        return message.group.group_id in trace.groups
    number = message.group_id if not hasattr(message, "group") else message.group.group_id
    return number in trace.groups


_Parts = Mapping[str, list[list[Message]]]


def _sender_first(parts: _Parts) -> Iterator[tuple[str, Message]]:
    for name in sorted(parts):
        yield from ((name, message) for batch in parts[name] for message in batch)


def _receiver_first(parts: _Parts) -> Iterator[tuple[str, Message]]:
    for name in sorted(parts, reverse=True):
        yield from ((name, message) for batch in parts[name] for message in batch)


def _in_turns(parts: _Parts) -> Iterator[tuple[str, Message]]:
    columns = [
        [(name, message) for batch in parts[name] for message in batch] for name in sorted(parts)
    ]
    for turn in zip_longest(*columns):
        yield from (each for each in turn if each is not None)


_Order = Callable[[_Parts], Iterator[tuple[str, Message]]]
# For each pair of bridges: the first one finishes a phase before the second one begins it, the
# second one before the first one, and both take turns.
_ORDERS: tuple[_Order, ...] = (_sender_first, _receiver_first, _in_turns)


def _walk(
    world: World,
    sent: list[Sent],
    changes: Mapping[str, Change],
    held: Mapping[str, tuple[Installed, object, object]],
    wanted: Mapping[str, m.Wanted],
    order: _Order,
) -> None:
    watch = _Watch(world, sent)
    before = list(watch.now)
    states: list[tuple[str, list[tuple[int, Counter[Arrival]]]]] = []
    installed = {name: held[name][0] for name in changes}
    for phase in Phase:
        parts = {name: part(change, phase) for name, change in changes.items()}
        for name, message in order({name: batches(each) for name, each in parts.items()}):
            touched = watch.take(name, message)
            states.append(
                (
                    f"{phase.name}: {name} took {message}",
                    [(number, watch.now[number]) for number in touched],
                )
            )
        for name, each in parts.items():
            installed[name] = apply(each, installed[name])
            _same_when_repeated(world.bridges[name], each)
    after = watch.now
    for said, touched_now in states:
        for number, now in touched_now:
            wrong = _wrong(world, sent[number].frame, before[number], now, after[number])
            assert not wrong, "\n".join(
                [
                    f"{wrong}: {sent[number]}",
                    f"when {said}",
                    f"before {_short(before[number])}, now {_short(now)}, after "
                    f"{_short(after[number])}",
                ]
            )
    for name in changes:
        bridge = world.bridges[name]
        assert bridge.installed == installed[name], f"{name} holds other than is kept in mind of it"
        assert not difference(wanted[name], bridge.installed), (
            f"{name} does not hold what is wanted"
        )
        ours = {cookie for cookie in bridge.installed.cookies if cookie >> 48 == COOKIE_OURS}
        assert ours == wanted[name].flows.keys() and bridge.groups == wanted[name].groups


def _same_when_repeated(bridge: Bridge, change: Change) -> None:
    """Send a change again, as after a lost connection, and check that nothing changes.

    Open vSwitch refuses to make a group twice.
    """
    before = ({table: list(rows) for table, rows in bridge.tables.items()}, dict(bridge.groups))
    for batch in batches(change):
        for message in batch:
            try:
                bridge.take(message)
            except Refused:
                assert isinstance(message, AddGroup)
    rows = {table: {flow.cookie for flow in rows} for table, rows in bridge.tables.items()}
    assert rows == {table: {flow.cookie for flow in rows} for table, rows in before[0].items()}
    assert bridge.groups == before[1]


def _wrong(
    world: World,
    frame: Frame,
    before: Counter[Arrival],
    now: Counter[Arrival],
    after: Counter[Arrival],
) -> str:
    """A text that says what is wrong with a state in between; empty if nothing is.

    Broadcast may come by each of a host's NICs while one NIC takes over from another. Requests for
    neighbours may always do so.
    """
    before, now, after = (_that_matter(outcome) for outcome in (before, now, after))
    if now in (before, after):
        return ""
    strange = now.keys() - before.keys() - after.keys()
    if strange and (before or any(arrived != frame for _, _, arrived in strange)):
        return "it arrives where it should never arrive"
    if before and after and not before.keys() & after.keys():
        return "it arrives neither as before nor as after"
    if before.keys() & after.keys() - now.keys():
        return "it is lost"
    most = (before | after) | Counter(dict.fromkeys(strange, 1))
    if frame.multicast:
        asks = frame.eth_type == 0x0806 or frame.icmpv6_type
        for place in now:
            nics = len(world.bridges[place[0]].carrier) if place[0] in world.bridges else 1
            most[place] = now[place] if asks else max(most[place], nics)
    return "it arrives too often" if now - most else ""


def _that_matter(outcome: Counter[Arrival]) -> Counter[Arrival]:
    """The arrivals that count.

    A copy for the controller does not count if the frame arrives elsewhere too. Nor do frames of
    helpers that a host's kernel drops.
    """
    real = Counter({place: count for place, count in outcome.items() if place[1] != CONTROLLER})
    real = real or outcome
    return Counter(
        {
            place: n
            for place, n in real.items()
            if (place[1], place[2].eth_type) != (LOCAL, ETH_STRIPED)
        }
    )


def _short(outcome: Counter[Arrival]) -> list[tuple[str, str, int]]:
    return [
        (host, {LOCAL: "LOCAL"}.get(port, str(port)), count)
        for (host, port, _), count in outcome.items()
    ]
