"""Placed connections: the path that is chosen, and what rows and replies do with frames.

Some of the frames and replies are hostile.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.placed_rows import deciding_row, read_placed
from ri2n_sdn.apps.placement import PlacementApp, take_syn_ack
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.model import Fabric, Nic, Path, PathKey, Route
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.layout import COOKIE_FOLLOWED, LOCAL, Table, path_register
from ri2n_sdn.pipeline.placement import (
    HALF_OPEN_S,
    Connection,
    Load,
    PlacedRow,
    choose,
    cookie_of,
    path_back,
    path_of_cookie,
    read_syn_ack,
    server_of,
)
from ri2n_sdn.pipeline.plan import plan_host
from tests.unit.bridge_model import CONTROLLER, Bridge, Cluster, Frame, connection_of
from tests.unit.fake_hosts import FakeChannel, cluster_of, host_mac, parts
from tests.unit.fat_model import FatCluster

SIX = [f"n{number}" for number in range(1, 7)]
PORTS = st.integers(1, 1023)


def nic(host: str, port: int, *, up: bool = True) -> Nic:
    return Nic(
        host,
        f"eth{port}",
        port,
        f"04:00:00:00:{ord(host):02x}:{port:02x}",
        10**8,
        up=up,
        network=f"n{port}",
    )


def paths(count: int, client: str = "B", dead: frozenset[int] = frozenset()) -> list[Path]:
    return [Path(nic("A", i, up=i not in dead), nic(client, i)) for i in range(1, count + 1)]


# ---- The decision


def test_the_first_connections_go_to_the_lowest_numbers() -> None:
    load, chosen = Load(), []
    for client in "BCDBCDB":
        path = choose(paths(6, client), load)
        assert path is not None
        load.add("A", client, path.key)
        chosen.append(path.own.port)
    assert chosen == [1, 2, 3, 4, 5, 6, 1]


@given(
    st.lists(st.tuples(st.sampled_from("BCD"), st.booleans()), max_size=120),
    st.integers(1, 6),
    st.data(),
)
def test_nics_stay_within_one_while_connections_begin(
    steps: list[tuple[str, bool]], count: int, data: st.DataObject
) -> None:
    """Connections that end may leave NICs uneven; each new one then goes where the fewest are."""
    open_now: list[tuple[str, Path]] = []
    for client, ends in steps:
        load = Load()
        for other, used in open_now:
            load.add("A", other, used.key)
        before = [load.nics["A", port] for port in range(1, count + 1)]
        if ends and open_now:
            open_now.pop(data.draw(st.integers(0, len(open_now) - 1)))
            continue
        path = choose(paths(count, client), load)
        assert path is not None
        assert path.own.port == before.index(min(before)) + 1
        open_now.append((client, path))
    if not any(ends for _, ends in steps):
        counts = Counter(path.own.port for _, path in open_now)
        assert (
            max(counts.values(), default=0)
            - min((counts[port] for port in range(1, count + 1)), default=0)
            <= 1
        )


def test_the_peers_nics_and_then_vlans_decide_between_equals() -> None:
    """Each host has two NICs on one network of several switches: four pairs of NICs, two VLANs."""
    every = [
        Path(nic("A", own), nic("B", peer), Route(vlan))
        for own in (1, 2)
        for peer in (1, 2)
        for vlan in (0, 102)
    ]
    load = Load()
    chosen = []
    for _ in range(8):
        path = choose(every, load)
        assert path is not None
        load.add("A", "B", path.key)
        chosen.append(path.key)
    assert chosen[:4] == [(1, 1, 0), (2, 2, 102), (1, 1, 0), (2, 2, 102)]
    assert Counter(key[1] for key in chosen) == {1: 4, 2: 4}
    assert Counter(key[2] for key in chosen) == {0: 4, 102: 4}


@given(st.sets(st.integers(1, 6)))
def test_no_dead_path_is_chosen(dead: set[int]) -> None:
    path = choose(paths(6, dead=frozenset(dead)), Load())
    alive = sorted(set(range(1, 7)) - dead)
    assert (path.own.port if path is not None else None) == (alive[0] if alive else None)


def test_the_path_back_is_between_the_same_nics_in_the_same_vlan_if_it_can() -> None:
    into = Path(nic("B", 2), nic("A", 1), Route(102))
    out = [
        Path(nic("A", 1), nic("B", peer), Route(vlan)) for peer in (1, 2) for vlan in (0, 101, 102)
    ]
    assert path_back(into, out) == (1, 2, 102)
    assert path_back(into, [path for path in out if path.route.vlan != 102]) == (1, 2, 0)
    assert path_back(into, [path for path in out if path.peer.port == 1]) is None


def test_the_way_back_is_in_the_same_vlan_though_it_is_dead() -> None:
    """Until that VLAN works, the pair's slot table decides.

    Then the connection uses one VLAN in both directions again.
    """
    into = Path(nic("B", 2), nic("A", 1), Route(102))
    out = [Path(nic("A", 1), nic("B", 2), Route(vlan, alive=vlan == 101)) for vlan in (0, 101, 102)]
    assert path_back(into, out) == (1, 2, 102)
    assert path_back(into, out[:2]) == (1, 2, 101), "without one of the same VLAN, a live one"


@given(PORTS, PORTS, st.integers(0, 4095))
def test_a_cookie_tells_the_path(own: int, peer: int, vlan: int) -> None:
    assert path_of_cookie(cookie_of((own, peer, vlan))) == (own, peer, vlan)


@pytest.mark.parametrize(
    ("age_s", "packets", "given_up"), [(1, 0, False), (76, 0, True), (1e6, 1, False)]
)
def test_what_the_client_never_finished_is_given_up(
    age_s: float, packets: int, given_up: bool
) -> None:
    assert HALF_OPEN_S < 76
    assert (
        PlacedRow(Connection("a", 1, "b", 2, "m"), (1, 1, 0), age_s, packets).half_open is given_up
    )


# ---- Frames of servers


def syn_ack(
    source: str, target: str, ports: tuple[int, int], *, flags: int = 0x12, options: int = 0
) -> bytes:
    segment = struct.pack("!HHIIBBHHH", *ports, 1, 2, 5 << 4, flags, 1000, 0, 0)
    addresses = ip_address(source).packed + ip_address(target).packed
    if ":" in source:
        head = struct.pack("!IHBB", 6 << 28, len(segment), 6, 64) + addresses
        ether_type = 0x86DD
    else:
        length = 20 + options + len(segment)
        head = (
            struct.pack("!BBHHHBBH", 0x45 + options // 4, 0, length, 0, 0, 64, 6, 0)
            + addresses
            + bytes(options)
        )
        ether_type = 0x0800
    return (
        bytes.fromhex("020000000002020000000001") + struct.pack("!H", ether_type) + head + segment
    )


@pytest.mark.parametrize(
    ("source", "target", "options"), [("10.0.0.1", "10.0.0.2", 0), ("10.0.0.1", "10.0.0.2", 8)]
)
def test_an_answer_to_a_request_is_read(source: str, target: str, options: int) -> None:
    found = read_syn_ack(syn_ack(source, target, (80, 5000), options=options))
    assert found == (Connection(source, 80, target, 5000, "02:00:00:00:00:02"), "02:00:00:00:00:01")
    six = read_syn_ack(syn_ack("fd00::1", "fd00::2", (80, 5000)))
    assert six is not None and six[0] == Connection(
        "fd00::1", 80, "fd00::2", 5000, "02:00:00:00:00:02"
    )
    assert six[0].match["ipv6_src"] == "fd00::1" and six[0].match["eth_type"] == 0x86DD


def test_an_answer_that_may_not_be_fragmented_is_read_as_any_other() -> None:
    """Linux sends all of them so."""
    frame = syn_ack("10.0.0.1", "10.0.0.2", (80, 5000))
    assert read_syn_ack(frame[:20] + b"\x40\x00" + frame[22:]) == read_syn_ack(frame) is not None


def test_other_frames_are_nobodys_connection() -> None:
    good = syn_ack("10.0.0.1", "10.0.0.2", (80, 5000))
    for flags in (0x02, 0x10, 0x18, 0x11, 0x04):
        assert read_syn_ack(syn_ack("10.0.0.1", "10.0.0.2", (80, 5000), flags=flags)) is None
    longer = (
        syn_ack("10.0.0.1", "10.0.0.2", (80, 5000), options=8),
        syn_ack("fd00::1", "fd00::2", (80, 5000)),
    )
    for frame in (good, *longer):
        assert not any(read_syn_ack(frame[:length]) for length in range(len(frame)))
    # A later fragment has no ports.
    assert read_syn_ack(good[:20] + b"\x00\x01" + good[22:]) is None
    # An IP header of four bytes.
    assert read_syn_ack(good[:14] + b"\x41" + good[15:]) is None
    assert read_syn_ack(good[:23] + b"\x11" + good[24:]) is None


DAMAGE = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4)


def damaged(data: bytes, damage: list[tuple[int, int]]) -> bytes:
    """`data` with other bytes at some places."""
    result = bytearray(data)
    for place, byte in damage:
        result[place % len(result)] = byte
    return bytes(result)


def stands_in(data: bytes, connection: Connection) -> bool:
    """Whether everything that was read of a connection stands in the frame."""
    addresses = [ip_address(text).packed for text in (connection.source, connection.target)]
    ports = [struct.pack("!H", port) for port in (connection.source_port, connection.target_port)]
    return all(
        part in data
        for part in (*addresses, *ports, bytes.fromhex(connection.target_mac.replace(":", "")))
    )


@given(st.binary(max_size=120), st.sampled_from([b"", b"\x08\x00E", b"\x86\xdd`"]))
def test_garbage_is_read_without_an_error(garbage: bytes, head: bytes) -> None:
    frame = bytes(12) + head + garbage if head else garbage
    found = read_syn_ack(frame)
    assert found is None or stands_in(frame, found[0])


@given(
    st.sampled_from(
        [("10.0.0.1", "10.0.0.2", 0), ("10.0.0.1", "10.0.0.2", 8), ("fd00::1", "fd00::2", 0)]
    ),
    DAMAGE,
)
def test_a_damaged_answer_is_read_as_it_stands_or_not_at_all(
    ends: tuple[str, str, int], damage: list[tuple[int, int]]
) -> None:
    source, target, options = ends
    frame = damaged(syn_ack(source, target, (80, 5000), options=options), damage)
    found = read_syn_ack(frame)
    assert found is None or (stands_in(frame, found[0]) and found[1] == frame[6:12].hex(":"))


# ---- Replies of switches


def field(oxm_class: int, number: int, value: bytes) -> bytes:
    return struct.pack("!HBB", oxm_class, number << 1, len(value)) + value


def reply(
    connection: Connection,
    *,
    path: PathKey = (2, 3, 102),
    packets: int = 7,
    without: int | None = None,
) -> bytes:
    """An entry of OFPMP_FLOW_DESC as OpenFlow 1.5 has it.

    It has eth_dst, addresses, ports, duration and packets.
    """
    source, target = (26, 27) if ":" in connection.source else (11, 12)
    values = {
        3: bytes.fromhex(connection.target_mac.replace(":", "")),
        source: ip_address(connection.source).packed,
        target: ip_address(connection.target).packed,
        13: struct.pack("!H", connection.source_port),
        14: struct.pack("!H", connection.target_port),
    }
    oxm = b"".join(
        field(0x8000, number, value) for number, value in values.items() if number != without
    )
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes(-len(match) % 8)
    statistics = field(0x8002, 0, struct.pack("!II", 61, 5)) + field(
        0x8002, 4, struct.pack("!Q", packets)
    )
    head = struct.pack("!2xBxHHHHHQ", Table.PLACED, 20, 900, 0, 0, 0, cookie_of(path))
    entry = head + match + struct.pack("!2xH", 4 + len(statistics)) + statistics
    return struct.pack("!H", 2 + len(entry)) + entry


FOUR = Connection("10.0.0.1", 80, "10.0.0.2", 5000, "02:00:00:00:00:02")
IPV6 = replace(FOUR, source="fd00::1", target="fd00::2")


def test_a_reply_is_read_and_rows_of_no_connection_are_left_out() -> None:
    body = reply(FOUR) + reply(FOUR, without=14) + reply(IPV6, packets=0)
    assert read_placed(body) == [
        PlacedRow(FOUR, (2, 3, 102), 61.0, 7),
        PlacedRow(IPV6, (2, 3, 102), 61.0, 0),
    ]


@pytest.mark.parametrize(
    ("place", "wrong"),
    [(0, 31), (0, 0xFFFF), (26, 3), (26, 0xFFF0), (62, 14 << 9 | 200), (74, 3), (74, 0xFFFF)],
    ids=[
        "short",
        "long",
        "match short",
        "match long",
        "field long",
        "statistics short",
        "statistics long",
    ],
)
def test_a_length_that_cannot_be_is_a_value_error(place: int, wrong: int) -> None:
    body = reply(FOUR)
    with pytest.raises(ValueError):
        read_placed(body[:place] + struct.pack("!H", wrong) + body[place + 2 :])


@given(st.binary(max_size=200))
def test_garbage_for_a_reply_is_a_value_error_or_no_connection(garbage: bytes) -> None:
    body = struct.pack("!H", 2 + len(garbage)) + garbage
    try:
        found = read_placed(body)
    except ValueError:
        return
    assert all(stands_in(body, each.connection) for each in found)


@given(st.sampled_from([FOUR, IPV6]), DAMAGE, st.integers(0, 200))
@example(IPV6, [(459, 1)], 0)  # a port of one byte
def test_a_damaged_reply_is_read_as_it_stands_or_a_value_error(
    connection: Connection, damage: list[tuple[int, int]], length: int
) -> None:
    body = damaged(reply(connection), damage)
    for data in (body, struct.pack("!H", max(2, min(length, len(body)))) + body[2:length]):
        try:
            found = read_placed(data)
        except ValueError:
            continue
        assert all(stands_in(data, each.connection) for each in found)


@given(st.binary(max_size=200))
def test_garbage_for_the_deciding_row_is_a_value_error_at_most(garbage: bytes) -> None:
    with contextlib.suppress(ValueError):
        deciding_row(struct.pack("!H", 2 + len(garbage)) + garbage)


def described(priority: int, cookie: int, *actions: bytes) -> bytes:
    """A row in an OFPMP_FLOW_DESC reply, with an empty match and no statistics."""
    instruction = struct.pack("!HH4x", 4, 8 + sum(map(len, actions))) + b"".join(actions)
    body = struct.pack("!xxBxHHHHHQ", 13, priority, 0, 0, 0, 0, cookie)
    body += struct.pack("!HH4x", 1, 4) + struct.pack("!HH4x", 0, 4) + instruction
    return struct.pack("!H", 2 + len(body)) + body


def test_the_row_of_the_highest_priority_decides() -> None:
    path, other = (3, 4, 102), (1, 1, 0)

    def to(key: tuple[int, int, int]) -> bytes:
        return struct.pack("!HHHBBI4x", 25, 16, 1, 1 << 1, 4, path_register(*key))

    fin = struct.pack("!HHIHHH2x", 0xFFFF, 16, 0x2320, 19, 1, 0)
    placed, learned = (
        described(20, cookie_of(path), to(path), fin),
        described(10, COOKIE_FOLLOWED, fin, to(other)),
    )
    assert deciding_row(placed + learned) == deciding_row(learned + placed) == (True, path)
    assert deciding_row(learned) == (False, other)
    assert deciding_row(b"") is None and deciding_row(described(10, COOKIE_FOLLOWED, fin)) is None
    for length in range(3, len(placed)):
        cut = struct.pack("!H", length) + placed[2:length]
        with contextlib.suppress(ValueError):
            assert deciding_row(cut) in (None, (True, path))


def test_a_connection_is_its_servers() -> None:
    placement = {"A": (80,), "B": ()}
    assert (
        server_of(placement, "A", 80, "C", 5000) == server_of(placement, "C", 5000, "A", 80) == "A"
    )
    assert server_of(placement, "A", 5000, "C", 80) is None
    assert server_of(placement, "C", 80, "B", 5000) == "B"
    assert server_of({}, "A", 80, "C", 5000) is None


# ---- Rows


def server_frame(
    cluster: Cluster, client: str, port: int, *, flags: int = 0x10, slot: int = 0
) -> Frame:
    return Frame(
        cluster.hosts["A"].mac,
        cluster.hosts[client].mac,
        ip_proto=6,
        ipv4_src="10.0.0.1",
        ipv4_dst="10.0.0.2",
        tcp_src=80,
        tcp_dst=port,
        tcp_flags=flags,
        hash=slot,
    )


def answer_to(frame: Frame, slot: int = 0) -> Frame:
    return replace(
        frame,
        eth_src=frame.eth_dst,
        eth_dst=frame.eth_src,
        ipv4_src=frame.ipv4_dst,
        ipv4_dst=frame.ipv4_src,
        tcp_src=frame.tcp_dst,
        tcp_dst=frame.tcp_src,
        hash=slot,
    )


def leaves_by(bridge: Bridge, frame: Frame) -> list[int]:
    return [port for port, _ in bridge.receive(frame, LOCAL) if port != CONTROLLER]


def place(cluster: Cluster, frame: Frame, port: int) -> None:
    cluster.bridges["A"].placed[connection_of(frame)] = path_register(port, port, 0)


@pytest.fixture(params=[(), (80,)], ids=["all ports", "port 80"])
def placing(request: pytest.FixtureRequest) -> Cluster:
    return Cluster({"A": SIX, "B": SIX, "C": SIX}, placement={"A": request.param})


def test_an_answer_goes_on_at_once_and_a_copy_asks_the_controller(placing: Cluster) -> None:
    frame = server_frame(placing, "B", 5000, flags=0x12, slot=17)
    out = placing.bridges["A"].receive(frame, LOCAL)
    assert [copy for port, copy in out if port == CONTROLLER] == [frame]
    assert len(out) == 2
    assert placing.send("A", frame) == [("B", frame)]
    # No other frame asks the controller, nor do answers of hosts that place no connections.
    for other in (
        replace(frame, tcp_flags=0x10),
        replace(frame, ip_proto=17),
        replace(frame, tags=((7, 0),)),
    ):
        assert CONTROLLER not in [port for port, _ in placing.bridges["A"].receive(other, LOCAL)]
    assert CONTROLLER not in [
        port for port, _ in placing.bridges["B"].receive(answer_to(frame), LOCAL)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 63))
def test_a_placed_connection_goes_by_its_path_and_the_client_follows(port: int, slot: int) -> None:
    cluster = Cluster({"A": SIX, "B": SIX}, placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000, slot=slot)
    place(cluster, frame, port)
    assert leaves_by(cluster.bridges["A"], frame) == [port]
    assert cluster.send("A", frame) == [("B", frame)]
    back = answer_to(frame, slot)
    for flags in (0x10, 0x11, 0x14):  # packets with FIN and RST, too
        assert leaves_by(cluster.bridges["B"], replace(back, tcp_flags=flags)) == [port]
    assert cluster.send("B", back) == [("A", back)]
    # The next connection is another one.
    assert leaves_by(cluster.bridges["B"], replace(back, tcp_src=5001, hash=slot)) == [
        slot_port(cluster, "B", slot)
    ]


@pytest.mark.parametrize("reset_by", ["A", "B"])
def test_a_reset_ends_what_the_other_side_has(placing: Cluster, reset_by: str) -> None:
    """A row of the side that resets ends by its own packet, which this model does not do."""
    frames = [server_frame(placing, "B", port) for port in (5000, 5001)]
    for frame in frames:
        place(placing, frame, 4)
        placing.send("A", frame)
    reset = replace(frames[0] if reset_by == "A" else answer_to(frames[0]), tcp_flags=0x14)
    other = "B" if reset_by == "A" else "A"
    assert placing.send(reset_by, reset) == [(other, reset)]
    held = placing.bridges["B"].followed if reset_by == "A" else placing.bridges["A"].placed
    kept = [connection_of(frames[1], back=reset_by == "A")]
    assert list(held) == kept
    # Resets of another port, host or protocol end nothing.
    for stranger in (
        replace(reset, tcp_src=79, tcp_dst=79),
        replace(reset, ip_proto=17),
        replace(reset, tags=((7, 0),)),
    ):
        placing.send(reset_by, stranger)
    assert list(held) == kept


def test_a_refused_connection_teaches_nothing(placing: Cluster) -> None:
    """Otherwise anybody who asks for many of them could fill the client's table."""
    refusal = server_frame(placing, "B", 5000, flags=0x14)
    assert placing.send("A", refusal) == [("B", refusal)]
    assert not placing.bridges["B"].followed


