# SPDX-License-Identifier: Apache-2.0
"""Real packets through the controller's pipeline.

Every pair and every protocol works; nothing arrives twice, nothing is lost.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import permutations

import pytest

from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from tests.lab.conftest import PATIENCE_S, controlled
from tests.lab.packets import (
    all_reach_each_other,
    all_talk_tcp,
    broadcasts_arrive_once,
    flawless_streams,
    pairs,
    pings,
)

pytestmark = pytest.mark.virtual

RAW = """
import socket, sys
kind, mac, peer = sys.argv[1:]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b6))
s.bind(("br-ri2n", 0x88b6))
s.settimeout(120)
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


@pytest.mark.smoke
def test_every_pair_and_the_router_reach_each_other(mixed: Lab) -> None:
    assert {"R"} < {name for pair in pairs(mixed) for name in pair}
    all_reach_each_other(mixed)


@pytest.mark.smoke
def test_explain_says_what_is_installed(mixed: Lab, wait_until: Callable[..., None]) -> None:
    """The paths of every pair's slots, in order, are those of the group to which its rows lead."""
    macs = {host["name"]: host["mac"] for host in call(mixed.controller_socket, "status")["hosts"]}

    def installed(source: str, target: str) -> list[list[str | None]]:
        rows = mixed.ofctl(source, "dump-flows", "br-ri2n", "table=10")
        group = re.search(rf"priority=100,[^ ]*dl_dst={macs[target]} actions=group:(\d+)", rows)
        assert group is not None, rows
        buckets = mixed.ofctl(source, "dump-groups", "br-ri2n", group[1])
        ports = [int(value, 16) for value in re.findall(r"set_field:(0x[0-9a-f]+)->reg1", buckets)]
        return [
            [f"eth{(value >> 22) - 1}", f"eth{(value >> 12 & 0x3FF) - 1}", None] for value in ports
        ]

    def same(source: str, target: str) -> bool:
        explained = call(mixed.controller_socket, "explain", src=source, dst=target)
        assert explained["kind"] == "managed" and len(explained["slots"]) == 64
        return bool(explained["slots"] == installed(source, target))

    for pair in permutations(macs, 2):
        wait_until(lambda ends=pair: same(*ends), lambda ends=pair: f"{ends}: {installed(*ends)}")
    assert call(mixed.controller_socket, "explain", src="A", dst="R")["kind"] == "unmanaged"


def test_every_pair_talks_tcp(mixed: Lab) -> None:
    all_talk_tcp(mixed)


@pytest.mark.parametrize("ipv6", [False, True])
def test_no_packet_of_a_stream_is_lost_or_doubled(mixed: Lab, ipv6: bool) -> None:
    """Every pair sends 500 packets/s, all at once; the slowest link carries them all."""
    flawless_streams(mixed, pairs(mixed), pps=500, flows=8, ipv6=ipv6)


def test_a_router_that_moves_is_found_again(mixed: Lab, wait_until: Callable[..., None]) -> None:
    """Its cable goes to another switch, on which nobody has seen it, and it sends something there.

    Flows that the datapath has cached may send a first answer to where the router was before.
    """

    def found(a: str) -> None:
        wait_until(
            lambda: " 3 received" in pings(mixed, "R", mixed.address(a)), f"R does not reach {a}"
        )
        wait_until(
            lambda: " 3 received" in pings(mixed, a, mixed.address("R")), f"{a} does not reach R"
        )

    old = mixed.topology.hosts["R"].nics[0].switch
    new = next(name for name in mixed.topology.switches if name != old)
    port = f"R-{mixed.topology.hosts['R'].nics[0].name}"
    reached = [
        a
        for a in mixed.topology.managed_hosts()
        if new in {n.switch for n in mixed.topology.hosts[a].nics}
    ]
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
            b,
            [sys.executable, "-c", RAW, "receive", macs[b], macs[a]],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        mixed.exec(a, [sys.executable, "-c", RAW, "send", macs[a], macs[b]])
        assert receiver.communicate(timeout=PATIENCE_S)[0].strip() == (macs[b] + macs[a]).replace(
            ":", ""
        )
