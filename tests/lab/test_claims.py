# SPDX-License-Identifier: Apache-2.0
"""A plain host claims addresses of managed hosts.

It does so by ARP, by neighbour discovery, and as the sender of frames.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream, StreamResult
from ri2n_sdn.pipeline.layout import Table
from tests.topology_text import parse_topology

from .conftest import WaitUntil, controlled
from .packets import all_reach_each_other, flawless

pytestmark = pytest.mark.virtual

TOPOLOGY = """
name: claims
switches: {n1: {port_buffer_bytes: 131072}, n2: {port_buffer_bytes: 131072}}
hosts:
  A: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
             {name: eth1, switch: n2, rate_bps: 100000000}]}
  B: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
             {name: eth1, switch: n2, rate_bps: 100000000}]}
  C: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
             {name: eth1, switch: n2, rate_bps: 100000000}]}
  R: {managed: false, nics: [{name: eth0, switch: n1, rate_bps: 100000000}]}
"""
MANAGED = "ABC"
ENDS = (("A", "B"), ("B", "A"), ("C", "A"))
SECONDS = 1.5
FORGE = """
import json, socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(("eth0", 0))
frames = [bytes.fromhex(frame) for frame in json.load(sys.stdin)]
print("ready", flush=True)
while True:
    for frame in frames: s.send(frame)
    time.sleep(0.01)
"""
BROADCAST, ALL_NODES = "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with controlled(parse_topology(TOPOLOGY)) as made:
        # All hosts know each other, and R is learned.
        all_reach_each_other(made)
        yield made


def octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def mac(lab: Lab, host: str, device: str) -> str:
    return lab.exec(host, ["cat", f"/sys/class/net/{device}/address"]).stdout.strip()


def ethernet(target: str, source: str, kind: int, body: bytes) -> bytes:
    return (octets(target) + octets(source) + struct.pack("!H", kind) + body).ljust(60, b"\0")


def arp(operation: int, claimed: str, address: str, target: str, asked: str) -> bytes:
    """An ARP frame whose body says, to the host that has `asked`, who has `claimed`."""
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return (
        head
        + octets(claimed)
        + socket.inet_aton(address)
        + octets(target)
        + socket.inet_aton(asked)
    )


def advertisement(claimed: str, address: str) -> bytes:
    """A neighbour advertisement to all hosts that claims the IPv6 address.

    It overrides what the hosts know.
    """
    source, target = (socket.inet_pton(socket.AF_INET6, each) for each in (address, "ff02::1"))
    body = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + source + bytes((2, 1)) + octets(claimed)
    words = source + target + struct.pack("!II", len(body), 58) + body
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    body = body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
    return struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + source + target + body


@contextmanager
def forged(lab: Lab, frames: list[bytes]) -> Iterator[None]:
    """R sends these frames, all of them a hundred times a second, until the end."""
    process = lab.popen(
        "R", [sys.executable, "-c", FORGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([frame.hex() for frame in frames]))
    process.stdin.close()
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def streams(lab: Lab) -> dict[tuple[str, str], StreamResult]:
    """What becomes of a stream between each of ENDS."""
    running = {
        ends: Stream(lab, *ends, pps=1000, seconds=SECONDS, flows=16, port=port)
        for port, ends in enumerate(ENDS, 5600)
    }
    return {ends: stream.result() for ends, stream in running.items()}


def rows(lab: Lab) -> dict[str, list[str]]:
    """Each host's rows that lead to an address of a managed host, also learned ones.

    The group's number is left out, since it may change.
    """
    managed_macs = [
        mac(lab, host, device) for host in MANAGED for device in ("br-ri2n", "eth0", "eth1")
    ]
    rows_of = {}
    for host in MANAGED:
        lines = lab.ofctl(host, "dump-flows", "br-ri2n", "--no-stats").splitlines()
        to_managed = [
            line for line in lines if any(f"dl_dst={one}" in line for one in managed_macs)
        ]
        rows_of[host] = sorted(
            re.sub(r"cookie=\S+|group:\d+", "", line).strip() for line in to_managed
        )
        learned = lab.ofctl(host, "dump-flows", "br-ri2n", f"table={Table.LEARNED}", "--no-stats")
        assert not any(one in learned for one in managed_macs), learned
    return rows_of


def own(lab: Lab) -> dict[str, str]:
    """The hosts' own addresses; R's is that of its NIC."""
    return {**{host: mac(lab, host, "br-ri2n") for host in MANAGED}, "R": mac(lab, "R", "eth0")}


@contextmanager
def neighbours(lab: Lab, *, permanent: bool) -> Iterator[None]:
    """Let all managed hosts know each other; `permanent`: for good, whatever anybody claims."""
    macs = own(lab)
    for host in MANAGED:
        for other in MANAGED:
            for address in (lab.address(other), lab.address6(other)) if other != host else ():
                state = "permanent" if permanent else "reachable"
                words = ["ip", "neigh", "replace", address, "lladdr", macs[other]]
                words += ["nud", state, "dev", "br-ri2n"]
                lab.exec(host, words)
    try:
        yield
    finally:
        for host in MANAGED:
            lab.exec(host, ["ip", "neigh", "flush", "dev", "br-ri2n", "nud", "all"])
        all_reach_each_other(lab)


def claims_of_addresses(lab: Lab) -> list[bytes]:
    """R claims to have A's IPv4 and IPv6 addresses, unasked and in answers to B and C."""
    macs, address = own(lab), lab.address("A")
    frames = [
        ethernet(BROADCAST, macs["R"], 0x0806, arp(kind, macs["R"], address, BROADCAST, address))
        for kind in (1, 2)
    ]
    for host in "BC":
        body = arp(2, macs["R"], address, macs[host], lab.address(host))
        frames.append(ethernet(macs[host], macs["R"], 0x0806, body))
    return [
        *frames,
        ethernet(ALL_NODES, macs["R"], 0x86DD, advertisement(macs["R"], lab.address6("A"))),
    ]


