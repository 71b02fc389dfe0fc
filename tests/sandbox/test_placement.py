# SPDX-License-Identifier: Apache-2.0
"""Placed connections in a real Open vSwitch: rows are added, removed and counted again.

The controller may end and start, too.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from tests.waiting import wait_until

from .frames import Capture, ether, trace
from .test_trunk import dead_port

HOSTS = ("A", "B", "C")
SYN_ACK, ACK, FIN_ACK, RST, RST_ACK = 0x12, 0x10, 0x11, 0x04, 0x14
# The controller reads the rows each time, since these tests remove rows behind its back, and it
# waits for the answer however long it takes.
SETTINGS = """
import ri2n_sdn.pipeline.placement as p, ri2n_sdn.apps.placement as a
a._FRESH_S, a._ANSWER_S = 0.0, 60.0
"""


def tcp(
    sandbox: Sandbox,
    source: str,
    target: str,
    ports: tuple[int, int],
    flags: int,
    *,
    ipv6: bool = False,
) -> str:
    """A TCP packet between two hosts' own addresses, in hex."""
    segment = struct.pack("!HHIIBBHHH", *ports, 1, 1, 5 << 4, flags, 1000, 0, 0)
    ends = [
        f"{'fd77::' if ipv6 else '10.77.0.'}{sandbox.number[name]}" for name in (source, target)
    ]
    addresses = b"".join(ip_address(end).packed for end in ends)
    if ipv6:
        head = struct.pack("!IHBB", 6 << 28, len(segment), 6, 64)
    else:
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0)
    return ether(
        sandbox.mac(source),
        sandbox.mac(target),
        0x86DD if ipv6 else 0x0800,
        head + addresses + segment,
    )


def placed(sandbox: Sandbox, host: str = "A") -> dict[int, tuple[int, int]]:
    """The client's port -> (own port, peer's port) of the rows that the controller made."""
    rows = sandbox.ovs.ofctl("dump-flows", host, "table=13")
    found = re.findall(r"priority=20,.*?tp_dst=(\d+) actions=set_field:(0x\w+)", rows)
    return {int(port): (int(path, 16) >> 22, int(path, 16) >> 12 & 0x3FF) for port, path in found}


def own_ports(sandbox: Sandbox) -> Counter[int]:
    return Counter(path[0] for path in placed(sandbox).values())


def begin(sandbox: Sandbox, client: str, ports: range, *, ipv6: bool = False) -> None:
    """A answers requests from a client's ports, and the rows are there."""
    before = set(placed(sandbox))
    sandbox.receive(
        "A", *(tcp(sandbox, "A", client, (80, port), SYN_ACK, ipv6=ipv6) for port in ports)
    )
    wait_until(
        lambda: before | set(ports) == set(placed(sandbox)),
        lambda: f"{placed(sandbox)}; {sandbox.ask('status')['counters']}; {sandbox.log()[-500:]}",
    )


def empty(sandbox: Sandbox) -> None:
    for name in HOSTS:
        sandbox.ovs.ofctl("del-flows", name, "table=13")


def start(sandbox: Sandbox, before: str = "") -> None:
    config = (
        sandbox.declared()
        + "hbspan_s: {min: 0.1, max: 0.2}\nplacement: [{hosts: [A], ports: [80]}]\n"
    )
    sandbox.start_controller(config=config, before=SETTINGS + before)
    sandbox.wait_settled()


def wired() -> Sandbox:
    return Sandbox({**{name: ["n0", "n1", "n2"] for name in "AB"}, "C": ["n0", "n2"]}, {"R": "n0"})


@pytest.fixture(scope="module")
def made() -> Iterator[Sandbox]:
    with wired() as sandbox:
        start(sandbox)
        yield sandbox


@pytest.fixture
def sandbox(made: Sandbox) -> Iterator[Sandbox]:
    yield made
    empty(made)


def test_each_new_connection_gets_the_nic_with_the_fewest(sandbox: Sandbox) -> None:
    capture = Capture(sandbox)
    frames = [tcp(sandbox, "A", "B", (80, port), SYN_ACK) for port in range(5000, 5003)]
    begin(sandbox, "B", range(5000, 5003))
    capture.expect({"B": frames})  # once, whether or not they wait for the controller
    assert placed(sandbox) == {5000: (1, 1), 5001: (2, 2), 5002: (3, 3)}
    begin(sandbox, "C", range(6000, 6002))  # C has no NIC on n1
    assert [placed(sandbox)[port] for port in (6000, 6001)] == [(1, 1), (3, 2)]
    begin(sandbox, "B", range(5003, 5004), ipv6=True)
    assert placed(sandbox)[5003] == (2, 2)


