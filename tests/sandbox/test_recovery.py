# SPDX-License-Identifier: Apache-2.0
"""A controller dies, tables are changed behind its back, and parts of it fail."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ri2n_lab.cluster.sandbox import Process, Sandbox
from ri2n_sdn.weights.loop import BUSY_MOVES
from tests.waiting import LONG_S, wait_until

from .frames import Capture, udp

HOSTS = ("A", "B", "C", "D")
OURS = "cookie=0x5232000000000000/0xffff000000000000"
QUICK_AUDIT = """
import functools, ri2n_sdn.apps.cluster as cluster, ri2n_sdn.apps.trunk as trunk
cluster.LoopSettings = functools.partial(cluster.LoopSettings, inactive_after_s=1.0)
trunk._AUDIT_S, trunk._UNUSED_GROUP_S = 1.0, 0.8
"""
# A handler, a loop and a decoder that fail a few times, as by a bug of ours.
FAULTY = """
import sys
import ri2n_sdn.apps.cluster as cluster
import ri2n_sdn.apps.probes as probes, ri2n_sdn.apps.trunk as trunk

def failing(times, method, called_by=""):
    left = [times]
    def wrapped(*args):
        if left[0] > 0 and called_by in ("", sys._getframe(1).f_code.co_name):
            left[0] -= 1
            raise RuntimeError("a bug")
        return method(*args)
    return wrapped

