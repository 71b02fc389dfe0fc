"""A model of bridges and learning switches that runs planned flows on frames: tests assert where packets end up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.links import number_links
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from ri2n_sdn.pipeline import messages as m
from ri2n_sdn.pipeline.layout import IN_PORT, LOCAL, PLAIN_PORT, VLAN_PRESENT, WIRE_PORT, Table
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.weights.loop import default_slots

CONTROLLER = 0xFFFFFFFD


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
class _State:
    frame: Frame
    in_port: int
    registers: dict[str, int] = field(default_factory=dict)


class Bridge:
    """One host's bridge: the planned flows and groups, the ports with carrier, what was learned."""

    def __init__(self, wanted: m.Wanted, ports: Iterable[int]) -> None:
        self.wanted = wanted
        self.carrier = set(ports)
        self.learned: dict[str, int] = {}
        self.followed: dict[tuple[object, ...], int] = {}
        self.placed: dict[tuple[object, ...], int] = {}

    def receive(self, frame: Frame, in_port: int) -> list[tuple[int, Frame]]:
        """(port, frame) for everything that leaves; a frame never leaves by the port it came in on."""
        out: list[tuple[int, Frame]] = []
        self._table(0, _State(frame, in_port), out)
        return [(port, sent) for port, sent in out if port >= LOCAL - 1 or port in self.carrier]

    def _table(self, table: int, state: _State, out: list[tuple[int, Frame]]) -> None:
        if table == 11 and state.frame.eth_dst in self.learned:
            state.registers["reg2"] = self.learned[state.frame.eth_dst]
            return
        if table == Table.PLACED:
            ends = connection_of(state.frame)
            state.registers["reg1"] = self.placed.get(ends, self.followed.get(ends, 0))
            return
        rows = [flow for flow in self.wanted.flows.values() if flow.table == table and _matches(flow, state)]
        if rows:
            self._actions(max(rows, key=lambda flow: flow.priority).actions, state, out)

    def _actions(self, actions: Iterable[m.Action], state: _State, out: list[tuple[int, Frame]]) -> None:
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
                bucket = self._bucket(self.wanted.groups[action.group_id], state.frame.hash)
                if bucket is not None:
                    self._actions(bucket.actions, replace(state, registers=dict(state.registers)), out)
            elif isinstance(action, m.OutputRegister):
                if state.registers[action.register] != state.in_port:
                    out.append((state.registers[action.register], state.frame))
            elif isinstance(action, m.Learn):
                self.learned[state.frame.eth_src] = state.in_port
            elif isinstance(action, m.Follow):
                assert state.frame.eth_type == action.eth_type
                self.followed[connection_of(state.frame, back=True)] = state.registers["reg5"]
            elif isinstance(action, m.Distinguish):
                assert state.frame.eth_type == action.eth_type
            elif isinstance(action, m.LookBack):
                assert state.frame.eth_type == action.eth_type and action.table == Table.PLACED
                if state.frame.tcp_flags & 0x05:  # as rows do that end with FIN or RST, a second later
                    for rows in (self.placed, self.followed):
                        rows.pop(connection_of(state.frame, back=True), None)

    def _bucket(self, group: m.Group, number: int) -> m.Bucket | None:
        """As Open vSwitch chooses: the first live one (fast failover), the hashed one or the next live one (select)."""
        start = number if group.kind == m.Group.SELECT else 0
        for i in range(len(group.buckets)):
            bucket = group.buckets[(start + i) % len(group.buckets)]
            if self._lives(bucket):
                return bucket
        return None

    def _lives(self, bucket: m.Bucket) -> bool:
        if bucket.watch_group is not None:
            return any(self._lives(other) for other in self.wanted.groups[bucket.watch_group].buckets)
        return bucket.watch_port is None or bucket.watch_port in self.carrier


def connection_of(frame: Frame, *, back: bool = False) -> tuple[object, ...]:
    """What a row of a placed connection matches; of the packets that come back."""
    ends = [(frame.ipv4_src, frame.tcp_src), (frame.ipv4_dst, frame.tcp_dst)]
    return (frame.eth_src if back else frame.eth_dst, *(reversed(ends) if back else ends))


def _set(frame: Frame, name: str, value: object) -> Frame:
    if name in ("vlan_vid", "vlan_pcp"):
        assert isinstance(value, int)
        vid, priority = frame.tags[0]
        first = (value & 0xFFF, priority) if name == "vlan_vid" else (vid, value)
        return replace(frame, tags=(first, *frame.tags[1:]))
    return replace(frame, **{name: value})  # type: ignore[arg-type]