def test_an_answer_that_is_repeated_does_not_count_twice(sandbox: Sandbox) -> None:
    begin(sandbox, "B", range(5000, 5002))
    again = [tcp(sandbox, "A", "B", (80, port), SYN_ACK) for port in (5000, 5001, 5000)]
    sandbox.receive("A", *again)
    begin(sandbox, "B", range(5002, 5003))
    assert placed(sandbox) == {5000: (1, 1), 5001: (2, 2), 5002: (3, 3)}


def test_strangers_and_other_services_are_not_placed(sandbox: Sandbox) -> None:
    before = sandbox.ask("status")["counters"].get("connections_not_placed_stranger", 0)
    router = tcp(sandbox, "A", "B", (80, 5000), SYN_ACK).replace(
        sandbox.mac("B").replace(":", ""), sandbox.mac("R").replace(":", "")
    )
    sandbox.receive("A", router, tcp(sandbox, "A", "B", (81, 5000), SYN_ACK))
    sandbox.receive("B", tcp(sandbox, "B", "A", (80, 5000), SYN_ACK))
    begin(sandbox, "B", range(5009, 5010))
    assert sandbox.ask("status")["counters"]["connections_not_placed_stranger"] == before + 1
    assert set(placed(sandbox)) == {5009} and not placed(sandbox, "B")


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_frames_go_by_the_path_and_the_client_s_come_back_by_it(
    sandbox: Sandbox, ipv6: bool
) -> None:
    begin(sandbox, "B", range(5000, 5003), ipv6=ipv6)
    version, address = ("tcp6", "ipv6_{}=fd77::{}") if ipv6 else ("tcp", "nw_{}=10.77.0.{}")

    def flow(source: str, target: str, ports: tuple[int, int]) -> str:
        ends = [
            address.format("src", sandbox.number[source]),
            address.format("dst", sandbox.number[target]),
        ]
        macs = f"dl_src={sandbox.mac(source)},dl_dst={sandbox.mac(target)}"
        tcp = f"tcp_src={ports[0]},tcp_dst={ports[1]},tcp_flags=ack"
        return f"in_port=LOCAL,{version},{macs},{','.join(ends)},{tcp}"

    def leaves_by(source: str, target: str, ports: tuple[int, int]) -> str:
        """The port by which a frame leaves.

        "slots" when its hash decides, "lost" when it does not arrive.
        """
        hops, text = trace(sandbox, source, flow(source, target, ports))
        if "Datapath actions: hash(" in text:
            return "slots"
        # A table without a row for the frame says "drop", though the frame only comes back from
        # there.
        given = [output for output in hops[-1].outputs if output != "drop"]
        return hops[0].outputs[0] if (hops[-1].bridge, given) == (target, ["LOCAL"]) else "lost"

    for number, port in enumerate(range(5000, 5003), 1):
        assert leaves_by("A", "B", (80, port)) == str(number)
        sandbox.receive("A", tcp(sandbox, "A", "B", (80, port), ACK, ipv6=ipv6))
        assert leaves_by("B", "A", (port, 80)) == str(number)
    # The far end of its path dies silently: its row stays, and the slot table decides until the
    # path is back.
    with dead_port(sandbox, "B", 1):
        wait_until(lambda: leaves_by("A", "B", (80, 5001)) == "slots", "it stays on the dead path")
        sandbox.wait_settled()
        capture, frame = Capture(sandbox), tcp(sandbox, "A", "B", (80, 5001), ACK, ipv6=ipv6)
        sandbox.receive("A", frame)
        capture.expect({"B": [frame]})
    wait_until(lambda: leaves_by("A", "B", (80, 5001)) == "2", "it does not come back")
    sandbox.wait_settled()


def test_rows_end_after_the_connection_at_both_hosts(sandbox: Sandbox) -> None:
    begin(sandbox, "B", range(5000, 5003))
    for port in (5000, 5001):
        for flags in (ACK, FIN_ACK):
            sandbox.receive("A", tcp(sandbox, "A", "B", (80, port), flags))
            sandbox.receive("B", tcp(sandbox, "B", "A", (port, 80), flags))
    wait_until(lambda: set(placed(sandbox)) == {5002}, lambda: f"rows stay: {placed(sandbox)}")
    learned = "tp_src=500[01],tp_dst=80"
    wait_until(
        lambda: not re.search(learned, sandbox.ovs.ofctl("dump-flows", "B", "table=13")),
        "B's rows stay",
    )
    begin(sandbox, "B", range(5003, 5005))
    assert own_ports(sandbox) == {1: 1, 2: 1, 3: 1}


