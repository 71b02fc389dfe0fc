"""Links, switches, the controller and Open vSwitch die and come back, under a stream of numbered packets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ri2n_sdn.cli.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.traffic import Stream
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.plan import pair_group_id
from tests.lab.conftest import LabOf, controlled

WaitUntil = Callable[..., None]


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
    """Wait until every NIC is up and alive and all hosts are settled."""

    def good() -> bool:
        try:
            status = call(lab.controller_socket, "status")
        except NotAvailable:
            return False
        nics = [nic for host in status["hosts"] for nic in host["nics"]]
        return bool(status["settled"]) and len(nics) == 4 and all(nic["up"] and nic["alive"] for nic in nics)

    wait_until(good, lambda: str(call(lab.controller_socket, "status"))[:2000], timeout_s=20)


def sent_by(lab: Lab, host: str) -> dict[str, int]:
    """Frames that a host's NICs have sent."""
    return {
        nic.name: int(lab.exec(host, ["cat", f"/sys/class/net/{nic.name}/statistics/tx_packets"]).stdout)
        for nic in lab.topology.hosts[host].nics
    }


def busy_nic(lab: Lab, host: str, wait_until: WaitUntil) -> str:
    """The NIC by which a running stream leaves `host`."""
    start = sent_by(lab, host)
    grown: dict[str, int] = {}

    def seen() -> bool:
        grown.update({name: count - start[name] for name, count in sent_by(lab, host).items()})
        return max(grown.values()) > 200

    wait_until(seen, lambda: f"no NIC of {host} sends: {grown}")
    return max(grown, key=lambda name: grown[name])


@pytest.mark.parametrize("fault", ["nic_down", "peer_nic_down", "blackhole", "switch_down"])
def test_traffic_goes_on_after_a_fault_and_all_paths_return(
    lab: Lab, fault: str, stream_pps: float, wait_until: WaitUntil
) -> None:
    stream = Stream(lab, "B", "A", pps=stream_pps, seconds=5)
    nic = busy_nic(lab, "B", wait_until)
    if fault == "switch_down":
        lab.fault(fault, switch=f"s{nic[-1]}")
    else:
        lab.fault(fault, host="A" if fault == "peer_nic_down" else "B", nic=nic)
    got = stream.result()
    assert got.lost < 3 * stream_pps and got.duplicates == 0, got
    assert not got.lost_after(got.end_s - 0.5), "nothing got through any more"
    lab.restore_all()
    whole(lab, wait_until)


def test_frames_that_the_datapath_still_leads_to_a_replaced_group_arrive(
    lab: Lab, stream_pps: float, wait_until: WaitUntil
) -> None:
    """What ovs-vswitchd has cached leads to the old group for a moment; here it does not look through its cache."""

    def group() -> int:
        rows = lab.ofctl("B", "-O", "OpenFlow15", "dump-flows", "br-ri2n", f"table={Table.SEND}", "--no-stats")
        return int(next(row for row in rows.splitlines() if "dl_src=" in row).rpartition("group:")[2])

    # A group of the pair's own keeps its number.
    wait_until(lambda: group() != pair_group_id("A"), "the pair stays active", timeout_s=30)
    both = group()
    lab.fault("nic_down", host="A", nic="eth1")
    wait_until(lambda: group() != both, "B still sends by both networks")
    one = group()
    lab.appctl("B", "revalidator/wait")
    lab.appctl("B", "revalidator/pause")
    try:
        assert Stream(lab, "B", "A", pps=stream_pps, seconds=0.2).result().lost == 0
        lab.restore_all()
        wait_until(lambda: group() != one, "B still sends by one network")
        got = Stream(lab, "B", "A", pps=stream_pps, seconds=0.6, flows=32).result()
    finally:
        lab.appctl("B", "revalidator/resume")
    assert got.lost == 0, got


def cycles(lab: Lab) -> int:
    """Rounds of counters and weights that the controller has done."""
    return int(call(lab.controller_socket, "status")["counters"].get("cycles", 0))


def restart(lab: Lab, controller: subprocess.Popen[Any]) -> subprocess.Popen[Any]:
    controller.kill()
    controller.wait()
    return lab.start_controller()


def test_a_killed_controller_loses_nothing_and_its_successor_neither(
    lab_of: LabOf, stream_pps: float, wait_until: WaitUntil
) -> None:
    lab = lab_of("fig4/b")
    controller = lab.start_controller()
    lab.wait_ready()
    stream = Stream(lab, "B", "A", pps=stream_pps, seconds=9, flows=16)
    busy_nic(lab, "B", wait_until)
    restart(lab, controller)
    whole(lab, wait_until)
    got = stream.result()
    assert (got.lost, got.duplicates, got.out_of_order) == (0, 0, 0), got