def test_who_sends_under_a_hosts_own_address_takes_nothing_from_it(lab: Lab) -> None:
    """A frame that arrives under a host's own address moves no row.

    Between managed hosts, the NICs' addresses are on the wire.
    """
    macs = own(lab)
    claim = arp(2, macs["A"], lab.address("A"), BROADCAST, lab.address("A"))
    frames = [ethernet(BROADCAST, macs["A"], 0x0806, claim)]
    frames += [
        ethernet(target, macs["A"], 0x0800, bytes(46))
        for target in (BROADCAST, *(macs[host] for host in "BCR"))
    ]
    frames += [ethernet(ALL_NODES, macs["A"], 0x86DD, advertisement(macs["A"], lab.address6("A")))]
    before = rows(lab)
    with forged(lab, frames):
        for ends, got in streams(lab).items():
            flawless(got, ends)
        assert rows(lab) == before


def test_a_forged_arp_answer_moves_no_row_and_no_packet_of_who_has_permanent_neighbours(
    lab: Lab,
) -> None:
    before = rows(lab)
    with neighbours(lab, permanent=True), forged(lab, claims_of_addresses(lab)):
        for ends, got in streams(lab).items():
            flawless(got, ends)
        assert rows(lab) == before


def test_a_forged_arp_answer_is_believed_by_kernels_as_on_every_ethernet(
    lab: Lab, wait_until: WaitUntil
) -> None:
    """A host that believes the answer sends to the plain host, and the bridge carries that.

    Nothing that others have moves.
    """

    def neighbour_mac(host: str, address: str) -> str:
        words = lab.exec(host, ["ip", "neigh", "show", address, "dev", "br-ri2n"]).stdout.split()
        return words[words.index("lladdr") + 1] if "lladdr" in words else ""

    before, r = rows(lab), own(lab)["R"]
    with neighbours(lab, permanent=False), forged(lab, claims_of_addresses(lab)):
        for host in "BC":
            for address in (lab.address("A"), lab.address6("A")):
                wait_until(
                    lambda host=host, address=address: neighbour_mac(host, address) == r,
                    f"{host} does not believe it",
                )
        flawless(Stream(lab, "B", "C", seconds=1.0, flows=16).result())
        assert rows(lab) == before


@pytest.mark.parametrize("nic", ["eth0", pytest.param("eth1", marks=pytest.mark.long)])
def test_a_nics_address_is_its_switchs_affair_and_comes_back_with_its_next_frame(
    lab: Lab, nic: str, wait_until: WaitUntil
) -> None:
    """The first network's switch leads A's eth0 to the last sender under its address; no row moves.

    Under the address of a NIC on another network nothing is lost.
    """
    macs, stolen = own(lab), mac(lab, "A", nic)
    targets = (BROADCAST, macs["B"], mac(lab, "B", "eth0"), mac(lab, "C", "eth0"))
    frames = [
        ethernet(target, stolen, kind, bytes(46)) for target in targets for kind in (0x0800, 0x0806)
    ]
    before = rows(lab)
    with neighbours(lab, permanent=True):
        with forged(lab, frames):
            got = streams(lab)
            assert rows(lab) == before
        for ends, result in got.items():
            print(nic, ends, result.lost, "of", result.sent)
            assert not result.duplicates, (ends, result)
            if nic == "eth1":
                flawless(result, ends)
        if nic == "eth0":
            here = [str(lab.topology.port_numbers["A", nic][1]), "0", stolen]
            # There is no stream, and none is needed: each NIC's next probe is a frame from it, too.
            wait_until(
                lambda: (
                    here
                    in [
                        line.split()[:3] for line in lab.appctl("sw", "fdb/show", "n1").splitlines()
                    ]
                ),
                lambda: lab.appctl("sw", "fdb/show", "n1"),
            )
        for ends, result in streams(lab).items():
            flawless(result, ends)