def followed(sandbox: Sandbox, host: str) -> set[int]:
    """The client's own ports of the rows that it learned."""
    rows = sandbox.ovs.ofctl("dump-flows", host, "table=13")
    return {int(port) for port in re.findall(r"priority=10,.*?tp_src=(\d+),tp_dst=80 ", rows)}


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("reset_by", ["client", "server"])
def test_rows_end_at_both_hosts_when_either_resets(
    sandbox: Sandbox, reset_by: str, ipv6: bool
) -> None:
    begin(sandbox, "B", range(5000, 5003), ipv6=ipv6)
    for port in range(5000, 5003):
        sandbox.receive("A", tcp(sandbox, "A", "B", (80, port), ACK, ipv6=ipv6))
        sandbox.receive("B", tcp(sandbox, "B", "A", (port, 80), ACK, ipv6=ipv6))
    wait_until(lambda: followed(sandbox, "B") == {5000, 5001, 5002}, "B does not follow")
    before = sandbox.ask("status")["counters"].get("switch_errors", 0)
    capture = Capture(sandbox)
    source, target = ("B", "A") if reset_by == "client" else ("A", "B")
    resets = [
        tcp(
            sandbox,
            source,
            target,
            (port, 80) if reset_by == "client" else (80, port),
            flags,
            ipv6=ipv6,
        )
        for port, flags in ((5000, RST), (5001, RST_ACK))
    ]
    sandbox.receive(source, *resets)
    capture.expect({target: resets})  # as they were sent
    wait_until(lambda: set(placed(sandbox)) == {5002}, lambda: f"A's rows stay: {placed(sandbox)}")
    wait_until(lambda: followed(sandbox, "B") == {5002}, lambda: f"B's: {followed(sandbox, 'B')}")
    begin(sandbox, "B", range(5003, 5005), ipv6=ipv6)
    assert own_ports(sandbox) == {1: 1, 2: 1, 3: 1}
    assert sandbox.ask("status")["counters"].get("switch_errors", 0) == before


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_explain_says_which_row_decides(sandbox: Sandbox, ipv6: bool) -> None:
    prefix = "fd77::" if ipv6 else "10.77.0."

    def decided_by(source: str, target: str, ports: tuple[int, int]) -> object:
        ends = {
            "src_ip": f"{prefix}{sandbox.number[source]}",
            "dst_ip": f"{prefix}{sandbox.number[target]}",
        }
        flow = {"protocol": 6, **ends, "sport": ports[0], "dport": ports[1]}
        answer = sandbox.ask("explain", src=source, dst=target, flow=flow)
        assert answer["services"] == ({"A": [80]} if "A" in (source, target) else {})
        return answer.get("placed", "no service")

    begin(sandbox, "B", range(5000, 5003), ipv6=ipv6)
    sandbox.receive(
        "A", *(tcp(sandbox, "A", "B", (80, port), ACK, ipv6=ipv6) for port in range(5000, 5003))
    )
    wait_until(lambda: followed(sandbox, "B") == {5000, 5001, 5002}, "B does not follow")
    for number, port in enumerate(range(5000, 5003)):
        path = {"own": f"A-e{number}", "peer": f"B-e{number}", "vlan": None, "alive": True}
        assert decided_by("A", "B", (80, port)) == {**path, "row": "placed"}
        back = {**path, "own": path["peer"], "peer": path["own"], "row": "followed"}
        # B may learn once more, for a moment, what the answer taught it, which went by the slot
        # table.
        wait_until(
            lambda p=port, b=back: decided_by("B", "A", (p, 80)) == b,  # type: ignore[misc]
            lambda p=port: str(decided_by("B", "A", (p, 80))),  # type: ignore[misc]
        )
    assert decided_by("B", "A", (5999, 80)) is None
    for ports in ((80, 5999), (5000, 80), (81, 5000)):
        assert decided_by("A", "B", ports) == (None if ports[0] == 80 else "no service")
    assert decided_by("B", "C", (80, 5000)) == "no service"
    with dead_port(sandbox, "B", 1):
        wait_until(
            lambda: '"alive": false' in json.dumps(decided_by("A", "B", (80, 5001))),
            "its path is not called dead",
        )
        assert decided_by("A", "B", (80, 5002)) == {**path, "row": "placed"}
    wait_until(
        lambda: '"alive": true' in json.dumps(decided_by("A", "B", (80, 5001))),
        "its path does not come back",
    )
    sandbox.wait_settled()


def test_rows_are_no_strangers_to_the_audit_and_do_not_grow(sandbox: Sandbox) -> None:
    begin(sandbox, "B", range(5000, 5003))
    sandbox.receive("A", *(tcp(sandbox, "A", "B", (80, port), ACK) for port in range(5000, 5003)))
    before = sandbox.wait_settled()["counters"]
    wait_until(
        lambda: sandbox.ask("status")["counters"]["cycles"] > before["cycles"] + 3, "no cycles"
    )
    after = sandbox.ask("status")["counters"]
    assert {
        name: after.get(name, 0) - before.get(name, 0) for name in ("flow_mods", "switch_errors")
    } == {
        "flow_mods": 0,
        "switch_errors": 0,
    }
    assert set(placed(sandbox)) == {5000, 5001, 5002}