probes.ProbeCodec.decode = failing(5, probes.ProbeCodec.decode)
cluster.Cluster.member_at = failing(1, cluster.Cluster.member_at, "port_changed")
trunk.TrunkApp._forget = failing(3, trunk.TrunkApp._forget)
"""
BROKEN = "import ri2n_sdn.apps.trunk as trunk; trunk.TrunkApp._forget = None"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}, {"R": "n0"}) as made:
        yield made


@pytest.fixture(autouse=True)
def _none_left(sandbox: Sandbox) -> Iterator[None]:
    yield
    sandbox.kill_controllers()
    for name in HOSTS:
        sandbox.ovs.ofctl("del-flows", name)
        sandbox.ovs.ofctl("del-groups", name)


@pytest.fixture
def controller(sandbox: Sandbox) -> Process:
    process = sandbox.start_controller(before=QUICK_AUDIT, config=often(sandbox))
    sandbox.wait_settled()
    return process


def often(sandbox: Sandbox) -> str:
    """A cluster.yaml that names all hosts, for a controller with quick rounds."""
    return "hbspan_s: {min: 0.1, max: 0.2}\n" + sandbox.declared()


def flows(sandbox: Sandbox, host: str) -> list[str]:
    text = sandbox.ovs.run("ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", host)
    return sorted(line.strip() for line in text.splitlines() if "cookie=0x5232" in line)


def groups(sandbox: Sandbox, host: str) -> list[str]:
    text = sandbox.ovs.ofctl("dump-groups", host)
    return sorted(line.strip() for line in text.splitlines() if "group_id" in line)


def installed(sandbox: Sandbox) -> dict[str, tuple[list[str], list[str]]]:
    return {name: (flows(sandbox, name), groups(sandbox, name)) for name in HOSTS}


@contextmanager
def traffic(sandbox: Sandbox, source: str, target: str) -> Iterator[None]:
    """About 2 Mbit/s of 16 flows until the end of the block."""
    macs = sandbox.mac(source), sandbox.mac(target)
    frames = [udp(*macs, (port, 1), size=1400) for port in range(16)]
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.1):
            sandbox.receive(source, *frames)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def active(sandbox: Sandbox) -> set[tuple[str, str]]:
    return {(pair["src"], pair["dst"]) for pair in sandbox.ask("status")["pairs"] if pair["active"]}


def test_a_restarted_controller_changes_nothing(sandbox: Sandbox) -> None:
    sandbox.start_controller(config=often(sandbox))
    sandbox.wait_settled()
    before = installed(sandbox)
    assert all(len(rows) > 50 and found for rows, found in before.values())
    sandbox.kill_controllers()
    second = sandbox.start_controller(config=often(sandbox))
    sandbox.wait_settled()
    wait_until(
        lambda: sandbox.ask("status")["counters"].get("cycles", 0) >= 2, "there are no cycles"
    )
    status = sandbox.ask("status")
    assert status["pid"] == second.pid
    assert {name: status["counters"].get(name, 0) for name in ("flow_mods", "group_mods")} == {
        "flow_mods": 0,
        "group_mods": 0,
    }
    assert installed(sandbox) == before


def test_a_restarted_controller_keeps_the_tables_of_busy_pairs(sandbox: Sandbox) -> None:
    config = often(sandbox).replace("A: {nics: {}}", "A: {nics: {A-e0: {rate_bps: 300000000}}}")
    sandbox.start_controller(strategy="max_min", config=config)
    sandbox.wait_settled()
    with traffic(sandbox, "A", "B"):
        wait_until(lambda: active(sandbox) == {("A", "B")}, "the pair does not become active")
        sandbox.wait_settled()
        before = installed(sandbox)
        assert before["A"] != installed(sandbox)["C"]
        sandbox.kill_controllers()
        sandbox.start_controller(strategy="max_min", config=config)
        sandbox.wait_settled()
        cycles = 0
        while cycles < 8:
            counters = sandbox.ask("status")["counters"]
            cycles = counters.get("cycles", 0)
            # If the pair were not taken over, it would go by the shared table, which changes flows,
            # or get a new table. A few of its slots may move in each round, as at any moment under
            # load.
            assert counters.get("flow_mods", 0) == 0
            assert counters.get("slots_moved", 0) <= BUSY_MOVES * (cycles + 1)
        after = installed(sandbox)
        assert active(sandbox) == {("A", "B")}
        assert {name: rows for name, (rows, _) in after.items()} == {
            name: rows for name, (rows, _) in before.items()
        }
        assert len(set(after["A"][1]) ^ set(before["A"][1])) in (0, 2)


def test_a_pair_that_falls_silent_goes_back_to_the_shared_table(
    sandbox: Sandbox, controller: Process
) -> None:
    before = installed(sandbox)
    with traffic(sandbox, "A", "B"):
        wait_until(lambda: active(sandbox) == {("A", "B")}, "the pair does not become active")
        more = len(before["A"][1]) + 1
        wait_until(
            lambda: len(groups(sandbox, "A")) == more, "the pair does not get a group of its own"
        )
    wait_until(lambda: not active(sandbox), "the pair stays active")
    wait_until(lambda: installed(sandbox) == before, "the pair's group stays")
    sandbox.wait_settled()


def test_emptied_tables_are_filled_again(sandbox: Sandbox, controller: Process) -> None:
    before = installed(sandbox)
    repairs = sandbox.ask("status")["counters"].get("audit_repairs", 0)
    sandbox.ovs.ofctl("del-flows", "B")
    wait_until(lambda: installed(sandbox) == before, "B's tables stay empty")
    counters = sandbox.wait_settled()["counters"]
    # On a busy machine, an audit that has just begun may be the first to see it.
    noticed = "B: its tables were emptied" in [
        entry["text"] for entry in sandbox.ask("events")["events"]
    ]
    assert noticed or counters["audit_repairs"] > repairs
    capture = Capture(sandbox)
    frames = [udp(sandbox.mac("A"), sandbox.mac("B"), (port, 2)) for port in range(8)]
    sandbox.receive("A", *frames)
    capture.expect({"B": frames})


def test_deleted_groups_are_made_again(sandbox: Sandbox, controller: Process) -> None:
    before = installed(sandbox)
    sandbox.ovs.ofctl("del-groups", "C")  # this also removes the rows that use them
    wait_until(lambda: installed(sandbox) == before, "C's groups stay away")
    sandbox.wait_settled()


def test_the_audit_mends_rows_and_leaves_strangers_alone(
    sandbox: Sandbox, controller: Process
) -> None:
    before = installed(sandbox)
    repairs = sandbox.ask("status")["counters"].get("audit_repairs", 0)
    rows, tables = before["D"]
    # Else the controller might repair a part before all changes are made.
    controller.send_signal(signal.SIGSTOP)
    try:
        sandbox.ovs.ofctl(
            "add-flow", "D", "table=0,priority=7,dl_type=0x1234,cookie=0xabc,actions=drop"
        )
        sandbox.ovs.ofctl(
            "add-flow",
            "D",
            "table=1,priority=7,dl_type=0x1234,cookie=0x5232000000000001,actions=drop",
        )
        sandbox.ovs.ofctl("del-flows", "D", f"table=2,dl_dst={sandbox.mac('D')}")
        sandbox.ovs.ofctl("mod-group", "D", changed(tables))
        now = flows(sandbox, "D")
        assert [len(set(now) - set(rows)), len(set(rows) - set(now))] == [1, 1]
        assert len(set(groups(sandbox, "D")) - set(tables)) == 1
    finally:
        controller.send_signal(signal.SIGCONT)
    wait_until(lambda: installed(sandbox) == before, "the audit does not mend it")
    status = sandbox.wait_settled()
    assert status["counters"]["audit_repairs"] > repairs
    assert "cookie=0xabc" in sandbox.ovs.ofctl("dump-flows", "D", "table=0")
    sandbox.ovs.ofctl("del-flows", "D", "cookie=0xabc/-1")


def changed(found: list[str]) -> str:
    """The first select group of a dump with its first two buckets made equal: another table."""
    group = next(line for line in found if "type=select" in line)
    registers = re.findall(r"set_field:0x\w+->reg1", group)
    other = next(value for value in registers if value != registers[0])
    return group.replace(registers[0], other, 1)


def test_failing_parts_are_logged_and_go_on(sandbox: Sandbox) -> None:
    sandbox.start_controller(before=FAULTY)
    sandbox.wait_settled()
    sandbox.ovs.vsctl(
        "add-port", "A", "A-x", "--", "set", "interface", "A-x", "type=dummy", "ofport_request=9"
    )
    wait_until(
        lambda: sandbox.ask("status")["counters"].get("handler_errors_ConnectionApp.port_changed"),
        lambda: f"no failing handler is counted: {sandbox.ask('status')['counters']}",
    )
    sandbox.ovs.vsctl("del-port", "A", "A-x")
    wait_until(
        lambda: "A: A-x was removed" in sandbox.log(),
        "the event after the failing one is not handled",
    )
    counters = sandbox.wait_settled()["counters"]
    assert counters["handler_errors_DiscoveryApp.packet_in"] == 5
    assert counters["handler_errors_ConnectionApp.port_changed"] == 1
    assert counters["loop_errors_trunk"] == 3


def test_a_part_that_always_fails_ends_the_process(sandbox: Sandbox) -> None:
    process = sandbox.start_controller(before=BROKEN)
    assert process.wait(LONG_S) == 1
    assert "trunk fails at every turn; the controller ends" in sandbox.log()


def test_it_ends_when_told_to(sandbox: Sandbox) -> None:
    process = sandbox.start_controller()
    sandbox.wait_settled()
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG_S) == 0
    assert not sandbox.socket.exists()
