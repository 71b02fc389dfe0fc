# SPDX-License-Identifier: Apache-2.0
"""TCP is striped beside the bridges by helper and fast path, whatever dies meanwhile.

Real time says little about speed on a busy machine. So these tests assert order, content and
completion, and where bytes were counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.pipeline.layout import Table
from tests.topology_text import parse_topology

from .conftest import EXACT, PATIENCE_S, await_true, controlled
from .fast_flows import PORT, Talk, Talker, beside, status_of
from .packets import flawless
from .striping import RECEIVE_TCP, SEND_TCP

# Hosts with two and three NICs of different rates, and one without a helper. The links are slow, so
# that one alone is never enough for what a busy machine can send.
UNEQUAL = """
name: stripes
switches: {s0: {}, s1: {}, s2: {}}
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 10000000},
             {name: eth1, switch: s1, rate_bps: 5000000},
             {name: eth2, switch: s2, rate_bps: 10000000}]}
  B: {nics: [{name: eth0, switch: s0, rate_bps: 10000000},
             {name: eth1, switch: s1, rate_bps: 10000000},
             {name: eth2, switch: s2, rate_bps: 10000000}]}
  C: {nics: [{name: eth0, switch: s0, rate_bps: 10000000},
             {name: eth1, switch: s1, rate_bps: 10000000}]}
  D: {helper: false, nics: [{name: eth0, switch: s0, rate_bps: 10000000},
                            {name: eth1, switch: s1, rate_bps: 10000000}]}
"""
PAIRS = [("A", "B"), ("B", "A"), ("C", "A"), ("B", "C")]
BYTES = 2_000_000
"""So much of a stream is enough to see which links carry it."""

STALL_MS = 50.0
"""So long may one connection stand still at most, in virtual time."""

# Sends copies of what a host sends to a TCP port, further on in the stream and with other bytes and
# a wrong checksum, from the same NIC: TCP drops them, who puts segments in order does not know.
FORGE = """
import random, socket, struct, sys
chance = random.Random(5)
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
port, sent, known = int(sys.argv[2]), 0, {}
s.settimeout(60)
def checksum(head):
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ ((total & 0xFFFF) + (total >> 16))
print("ready", flush=True)
while sent < int(sys.argv[3]):
    frame, where = s.recvfrom(65536)
    if where[2] != socket.PACKET_OUTGOING or frame[12:14] != b"\\x08\\x00" or frame[23] != 6:
        continue
    if struct.unpack("!H", frame[36:38])[0] != port or len(frame) < 200:
        continue
    text = b"forged" * 20 # too short to be taken for one of the host's
    head = bytearray(frame[14:34])
    head[2:4] = struct.pack("!H", 20 + 20 + len(text))
    head[10:12] = bytes(2)
    head[10:12] = struct.pack("!H", checksum(bytes(head)))
    tcp = bytearray(frame[34:54])
    number = struct.unpack("!I", tcp[4:8])[0]
    number += chance.choice((5000, 100_000, 1 << 20, 1 << 23, 1 << 30))
    tcp[4:8] = struct.pack("!I", number & 0xFFFFFFFF)
    tcp[12] = 0x50
    tcp[16:18] = b"\\xba\\xad"
    s.send(frame[:14] + bytes(head) + bytes(tcp) + text)
    sent += 1
print(sent, flush=True)
"""


@pytest.fixture(scope="module")
def shared(fast_program: Path, reorder_program: Path) -> Iterator[Lab]:
    with controlled(parse_topology(UNEQUAL), helpers=True, fast=True) as made:
        yield made


@pytest.fixture
def lab(shared: Lab) -> Lab:
    """Three hosts that stripe TCP to each other beside their bridges, and one without a helper."""
    shared.restore_all()
    for programs in (shared.helpers, shared.fast_paths):
        for host in programs.hosts:
            if programs.pid(host) is None:
                programs.start(host)
    shared.wait_ready()
    await_beside(shared)
    return shared


def await_beside(lab: Lab) -> None:
    """Wait until TCP is striped beside the bridges of all hosts with a helper."""
    helped = lab.helpers.hosts

    def missing() -> dict[str, object]:
        found = {host: status_of(lab, host) for host in lab.fast_paths.hosts}
        return {
            host: says
            for host, says in found.items()
            if not says
            or says["order"] != ("ready" if host in helped else "none")
            or says["peers"]["striped_tcp"] != (len(helped) - 1 if host in helped else 0)
        }

    def described() -> str:
        told = {host: lab.helpers.status(host).get("beside") for host in helped}
        return f"{missing()}\n{told}"

    await_true(lambda: not missing(), described, timeout_s=60)


def counted(lab: Lab, host: str) -> int:
    """The bytes that a host's bridge has counted to and from managed hosts."""
    rows = [
        lab.ofctl(host, "dump-flows", "br-ri2n", f"table={table}")
        for table in (Table.SEND_COUNT, Table.RECEIVE_COUNT)
    ]
    return sum(int(found) for text in rows for found in re.findall(r"n_bytes=(\d+)", text))


