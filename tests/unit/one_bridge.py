# SPDX-License-Identifier: Apache-2.0
"""A model of one bridge, which takes messages and handles frames as Open vSwitch does."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ri2n_sdn.pipeline import messages as m
from ri2n_sdn.pipeline.diff import (
    AddGroup,
    DeleteFlows,
    DeleteGroup,
    Installed,
    Message,
    ModifyGroup,
)
from ri2n_sdn.pipeline.layout import COOKIE_STARTUP, IN_PORT, LOCAL, VLAN_PRESENT, Table
from ri2n_sdn.pipeline.priorities import Place

CONTROLLER = 0xFFFFFFFD
LEARNED_AT_START = 252
"""The table that the start-up flows of host-up learn into."""


@dataclass(frozen=True)
class Frame:
    """A frame with the fields that rows match. `hash` is its hash, `payload` tells it apart."""

    eth_src: str
    eth_dst: str
    eth_type: int = 0x0800
    ip_proto: int = 17
    ip_dscp: int = 0
    icmpv4_type: int = 0
    icmpv4_code: int = 0
    icmpv6_type: int = 0
    ipv4_src: str = ""
    ipv4_dst: str = ""
    ipv6_src: str = ""
    ipv6_dst: str = ""
    tcp_src: int = 0
    tcp_dst: int = 0
    tcp_flags: int = 0
    udp_src: int = 0
    udp_dst: int = 0
    hash: int = 0
    payload: str = ""
    tags: tuple[tuple[int, int], ...] = ()
    """(VLAN ID, priority) of each 802.1Q tag, the outermost first."""

    @property
    def vlan_vid(self) -> int:
        return VLAN_PRESENT | self.tags[0][0] if self.tags else 0

    @property
    def multicast(self) -> bool:
        return bool(int(self.eth_dst[:2], 16) & 1)


@dataclass
class State:
    """A frame on its way through the tables."""

    frame: Frame
    in_port: int
    registers: dict[str, int] = field(default_factory=dict)


@dataclass
class Trace:
    """The things that decided how a frame went.

    `rows` has the table, the state and the row that matched (or None) of each look-up. `groups` has
    the groups that the frame met.
    """

    rows: list[tuple[int, State, m.Flow | None]] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)


class Refused(AssertionError):
    """Open vSwitch answers such a message with an error."""


class Bridge:
    """One host's bridge: its flows and groups, the ports with carrier, and what it learned.

    While `learns` is False, frames change nothing. While there is a `trace`, it is filled.
    """

    def __init__(self, wanted: m.Wanted, ports: Iterable[int]) -> None:
        self.carrier = set(ports)
        self.learned: dict[tuple[int, str], int] = {}
        self.followed: dict[tuple[object, ...], int] = {}
        self.placed: dict[tuple[object, ...], int] = {}
        self.learns = True
        self.trace: Trace | None = None
        self.tables: dict[int, list[m.Flow]] = {}
        self.groups: dict[int, m.Group] = {}
        self.hold(wanted)

    # ---- Rows and groups

    @property
    def wanted(self) -> m.Wanted:
        """The rows and groups of the bridge, in no particular order."""
        return m.Wanted(
            {flow.cookie: flow for rows in self.tables.values() for flow in rows}, dict(self.groups)
        )

    @property
    def installed(self) -> Installed:
        """The rows and groups of the bridge, as the trunk app reads them."""
        return Installed(
            {flow.cookie: flow.table for rows in self.tables.values() for flow in rows},
            dict(self.groups),
        )

    def hold(self, wanted: m.Wanted) -> None:
        """Replace all rows and groups at once.

        Changes of a running bridge go through `Cluster.replan` instead.
        """
        self.tables = {}
        for flow in wanted.flows.values():
            self.tables.setdefault(flow.table, []).append(flow)
        for rows in self.tables.values():
            rows.sort(key=_priority)
        self.groups = dict(wanted.groups)

    def take(self, message: Message) -> None:
        """Take a message as Open vSwitch does.

        A row replaces another one in its place. When a group is deleted, its rows go too. Raises
        Refused where Open vSwitch answers with an error.
        """
        if isinstance(message, AddGroup):
            if message.group.group_id in self.groups:
                raise Refused(f"there is a group {message.group.group_id:#x}")
            self.groups[message.group.group_id] = message.group
        elif isinstance(message, ModifyGroup):
            if message.group.group_id not in self.groups:
                raise Refused(f"there is no group {message.group.group_id:#x}")
            self.groups[message.group.group_id] = message.group
        elif isinstance(message, DeleteGroup):
            self.groups.pop(message.group_id, None)
            self._keep(lambda flow: message.group_id not in groups_of(flow))
        elif isinstance(message, DeleteFlows):
            self._keep(lambda flow: flow.cookie != message.cookie)
        else:
            flow = message.flow
            if not groups_of(flow) <= self.groups.keys():
                raise Refused(f"{flow} leads to a group that is not there")
            rows = self.tables.setdefault(flow.table, [])
            rows[:] = [
                other
                for other in rows
                if (other.priority, other.match) != (flow.priority, flow.match)
            ]
            insort(rows, flow, key=_priority)

    def _keep(self, wanted: object) -> None:
        assert callable(wanted)
        for rows in self.tables.values():
            if not all(map(wanted, rows)):
                rows[:] = filter(wanted, rows)

    # ---- Frames

    def receive(self, frame: Frame, in_port: int) -> list[tuple[int, Frame]]:
        """Handle a frame. Returns (port, frame) for each copy that leaves.

        A frame leaves by the port that it came in by only if an action says IN_PORT.
        """
        out: list[tuple[int, Frame]] = []
        self._table(0, State(frame, in_port), out)
        return [(port, sent) for port, sent in out if port >= LOCAL - 1 or port in self.carrier]

    def _table(self, table: int, state: State, out: list[tuple[int, Frame]]) -> None:
        if (
            table in (Table.LEARNED, LEARNED_AT_START)
            and (table, state.frame.eth_dst) in self.learned
        ):
            state.registers["reg2"] = self.learned[table, state.frame.eth_dst]
            return
        if table == Table.PLACED:
            ends = connection_of(state.frame)
            state.registers["reg1"] = self.placed.get(ends, self.followed.get(ends, 0))
            return
        found = next((flow for flow in self.tables.get(table, ()) if matches(flow, state)), None)
        if self.trace is not None:
            self.trace.rows.append((table, replace(state, registers=dict(state.registers)), found))
        if found is not None:
            self._actions(found.actions, state, out)

    def _actions(
        self, actions: Iterable[m.Action], state: State, out: list[tuple[int, Frame]]
    ) -> None:
        for action in actions:
            if isinstance(action, m.Output):
                back = action.port == IN_PORT
                if back or action.port != state.in_port:
                    out.append((state.in_port if back else action.port, state.frame))
            elif isinstance(action, m.ToController):
                out.append((CONTROLLER, state.frame))
            elif isinstance(action, m.SetField):
                if action.name.startswith("reg"):
                    assert isinstance(action.value, int)
                    state.registers[action.name] = action.value
                else:
                    state.frame = _set(state.frame, action.name, action.value)
            elif isinstance(action, m.CopyField):
                state.frame = _set(state.frame, action.target, getattr(state.frame, action.source))
            elif isinstance(action, m.PushVlan):
                state.frame = replace(state.frame, tags=((0, 0), *state.frame.tags))
            elif isinstance(action, m.PopVlan):
                assert state.frame.tags
                state.frame = replace(state.frame, tags=state.frame.tags[1:])
            elif isinstance(action, m.Goto):
                self._table(action.table, state, out)
            elif isinstance(action, m.ToGroup):
                bucket = self._bucket(action.group_id, state.frame.hash)
                if bucket is not None:
                    self._actions(
                        bucket.actions, replace(state, registers=dict(state.registers)), out
                    )
            elif isinstance(action, m.OutputRegister):
                if state.registers[action.register] != state.in_port:
                    out.append((state.registers[action.register], state.frame))
            elif isinstance(action, m.Distinguish):
                assert state.frame.eth_type == action.eth_type
            elif isinstance(action, m.TakeClass):
                state.registers["reg6"] = int(state.frame.eth_src[-2:], 16)
            elif isinstance(action, m.Note):
                raise AssertionError("no frame meets a row with a note")
            else:
                self._learn(action, state)

    def _learn(self, action: m.Learn | m.Follow | m.LookBack, state: State) -> None:
        if isinstance(action, m.Learn):
            if self.learns:
                self.learned[action.table, state.frame.eth_src] = state.in_port
            return
        assert state.frame.eth_type == action.eth_type and action.table == Table.PLACED
        if isinstance(action, m.Follow):
            if self.learns:
                self.followed[connection_of(state.frame, back=True)] = state.registers["reg5"]
        elif state.frame.tcp_flags & 0x05 and self.learns:
            # The rows end with a FIN or RST. In Open vSwitch they do so a second later.
            for rows in (self.placed, self.followed):
                rows.pop(connection_of(state.frame, back=True), None)

    def _bucket(self, group_id: int, number: int) -> m.Bucket | None:
        """The bucket that Open vSwitch chooses; None if no bucket is live.

        It is the first live one of a fast-failover group. Of a select group, it is the one of the
        hash, or the next live one.
        """
        if self.trace is not None:
            self.trace.groups.add(group_id)
        group = self.groups.get(group_id)
        if group is None:
            return None
        start = number if group.kind == m.Group.SELECT else 0
        for i in range(len(group.buckets)):
            bucket = group.buckets[(start + i) % len(group.buckets)]
            if self._lives(bucket):
                return bucket
        return None

    def _lives(self, bucket: m.Bucket) -> bool:
        if bucket.watch_group is not None:
            if self.trace is not None:
                self.trace.groups.add(bucket.watch_group)
            watched = self.groups.get(bucket.watch_group)
            return watched is not None and any(self._lives(other) for other in watched.buckets)
        return bucket.watch_port is None or bucket.watch_port in self.carrier


class StartupRow(m.Flow):
    """A row of the start-up flows of host-up."""

    @property
    def cookie(self) -> int:
        return COOKIE_STARTUP << 48 | super().cookie & (1 << 48) - 1


def startup_rows(mac: str, nics: Mapping[int, str], taps: Iterable[int] = ()) -> m.Wanted:
    """The rows that host-up leaves on a bridge until a controller comes.

    `mac` is the host's own address. `nics` has the addresses of the NICs by port.
    """
    mask = ("01:00:00:00:00:00", "01:00:00:00:00:00")
    learn = m.Learn(LEARNED_AT_START, "reg2", 300, COOKIE_STARTUP << 48)
    flood: list[m.Action] = [m.Output(port) for port in nics]
    rows = [
        m.row(Place(0, 1), {"in_port": LOCAL}, [m.Goto(250)]),
        m.row(Place(250, 100), {"eth_dst": mask}, flood),
        m.row(Place(250, 1), {}, [m.SetField("reg2", 0), m.Goto(LEARNED_AT_START), m.Goto(253)]),
        m.row(Place(253, 100), {"reg2": 0}, flood),
        m.row(Place(253, 1), {}, [m.OutputRegister("reg2")]),
        m.row(Place(251, 190), {"eth_dst": ("01:80:c2:00:00:00", "ff:ff:ff:ff:ff:f0")}, []),
        m.row(Place(251, 200), {"eth_src": mac}, []),
        m.row(Place(251, 100), {"eth_dst": mask}, [learn, m.Output(LOCAL)]),
        m.row(Place(251, 100), {"eth_dst": mac}, [learn, m.Output(LOCAL)]),
        m.row(Place(251, 1), {}, [learn]),
    ]
    for port, nic_mac in nics.items():
        rows.append(m.row(Place(0, 1), {"in_port": port}, [m.Goto(251)]))
        rows.append(m.row(Place(251, 200), {"eth_src": nic_mac}, []))
        rows.append(
            m.row(
                Place(251, 150), {"eth_dst": nic_mac}, [m.SetField("eth_dst", mac), m.Output(LOCAL)]
            )
        )
    rows += [m.row(Place(0, 1), {"in_port": port}, []) for port in taps]
    own = [StartupRow(flow.table, flow.priority, flow.match, flow.actions) for flow in rows]
    return m.Wanted({flow.cookie: flow for flow in own}, {})


def connection_of(frame: Frame, *, back: bool = False) -> tuple[object, ...]:
    """The fields that the row of a placed connection matches.

    With `back`, they are those of the row for packets in the other direction.
    """
    ends = [(frame.ipv4_src, frame.tcp_src), (frame.ipv4_dst, frame.tcp_dst)]
    return (frame.eth_src if back else frame.eth_dst, *(reversed(ends) if back else ends))


def groups_of(flow: m.Flow) -> set[int]:
    """The groups to which a row hands frames."""
    return {action.group_id for action in flow.actions if isinstance(action, m.ToGroup)}


def matches(flow: m.Flow, state: State) -> bool:
    for name, wanted in flow.match:
        if name == "in_port":
            actual: object = state.in_port
        elif name.startswith("reg"):
            actual = state.registers.get(name, 0)
        else:
            actual = getattr(state.frame, name)
        if isinstance(wanted, tuple):
            value, mask = (_number(part) for part in wanted)
            if _number(actual) & mask != value:
                return False
        elif actual != wanted:
            return False
    return True


def _priority(flow: m.Flow) -> int:
    return -flow.priority


def _set(frame: Frame, name: str, value: object) -> Frame:
    if name in ("vlan_vid", "vlan_pcp"):
        assert isinstance(value, int)
        vid, priority = frame.tags[0]
        first = (value & 0xFFF, priority) if name == "vlan_vid" else (vid, value)
        return replace(frame, tags=(first, *frame.tags[1:]))
    return replace(frame, **{name: value})  # type: ignore[arg-type]


def _number(value: object) -> int:
    return value if isinstance(value, int) else int(str(value).replace(":", ""), 16)