def _matches(flow: m.Flow, state: _State) -> bool:
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


def _number(value: object) -> int:
    return value if isinstance(value, int) else int(str(value).replace(":", ""), 16)


class Network:
    """A learning switch. Its members are (host, port) of bridges and (name, 0) of plain hosts."""

    def __init__(self) -> None:
        self.members: set[tuple[str, int]] = set()
        self.table: dict[str, tuple[str, int]] = {}

    def forward(self, frame: Frame, source: tuple[str, int]) -> list[tuple[str, int]]:
        self.table[frame.eth_src] = source
        target = self.table.get(frame.eth_dst)
        if not frame.multicast and target is not None:
            return [target] if target != source else []
        return sorted(self.members - {source})


class Cluster:
    """Managed hosts with their planned bridges, plain hosts, switches. `wires` says on which network each NIC is.

    Hosts in `helpers` have a helper that runs; what its TAPs are given is in `taps`.
    """

    def __init__(
        self,
        hosts: Mapping[str, list[str]],
        plain: Mapping[str, str] | None = None,
        helpers: Collection[str] = (),
        by_flows: tuple[TrafficClass, ...] = (),
        placement: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.taps: list[tuple[str, int, Frame]] = []
        self.hosts: dict[str, Host] = {}
        self.networks: dict[str, Network] = {}
        for number, (name, wires) in enumerate(hosts.items(), 1):
            nics = tuple(
                Nic(name, f"eth{i}", i + 1, f"04:00:00:00:{number:02x}:{i + 1:02x}", 10**8, network=network)
                for i, network in enumerate(wires)
            )
            own = name in helpers
            self.hosts[name] = Host(
                name, number, f"06:00:00:00:{number:02x}:00", nics, accepts_wire=True, helper=own, helper_up=own
            )
            for nic in nics:
                self.networks.setdefault(nic.network or "", Network()).members.add(nic.id)
        self.plain = dict(plain or {})
        for name, network in self.plain.items():
            self.networks.setdefault(network, Network()).members.add((name, 0))
        self.fabric = Fabric(self.hosts, number_links(Fabric(self.hosts), {}), by_flows, placement=placement or {})
        self.bridges = {
            name: Bridge(
                plan_host(self.fabric, name, {}, default_slots, 64),
                [*(nic.port for nic in host.nics), *([PLAIN_PORT, WIRE_PORT] if host.helper_up else [])],
            )
            for name, host in self.hosts.items()
        }

    def plain_mac(self, name: str) -> str:
        return f"0a:00:00:00:00:{sorted(self.plain).index(name) + 1:02x}"

    def cut(self, host: str, port: int) -> None:
        """The NIC and its switch port lose carrier; the switch forgets what it learned there. Nothing is replanned."""
        self.bridges[host].carrier.discard(port)
        for network in self.networks.values():
            network.members.discard((host, port))
            network.table = {mac: at for mac, at in network.table.items() if at != (host, port)}

    def send(self, host: str, frame: Frame, in_port: int = LOCAL) -> list[tuple[str, Frame]]:
        """All copies that hosts get of a frame from `host`, or from a TAP of it: (host, frame) of each."""
        got: list[tuple[str, Frame]] = []
        if host in self.plain:
            pending = [(self.plain[host], frame, (host, 0))]
        else:
            out = self.bridges[host].receive(frame, in_port)
            got += [(host, copy) for port_out, copy in out if port_out == LOCAL]
            pending = self._onto_wires(host, out)
        for _ in range(1000):
            if not pending:
                return got
            network, sent, source = pending.pop(0)
            for name, port in self.networks[network].forward(sent, source):
                if name in self.plain:
                    if sent.multicast or sent.eth_dst == self.plain_mac(name):
                        got.append((name, sent))
                    continue
                out = self.bridges[name].receive(sent, port)
                got += [(name, copy) for port_out, copy in out if port_out == LOCAL]
                pending += self._onto_wires(name, out)
        raise AssertionError("the frame never comes to rest: a storm")

    def _onto_wires(self, host: str, out: list[tuple[int, Frame]]) -> list[tuple[str, Frame, tuple[str, int]]]:
        self.taps += [(host, port, frame) for port, frame in out if port in (PLAIN_PORT, WIRE_PORT)]
        return [
            (nic.network or "", frame, nic.id)
            for port, frame in out
            for nic in self.hosts[host].nics
            if nic.port == port
        ]
