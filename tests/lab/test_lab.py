# SPDX-License-Identifier: Apache-2.0
"""Labs are made whole and removed whole, side by side and after a crash.

Links and faults do what they say.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab, manage, state
from ri2n_lab.cluster.inside import device_counters, write_settings
from ri2n_lab.cluster.namespaces import processes_in
from ri2n_lab.cluster.run import CommandFailed
from ri2n_lab.traffic.iperf import measure
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology, load_topology
from tests.topology_text import parse_topology

from .conftest import EXACT, PATIENCE_S, TOPOLOGIES, LabOf, WaitUntil


def remains(name: str) -> list[str]:
    """Everything on the machine that belongs to the lab `name`."""
    found = [str(path) for path in Path("/run/netns").glob(f"ri2n-{name}-*")]
    found += [str(path) for path in Path("/etc/netns").glob(f"ri2n-{name}-*")]
    found += [str(path) for path in Path("/run/ri2n-lab").glob(f"*{name}")]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(f"ri2n-lab/{name}/" in word or f"ri2n-{name}-" in word for word in command):
                found.append(f"pid {entry.name}: {' '.join(command)}")
    return found


def root_devices() -> set[str]:
    """The names of devices in the machine's own namespace that look like a lab's."""
    output = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        line.split(":")[1].strip()
        for line in output.splitlines()
        if re.search(r": (\w+-eth\d|eth\d+@)", line)
    }


def lost_pings(
    lab: Lab, source: str, destination: str, count: int = 20, family: str = "-4", wait_s: int = 2
) -> int:
    """How many of `count` pings, all sent at once, got no answer within `wait_s` seconds.

    Once one has been answered, ping waits for the others as long as its interval, or twice the
    longest round trip. So the interval is long, and the pings do not wait for it.
    """
    long = str(wait_s)
    argv = ["ping", family, "-q", "-c", str(count), "-l", str(count)]
    argv += ["-i", long, "-W", long, destination]
    output = lab.exec(source, argv, check=False, timeout_s=wait_s + 60.0).stdout
    match = re.search(r"(\d+) packets transmitted, (\d+) received", output)
    assert match, output
    return int(match[1]) - int(match[2])


def all_answered(
    lab: Lab, source: str, destination: str, count: int = 20, family: str = "-4"
) -> bool:
    """Whether `count` pings in a row are all answered; on a busy machine, at a later attempt."""
    deadline_s = time.monotonic() + PATIENCE_S
    while lost_pings(lab, source, destination, count, family):
        if time.monotonic() > deadline_s:
            return False
    return True


def carrier(lab: Lab, host: str, device: str) -> bool:
    """Whether the device has carrier."""
    return "LOWER_UP" in lab.exec(host, ["ip", "-o", "link", "show", "dev", device]).stdout


def mac_of(lab: Lab, host: str, device: str) -> str:
    """The MAC of a host's device."""
    match = re.search(
        r"link/ether (\S+)", lab.exec(host, ["ip", "-o", "link", "show", "dev", device]).stdout
    )
    assert match
    return match[1]


def slow_topology() -> Topology:
    """Figure 4 (d) with links of 15 Mbit/s, with which a busy machine keeps up.

    At this rate, a shaper's burst of 10 kB lasts 5 ms: a shaper whose timer is that late loses
    nothing of its rate. A sender that cannot keep up would lose nothing.
    """
    text = (TOPOLOGIES / "fig4" / "d.yaml").read_text()
    return parse_topology(text.replace("rate_bps: 100000000", "rate_bps: 15000000"))


