"""Real packets through two hosts' ri2n-reorder: one flow over all links, in order.

It stays so under any fault.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology, load_topology
from ri2n_sdn.pipeline import helper_frames
from ri2n_sdn.pipeline.crc32c import crc32c
from tests.problem_texts import problem_texts

from .conftest import EXACT, PATIENCE_S, TOPOLOGIES, WaitUntil
from .packets import all_reach_each_other, all_talk_tcp, broadcasts_arrive_once, flawless, pings

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("reorder_program")]

SIZE = 200  # bytes of a UDP stream's packets
TCP_BYTES = 1_000_000
WHOLE_S = 20.0
QUIET_MS = 2.0  # how much longer than planned the longest time between two packets is
# The same when a link dies, as README.md says: 13 ms, and a part that depends on when between two
# heartbeats it dies; and the same when a helper is killed.
FAULT_MS, KILLED_MS = 20.0, 2.0
# The packet in the helper, and the packets that arrive before the bridge has noticed: 1 or 2 in
# most of 200 samples, 4 in one.
KILLED_LOST = 3
# For a helper that hangs without a guard: two reports and a half, an echo and a plan.
SILENT_MS = 4000.0
HUNG_MS = 700.0  # --watchdog-ms 500, and the time in which the bridge sees that the TAPs are gone
RECEIVE_TCP = """
import hashlib, socket
s = socket.create_server(("::", 5900), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
c, _ = s.accept()
d = c.makefile("rb").read()
c.sendall(hashlib.sha256(d).hexdigest().encode())
"""
SEND_TCP = """
import hashlib, random, select, socket, sys
numbers, sent, seen = random.Random(4), 0, hashlib.sha256()
s = socket.create_connection((sys.argv[1], 5900), timeout=200)
while sent < int(sys.argv[2]) or not select.select([sys.stdin], [], [], 0)[0]:
    data = numbers.randbytes(50000)
    s.sendall(data); seen.update(data); sent += len(data)
s.shutdown(socket.SHUT_WR)
assert s.makefile().read() == seen.hexdigest(), "other bytes came out than went in"
"""
EXPLAIN = [sys.executable, "-m", "ri2n_sdn.cli.main", "explain"]
SEND_FRAMES = """
import json, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((sys.argv[1], 0))
for frame in json.load(sys.stdin): s.send(bytes.fromhex(frame))
"""


class Cluster:
    """A lab with helpers, and its controller if it has one."""

    def __init__(self, lab: Lab, controller: subprocess.Popen[Any] | None = None) -> None:
        self.lab = lab
        self.controller = controller

    def start_controller(self, config: Path | None = None) -> None:
        """Start a controller, or another one in place of it."""
        self.kill_controller()
        self.controller = self.lab.start_controller(config=config)

    def kill_controller(self) -> None:
        if self.controller is not None:
            self.controller.kill()
            self.controller.wait()
            self.controller = None

    def counters(self, host: str) -> dict[str, int]:
        """The counters of a host's helper."""
        found: dict[str, int] = self.lab.helpers.status(host)["counters"]
        return found

    def peers(self) -> list[dict[str, Any]]:
        """What all helpers say about their peers."""
        return [
            peer
            for host in self.lab.helpers.hosts
            for peer in self.lab.helpers.status(host)["peers"]
        ]

    def usable(self) -> bool:
        """Whether every helper stripes to all others, over every link."""
        hosts = len(self.lab.helpers.hosts)
        try:
            peers = self.peers()
        except NotAvailable:
            return False
        whole = all(
            peer["striped"] and all(link["usable"] for link in peer["links"]) for peer in peers
        )
        return whole and len(peers) == hosts * (hosts - 1)

    def described(self) -> str:
        """What the helpers say, without the zeros: for messages."""
        said = []
        for host in self.lab.helpers.hosts:
            try:
                status = self.lab.helpers.status(host)
            except NotAvailable as error:
                said.append(f"{host}: {error}")
                continue
            counters = {name: value for name, value in status["counters"].items() if value}
            said.append(f"{host}: {json.dumps({**status, 'counters': counters})}")
        return "\n".join(said)

    def make_whole(self, wait_until: WaitUntil) -> None:
        """Wait until there is no fault and every helper runs and stripes.

        The controller, if there is one, must agree.
        """
        self.lab.restore_all()
        for host in self.lab.helpers.hosts:
            if self.lab.helpers.pid(host) is None:
                self.lab.helpers.start(host)
        if self.lab.software == "ri2n":
            if self.controller is None:
                self.start_controller()
            wait_until(self.controller_content, self.described, timeout_s=WHOLE_S)
        wait_until(self.usable, self.described, timeout_s=WHOLE_S)

    def controller_content(self) -> bool:
        """Whether the controller has settled.

        All NICs must be alive, and all pairs with helpers striped.
        """
        try:
            status = call(self.lab.controller_socket, "status")
        except NotAvailable:
            return False
        nics = [nic for host in status["hosts"] for nic in host["nics"]]
        with_helper = set(self.lab.helpers.hosts)
        striped = all(
            pair["striped"] == ({pair["src"], pair["dst"]} <= with_helper)
            for pair in status["pairs"]
        )
        return bool(
            status["settled"]
            and nics
            and striped
            and all(nic["up"] and nic["alive"] for nic in nics)
        )


def topology_of(name: str, without: str = "") -> Topology:
    """A topology in which one host has no helper."""
    topology = load_topology(TOPOLOGIES / f"{name}.yaml")
    hosts = {
        host: spec.model_copy(update={"helper": spec.helper and host != without})
        for host, spec in topology.hosts.items()
    }
    return topology.model_copy(update={"hosts": hosts})


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Lab.create(topology_of("fig4/b"), helpers=True) as lab:
        made = Cluster(lab)
        made.start_controller()
        lab.wait_ready()
        yield made


@pytest.fixture
def cluster(shared: Cluster, wait_until: WaitUntil) -> Cluster:
    """Two hosts with two networks in common, whole again, whatever was done to them before."""
    shared.make_whole(wait_until)
    return shared


@pytest.fixture(scope="module")
def mixed() -> Iterator[Cluster]:
    """Hosts of 1, 2, 3 and 4 NICs and a router; C has no helper."""
    with Lab.create(topology_of("mixed", without="C"), helpers=True) as lab:
        made = Cluster(lab)
        made.start_controller()
        lab.wait_ready()
        yield made


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    """Three hosts with nothing but the helper: no Open vSwitch, no controller."""
    with Lab.create(topology_of("fig4/d"), software="autonomous") as lab:
        yield Cluster(lab)


def sent_bytes(lab: Lab, host: str) -> dict[str, int]:
    """The bytes that each NIC of a host has sent."""
    return {
        nic.name: int(
            lab.exec(host, ["cat", f"/sys/class/net/{nic.name}/statistics/tx_bytes"]).stdout
        )
        for nic in lab.topology.hosts[host].nics
    }


def sent_since(lab: Lab, host: str, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in sent_bytes(lab, host).items()}


@pytest.fixture
def pps(stream_pps: float) -> float:
    """The rate for which README.md has figures, where the machine has no influence."""
    return 10_000.0 if EXACT else stream_pps


def stream_is_flawless(
    cluster: Cluster,
    pps: float,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    seconds: float = 0.3,
    source: str = "B",
    outage_ms: float = QUIET_MS,
) -> None:
    """`source` sends to A without a loss and in order, whatever happens `meanwhile`."""
    stream = Stream(cluster.lab, source, "A", pps=pps, seconds=seconds, size=SIZE)
    meanwhile()
    over_s = time.monotonic()
    got = stream.result()
    flawless(got, cluster.described())
    if EXACT:
        assert got.longest_gap_ms <= 1000 / pps + outage_ms, f"{got}\n{cluster.described()}"
        assert over_s < got.end_s, f"the stream ended {over_s - got.end_s:.2f} s too early"


def stream_uses_both_networks(cluster: Cluster, pps: float) -> None:
    """A short stream goes from B to A, half of it over each link."""
    before = sent_bytes(cluster.lab, "B")
    stream_is_flawless(cluster, pps)
    sent = sent_since(cluster.lab, "B", before)
    assert min(sent.values()) > 0.4 * 0.3 * pps * SIZE, f"{sent}\n{cluster.described()}"


def until_sent(
    cluster: Cluster, packets: float, wait_until: WaitUntil, *, by_all: bool, source: str = "B"
) -> str:
    """Wait until all NICs of `source`, or one, have sent the bytes of so many packets.

    Returns the name of the NIC that has sent most.
    """
    start, choose = sent_bytes(cluster.lab, source), min if by_all else max
    sent: dict[str, int] = {}

    def enough() -> bool:
        sent.update(sent_since(cluster.lab, source, start))
        return choose(sent.values()) > packets * SIZE

    wait_until(enough, cluster.described)
    return max(sent, key=lambda nic: sent[nic])


def send_by_tcp(
    cluster: Cluster, source: str, address: str, until: Callable[[], None] = lambda: None
) -> dict[str, int]:
    """Send TCP_BYTES to A, and go on until `until` returns; A gets the same bytes.

    Returns the bytes that each NIC of the source has sent.
    """
    before = sent_bytes(cluster.lab, source)
    server = cluster.lab.popen(
        "A", [sys.executable, "-c", RECEIVE_TCP], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    argv = [sys.executable, "-c", SEND_TCP, address, str(TCP_BYTES)]
    client = cluster.lab.popen(
        source, argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until()
    finally:
        said = client.communicate(timeout=PATIENCE_S)[1]
    assert client.returncode == 0, f"{said}\n{cluster.described()}"
    assert server.wait(timeout=PATIENCE_S) == 0
    server.stdout.close()
    return sent_since(cluster.lab, source, before)


# ---- one flow, all links


@pytest.mark.smoke
def test_one_connection_arrives_whole_and_in_order_over_both_networks(
    cluster: Cluster, wait_until: WaitUntil
) -> None:
    """It goes on until each network has carried enough.

    Meanwhile each helper took its packets in and gave them out.
    """
    before = {host: cluster.counters(host) for host in ("A", "B")}

    def carried_by_both() -> None:
        start = sent_bytes(cluster.lab, "B")
        wait_until(
            lambda: min(sent_since(cluster.lab, "B", start).values()) > TCP_BYTES / 2,
            cluster.described,
            WHOLE_S,
        )

    send_by_tcp(cluster, "B", cluster.lab.address("A"), carried_by_both)
    for host, counters in before.items():
        after = cluster.counters(host)
        assert all(after[name] > counters[name] for name in ("data_in", "data_out")), (
            cluster.described()
        )


def test_one_udp_stream_uses_both_networks(cluster: Cluster, pps: float) -> None:
    stream_uses_both_networks(cluster, pps)


@pytest.mark.parametrize("ipv6", [False, True])
def test_one_tcp_connection_uses_both_networks(cluster: Cluster, ipv6: bool) -> None:
    sent = send_by_tcp(
        cluster, "B", cluster.lab.address6("A") if ipv6 else cluster.lab.address("A")
    )
    assert min(sent.values()) > 0.45 * TCP_BYTES, f"{sent}\n{cluster.described()}"


def test_fragments_arrive_whole(cluster: Cluster) -> None:
    """Packets of several sizes.

    One just fits into a frame with the helper's header, one has a byte more, and one has 20,000
    bytes.
    """
    lab = cluster.lab
    mtu = int(lab.exec("A", ["cat", "/sys/class/net/br-ri2n/mtu"]).stdout)
    for address, headers in ((lab.address("A"), 28), (lab.address6("A"), 48)):
        for size in (mtu - headers, mtu - headers + 1, 20000):
            said = pings(lab, "B", address, "-s", str(size))
            assert " 3 received" in said and "duplicates" not in said, (
                f"{address}: {said}\n{cluster.described()}"
            )


# ---- links, switches and processes die


@pytest.mark.parametrize("fault", ["nic_down", "peer_nic_down", "blackhole", "switch_down"])
def test_a_fault_costs_no_packet_and_its_path_returns(
    cluster: Cluster, fault: str, pps: float, wait_until: WaitUntil
) -> None:
    def break_it() -> None:
        until_sent(cluster, 0.05 * pps, wait_until, by_all=True)
        if fault == "switch_down":
            cluster.lab.fault(fault, switch="s0")
        else:
            cluster.lab.fault(fault, host="A" if fault == "peer_nic_down" else "B", nic="eth0")

    stream_is_flawless(cluster, pps, break_it, seconds=0.4, outage_ms=FAULT_MS)
    assert not cluster.usable(), cluster.described()
    cluster.make_whole(wait_until)
    stream_uses_both_networks(cluster, pps)


@pytest.mark.parametrize("host", ["B", "A"], ids=["the sender's", "the receiver's"])
def test_a_killed_helper_costs_a_packet_or_two_and_is_used_again(
    cluster: Cluster, host: str, pps: float, wait_until: WaitUntil
) -> None:
    lab = cluster.lab
    other = "A" if host == "B" else "B"
    stream = Stream(lab, "B", "A", pps=pps, seconds=0.8 if EXACT else 5, size=SIZE)
    until_sent(cluster, 0.05 * pps, wait_until, by_all=True)
    lab.helpers.kill(host)
    killed_s = time.monotonic()
    until_sent(cluster, 0.1 * pps, wait_until, by_all=False)
    assert not cluster.usable()
    lab.helpers.start(host)
    wait_until(cluster.usable, cluster.described, WHOLE_S)
    striped_s = time.monotonic()
    if EXACT:  # else the stream may be over
        until_sent(cluster, 0.05 * pps, wait_until, by_all=True)
    got = stream.result()
    print(
        f"{host} killed: {got.lost} lost, {got.out_of_order} out of order, "
        f"{got.longest_gap_ms:.2f} ms"
    )
    state = f"killed at {killed_s}, striped again at {striped_s}: {got}\n{cluster.described()}"
    assert got.received and not got.duplicates, state
    if EXACT:
        assert got.lost <= KILLED_LOST and got.out_of_order <= KILLED_LOST, state
        assert got.longest_gap_ms <= 1000 / pps + KILLED_MS, state
        assert striped_s < got.end_s and not got.lost_after(striped_s), state
    assert cluster.counters(other)["restarts"] >= 1, state


@pytest.mark.parametrize("host", ["B", "A"], ids=["the sender's", "the receiver's"])
def test_a_hanging_helper_is_ended_and_felt_for_less_than_a_second(
    cluster: Cluster, host: str, stream_pps: float, wait_until: WaitUntil
) -> None:
    """The helper stands still, as under a debugger.

    Its own guard ends it, and flows go by the slot table from then on.
    """
    lab = cluster.lab
    lab.helpers.restart(host, ["--watchdog-ms", "500"])
    wait_until(cluster.usable, cluster.described, WHOLE_S)
    stream = Stream(lab, "B", "A", pps=stream_pps, seconds=6 if EXACT else 8, size=SIZE)
    until_sent(cluster, 0.05 * stream_pps, wait_until, by_all=True)
    pid = lab.helpers.pid(host)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    hung_s = time.monotonic()
    wait_until(lambda: lab.helpers.pid(host) is None, "nobody ends it")
    ended_s = time.monotonic()
    lab.helpers.start(host)
    wait_until(cluster.usable, cluster.described, WHOLE_S)
    striped_s = time.monotonic()
    got = stream.result()
    state = (
        f"hung at {hung_s}, ended at {ended_s}, striped again at {striped_s}: "
        f"{got}\n{cluster.described()}"
    )
    assert got.received and not got.duplicates, state
    if EXACT:
        assert got.longest_gap_ms <= HUNG_MS, state
        assert striped_s < got.end_s and not got.lost_after(striped_s), state


@pytest.mark.parametrize("host", ["B", "A"], ids=["the sender's", "the receiver's"])
def test_a_hanging_helper_without_a_guard_is_left_for_the_slot_table(
    cluster: Cluster, host: str, stream_pps: float, wait_until: WaitUntil
) -> None:
    """Its TAPs keep their carrier.

    The controller gets no reports, and gives the helper no traffic until they arrive again.
    """
    lab = cluster.lab

    def warned() -> bool:
        line = f"{host}'s helper has reported nothing for "
        return any(
            text.startswith(line) for text in problem_texts(call(lab.controller_socket, "status"))
        )

    stream = Stream(lab, "B", "A", pps=stream_pps, seconds=12 if EXACT else 40, size=SIZE)
    until_sent(cluster, 0.05 * stream_pps, wait_until, by_all=True)
    pid = lab.helpers.pid(host)
    assert pid is not None and not warned()
    os.kill(pid, signal.SIGSTOP)
    hung_s = time.monotonic()
    try:
        wait_until(
            warned, lambda: f"no warning: {problem_texts(call(lab.controller_socket, 'status'))}"
        )
        noticed_s = time.monotonic()
        by_slots = [
            (pair["src"], pair["striped"])
            for pair in call(lab.controller_socket, "status")["pairs"]
        ]
        wait_until(lambda: time.monotonic() > hung_s + 2 * SILENT_MS / 1000, "time stands still")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(
        lambda: cluster.controller_content() and cluster.usable(), cluster.described, WHOLE_S
    )
    striped_s = time.monotonic()
    assert not warned() and lab.helpers.pid(host) == pid
    got = stream.result()
    state = (
        f"hung at {hung_s}, noticed at {noticed_s}, striped again at {striped_s}: "
        f"{got}\n{cluster.described()}"
    )
    assert by_slots == [("A", False), ("B", False)] and got.received and not got.duplicates, state
    if EXACT:
        assert got.longest_gap_ms <= SILENT_MS, state
        assert striped_s < got.end_s and not got.lost_after(striped_s), state


def test_striping_goes_on_without_a_controller_and_under_the_next(
    cluster: Cluster, pps: float
) -> None:
    stream_is_flawless(cluster, pps, cluster.kill_controller)
    stream_uses_both_networks(cluster, pps)

    def succeed() -> None:
        cluster.start_controller()
        cluster.lab.wait_ready()

    stream_is_flawless(cluster, pps / 10, succeed, seconds=3 if EXACT else 5)


def test_striping_is_turned_off_and_on_without_a_loss(
    cluster: Cluster, pps: float, wait_until: WaitUntil
) -> None:
    lab = cluster.lab
    off = lab.run_dir / "off.yaml"
    off.write_text("striping: 'off'\n" + lab.cluster_file.read_text())
    for config, striped in ((off, False), (lab.cluster_file, True)):

        def change(config: Path = config, striped: bool = striped) -> None:
            cluster.start_controller(config)
            lab.wait_ready()
            wait_until(
                lambda: all(peer["striped"] == striped for peer in cluster.peers()),
                cluster.described,
                WHOLE_S,
            )

        stream_is_flawless(cluster, pps / 10, change, seconds=3 if EXACT else 5)
        # The change may have taken longer than the stream: the next stream shows whether the helper
        # is used.
        counted = cluster.counters("B")["plain_in"]
        stream_is_flawless(cluster, pps)
        assert (cluster.counters("B")["plain_in"] > counted + 0.2 * pps) == striped, (
            cluster.described()
        )


def test_a_class_of_traffic_keeps_one_link_while_all_else_is_striped(
    cluster: Cluster, pps: float, wait_until: WaitUntil
) -> None:
    """TCP to port 5900 is sent by flows; UDP is striped.

    A connection has one link, and its acknowledgements have one, too.
    """
    lab = cluster.lab
    config = lab.run_dir / "by_flows.yaml"
    config.write_text("by_flows: [{proto: tcp, port: 5900}]\n" + lab.cluster_file.read_text())
    cluster.start_controller(config)
    lab.wait_ready()
    wait_until(cluster.controller_content, cluster.described, timeout_s=WHOLE_S)
    given = [cluster.counters(host)["plain_in"] for host in ("A", "B")]
    sent = send_by_tcp(cluster, "B", lab.address("A"))
    # Linux draws a new hash when it sends again after a time-out; in virtual time there is no
    # time-out.
    if lab.datapath == "netdev" or EXACT:
        assert max(sent.values()) > TCP_BYTES, f"{sent}\n{cluster.described()}"
        assert min(sent.values()) < 0.05 * TCP_BYTES, f"{sent}\n{cluster.described()}"
    # Nothing of it arrived at a helper; other programs on the hosts may have sent something.
    assert all(
        cluster.counters(host)["plain_in"] < before + 20
        for host, before in zip(("A", "B"), given, strict=True)
    ), cluster.described()
    # It is striped, although not evenly so soon after TCP filled one link.
    counted = cluster.counters("B")["plain_in"]
    stream_is_flawless(cluster, pps)
    if EXACT:
        assert cluster.counters("B")["plain_in"] >= counted + 0.3 * pps, cluster.described()
    answer = json.loads(
        subprocess.run(
            [*EXPLAIN, "B", "A", "--socket", str(lab.controller_socket), "--proto", "tcp",
             "--dport", "5900", "--src-ip", lab.address("B"), "--dst-ip", lab.address("A"),
             "--datapath", "netdev", "--json"],
            check=True, capture_output=True, text=True,
        ).stdout
    )  # fmt: skip
    assert (
        answer["striped"] and answer["slot"] is not None and "keeps one link" in answer["why"][1]
    ), answer
    cluster.start_controller()  # without that class, for the next test


# ---- what others send


def test_forged_frames_and_garbage_cost_counters_and_harm_nothing(
    cluster: Cluster, pps: float, wait_until: WaitUntil
) -> None:
    """They come from the NIC of a host whose helper is known: the most that another host can do."""
    lab = cluster.lab
    hosts = {host["name"]: host for host in call(lab.controller_socket, "status")["hosts"]}
    nic = {
        name: {entry["name"]: entry["mac"] for entry in host["nics"]}["eth0"]
        for name, host in hosts.items()
    }
    link = bytes.fromhex((nic["A"] + nic["B"]).replace(":", ""))
    control = [
        helper_frames.gone(2**32 - 1, hosts["B"]["mac"]),
        helper_frames.this_host(2**32 - 1, hosts["B"]["mac"], helper_frames.Mode.ROUND_ROBIN, []),
        helper_frames.peer(2**32 - 1, hosts["B"]["mac"], False, []),
        *helper_frames.channels(2**32 - 1, hosts["B"]["mac"], []),
    ]

    def sealed(kind: str, body: bytes, covered: int | None = None) -> bytes:
        head = b"\x88\xb6" + bytes.fromhex(kind)
        return head + crc32c(head + body[:covered]).to_bytes(4, "big") + body

    data = bytes.fromhex("0000deadbeef00000000000000000800") + bytes(40)
    garbage = {
        "forged_control": [frame[12:] for frame in control],
        "forged_report": [sealed("3500", bytes(6) + link[6:] + bytes(28))],
        "wrong_version": [b"\x88\xb6" + bytes(60), b"\x88\xb6" + b"\xff" * 200],
        "bad_checksum": [b"\x88\xb6\x3f" + bytes(60), sealed("3100", data, 15)],
        "unknown_type": [sealed("3f00", bytes(60))],
        "bad_flags": [sealed("31f0", bytes(60), 16)],
        "unknown_channel": [sealed("3100", b"\x05" + data[1:], 16)],
        "unknown_session": [sealed("3100", data, 16)],
    }
    tagged = [
        b"\x81\x00" + tag + frame[12:]
        for tag in (b"\x0f\xfe", b"\x00\x01", b"\xe0\x00")
        for frame in control
    ]
    frames = [link + rest for group in garbage.values() for rest in group] + [
        link + rest for rest in tagged
    ]
    before, sessions = (
        cluster.counters("A"),
        [peer["session"] for peer in lab.helpers.status("A")["peers"]],
    )

    def attack() -> None:
        said = json.dumps([frame.hex() for frame in frames])
        lab.exec("B", [sys.executable, "-c", SEND_FRAMES, "eth0"], input=said)

    stream_is_flawless(cluster, pps, attack)

    def counted() -> dict[str, int]:
        after = cluster.counters("A")
        return {name: after[name] - before[name] for name in garbage}

    wait_until(
        lambda: all(counted()[name] >= len(group) for name, group in garbage.items()),
        lambda: f"{counted()}\n{cluster.described()}",
    )
    status = lab.helpers.status("A")
    assert status["mode"] == "Paced" and status["mac"] == hosts["A"]["mac"]
    assert [peer["session"] for peer in status["peers"]] == sessions
    assert cluster.usable(), cluster.described()


# ---- hosts with and without a helper


def test_with_and_without_a_helper_all_reach_each_other(
    mixed: Cluster, wait_until: WaitUntil
) -> None:
    mixed.make_whole(wait_until)
    assert mixed.lab.helpers.hosts == ["A", "B", "D"]
    all_reach_each_other(mixed.lab)
    all_reach_each_other(mixed.lab, "-s", "6000")
    all_talk_tcp(mixed.lab)
    broadcasts_arrive_once(mixed.lab)
    assert mixed.usable(), mixed.described()


# ---- the helper alone


def test_hosts_find_each_other_without_a_controller(alone: Cluster, wait_until: WaitUntil) -> None:
    alone.make_whole(wait_until)
    all_reach_each_other(alone.lab)
    all_reach_each_other(alone.lab, "-s", "6000")
    all_talk_tcp(alone.lab)
    broadcasts_arrive_once(alone.lab)


def test_one_tcp_connection_uses_both_networks_without_a_controller(
    alone: Cluster, wait_until: WaitUntil
) -> None:
    alone.make_whole(wait_until)
    sent = send_by_tcp(alone, "C", alone.lab.address("A"))
    assert min(sent.values()) > 0.45 * TCP_BYTES, f"{sent}\n{alone.described()}"


@pytest.mark.parametrize("host", ["C", "A"], ids=["own NIC", "the peer's NIC"])
def test_without_a_controller_a_fault_costs_no_packet(
    alone: Cluster, host: str, pps: float, wait_until: WaitUntil
) -> None:
    def break_it() -> None:
        nic = until_sent(alone, 0.05 * pps, wait_until, by_all=False, source="C")
        alone.lab.fault("nic_down", host=host, nic=nic)

    alone.make_whole(wait_until)
    stream_is_flawless(alone, pps, break_it, source="C", seconds=0.4, outage_ms=FAULT_MS)
