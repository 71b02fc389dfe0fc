# SPDX-License-Identifier: Apache-2.0
"""Links, switches, the controller and Open vSwitch die and come back under numbered packets."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream, StreamResult
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.plan import pair_group_id
from tests.lab.conftest import (
    EXACT,
    PATIENCE_S,
    TOPOLOGIES,
    WaitUntil,
    controlled,
    replace_controller,
)
from tests.lab.outages import FELT, busy_nic, felt, hosts_need_no_controller, without_controller
from tests.lab.packets import flawless, reaches

pytestmark = pytest.mark.virtual

# A killed ovs-vswitchd is started after 100 ms; real CPUs take longer for it.
SWITCH_MS = 300


# ---- two hosts on two networks


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    with controlled("fig4/b") as made:
        yield made


@pytest.fixture
def lab(shared: Lab, wait_until: WaitUntil) -> Iterator[Lab]:
    yield shared
    shared.restore_all()
    whole(shared, wait_until)


def whole(lab: Lab, wait_until: WaitUntil) -> None:
    """Wait until every NIC is up and alive and all hosts have settled."""
    number = sum(len(lab.topology.hosts[host].nics) for host in lab.topology.managed_hosts())

    def good() -> bool:
        try:
            status = call(lab.controller_socket, "status")
        except NotAvailable:
            return False
        nics = [nic for host in status["hosts"] if host["connected"] for nic in host["nics"]]
        return (
            bool(status["settled"])
            and len(nics) == number
            and all(nic["up"] and nic["alive"] for nic in nics)
        )

    def said() -> str:
        return (
            str(call(lab.controller_socket, "status"))[:2000]
            + (lab.run_dir / "controller.log").read_text()[-1500:]
        )

    wait_until(good, said, timeout_s=30)


def outlived(*streams: Stream) -> None:
    """The streams last until what was to happen under them has happened, which is now."""
    done_s = time.monotonic()
    for stream in streams:
        stream.finish()
    for stream in streams:
        lasted(stream.result(), done_s)


def lasted(got: StreamResult, done_s: float) -> None:
    """A stream has lasted until then, and is flawless."""
    flawless(got)
    assert not EXACT or got.start_s < done_s < got.end_s, f"the stream ended before {done_s}: {got}"


@pytest.mark.parametrize(
    "fault", [pytest.param("nic_down", marks=pytest.mark.smoke), *list(FELT)[1:]]
)
def test_traffic_goes_on_after_a_fault_and_all_paths_return(lab: Lab, fault: str) -> None:
    stream = Stream(lab, "B", "A", seconds=1.7 if EXACT else 5)
    nic = busy_nic(lab, "B")
    if fault == "switch_down":
        lab.fault(fault, switch=f"s{nic[-1]}")
    else:
        lab.fault(fault, host="A" if fault == "peer_nic_down" else "B", nic=nic)
    felt(stream.result(), fault)
    for pair in (("A", "B"), ("B", "A")):
        # This is with the fault; the fixture waits for all paths.
        reaches(lab, *pair)


def test_frames_that_the_datapath_still_leads_to_a_replaced_group_arrive(
    lab: Lab, wait_until: WaitUntil
) -> None:
    """What ovs-vswitchd has cached leads to the old group for a moment.

    Here it does not revalidate its cache.
    """

    def group() -> int:
        rows = lab.ofctl(
            "B", "-O", "OpenFlow15", "dump-flows", "br-ri2n", f"table={Table.SEND}", "--no-stats"
        )
        return int(
            next(row for row in rows.splitlines() if "dl_src=" in row).rpartition("group:")[2]
        )

    # A group of the pair's own keeps its number.
    wait_until(lambda: group() != pair_group_id("A"), "the pair stays active", timeout_s=30)
    both = group()
    lab.fault("nic_down", host="A", nic="eth1")
    wait_until(lambda: group() != both, "B still sends by both networks")
    one = group()
    lab.appctl("B", "revalidator/wait")
    lab.appctl("B", "revalidator/pause")
    try:
        flawless(Stream(lab, "B", "A", seconds=0.2).result())
        lab.restore_all()
        wait_until(lambda: group() != one, "B still sends by one network")
        got = Stream(lab, "B", "A", seconds=0.6, flows=32).result()
    finally:
        lab.appctl("B", "revalidator/resume")
    flawless(got)


@pytest.mark.smoke
def test_a_killed_controller_loses_nothing_and_its_successor_neither(
    lab: Lab, wait_until: WaitUntil
) -> None:
    stream = Stream(lab, "B", "A", seconds=3 if EXACT else 9, flows=16)
    busy_nic(lab, "B")
    replace_controller(lab)
    whole(lab, wait_until)
    outlived(stream)
    reaches(lab, "A", "B")


def test_without_a_controller_hosts_find_each_other_after_any_link_died(lab: Lab) -> None:
    with without_controller(lab):
        hosts_need_no_controller(lab)


# ---- three hosts, B with one link


@pytest.fixture(scope="module")
def begun() -> Iterator[tuple[Lab, StreamResult, float]]:
    """A lab whose controller was started under a stream.

    Besides, the stream's result, and when the controller was ready.
    """
    with Lab.create(load_topology(TOPOLOGIES / "fig4" / "d.yaml")) as lab:
        reaches(lab, "C", "A")
        stream = Stream(lab, "C", "A", seconds=3 if EXACT else 6, flows=8)
        lab.start_controller()
        lab.wait_ready()
        ready_s = time.monotonic()
        stream.finish()
        yield lab, stream.result(), ready_s


@pytest.fixture
def three(begun: tuple[Lab, StreamResult, float], wait_until: WaitUntil) -> Iterator[Lab]:
    lab, _, _ = begun
    yield lab
    lab.restore_all()
    whole(lab, wait_until)


def test_the_controller_takes_over_from_the_start_up_flows_without_a_loss(
    begun: tuple[Lab, StreamResult, float],
) -> None:
    lab, got, ready_s = begun
    lasted(got, ready_s)
    reaches(lab, "C", "A")


def test_a_controller_in_the_fabric_is_reached_over_it(three: Lab, wait_until: WaitUntil) -> None:
    """Host A runs the controller.

    The others reach it by the NICs that it manages, also when one of them drops everything.
    """
    inside = f"{three.address('A')}:6653"
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller", "--listen", inside]
    argv += ["--socket", str(three.controller_socket), "--config", str(three.cluster_file)]
    argv += ["--state-dir", str(three.run_dir / ".memory")]
    with without_controller(three):
        for host in three.topology.managed_hosts():
            three.vsctl(host, "set-controller", "br-ri2n", f"tcp:{inside}")
        try:
            with (three.run_dir / "controller.log").open("ab") as log:
                controller = three.popen("A", argv, stdout=log, stderr=log)
            three.wait_ready()
            stream = Stream(three, "C", "A", seconds=2.5 if EXACT else 6)
            nic = busy_nic(three, "C")
            three.fault("blackhole", host="C", nic=nic)
            got = stream.result()
            assert got.received and not got.duplicates, got
            assert not EXACT or (
                got.longest_gap_ms <= 1000 and not got.lost_after(got.end_s - 0.5)
            ), got
            reaches(three, "C", "A")
            three.restore_all()
            whole(three, wait_until)
        finally:
            for host in three.topology.managed_hosts():
                three.vsctl(
                    host, "set-controller", "br-ri2n", f"tcp:{three.controller_address}:6653"
                )
            controller.kill()
            controller.wait()


@pytest.mark.parametrize("host", ["C", "A"], ids=["the sender's", "the receiver's"])
def test_a_killed_switch_is_felt_until_the_next_one_runs_and_doubles_nothing(
    three: Lab, host: str, wait_until: WaitUntil
) -> None:
    """Flows that the kernel knows go on until the next ovs-vswitchd removes them.

    Here all flows are new.
    """
    stream = Stream(three, "C", "A", seconds=4 if EXACT else 8, flows=8)
    back = Stream(three, "A", "C", seconds=4 if EXACT else 8, flows=8, port=5601)
    three.kill_switch(host)
    whole(three, wait_until)
    for got in (stream.result(), back.result()):
        assert got.received and not got.duplicates, got
        if EXACT:
            assert (
                got.longest_gap_ms <= SWITCH_MS and got.lost <= SWITCH_MS and not got.out_of_order
            ), got
            assert not got.lost_after(got.end_s - 0.5), got


def test_a_host_whose_switch_is_killed_comes_back_and_harms_nobody(
    three: Lab, wait_until: WaitUntil
) -> None:
    stream = Stream(three, "C", "A", seconds=4 if EXACT else 8, flows=8)
    three.kill_switch("B")
    whole(three, wait_until)
    reaches(three, "B", "A")
    outlived(stream)


def test_a_host_whose_bridge_is_deleted_and_made_again_comes_back_and_harms_nobody(
    three: Lab, wait_until: WaitUntil
) -> None:
    """`ovs-vsctl del-br` removes ports, rows and the host's address.

    host-up brings all of them back.
    """
    number = len(three.topology.hosts)
    stream = Stream(three, "C", "A", seconds=6 if EXACT else 12, flows=8)
    back = Stream(three, "A", "C", seconds=6 if EXACT else 12, flows=8, port=5601)
    three.vsctl("B", "del-br", "br-ri2n")
    wait_until(lambda: connected(three) == number - 1, "it is not missed", timeout_s=10)
    three.host_script("B", "host-up", *three.host_up_arguments("B"))
    whole(three, wait_until)
    for pair in (("B", "A"), ("C", "B")):
        reaches(three, *pair)
    outlived(stream, back)


def connected(lab: Lab) -> int:
    """How many hosts the controller is connected to."""
    return sum(host["connected"] for host in call(lab.controller_socket, "status")["hosts"])


def cycles(lab: Lab) -> int:
    """How many rounds of counters and weights the controller has done."""
    return int(call(lab.controller_socket, "status")["counters"].get("cycles", 0))


def test_tcp_connections_survive_that_weights_change_under_load(
    three: Lab, wait_until: WaitUntil
) -> None:
    server = three.popen("A", ["iperf3", "-s", "-1", "-p", "5300"], stdout=subprocess.DEVNULL)
    wait = (
        "for i in $(seq 2000); do ss -ltnH sport = :5300 | grep -q . && exit 0; sleep 0.05; "
        "done; exit 1"
    )
    three.exec("A", ["bash", "-c", wait], timeout_s=PATIENCE_S)
    command = ["iperf3", "-c", three.address("A"), "-p", "5300", "-P", "8"]
    command += ["-t", "6", "-C", "cubic", "-b", "4M", "-J"]
    client = three.popen("C", command, stdout=subprocess.PIPE, text=True)
    for name in ("round_robin", "ri2n_plus", "ri2n_plus_plus", "max_min"):
        call(three.controller_socket, "strategy", name=name)
        rounds = cycles(three)
        wait_until(
            lambda before=rounds: cycles(three) >= before + 3, "three rounds of the controller"
        )
    assert not EXACT or client.poll() is None, "it ended before the weights changed"
    out = client.communicate(timeout=PATIENCE_S)[0]
    assert client.returncode == 0, out[-500:]
    assert server.wait(timeout=PATIENCE_S) == 0
    streams = json.loads(out)["end"]["streams"]
    assert len(streams) == 8 and all(stream["receiver"]["bytes"] > 0 for stream in streams), out[
        -2000:
    ]
