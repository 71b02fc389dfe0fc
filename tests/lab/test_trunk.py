"""Real packets through the controller's pipeline: every pair, every protocol, nothing twice, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ri2n_sdn.cli.client import call
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.traffic import Stream
from tests.lab.conftest import controlled
from tests.lab.packets import all_reach_each_other, all_talk_tcp, broadcasts_arrive_once, pairs, pings, stalled

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
    with controlled("mixed") as lab:
        yield lab


def test_every_pair_and_the_router_reach_each_other(mixed: Lab) -> None:
    assert {"R"} < {name for pair in pairs(mixed) for name in pair}
    all_reach_each_other(mixed)


def test_every_pair_talks_tcp(mixed: Lab) -> None:
    all_talk_tcp(mixed)


@pytest.mark.parametrize("ipv6", [False, True])
def test_no_packet_of_a_stream_is_lost_or_doubled(mixed: Lab, stream_pps: float, ipv6: bool) -> None:
    """1,000 packets/s for every pair, one after the other; the slowest link takes them all."""
    for a, b in pairs(mixed):
        for _ in range(3):
            got = Stream(mixed, a, b, pps=stream_pps, seconds=0.6, flows=8, ipv6=ipv6).result()
            assert got.duplicates == 0, f"{a} -> {b}: {got}"
            if not stalled(got, stream_pps):
                break
        assert (got.lost, got.duplicates, got.out_of_order) == (0, 0, 0), f"{a} -> {b}: {got}"
        assert got.sent == round(0.6 * stream_pps)


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


def test_a_broadcast_arrives_once_at_every_host(mixed: Lab) -> None:
    broadcasts_arrive_once(mixed)


def test_frames_of_other_protocols_pass_with_the_hosts_own_addresses(mixed: Lab) -> None:
    macs = {host["name"]: host["mac"] for host in call(mixed.controller_socket, "status")["hosts"]}
    for a, b in (("A", "D"), ("D", "A")):
        receiver = mixed.popen(
            b, [sys.executable, "-c", RAW, "receive", macs[b], macs[a]], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        mixed.exec(a, [sys.executable, "-c", RAW, "send", macs[a], macs[b]])
        assert receiver.communicate(timeout=15)[0].strip() == (macs[b] + macs[a]).replace(":", "")