def test_a_reset_is_no_matter_for_the_controller(placing: Cluster) -> None:
    for flags in (0x04, 0x14):
        reset = replace(answer_to(server_frame(placing, "B", 5000)), tcp_flags=flags)
        wire = replace(
            reset, eth_src=placing.hosts["B"].nics[0].mac, eth_dst=placing.hosts["A"].nics[0].mac
        )
        assert placing.bridges["A"].receive(wire, 1) == [(LOCAL, reset)]


def slot_port(cluster: Cluster, name: str, slot: int) -> int:
    peer = "A" if name == "B" else "B"
    frame = Frame(cluster.hosts[name].mac, cluster.hosts[peer].mac, hash=slot)
    (port,) = leaves_by(cluster.bridges[name], frame)
    return port


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 63))
def test_a_path_that_lost_its_nic_is_left_without_a_new_plan(port: int, slot: int) -> None:
    cluster = Cluster({"A": SIX, "B": SIX}, placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000, slot=slot)
    place(cluster, frame, port)
    cluster.send("A", frame)
    cluster.cut("A", port)
    cluster.cut("B", port)
    assert cluster.send("A", frame) == [("B", frame)]
    assert cluster.send("B", answer_to(frame, slot)) == [("A", answer_to(frame, slot))]


def test_a_path_whose_far_end_died_is_left_by_the_next_plan_and_taken_again() -> None:
    cluster = Cluster({"A": SIX, "B": SIX}, placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000, slot=3)
    place(cluster, frame, 3)
    bridge, alive = cluster.bridges["A"], cluster.hosts["B"]
    nics = tuple(replace(each, rx_alive=each.port != 3) for each in alive.nics)
    dead = replace(cluster.fabric, hosts={**cluster.hosts, "B": replace(alive, nics=nics)})
    alive_fabric = cluster.fabric
    cluster.replan(dead)
    (port,) = leaves_by(bridge, frame)
    assert port != 3
    cluster.replan(alive_fabric)
    assert leaves_by(bridge, frame) == [3]


