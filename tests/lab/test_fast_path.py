# SPDX-License-Identifier: Apache-2.0
"""Flows pass beside the bridges, byte by byte right, whatever dies meanwhile.

Real time says little about speed on a busy machine. So these tests assert order, content and
completion, and where frames were counted.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.lab import SEGMENT_HERE
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.pipeline.fast_path import HOLDS_S
from tests.topology_text import parse_topology

from .conftest import EXACT, WaitUntil, controlled, replace_controller
from .fast_flows import Talk, Talker, await_in_force, beside, status_of, through
from .outages import busy_nic, without_controller
from .packets import all_reach_each_other, flawless
from .test_jobs import ALICE, begin, script

# Hosts with one to three NICs, and one without RI2N.
MIXED = """
name: beside
switches: {s0: {}, s1: {}, s2: {}}
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 100000000},
             {name: eth1, switch: s1, rate_bps: 100000000},
             {name: eth2, switch: s2, rate_bps: 100000000}]}
  B: {nics: [{name: eth0, switch: s0, rate_bps: 100000000},
             {name: eth1, switch: s1, rate_bps: 100000000},
             {name: eth2, switch: s2, rate_bps: 100000000}]}
  C: {nics: [{name: eth0, switch: s0, rate_bps: 100000000},
             {name: eth1, switch: s1, rate_bps: 100000000}]}
  D: {nics: [{name: eth0, switch: s0, rate_bps: 100000000}]}
  R: {managed: false, nics: [{name: eth0, switch: s0, rate_bps: 100000000}]}
"""
UNIT = Path(__file__).resolve().parents[2] / "ovs-host-scripts" / "ri2n-fast.service"
RIGHTS = [
    word.removeprefix("CAP_").lower()
    for line in re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), flags=re.M)
    for word in line.split()
]
FEW = 60
"""So many frames of ARP, neighbour discovery and probes may pass a bridge meanwhile."""

CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except PermissionError:
        print("refused")
"""


@pytest.fixture(scope="module")
def shared(fast_program: Path) -> Iterator[Lab]:
    with controlled(parse_topology(MIXED), fast=True) as made:
        await_in_force(made)
        yield made


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    yield shared
    shared.restore_all()
    shared.wait_ready()
    await_in_force(shared)


@pytest.fixture
def talking(lab: Lab) -> Iterator[Callable[..., Talk]]:
    """`talking("A", "B", each=4)` starts conversations; all end after the test."""
    with ExitStack() as stack:
        served: set[str] = set()

        def start(source: str, *targets: str, each: int = 1, most: int = 20_000) -> Talk:
            for host in {*targets} - served:
                server = Talker(lab, host)
                stack.callback(server.end)
                served.add(host)
            talk = Talk(lab, source, *targets, each=each, most=most)
            stack.callback(talk.end)
            return talk

        yield start


Talking = Callable[..., Talk]


@pytest.mark.virtual
@pytest.mark.smoke
def test_every_byte_is_right_and_bridges_count_none_of_it(lab: Lab, talking: Talking) -> None:
    managed = lab.topology.managed_hosts()
    talks = [talking(host, *({*managed} - {host}), each=2) for host in managed]
    for talk in talks:
        talk.go_on()  # addresses and neighbours are known now
    start = {host: (through(lab, host), beside(lab, host)) for host in managed}
    for talk in talks:
        talk.go_on(20)
    for host, (was_through, was_beside) in start.items():
        grown = beside(lab, host) - was_beside
        assert grown > 20 * 2 * 2 * 3, host
        assert through(lab, host) - was_through < min(FEW, grown / 4), host


def test_hosts_without_ri2n_are_reached_through_the_bridge(lab: Lab, talking: Talking) -> None:
    out, back = talking("A", "R"), talking("R", "B", "D")
    for talk in (out, back):
        talk.go_on(10)
    all_reach_each_other(lab)


@pytest.mark.virtual
@pytest.mark.smoke
def test_numbered_packets_arrive_once_and_in_order(lab: Lab) -> None:
    streams = [
        Stream(lab, source, target, seconds=2, pps=300, flows=8, size=size, port=port, ipv6=ipv6)
        for source, target, size, port, ipv6 in (
            ("A", "B", 1400, 5601, False),
            ("B", "A", 64, 5602, True),
            ("C", "A", 1000, 5603, True),
            ("D", "C", 200, 5604, False),
        )
    ]
    for stream in streams:
        flawless(stream.result())