def sent(lab: Lab, host: str) -> dict[str, int]:
    """The bytes that each NIC of a host has sent."""
    return lab.nic_counters(host, "tx_bytes")


def grown(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in now.items()}


@contextmanager
def transfer(lab: Lab, source: str, target: str, *, ipv6: bool = False) -> Iterator[None]:
    """BYTES and more go by one connection, until the block is left; the same bytes arrive."""
    server = lab.popen(
        target, [sys.executable, "-c", RECEIVE_TCP], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    address = (lab.address6 if ipv6 else lab.address)(target)
    client = lab.popen(
        source,
        [sys.executable, "-c", SEND_TCP, address, str(BYTES)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    try:
        yield
    finally:
        try:
            said = client.communicate(timeout=PATIENCE_S)[1]
        finally:
            client.kill()
            server.kill()
            server.wait()
            server.stdout.close()
    assert client.returncode == 0, said


@pytest.mark.virtual
@pytest.mark.smoke
@pytest.mark.parametrize("ipv6", [False, True])
def test_a_connection_has_all_links_and_no_bridge_counts_it(lab: Lab, ipv6: bool) -> None:
    for source, target in PAIRS:
        with transfer(lab, source, target, ipv6=ipv6):
            pass  # neighbours are known now
        ends = {source, target}
        before, through = sent(lab, source), {host: counted(lab, host) for host in ends}
        carried = {host: beside(lab, host) for host in ends}
        with transfer(lab, source, target, ipv6=ipv6):
            pass
        links = grown(sent(lab, source), before)
        common = {"eth0", "eth1", "eth2"} if "C" not in ends else {"eth0", "eth1"}
        # Who gets little CPU sends little by the links that are slow.
        least = BYTES / 20 if EXACT else BYTES / 200
        assert all(links[nic] > least for nic in common), (source, target, links)
        for host in ends:
            assert counted(lab, host) - through[host] < BYTES / 4, (source, target, host)
            assert beside(lab, host) - carried[host] > BYTES / 1500, (source, target, host)


@pytest.mark.virtual
@pytest.mark.smoke
def test_every_byte_of_conversations_both_ways_is_right(lab: Lab) -> None:
    hosts = lab.topology.managed_hosts()
    servers = [Talker(lab, host) for host in hosts]
    talks = [Talk(lab, host, *sorted({*hosts} - {host}), each=2, most=60_000) for host in hosts]
    try:
        for talk in talks:
            talk.go_on(5)
    finally:
        for talk in talks:
            talk.end()
        for server in servers:
            server.end()


def test_many_datagrams_go_by_the_helper_in_order(lab: Lab) -> None:
    through, carried = counted(lab, "B"), beside(lab, "B")
    streams = [
        Stream(lab, "B", "A", seconds=2, pps=1500, size=700, port=5601),
        Stream(lab, "C", "B", seconds=2, pps=1500, size=100, port=5602, ipv6=True),
    ]
    for stream in streams:
        flawless(stream.result())
    # The first ones may pass beside the bridge, until there are too many.
    assert counted(lab, "B") - through > 2900 * 700
    assert beside(lab, "B") - carried < 100, "a connection of a test before may still end"


def test_few_datagrams_take_one_link_at_once(lab: Lab) -> None:
    carried = beside(lab, "B")
    # They are so far apart that one that met a busy link does not keep the next one from passing.
    flawless(Stream(lab, "B", "A", seconds=4, pps=5, size=700, port=5603).result())
    assert beside(lab, "B") - carried >= 12, "most pass beside the bridge, whatever is busy"


def test_explain_and_status_name_the_way_and_the_links(lab: Lab) -> None:
    words = {"protocol": 6, "sport": 40_000, "dport": 5900}

    def asked(target: str, **more: int) -> dict[str, object]:
        answer = call(lab.controller_socket, "explain", src="A", dst=target, flow={**words, **more})
        assert isinstance(answer, dict)
        return answer

    def says(peers: dict[str, int]) -> bool:
        host = call(lab.controller_socket, "status")["state"]["hosts"]["A"]
        return bool(host["fast"]["peers"] == peers)

    await_true(lambda: says({"striped_tcp": 2, "carried": 1}), "the controller is not told")
    answer = asked("B")
    assert answer["way"] == "beside"
    assert "striped beside the bridge of A over links eth0 -> eth0, eth1" in str(answer["why"])
    assert asked("B", protocol=17)["way"] == "bridge"
    assert asked("D")["way"] == "beside" and asked("D")["path"], "whole flows, by the slot"
    said = json.loads(lab.host_script("A", "host-status", "--json").stdout)
    assert said["fast"]["order"] == "ready" and said["fast"]["peers"]["striped_tcp"] == 2
    assert not [each for each in said["problems"] if "TCP" in each["text"]]


@pytest.mark.parametrize("what", ["helpers", "fast_paths"])
@pytest.mark.parametrize("victim", ["A", "B"])
def test_a_transfer_survives_a_kill_at_either_end(lab: Lab, what: str, victim: str) -> None:
    """The helper or the fast path, at the sender and at the receiver, and the next one goes on."""
    programs = getattr(lab, what)
    with transfer(lab, "B", "A"):
        _await_sent(lab, "B", BYTES // 4)
        programs.kill(victim)
        _await_sent(lab, "B", BYTES // 4)
        programs.start(victim)
        await_beside(lab)
        _await_sent(lab, "B", BYTES // 4)


@contextmanager
def felt(lab: Lab, source: str, target: str) -> Iterator[dict[str, float]]:
    """One connection sends all the time; what it felt is there after the block."""
    module = [sys.executable, "-m", "ri2n_lab.bench.tcp_stall"]
    words = ["--port", "5901", "--seconds", "86400"]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    found: dict[str, float] = {}
    receiver = lab.popen(target, [*module, "recv", *words], **pipes)
    assert receiver.stdout is not None and receiver.stdout.readline() == "listening\n"
    sender = lab.popen(source, [*module, "send", "--address", lab.address(target), *words])
    try:
        _await_sent(lab, source, BYTES // 4)
        yield found
        _await_sent(lab, source, BYTES // 4)
        sender.kill()
        sender.wait()
        found.update(json.loads(receiver.communicate(timeout=PATIENCE_S)[0]))
    finally:
        for process in (sender, receiver):
            process.kill()
            process.wait()
        receiver.stdout.close()


@pytest.mark.virtual
@pytest.mark.smoke
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("kills", [2, pytest.param(1000, marks=pytest.mark.long)])
def test_tcp_does_not_feel_that_ovs_vswitchd_is_killed(lab: Lab, kills: int) -> None:
    """On the kernel datapath, where the bridge's devices stay; on netdev, TCP goes on later."""
    with felt(lab, "B", "A") as found:
        for number in range(kills):
            lab.kill_switch("AB"[number % 2])
            await_beside(lab)
    assert found["bytes"] > BYTES / 2, found
    if EXACT:
        assert found["longest_stall_ms"] <= STALL_MS, found


def test_a_transfer_survives_a_link_that_dies(lab: Lab) -> None:
    with transfer(lab, "B", "A"):
        _await_sent(lab, "B", BYTES // 4)
        lab.fault("blackhole", host="A", nic="eth0")
        _await_sent(lab, "B", BYTES // 2)


def test_tcp_goes_on_beside_forged_segments(lab: Lab) -> None:
    server, talk = Talker(lab, "A"), Talk(lab, "B", "A", each=4, most=200_000)
    forger = lab.popen(
        "B",
        [sys.executable, "-c", FORGE, "eth0", str(PORT), "400"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert forger.stdout is not None and forger.stdout.readline() == "ready\n"
        talk.go_on(20)
        assert forger.stdout.readline() == "400\n"
        talk.go_on(10)
    finally:
        forger.kill()
        forger.wait()
        talk.end()
        server.end()
    await_true(
        lambda: lab.helpers.status("A")["beside"]["waiting"] == 0, "frames are held for ever"
    )


def _await_sent(lab: Lab, host: str, count: int) -> None:
    """Wait until a host's NICs have sent so much more."""
    before = sum(sent(lab, host).values())

    def since() -> int:
        return sum(sent(lab, host).values()) - before

    await_true(lambda: since() > count, lambda: f"{since()} of {count} bytes")