def test_a_path_has_a_vlan_both_ways_in_a_network_of_several_switches() -> None:
    cluster = FatCluster(2, 2, 1)
    fabric = replace(cluster.fabric, placement={"n1": (80,)})
    cluster.replan(fabric)
    server, client = (cluster.hosts[name].mac for name in ("n1", "n2"))
    frame = Frame(server, client, ip_proto=6, ipv4_src="1", ipv4_dst="2", tcp_src=80, tcp_dst=5000)
    for path in fabric.paths("n1", "n2"):
        cluster.bridges["n1"].placed[connection_of(frame)] = path_register(*path.key)
        cluster.switches.crossed.clear()
        assert cluster.send("n1", frame) == [("n2", frame)]
        assert cluster.switches.crossed == list(path.route.links)
        cluster.switches.crossed.clear()
        assert cluster.send("n2", answer_to(frame)) == [("n1", answer_to(frame))]
        (back,) = [each for each in fabric.paths("n2", "n1") if each.route.vlan == path.route.vlan]
        assert cluster.switches.crossed == list(back.route.links)


def test_helpers_are_not_given_placed_services() -> None:
    cluster = Cluster({"A": SIX[:2], "B": SIX[:2]}, helpers=("A", "B"), placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000)
    place(cluster, frame, 2)
    assert cluster.send("A", frame) == [("B", frame)]
    assert cluster.send("B", answer_to(frame)) == [("A", answer_to(frame))]
    assert not cluster.taps
    cluster.send("A", replace(frame, tcp_src=81))
    assert cluster.taps