def test_the_controller_knows_what_passes_beside_the_bridges(
    lab: Lab, talking: Talking, wait_until: WaitUntil
) -> None:
    def told() -> dict[str, list[int]]:
        """The bytes that the controller has counted at A's NICs, sent and received."""
        found: dict[str, list[int]] = call(lab.controller_socket, "status")["state"]["bytes"]["A"]
        return found

    start = told()
    talking("B", "A", each=12)
    most = 1_000_000
    wait_until(
        lambda: all(
            now - was > most / 10
            for nic, counts in told().items()
            for now, was in zip(counts, start.get(nic, [0, 0]), strict=True)
        ),
        lambda: f"not told of all NICs in both directions: {start} -> {told()}",
        timeout_s=30,
    )
    host = call(lab.controller_socket, "status")["state"]["hosts"]["A"]
    assert host["fast"]["state"] == "in_force" and host["fast"]["peers"] == {"carried": 3}
    # host-status says the same.
    said = json.loads(lab.host_script("A", "host-status", "--json").stdout)
    assert said["fast"]["state"] == "in_force" and said["fast"]["peers"]["carried"] == 3
    assert sorted(said["fast"]["devices"]) == ["br-ri2n", "eth0", "eth1", "eth2"]


def test_super_packets_are_cut_on_either_way(lab: Lab, talking: Talking) -> None:
    """The local port hands 64 KiB at once to the programs, and single frames to Open vSwitch.

    So nothing needs to be switched off at that port. Labs do, for the sake of exact shapers.
    """
    features = "sg on gso on tso on"
    try:
        for host in lab.topology.managed_hosts():
            lab.exec(host, ["ethtool", "-K", "br-ri2n", *features.split()], check=False)
            lab.exec(host, ["ip", "link", "set", "br-ri2n", "gso_max_segs", "65535"])
        state = lab.exec("A", ["ethtool", "-k", "br-ri2n"]).stdout
        assert "generic-segmentation-offload: on" in state
        talks = [talking("A", "B", "R", most=300_000), talking("B", "A", "R", most=300_000)]
        for talk in talks:
            talk.go_on(5)
    finally:
        for host in lab.topology.managed_hosts():
            lab.exec(host, ["ethtool", "-K", "br-ri2n", *SEGMENT_HERE.split()], check=False)
            lab.exec(host, ["ip", "link", "set", "br-ri2n", "gso_max_segs", "1"])


@pytest.mark.parametrize("fault", ["nic_down", "peer_nic_down", "blackhole", "switch_down"])
def test_flows_leave_what_dies_and_come_back(
    lab: Lab, talking: Talking, wait_until: WaitUntil, fault: str
) -> None:
    talk = talking("A", "B", each=16)
    talk.go_on()
    if fault == "switch_down":
        lab.fault(fault, switch="s1")
    else:
        lab.fault(fault, host="B" if fault == "peer_nic_down" else "A", nic="eth1")
    talk.go_on(4)  # each of the conversations, also those that went by what is dead

    def sent() -> int:
        return lab.nic_counters("A", "tx_packets")["eth1"]

    # Only probes go there now: far fewer than the conversations have rounds.
    wait_until(lambda: quiet(talk, sent), "frames go by what is dead", timeout_s=30)
    lab.restore_all()
    start = sent()
    wait_until(lambda: sent() > start + 500, "nothing goes by what is whole again", timeout_s=30)
    talk.go_on()


def quiet(talk: Talk, sent: Callable[[], int]) -> bool:
    """Whether a NIC sends at most one frame for each five rounds of all conversations."""
    start, rounds = sent(), sum(talk.rounds())
    talk.go_on(10)
    return (sent() - start) * 5 <= sum(talk.rounds()) - rounds


def test_flows_go_on_without_the_controller(lab: Lab, talking: Talking) -> None:
    talk = talking("A", "B", "C", each=8)
    talk.go_on()
    with without_controller(lab):
        count = beside(lab, "A")
        talk.go_on(4)
        assert beside(lab, "A") > count
    await_in_force(lab)
    talk.go_on(4)


def test_a_hosts_own_dead_link_needs_no_controller(lab: Lab, wait_until: WaitUntil) -> None:
    """The slots of a dead port go to the next live bucket, as in the bridge."""
    with without_controller(lab):
        stream = Stream(lab, "A", "B", seconds=60, pps=600, flows=32)
        busy_nic(lab, "A", each=20)
        lab.fault("nic_down", host="A", nic="eth1")
        start = lab.nic_counters("B", "rx_packets")

        def arrived(count: int) -> bool:
            now = lab.nic_counters("B", "rx_packets")
            return all(now[nic] > start[nic] + count for nic in ("eth0", "eth2"))

        wait_until(lambda: arrived(50), "nothing arrives by the other NICs")
        moved_s = time.monotonic()
        wait_until(lambda: arrived(200), "nothing arrives by the other NICs")
        stream.finish()
        got = stream.result()
        assert not got.duplicates and not got.lost_after(moved_s), got


def test_a_new_controller_takes_over_while_packets_pass(lab: Lab) -> None:
    stream = Stream(lab, "B", "A", seconds=60, pps=300, flows=16)
    replace_controller(lab)
    stream.finish()
    flawless(stream.result())


