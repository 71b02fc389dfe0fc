"""A model of one bridge:

it takes messages as Open vSwitch does, and runs frames through its tables and groups.
"""

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

CONTROLLER = 0xFFFFFFFD
LEARNED_AT_START = 252
"""The table that the start-up flows of host-up learn into."""


@dataclass(frozen=True)
class Frame:
    eth_src: str
    eth_dst: str
    eth_type: int = 0x0800
    ip_proto: int = 17
    ip_dscp: int = 0
    icmpv6_type: int = 0
    ipv4_src: str = ""
    ipv4_dst: str = ""
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
    """What a frame's way depends on:

    its state at each look-up and the row that was found, and the groups it met.
    """

    rows: list[tuple[int, State, m.Flow | None]] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)


class Refused(AssertionError):
    """Open vSwitch answers such a message with an error."""


class Bridge:
    """One host's bridge: its flows and groups, the ports with carrier, what was learned.

    `learns` false: frames change nothing. `trace` is filled while there is one.
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

    # ---- what it holds

    @property
    def wanted(self) -> m.Wanted:
        """What it holds, in no particular order."""
        return m.Wanted(
            {flow.cookie: flow for rows in self.tables.values() for flow in rows}, dict(self.groups)
        )

    @property
    def installed(self) -> Installed:
        """What it holds, as the trunk app reads it."""
        return Installed(
            {flow.cookie: flow.table for rows in self.tables.values() for flow in rows},
            dict(self.groups),
        )

    def hold(self, wanted: m.Wanted) -> None:
        """Hold this and nothing else, at once.

        Changes of a running bridge are to go through `Cluster.replan`.
        """
        self.tables = {}
        for flow in wanted.flows.values():
            self.tables.setdefault(flow.table, []).append(flow)
        for rows in self.tables.values():
            rows.sort(key=_priority)
        self.groups = dict(wanted.groups)

    def take(self, message: Message) -> None:
        """As Open vSwitch does:

        a row replaces the one in its place, and rows of a group that is deleted go too.
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
                each for each in rows if (each.priority, each.match) != (flow.priority, flow.match)
            ]
            insort(rows, flow, key=_priority)

    def _keep(self, wanted: object) -> None:
        assert callable(wanted)
        for rows in self.tables.values():
            if not all(map(wanted, rows)):
                rows[:] = filter(wanted, rows)

    # ---- frames

    def receive(self, frame: Frame, in_port: int) -> list[tuple[int, Frame]]:
        """(port, frame) for everything that leaves; a frame never leaves by the port it came in
        on.
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
        elif (
            state.frame.tcp_flags & 0x05 and self.learns
        ):  # as rows do that end with FIN or RST, a second later
            for rows in (self.placed, self.followed):
                rows.pop(connection_of(state.frame, back=True), None)

    def _bucket(self, group_id: int, number: int) -> m.Bucket | None:
        """As Open vSwitch chooses:

        the first live one (fast failover), the hashed one or the next live one (select).
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
    """A row that is not the controller's."""

    @property
    def cookie(self) -> int:
        return COOKIE_STARTUP << 48 | super().cookie & (1 << 48) - 1


def startup_rows(mac: str, nics: Mapping[int, str], taps: Iterable[int] = ()) -> m.Wanted:
    """What host-up leaves on a bridge, until a controller comes:

    the NICs' MACs by port, and the host's own.
    """
    mask = ("01:00:00:00:00:00", "01:00:00:00:00:00")
    learn = m.Learn(LEARNED_AT_START, "reg2", 300, COOKIE_STARTUP << 48)
    flood: list[m.Action] = [m.Output(port) for port in nics]
    rows = [
        m.row(0, 1, {"in_port": LOCAL}, [m.Goto(250)]),
        m.row(250, 100, {"eth_dst": mask}, flood),
        m.row(250, 1, {}, [m.SetField("reg2", 0), m.Goto(LEARNED_AT_START), m.Goto(253)]),
        m.row(253, 100, {"reg2": 0}, flood),
        m.row(253, 1, {}, [m.OutputRegister("reg2")]),
        m.row(251, 190, {"eth_dst": ("01:80:c2:00:00:00", "ff:ff:ff:ff:ff:f0")}, []),
        m.row(251, 200, {"eth_src": mac}, []),
        m.row(251, 100, {"eth_dst": mask}, [learn, m.Output(LOCAL)]),
        m.row(251, 100, {"eth_dst": mac}, [learn, m.Output(LOCAL)]),
        m.row(251, 1, {}, [learn]),
    ]
    for port, nic_mac in nics.items():
        rows.append(m.row(0, 1, {"in_port": port}, [m.Goto(251)]))
        rows.append(m.row(251, 200, {"eth_src": nic_mac}, []))
        rows.append(
            m.row(251, 150, {"eth_dst": nic_mac}, [m.SetField("eth_dst", mac), m.Output(LOCAL)])
        )
    rows += [m.row(0, 1, {"in_port": port}, []) for port in taps]
    own = [StartupRow(flow.table, flow.priority, flow.match, flow.actions) for flow in rows]
    return m.Wanted({flow.cookie: flow for flow in own}, {})


def connection_of(frame: Frame, *, back: bool = False) -> tuple[object, ...]:
    """What a row of a placed connection matches; of the packets that come back."""
    ends = [(frame.ipv4_src, frame.tcp_src), (frame.ipv4_dst, frame.tcp_dst)]
    return (frame.eth_src if back else frame.eth_dst, *(reversed(ends) if back else ends))


def groups_of(flow: m.Flow) -> set[int]:
    """The groups that a row hands to."""
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
            value, mask = (_number(each) for each in wanted)
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