class TestLife:
    def test_down_leaves_nothing(self) -> None:
        before = root_devices()
        lab = Lab.create(load_topology(TOPOLOGIES / "fig4" / "a.yaml"))
        with lab:
            assert len(remains(lab.name)) > 4
            sleeper = lab.popen("B", ["sleep", "1000"])
            deaf = "trap '' TERM; echo deaf; while :; do read -rt 1000 <> <(:); done"
            stubborn = lab.popen("mgmt", ["bash", "-c", deaf], stdout=subprocess.PIPE, text=True)
            assert stubborn.stdout is not None
            with stubborn.stdout as said:
                assert said.readline() == "deaf\n"
            assert root_devices() == before
        assert remains(lab.name) == []
        assert root_devices() == before
        assert sleeper.returncode == -signal.SIGTERM
        assert stubborn.returncode == -signal.SIGKILL
        lab.down()  # to call it twice is no error

    def test_down_after_an_error_inside(self) -> None:
        with (
            pytest.raises(ZeroDivisionError),
            Lab.create(load_topology(TOPOLOGIES / "fig4" / "a.yaml")) as lab,
        ):
            raise ZeroDivisionError
        assert remains(lab.name) == []

    def test_a_failing_host_up_leaves_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = Lab.create(load_topology(TOPOLOGIES / "fig4" / "a.yaml"))
        monkeypatch.setattr(lab, "host_up_arguments", lambda host: ["--nic", "eth9"])
        with pytest.raises(CommandFailed, match="there is no such NIC"):
            lab.up()
        assert remains(lab.name) == []

    @pytest.mark.parametrize("step", ["namespaces and links", "Open vSwitch", "hosts", "up"])
    @pytest.mark.parametrize("delay_s", [0.0, 0.04])
    def test_down_after_the_maker_was_killed(
        self,
        step: str,
        delay_s: float,
        wait_until: WaitUntil,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # Beside the labs of other tests, a command of one of them might remove this lab first.
        monkeypatch.setattr(state, "ROOT", tmp_path)
        monkeypatch.setenv("RI2N_LAB_ROOT", str(tmp_path))
        name = f"kill-{os.getpid()}-{int(time.monotonic() * 1000) % 100000}"
        program = (
            "import sys, time\n"
            "from pathlib import Path\n"
            "from ri2n_lab.cluster import manage\n"
            "manage.up(Path(sys.argv[1]), sys.argv[2], progress=lambda step: print(step, "
            "flush=True))\n"
            "time.sleep(1000)\n"
        )
        argv = [sys.executable, "-c", program, str(TOPOLOGIES / "fig4" / "d.yaml"), name]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as maker:
            assert maker.stdout is not None
            while (line := maker.stdout.readline().strip()) != step:
                assert line, "the maker ended early"
            time.sleep(delay_s)  # not a wait, but the moment of the crash
            maker.kill()
        assert name in [lab.name for lab in Lab.all_mine()]
        Lab.load(name).down()
        # A child that the lab's process was just starting finds no namespace, and ends by itself.
        wait_until(lambda: not remains(name), lambda: f"remains: {remains(name)}")
        assert list(tmp_path.glob(f"*{name}")) == []

    def test_a_name_is_taken_once(self, lab_d: Lab) -> None:
        with pytest.raises(NotAvailable, match="exists already"):
            Lab.create(lab_d.topology, lab_d.name)

    def test_two_labs_made_at_once_do_not_meet(self, lab_of: LabOf) -> None:
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lab_of, ["fig4/a", "fig4/a"])
        assert all_answered(one, "B", "A")
        other.fault("switch_down", switch="s0")
        assert lost_pings(other, "B", "A", 5) == 5
        assert all_answered(one, "B", "A")
        other.down()
        assert all_answered(one, "B", "A")
        assert remains(other.name) == []

    def test_another_process_finds_it(self, lab_d: Lab) -> None:
        entry = next(entry for entry in manage.ls() if entry["name"] == lab_d.name)
        assert entry["phase"] == "up"
        assert entry["hosts"] == ["A", "B", "C"]
        same = Lab.load(lab_d.name)
        assert all_answered(same, "C", "A")
        assert manage.execute("A", ["true"], lab_d.name) == 0
        assert manage.execute("A", ["false"], lab_d.name) == 1


class TestInside:
    def test_commands(self, lab_d: Lab) -> None:
        assert lab_d.exec("A", ["cat"], input="x").stdout == "x"
        with pytest.raises(CommandFailed, match="status 3"):
            lab_d.exec("A", ["sh", "-c", "exit 3"])
        with pytest.raises(CommandFailed, match="took too long"):
            lab_d.exec("A", ["sleep", "100"], timeout_s=0.1)
        with pytest.raises(BadInput, match="Q"):
            lab_d.exec("Q", ["true"])
        assert "br-ri2n" in lab_d.exec("B", ["ovs-vsctl", "list-br"]).stdout

    def test_every_host_has_its_own_ovs(self, lab_d: Lab) -> None:
        names = {
            host: lab_d.vsctl(host, "get", "bridge", "br-ri2n", "other_config:dp-desc")
            for host in "ABC"
        }
        assert [name.strip().strip('"') for name in names.values()] == ["A", "B", "C"]
        assert len({lab_d.appctl(host, "version") for host in "ABC"}) == 1
        assert "priority=1,in_port=1" in lab_d.ofctl(
            "B", "--no-names", "dump-flows", "br-ri2n", "table=0"
        )
        with pytest.raises(BadInput):
            lab_d.ofctl("mgmt", "show", "br-ri2n")

    def test_control_network(self, lab_d: Lab) -> None:
        for host in "ABC":
            assert all_answered(lab_d, host, lab_d.controller_address, 3)
        # The control network is not a second path between hosts.
        assert (
            lab_d.exec("A", ["ip", "route", "get", lab_d.address("B")]).stdout.split()[2]
            == "br-ri2n"
        )

    def test_wait_ready_says_what_is_missing(self, lab_d: Lab) -> None:
        with pytest.raises(NotAvailable, match="no controller listens"):
            lab_d.wait_ready(0.1)