def test_frames_pass_while_nobody_watches_and_the_next_one_loses_none(
    lab: Lab, wait_until: WaitUntil
) -> None:
    stream = Stream(lab, "B", "A", seconds=60, pps=300, flows=16)
    back = Stream(lab, "A", "B", seconds=60, pps=300, flows=16, port=5601)
    start = lab.nic_counters("A", "rx_packets")
    lab.fast_paths.kill("A")
    bridge = through(lab, "A")
    wait_until(
        lambda: sum(lab.nic_counters("A", "rx_packets").values()) > sum(start.values()) + 300,
        "nothing arrives",
    )
    assert through(lab, "A") - bridge < FEW
    said = lab.host_script("A", "host-doctor", check=False)
    assert "bad: nobody tells the fast path what changes: " in said.stdout
    # What the programs were told holds for some seconds. Then the bridge has all.
    wait_until(lambda: through(lab, "A") - bridge > 10 * FEW, "the bridge has no frames")
    lab.fast_paths.start("A")
    await_in_force(lab, "A")
    lab.fast_paths.stop("A")
    lab.fast_paths.start("A")
    await_in_force(lab, "A")
    wait_until(lambda: beside(lab, "A") > 200, "the next one takes no frame")
    for each in (stream, back):
        each.finish()
    for each in (stream, back):
        flawless(each.result())


def test_a_switch_that_was_killed_has_the_fast_path_again(lab: Lab, talking: Talking) -> None:
    talk = talking("A", "B", "C", "D", each=2)
    talk.go_on()
    pid = status_of(lab, "A")["pid"]
    lab.kill_switch("A")
    await_in_force(lab)
    talk.go_on(4)
    assert status_of(lab, "A")["pid"] == pid
    bridge, count = through(lab, "A"), beside(lab, "A")
    talk.go_on(20)
    assert beside(lab, "A") > count and through(lab, "A") - bridge < FEW


def test_what_is_no_longer_asked_for_is_out_of_force_and_comes_back(
    lab: Lab, talking: Talking, wait_until: WaitUntil
) -> None:
    talk = talking("A", "B", each=4)
    talk.go_on()
    with_it = lab.host_up_arguments("A")
    without = [word for word in with_it if word != "--fast"]
    lab.host_script("A", "host-up", *without)
    assert lab.fast_paths.pid("A") is None
    filters = "for d in eth0 eth1 eth2 br-ri2n; do tc filter show dev $d ingress; done;"
    filters += "tc filter show dev br-ri2n egress; tc qdisc show | grep clsact || true"
    assert lab.exec("A", ["bash", "-c", filters]).stdout == ""
    bridge = through(lab, "A")
    talk.go_on(20)
    assert through(lab, "A") > bridge + 80
    lab.host_script("A", "host-up", *with_it)
    lab.fast_paths.start("A")
    await_in_force(lab, "A")
    talk.go_on(4)


def test_it_works_with_the_rights_of_its_unit_alone(
    lab: Lab, talking: Talking, fast_program: Path
) -> None:
    lab.fast_paths.stop("A")
    lab.fast_paths.start("A", rights=RIGHTS)
    await_in_force(lab, "A")
    talk = talking("A", "B")
    talk.go_on()
    count = beside(lab, "A")
    talk.go_on(20)
    assert beside(lab, "A") > count + 20


def test_without_the_right_to_look_at_processes_open_vswitch_carries_all_and_it_is_said(
    lab: Lab, talking: Talking, wait_until: WaitUntil
) -> None:
    if lab.datapath != "netdev":
        pytest.skip("only netdev's packet sockets need that right")
    try:
        lab.fast_paths.stop("A")
        lab.fast_paths.start("A", rights=[right for right in RIGHTS if right != "sys_ptrace"])
        talking("A", "B", "C").go_on(5)

        def said() -> str:
            return lab.host_script("A", "host-doctor", check=False).stdout

        # It tries again now and then.
        refused = "warning: the kernel refuses the programs of the fast path: Open vSwitch's packet"
        wait_until(lambda: refused in said(), said)
    finally:
        lab.fast_paths.stop("A")
        lab.fast_paths.start("A")


def test_only_root_may_ask(lab: Lab) -> None:
    folder = lab.run_dir / "A" / "ri2n-fast"
    asks = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    asks += ["/usr/bin/python3", "-c", CONNECT, *(str(path) for path in folder.iterdir())]
    assert lab.exec("A", asks).stdout == "refused\n" * len(list(folder.iterdir()))


@pytest.mark.virtual
@pytest.mark.smoke
def test_a_new_job_waits_until_the_programs_follow_its_rows(lab: Lab) -> None:
    """Or cannot do what they were told before any more, where nobody tells them."""
    pid = str(status_of(lab, "B")["pid"])
    try:
        for stands_still in (False, True):
            if stands_still:
                lab.exec("B", ["kill", "-STOP", pid])
            began_s = time.monotonic()
            begin(lab, f"still-{stands_still}", ALICE, "AB", "--policy", "isolated")
            took_s = time.monotonic() - began_s
            if EXACT:
                assert (took_s > HOLDS_S - 1.0) == stands_still, (stands_still, took_s)
            for host in "AB":
                assert script(lab, host, "job-end", "--all").returncode == 0
    finally:
        lab.exec("B", ["kill", "-CONT", pid])
        for host in "AB":
            script(lab, host, "job-end", "--all")
    await_in_force(lab)