def test_a_flood_of_resets_costs_no_row_and_no_word_to_the_controller(sandbox: Sandbox) -> None:
    """They come from a client and from the server, of connections that do not exist.

    A connection that exists stays.
    """
    begin(sandbox, "B", range(5000, 5001))
    sandbox.receive("A", tcp(sandbox, "A", "B", (80, 5000), ACK))
    wait_until(lambda: followed(sandbox, "B") == {5000}, "B does not follow")
    rows = {name: len(sandbox.ovs.ofctl("dump-flows", name).splitlines()) for name in HOSTS}

    def asked() -> list[str]:
        """Counters of A's rows that ask the controller, except the row of probes, which go on."""
        return re.findall(
            r"n_packets=(\d+).*?,tcp.*CONTROLLER:", sandbox.ovs.ofctl("dump-flows", "A")
        )

    before = asked()
    for first in range(10_000, 12_000, 100):
        ports = range(first, first + 100)
        sandbox.receive("B", *(tcp(sandbox, "B", "A", (port, 80), RST) for port in ports))
        sandbox.receive("A", *(tcp(sandbox, "A", "B", (80, port), RST_ACK) for port in ports))
    assert {name: len(sandbox.ovs.ofctl("dump-flows", name).splitlines()) for name in HOSTS} == rows
    assert set(placed(sandbox)) == {5000} and followed(sandbox, "B") == {5000}
    assert asked() == before and len(before) == 2


def test_a_flood_of_answers_is_bounded(made: Sandbox) -> None:
    """There are more than may be placed, from ports that never come again.

    Some are placed, and the controller goes on.
    """
    frames = [tcp(made, "A", "B", (80, port), SYN_ACK) for port in range(10_000, 16_000)]
    for first in range(0, len(frames), 500):
        made.receive("A", *frames[first : first + 500])
    made.receive("A", tcp(made, "A", "C", (80, 9999), SYN_ACK))
    wait_until(
        lambda: (
            all(host["connected"] for host in made.ask("status")["hosts"])
            and made.ask("status")["settled"]
        ),
        "the controller is not well",
    )
    assert 0 < len(placed(made)) <= 4096
    counts = own_ports(made)
    assert max(counts.values()) - min(counts.values()) <= 1
    counters = made.ask("status")["counters"]
    assert not [name for name in counters if "errors" in name and counters[name]], counters
    # The controller may still have more of them to place. When an answer behind all of them is
    # placed, it has no more.
    empty(made)
    made.receive("A", tcp(made, "A", "C", (80, 9998), SYN_ACK))
    wait_until(
        lambda: 9998 in placed(made), lambda: f"not placed: {made.ask('status')['counters']}"
    )
    empty(made)


def test_the_next_controller_goes_on_counting_and_gives_up_what_never_began() -> None:
    """The controller is killed by `kill -9`; without it, answers still arrive."""
    with wired() as sandbox:
        start(sandbox)
        begin(sandbox, "B", range(5000, 5006))
        assert own_ports(sandbox) == {1: 2, 2: 2, 3: 2}
        sandbox.kill_controllers()
        capture = Capture(sandbox)
        frame = tcp(sandbox, "A", "B", (80, 7000), SYN_ACK)
        sandbox.receive("A", frame)
        capture.expect({"B": [frame]})
        assert set(placed(sandbox)) == set(range(5000, 5006))
        half_open = {port for port, path in placed(sandbox).items() if path[0] == 2}
        answered = set(range(5000, 5006)) - half_open
        for port in answered:
            sandbox.receive("A", tcp(sandbox, "A", "B", (80, port), ACK))
        wait_until(
            lambda: (
                sandbox.ovs.ofctl("dump-flows", "A", "table=13").count("n_packets=1,")
                == len(answered)
            ),
            "nothing is counted",
        )
        wait_until(lambda: min(ages_s(sandbox)) >= 1, "rows do not grow old")
        start(sandbox, before="p.HALF_OPEN_S = 0.5")
        # If the others were not counted, the first NIC would be free. If those that were given up
        # were still counted, it would be next.
        sandbox.receive("A", tcp(sandbox, "A", "B", (80, 6000), SYN_ACK))
        wait_until(lambda: set(placed(sandbox)) == answered | {6000}, lambda: str(placed(sandbox)))
        assert own_ports(sandbox) == {1: 2, 2: 1, 3: 2}
        assert sandbox.ask("status")["counters"]["connections_half_open"] == len(half_open)


def ages_s(sandbox: Sandbox) -> list[float]:
    """How many seconds ago the rows were made."""
    rows = sandbox.ovs.ofctl("dump-flows", "A", "table=13")
    return [float(age) for age in re.findall(r"duration=([\d.]+)s, .*?priority=20,", rows)]
