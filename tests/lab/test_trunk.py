"""Real packets through the controller's pipeline: every pair, every protocol, nothing twice, nothing lost."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.control import ask
from ri2n_sdn.lab.traffic import Stream
from tests.lab.conftest import TOPOLOGIES

COUNT_BROADCASTS = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 5700)); s.settimeout(20)
print("ready", flush=True)
got = []
while True:
    data = s.recv(100)
    if data == b"end": break
    got.append(data)
print(len(got), len(set(got)))
"""
SEND_BROADCASTS = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for i in range(50):
    s.sendto(str(i).encode(), ("10.77.0.255", 5700)); time.sleep(0.01)
time.sleep(0.5)  # not a wait for the copies: time for a second one, which there must not be, to show itself
s.sendto(b"end", ("10.77.0.255", 5700))
"""
RAW = """
import socket, sys
kind, mac, peer = sys.argv[1:]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b6)); s.bind(("br-ri2n", 0x88b6))
s.settimeout(10)
frame = bytes.fromhex((peer + mac).replace(":", "")) + b"\\x88\\xb6" + b"ri2n" * 15
if kind == "send":
    s.send(frame)
else:
    print("ready", flush=True)
    while True:
        data, source = s.recvfrom(2000)
        if source[2] != socket.PACKET_OUTGOING: break
    print(data[:12].hex())