@pytest.mark.parametrize("topology", ["fig4/b", "one-switch"])
def test_without_a_controller_hosts_find_each_other_after_any_link_died(
    topology: str, lab_of: LabOf, stream_pps: float
) -> None:
    """ARP and neighbour discovery from nothing, IPv4 and IPv6, after each link in turn; then a NIC under load."""
    lab = lab_of(topology)
    controller = lab.start_controller()
    lab.wait_ready()
    controller.kill()
    controller.wait()
    for host in ("A", "B"):
        for nic in lab.topology.hosts[host].nics:
            lab.fault("nic_down", host=host, nic=nic.name)
            for end in ("A", "B"):
                lab.exec(end, ["ip", "neigh", "flush", "all"])
            # The pair's unicast may hash to a path whose far end is dead: that takes a controller. ARP must not.
            for find in (["ip", "-4", "neigh"], ["ip", "-6", "neigh"]):
                address = lab.address("A") if "-4" in find else lab.address6("A")
                lab.exec("B", ["ping", "-n", "-c1", "-W2", address], check=False)
                table = lab.exec("B", [*find, "show", "to", address]).stdout
                assert "lladdr" in table, f"{host}:{nic.name} down: {table}"
            lab.restore("nic_down", host=host, nic=nic.name)
    stream = Stream(lab, "B", "A", pps=stream_pps, seconds=3, flows=16)
    lab.fault("nic_down", host="B", nic="eth0")
    got = stream.result()
    assert got.lost < 0.3 * stream_pps and not got.lost_after(got.end_s - 1), got


def test_the_controller_takes_over_from_the_start_up_flows_without_a_loss(lab_of: LabOf, stream_pps: float) -> None:
    lab = lab_of("fig4/d")
    lab.exec("C", ["ping", "-n", "-c2", "-i0.1", lab.address("A")])
    stream = Stream(lab, "C", "A", pps=stream_pps, seconds=6, flows=8)
    lab.start_controller()
    lab.wait_ready()
    got = stream.result()
    assert (got.lost, got.duplicates) == (0, 0), got


def test_a_controller_in_the_fabric_is_reached_over_it(lab_of: LabOf, stream_pps: float, wait_until: WaitUntil) -> None:
    """Host A runs the controller; the others reach it by the NICs that it manages, also after one is dropping."""
    lab = lab_of("fig4/d")
    for host in lab.topology.managed_hosts():
        lab.vsctl(host, "set-controller", "br-ri2n", f"tcp:{lab.address('A')}:6653")
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller", "--listen", f"{lab.address('A')}:6653"]
    argv += ["--socket", str(lab.controller_socket), "--config", str(lab.cluster_file)]
    with (lab.run_dir / "controller.log").open("ab") as log:
        lab.popen("A", argv, stdout=log, stderr=log)
    lab.wait_ready()
    stream = Stream(lab, "C", "A", pps=stream_pps, seconds=6)
    nic = busy_nic(lab, "C", wait_until)
    lab.fault("blackhole", host="C", nic=nic)
    got = stream.result()
    assert not got.lost_after(got.end_s - 1), got
    hosts = call(lab.controller_socket, "status")["hosts"]
    assert all(host["connected"] for host in hosts), hosts


def test_a_host_whose_switch_is_killed_comes_back_and_harms_nobody(
    lab_of: LabOf, stream_pps: float, wait_until: WaitUntil
) -> None:
    lab = lab_of("fig4/d")
    lab.start_controller()
    lab.wait_ready()
    folder = lab.run_dir / "B"
    stream = Stream(lab, "C", "A", pps=stream_pps, seconds=8, flows=8)
    os.kill(int((folder / "ovs-vswitchd.pid").read_text()), signal.SIGKILL)
    argv = ["ovs-vswitchd", f"unix:{folder}/db.sock", "--pidfile", "--log-file", "-vconsole:off", "--detach"]
    lab.exec("B", ["env", *(f"{key}={value}" for key, value in lab.environment("B").items() if "OVS" in key), *argv])
    lab.host_script("B", "host-up", *lab.host_up_arguments("B"))

    def back() -> bool:
        status = call(lab.controller_socket, "status")
        return bool(status["settled"]) and all(host["connected"] for host in status["hosts"])

    wait_until(back, lambda: (lab.run_dir / "controller.log").read_text()[-1500:], timeout_s=30)
    said = lab.exec("B", ["ping", "-n", "-c3", "-i0.1", lab.address("A")]).stdout
    assert " 3 received" in said
    got = stream.result()
    assert (got.lost, got.duplicates) == (0, 0), got


def test_tcp_connections_survive_that_weights_change_under_load(lab_of: LabOf, wait_until: WaitUntil) -> None:
    lab = lab_of("fig4/d")
    lab.start_controller()
    lab.wait_ready()
    server = lab.popen("A", ["iperf3", "-s", "-1", "-p", "5300"], stdout=subprocess.DEVNULL)
    wait = "for i in $(seq 100); do ss -ltnH sport = :5300 | grep -q . && exit 0; sleep 0.05; done; exit 1"
    lab.exec("A", ["bash", "-c", wait])
    client = lab.popen(
        "C",
        ["iperf3", "-c", lab.address("A"), "-p", "5300", "-P", "8", "-t", "8", "-C", "cubic", "-J"],
        stdout=subprocess.PIPE,
        text=True,
    )
    for name in ("round_robin", "ri2n_plus", "ri2n_plus_plus", "max_min"):
        call(lab.controller_socket, "strategy", name=name)
        rounds = cycles(lab)
        wait_until(lambda before=rounds: cycles(lab) >= before + 3, "three rounds of the controller")
    out = client.communicate(timeout=30)[0]
    assert client.returncode == 0, out[-500:]
    assert server.wait(timeout=10) == 0