@pytest.fixture(scope="module", params=["one-switch", "mixed"])
def started(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab that no test changes."""
    with Lab.create(load_topology(TOPOLOGIES / f"{request.param}.yaml")) as lab:
        yield lab


def test_counters_are_read_of_a_hosts_own_devices(started: Lab, wait_until: WaitUntil) -> None:
    """The kernel's files say the same; both are read while nothing is sent."""
    names = ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")
    before = started.nic_counters("A", "tx_packets")
    assert all_answered(started, "A", "B", 3)

    def both() -> tuple[dict[str, int], dict[str, int]]:
        files = [f"/sys/class/net/br-ri2n/statistics/{name}" for name in names]
        said = started.exec("A", ["cat", *files]).stdout.split()
        found = device_counters(started.namespace("A"))
        return found["br-ri2n"], dict(zip(names, map(int, said), strict=True))

    wait_until(lambda: len({str(each) for each in both()}) == 1, lambda: str(both()))
    grown = started.nic_counters("A", "tx_packets")
    assert sum(grown.values()) - sum(before.values()) >= 3
    assert grown.keys() == {nic.name for nic in started.topology.hosts["A"].nics}


def test_counters_of_a_namespace_that_is_not_there_are_refused() -> None:
    with pytest.raises(NotAvailable, match="ri2n-no-such-lab"):
        device_counters("ri2n-no-such-lab")


def test_a_setting_that_the_kernel_refuses_is_named(started: Lab) -> None:
    namespace = started.namespace("A")
    write_settings(namespace, "net/ipv4/conf/all/arp_filter=1")
    assert started.exec("A", ["sysctl", "-n", "net.ipv4.conf.all.arp_filter"]).stdout == "1\n"
    write_settings(namespace, "net/ipv4/conf/all/arp_filter=0")
    with pytest.raises(NotAvailable, match=f"net/ipv4/no_such=1 in {namespace}: No such file"):
        write_settings(namespace, "net/ipv4/no_such=1")


def test_hosts_reach_one_another_with_start_up_flows_alone(started: Lab) -> None:
    lab = started
    for source in lab.hosts:
        for destination in lab.hosts:
            if source != destination:
                for address, family in (
                    (lab.address(destination), "-4"),
                    (lab.address6(destination), "-6"),
                ):
                    assert all_answered(lab, source, address, 3, family), (source, address)


def test_a_broadcast_does_not_multiply(started: Lab, wait_until: WaitUntil) -> None:
    """D's NICs see each ARP request of A once per NIC that A has on the same switch.

    A loop would make thousands of them.
    """
    lab = started
    watched = {("A", "br-ri2n"): 1}
    for nic in lab.topology.hosts["D"].nics:
        watched["D", nic.name] = sum(
            mine.switch == nic.switch for mine in lab.topology.hosts["A"].nics
        )
    files = {place: lab.run_dir / f"capture-{place[0]}-{place[1]}" for place in watched}
    for (host, device), path in files.items():
        # Nobody has 10.77.0.250, so everything about it comes from the three requests below.
        argv = ["tcpdump", "-n", "-U", "-i", device, "-w", str(path)]
        argv += ["arp and arp[24:4] = 0x0a4d00fa"]
        with path.with_suffix(".log").open("wb") as log:
            lab.popen(host, argv, stdout=log, stderr=log)
        wait_until(
            lambda path=path: "listening on" in path.with_suffix(".log").read_text(),
            f"tcpdump on {device}",
        )
    output = lab.exec("A", ["ping", "-4", "-c3", "-W1", "10.77.0.250"], check=False).stdout
    assert "100% packet loss" in output

    def count(place: tuple[str, str]) -> int:
        reader = ["tcpdump", "-n", "-r", str(files[place])]
        return len(lab.exec(place[0], reader, check=False).stdout.splitlines())

    wait_until(lambda: count(("A", "br-ri2n")) >= 2, "no ARP request was sent")

    def all_there() -> bool:
        requests = count(("A", "br-ri2n"))  # a late request may be captured meanwhile
        return all(count(place) >= requests * copies for place, copies in watched.items())

    wait_until(all_there, lambda: f"copies: {[(place, count(place)) for place in watched]}")
    requests = count(("A", "br-ri2n"))
    assert requests < 10
    for place, copies in watched.items():
        assert count(place) == requests * copies, place


@pytest.fixture(scope="module")
def shared_slow_lab() -> Iterator[Lab]:
    with Lab.create(slow_topology()) as lab:
        yield lab


@pytest.fixture
def slow_lab(shared_slow_lab: Lab) -> Iterator[Lab]:
    """The module's lab of the slow topology; its faults are ended after each test."""
    yield shared_slow_lab
    shared_slow_lab.restore_all()


@pytest.mark.virtual
@pytest.mark.skipif(not EXACT, reason="rates are exact in virtual time alone: tier kernel")
class TestLinks:
    def test_rate(self, slow_lab: Lab) -> None:
        """15 Mbit/s carry 14.3 Mbit/s of TCP's data; tests/virtual has the exact figure for 100."""
        results = measure(slow_lab, "A", ["B"], streams=4, skip_s=2.0, window_s=3.0)
        assert 12e6 < results["B"].goodput_bps < 14.6e6

    def test_switch_buffer_is_finite(self, slow_lab: Lab) -> None:
        """Two hosts send 12 Mbit/s each to one host.

        Its link carries 15 Mbit/s, and the switch's buffer does not hold the rest.
        """
        lab = slow_lab
        lab.fault("nic_down", host="A", nic="eth1")
        lab.fault("nic_down", host="C", nic="eth1")
        for host in "BC":
            assert all_answered(lab, host, "A", 3)
        streams = [
            Stream(lab, host, "A", port=port, pps=1000, seconds=3, size=1400)
            for host, port in (("B", 5601), ("C", 5602))
        ]
        results = [stream.result() for stream in streams]
        span_s = max(result.end_s for result in results) - min(result.start_s for result in results)
        received_bps = sum(result.received for result in results) * 1442 * 8 / span_s
        assert received_bps < 15.6e6
        assert sum(result.lost for result in results) > 1000
        queue_s = max(result.latency_ms["p50"] for result in results) / 1e3
        assert queue_s < 0.3  # 131,072 bytes at 15 Mbit/s are 70 ms

    def test_one_stream_is_counted_exactly(self, lab_d: Lab) -> None:
        assert all_answered(lab_d, "B", "A", 3)
        for ipv6 in (False, True):
            result = Stream(lab_d, "B", "A", pps=1000, seconds=1, flows=3, ipv6=ipv6).result()
            assert (result.sent, result.received, result.lost) == (1000, 1000, 0)
            assert (result.duplicates, result.out_of_order, result.errors) == (0, 0, 0)
            assert [flow["sent"] for flow in result.flows] == [334, 333, 333]


class TestFaults:
    def test_blackhole_is_silent_and_two_way(self, lab_d: Lab) -> None:
        assert all_answered(lab_d, "B", "A")
        lab_d.fault("blackhole", host="B", nic="eth0")
        assert carrier(lab_d, "B", "eth0")
        assert lost_pings(lab_d, "B", "A", 10) == 10
        assert lost_pings(lab_d, "A", lab_d.address("B"), 10) == 10
        assert all_answered(lab_d, "C", "A", 10)  # nobody else notices it
        lab_d.restore("blackhole", host="B", nic="eth0")
        assert all_answered(lab_d, "B", "A")

    @pytest.mark.virtual
    @pytest.mark.skipif(not EXACT, reason="losses are exact in virtual time alone: tier kernel")
    def test_losses_are_dated(self, lab_d: Lab, wait_until: WaitUntil) -> None:
        def sent() -> int:
            return lab_d.nic_counters("B", "tx_packets")["eth0"]

        assert all_answered(lab_d, "B", "A", 3)
        before = sent()
        stream = Stream(lab_d, "B", "A", pps=1000, seconds=3, flows=2)
        wait_until(lambda: sent() > before + 500, "the stream is under way")
        begin_s = time.monotonic()
        lab_d.fault("blackhole", host="B", nic="eth0")
        before = sent()
        wait_until(lambda: sent() > before + 200, "200 packets were lost")
        lab_d.restore_all()
        end_s = time.monotonic()
        result = stream.result()
        assert result.lost == len(result.lost_at_s) >= 190
        assert begin_s - 0.1 < result.lost_at_s[0] < result.lost_at_s[-1] < end_s + 0.1
        assert result.lost_after(begin_s - 0.1) == result.lost
        assert 190 < result.longest_gap_ms < (end_s - begin_s) * 1e3 + 200
        assert any(gap["ms"] == result.longest_gap_ms for gap in result.gaps)

    def test_own_and_peer_nic_down(self, lab_d: Lab) -> None:
        for kind in ("nic_down", "peer_nic_down"):
            lab_d.fault(kind, host="A", nic="eth0")
            assert not carrier(lab_d, "A", "eth0")
            assert not carrier(lab_d, "sw", "A-eth0")
            assert carrier(lab_d, "B", "eth0")
            assert carrier(lab_d, "A", "eth1")
            assert lost_pings(lab_d, "B", lab_d.address("A"), 5) == 5
            lab_d.restore_all()
            assert all_answered(lab_d, "B", lab_d.address("A"), 5)
            queue = lab_d.exec("A", ["tc", "qdisc", "show", "dev", "eth0"]).stdout
            assert "tbf" in queue
            assert "rate 100Mbit" in queue

    def test_switch_down_and_faults_that_overlap(self, lab_d: Lab, wait_until: WaitUntil) -> None:
        lab_d.fault("blackhole", host="B", nic="eth0")
        lab_d.fault("switch_down", switch="s0")
        assert all(carrier(lab_d, host, "eth0") for host in "ABC")
        assert [fault.kind for fault in Lab.load(lab_d.name).faults()] == [
            "blackhole",
            "switch_down",
        ]
        lab_d.fault("nic_down", host="C", nic="eth1")
        assert lost_pings(lab_d, "C", lab_d.address("A"), 5) == 5
        lab_d.restore("switch_down", switch="s0")
        # ARP then starts anew, from which the start-up flows learn.
        lab_d.exec("C", ["ip", "neigh", "flush", "dev", "br-ri2n"])
        wait_until(
            lambda: lost_pings(lab_d, "C", lab_d.address("A"), 5) == 0, "C does not reach A over s0"
        )
        assert lost_pings(lab_d, "B", lab_d.address("A"), 5) == 5  # B's own fault is still there
        lab_d.restore("blackhole", host="B", nic="eth0")
        assert all_answered(lab_d, "B", lab_d.address("A"), 5)

    @pytest.mark.virtual
    @pytest.mark.skipif(not EXACT, reason="losses are exact in virtual time alone: tier kernel")
    def test_loss(self, lab_d: Lab) -> None:
        address, mac = lab_d.address("A"), mac_of(lab_d, "A", "br-ri2n")
        # B knows A's MAC for good. Without that, a lost ARP frame would delay, and in the end lose,
        # a second of packets.
        neighbour = [address, "lladdr", mac, "nud", "permanent", "dev", "br-ri2n"]
        lab_d.exec("B", ["ip", "neigh", "replace", *neighbour])
        assert all_answered(lab_d, "B", "A", 3)
        lab_d.fault("loss", host="B", nic="eth0", loss=20)
        result = Stream(lab_d, "B", "A", pps=2000, seconds=1.5).result()
        assert 0.14 * result.sent < result.lost < 0.26 * result.sent
        assert result.duplicates == 0
        lab_d.fault("loss", host="B", nic="eth0", loss=100)  # this replaces the first fault
        assert lost_pings(lab_d, "B", address, 5) == 5
        lab_d.restore("loss", host="B", nic="eth0")
        assert all_answered(lab_d, "B", address, 50)
        lab_d.exec("B", ["ip", "neigh", "del", address, "dev", "br-ri2n"])

    def test_faults_of_what_is_not_there(self, lab_d: Lab) -> None:
        with pytest.raises(
            BadInput, match="nic_down, peer_nic_down, blackhole, switch_down, cable, loss, control"
        ):
            lab_d.fault("fire", host="A", nic="eth0")
        with pytest.raises(BadInput, match="eth7"):
            lab_d.fault("blackhole", host="A", nic="eth7")
        with pytest.raises(BadInput, match="s9"):
            lab_d.fault("switch_down", switch="s9")
        with pytest.raises(BadInput, match="percentage"):
            lab_d.fault("loss", host="A", nic="eth0", loss=0)
        lab_d.restore("nic_down", host="A", nic="eth0")  # no error, though there is none
        assert lab_d.faults() == []


def test_processes_are_found_by_namespace(lab_d: Lab, wait_until: WaitUntil) -> None:
    child = lab_d.popen("C", ["sleep", "1000"])
    try:
        namespace = lab_d.namespace("C")
        wait_until(
            lambda: child.pid in processes_in([namespace]), lambda: f"{processes_in([namespace])}"
        )
        assert child.pid not in processes_in([lab_d.namespace("A")])
    finally:
        child.kill()
        child.wait()