"""


@pytest.fixture(scope="module")
def mixed() -> Iterator[Lab]:
    with Lab.create(load_topology(TOPOLOGIES / "mixed.yaml")) as lab:
        lab.start_controller()
        lab.wait_ready()
        yield lab


@pytest.fixture(scope="module")
def one_switch() -> Iterator[Lab]:
    with Lab.create(load_topology(TOPOLOGIES / "one-switch.yaml")) as lab:
        lab.start_controller()
        lab.wait_ready()
        yield lab


def pairs(lab: Lab) -> list[tuple[str, str]]:
    """Ordered pairs of all hosts, plain ones too, that have a switch in common."""
    switches = {host: {nic.switch for nic in spec.nics} for host, spec in lab.topology.hosts.items()}
    return [(a, b) for a, b in itertools.permutations(switches, 2) if switches[a] & switches[b]]


def pings(lab: Lab, source: str, address: str) -> str:
    """What `ping` says of three packets: `3 received`, `+1 duplicates`, `0% packet loss`."""
    done = lab.exec(source, ["ping", "-n", "-c3", "-i0.02", "-W2", address], check=False)
    return next((line for line in done.stdout.splitlines() if "transmitted" in line), done.stdout + done.stderr)


def test_every_pair_and_the_router_reach_each_other(mixed: Lab) -> None:
    assert {"R"} < {name for pair in pairs(mixed) for name in pair}
    for a, b in pairs(mixed):
        for address in (mixed.address(b), mixed.address6(b)):
            said = pings(mixed, a, address)
            assert " 3 received" in said and "duplicates" not in said, f"{a} -> {b} {address}: {said}"


def test_every_pair_talks_tcp(mixed: Lab) -> None:
    serve = "import socket,sys\ns=socket.create_server(('::',5800),family=socket.AF_INET6,dualstack_ipv6=True)\n"
    serve += "print('ready',flush=True)\n"
    serve += "while True:\n c,_=s.accept(); d=c.makefile('rb').read(); c.sendall(str(len(d)).encode()); c.close()"
    talk = "import socket,sys\nfor a in sys.argv[1:]:\n s=socket.create_connection((a,5800),timeout=10)\n"
    talk += " s.sendall(bytes(200000)); s.shutdown(socket.SHUT_WR); assert s.makefile().read()=='200000'; s.close()"
    for name in mixed.topology.hosts:
        server = mixed.popen(name, [sys.executable, "-c", serve], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        server.stdout.close()
    for a in mixed.topology.hosts:
        addresses = [f(b) for x, b in pairs(mixed) if x == a for f in (mixed.address, mixed.address6)]
        mixed.exec(a, [sys.executable, "-c", talk, *addresses])


@pytest.mark.parametrize("ipv6", [False, True])
def test_no_packet_of_a_stream_is_lost_or_doubled(mixed: Lab, ipv6: bool) -> None:
    """1,000 packets/s for every pair, one after the other; the slowest link takes them all."""
    for a, b in pairs(mixed):
        got = Stream(mixed, a, b, pps=1000, seconds=0.6, flows=8, ipv6=ipv6).result()
        assert (got.lost, got.duplicates, got.out_of_order, got.sent) == (0, 0, 0, 600), f"{a} -> {b}: {got}"


def test_a_router_that_moves_is_found_again(mixed: Lab, wait_until: Callable[..., None]) -> None:
    """Its cable goes to another switch, on which nobody has seen it; it says something there.

    Flows that the datapath has cached may send a first answer where the router was.
    """

    def found(a: str) -> None:
        wait_until(lambda: " 3 received" in pings(mixed, "R", mixed.address(a)), f"R does not reach {a}")
        wait_until(lambda: " 3 received" in pings(mixed, a, mixed.address("R")), f"{a} does not reach R")

    old = mixed.topology.hosts["R"].nics[0].switch
    new = next(name for name in mixed.topology.switches if name != old)
    port = f"R-{mixed.topology.hosts['R'].nics[0].name}"
    reached = [a for a in mixed.topology.managed_hosts() if new in {n.switch for n in mixed.topology.hosts[a].nics}]
    mixed.vsctl("sw", "del-port", old, port)
    mixed.vsctl("sw", "add-port", new, port)
    try:
        for a in reached:
            found(a)
    finally:
        mixed.vsctl("sw", "del-port", new, port)
        mixed.vsctl("sw", "add-port", old, port)
    for a, b in pairs(mixed):
        if a == "R":
            found(b)


@pytest.mark.parametrize("which", ["mixed", "one_switch"])
def test_a_broadcast_arrives_once_at_every_host(which: str, request: pytest.FixtureRequest) -> None:
    lab: Lab = request.getfixturevalue(which)
    for sender in lab.topology.managed_hosts():
        others = [b for a, b in pairs(lab) if a == sender]
        code = [sys.executable, "-c", COUNT_BROADCASTS]
        receivers = {b: lab.popen(b, code, stdout=subprocess.PIPE, text=True) for b in others}
        for process in receivers.values():
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        lab.exec(sender, [sys.executable, "-c", SEND_BROADCASTS])
        for name, process in receivers.items():
            assert process.communicate(timeout=30)[0].split() == ["50", "50"], f"{sender} -> {name}"


def test_frames_of_other_protocols_pass_with_the_hosts_own_addresses(mixed: Lab) -> None:
    macs = {host["name"]: host["mac"] for host in ask(mixed.controller_socket, {"op": "status"})["hosts"]}
    for a, b in (("A", "D"), ("D", "A")):
        receiver = mixed.popen(
            b, [sys.executable, "-c", RAW, "receive", macs[b], macs[a]], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        mixed.exec(a, [sys.executable, "-c", RAW, "send", macs[a], macs[b]])
        assert receiver.communicate(timeout=15)[0].strip() == (macs[b] + macs[a]).replace(":", "")


def test_udp_flows_spread_over_slots_and_over_both_nics_of_one_switch(one_switch: Lab) -> None:
    """64 UDP flows at 8 Mbit/s make the pair active: its own group counts them per slot."""
    got = Stream(one_switch, "B", "A", pps=2000, seconds=4, flows=64, size=500).result()
    assert (got.lost, got.duplicates) == (0, 0)
    status = ask(one_switch.controller_socket, {"op": "status"})
    pair = next(pair for pair in status["pairs"] if (pair["src"], pair["dst"]) == ("B", "A"))
    assert pair["active"] and sum(path["slots"] for path in pair["paths"]) == 64
    stats = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-group-stats", "br-ri2n", f"group_id={pair['group']}")
    used = sum(int(count) > 0 for count in re.findall(r"bucket\d+:packet_count=(\d+)", stats))
    assert used > 30, stats
    flows = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-flows", "br-ri2n", "table=30")
    nics = {port: int(n) for n, port in re.findall(r"n_packets=(\d+).*output:(\d+)", flows) if int(n) > 500}
    assert set(nics) == {"1", "2"}, flows


def test_explain_says_what_is_installed(one_switch: Lab) -> None:
    told = ask(one_switch.controller_socket, {"op": "explain", "src": "B", "dst": "A"})
    assert told["kind"] == "managed" and len(told["slots"]) == 64
    rows = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-flows", "br-ri2n", "table=10")
    mac = next(
        host["mac"] for host in ask(one_switch.controller_socket, {"op": "status"})["hosts"] if host["name"] == "A"
    )
    group = re.search(rf"priority=100,[^ ]*dl_dst={mac} actions=group:(\d+)", rows)
    assert group is not None, rows
    buckets = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-groups", "br-ri2n", group[1])
    ports = [int(value, 16) for value in re.findall(r"set_field:(0x[0-9a-f]+)->reg1", buckets)]
    names = [[f"eth{(value >> 16) - 1}", f"eth{(value & 0xFFFF) - 1}"] for value in ports]
    assert names == told["slots"]


def test_a_strategy_can_be_changed_while_it_runs(one_switch: Lab) -> None:
    for name in ("ri2n_plus", "round_robin", "ri2n_plus_plus", "max_min"):
        assert ask(one_switch.controller_socket, {"op": "strategy", "name": name})["ok"]
        assert ask(one_switch.controller_socket, {"op": "status"})["strategy"] == name
    answer = ask(one_switch.controller_socket, {"op": "strategy", "name": "best"})
    assert not answer["ok"] and "best" in answer["error"]