def test_without_placement_no_row_is_other_than_before() -> None:
    """With it, only rows for frames of services, and rows for frames from a peer, are different."""
    hosts = {"A": SIX[:3], "B": SIX[:2], "C": SIX[:3]}
    plain, placing = Cluster(hosts), Cluster(hosts, placement={"A": (80,)})
    for name in hosts:
        before, after = plain.bridges[name].wanted, placing.bridges[name].wanted
        assert not {flow.table for flow in before.flows.values()} & {Table.PLACED, Table.FOLLOW}
        assert not any("tcp_flags" in dict(flow.match) for flow in before.flows.values())
        lost = [flow for cookie, flow in before.flows.items() if cookie not in after.flows]
        assert {flow.table for flow in lost} == {Table.RECEIVE_COUNT}
        assert before.groups.items() <= after.groups.items()
    fabric = Fabric(plain.hosts, plain.fabric.helper_link_numbers, placement={"Z": ()})
    assert plan_host(fabric, "B", {}, 64) == plain.bridges["B"].wanted


# ---- The app


def test_connections_of_servers_that_have_not_asked_yet_count_too() -> None:
    """The controller has just started, and A is a client of C by its first NIC.

    So A's own service begins on the other NIC.
    """
    of_c = Connection("10.0.0.3", 80, "10.0.0.1", 5000, host_mac("A"))
    a, c = FakeChannel(), FakeChannel(lambda _: parts(reply(of_c, path=(1, 1, 0))))
    config = parse_model("placement: [{hosts: [A, C]}]", ClusterConfig, "cluster.yaml")
    app = PlacementApp()
    app.cluster = cluster_of({"A": a, "B": FakeChannel(), "C": c}, config)
    addresses = bytes.fromhex((host_mac("B") + host_mac("A")).replace(":", ""))
    take_syn_ack(
        app.cluster, ord("A"), addresses + syn_ack("10.0.0.1", "10.0.0.2", (80, 5001))[12:]
    )
    app._turn()
    assert [path_of_cookie(row.cookie) for row in a.sent] == [(2, 2, 0)]


# ---- cluster.yaml


def test_placement_in_cluster_yaml() -> None:
    config = parse_model(
        "placement: [{hosts: [A, B], ports: [80, 443, 80]}, {hosts: [C], policy: "
        "least_connections}]",
        ClusterConfig,
        "cluster.yaml",
    )
    assert config.placed_ports() == {"A": (80, 443), "B": (80, 443), "C": ()}
    assert ClusterConfig().placed_ports() == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("placement: {hosts: [A]}", "placement"),
        ("placement: [{ports: [80]}]", "hosts"),
        ("placement: [{hosts: []}]", "hosts"),
        ("placement: [{hosts: [A], ports: [0]}]", "ports"),
        ("placement: [{hosts: [A], port: 80}]", "port"),
        ("placement: [{hosts: [A], policy: most}]", "policy"),
        ("placement: [{hosts: [A]}, {hosts: [B, A]}]", "A is there twice"),
    ],
)
def test_a_wrong_placement_is_refused_with_its_key(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        parse_model(text, ClusterConfig, "cluster.yaml")
    assert "\n" not in str(caught.value)
