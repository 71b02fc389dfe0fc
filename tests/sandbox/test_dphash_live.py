# SPDX-License-Identifier: Apache-2.0
"""The predicted slot of a flow against what a live, private Open vSwitch does with its packets."""

from __future__ import annotations

import ipaddress
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import PrivateOvs
from ri2n_sdn.pipeline.dphash import PROTOCOLS, slot_of
from ri2n_sdn.pipeline.dphash import Flow as PacketFlow
from tests.waiting import wait_until

Flow = tuple[str, str, int, int, int]
SEED = 20261120


@pytest.fixture
def switch() -> Iterator[PrivateOvs]:
    with PrivateOvs() as private:
        private.vsctl(
            "add-br", "br0", "--", "set", "bridge", "br0", "fail-mode=secure", "datapath_type=dummy"
        )
        yield private


def some_flows(count: int) -> list[Flow]:
    """Different flows.

    They are IPv4 and IPv6, of the protocols whose ports OVS hashes, and one without ports.
    """
    rng = random.Random(SEED)
    flows: list[Flow] = []
    for index in range(count):
        protocol = [*PROTOCOLS.values(), 47][index % 6]
        version = (
            6 if protocol == PROTOCOLS["icmp6"] or (protocol != 1 and rng.random() < 0.5) else 4
        )
        net = "fd77::" if version == 6 else "10.77.0.0"
        src, dst = (str(ipaddress.ip_address(net) + rng.randrange(1, 250)) for _ in range(2))
        if protocol == 47:
            ports = (0, 0)
        elif protocol in (1, 58):
            ports = (128 if protocol == 58 else 8, 0)
        else:
            ports = (rng.randrange(1, 65536), rng.randrange(1, 65536))
        flows.append((src, dst, protocol, *ports))
    return list(dict.fromkeys(flows))


def frame(flow: Flow, mark: int) -> str:
    """The flow as an Ethernet frame in hex; the last three bytes of the source MAC are `mark`."""
    src, dst, protocol, src_port, dst_port = flow
    if protocol == PROTOCOLS["tcp"]:
        payload = struct.pack("!HHIIBBHHH", src_port, dst_port, 1, 1, 5 << 4, 0x10, 512, 0, 0)
    elif protocol == PROTOCOLS["udp"]:
        payload = struct.pack("!HHHH", src_port, dst_port, 12, 0) + b"data"
    elif protocol == PROTOCOLS["sctp"]:
        payload = struct.pack("!HHII", src_port, dst_port, 1, 0) + b"\x00\x00\x00\x04"
    elif protocol in (1, 58):
        payload = struct.pack("!BBHHH", src_port, dst_port, 0, 1, 1)
    else:
        payload = b"\x00" * 8
    source, destination = ipaddress.ip_address(src), ipaddress.ip_address(dst)
    if source.version == 6:
        header = struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64)
        ether_type, header = 0x86DD, header + source.packed + destination.packed
    else:
        start = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
        ether_type, header = 0x0800, start + source.packed + destination.packed
    ethernet = b"\x02\x00\x00\x00\x00\x01" + b"\x02\x00\x00" + mark.to_bytes(3, "big")
    return (ethernet + ether_type.to_bytes(2, "big") + header + payload).ljust(60, b"\x00").hex()


def read_slots(pcap: Path) -> dict[int, int]:
    """The slot of each frame in `pcap`, by its mark.

    The bucket has written its number into the destination MAC.
    """
    data = pcap.read_bytes()
    slots: dict[int, int] = {}
    offset = 24
    while offset + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, offset + 8)
        if offset + 16 + length > len(data):
            break  # the rest of it is just being written
        packet = data[offset + 16 : offset + 16 + length]
        slots[int.from_bytes(packet[9:12], "big")] = packet[5]
        offset += 16 + length
    return slots


@pytest.mark.parametrize(("slots", "basis"), [(64, 0), (16, 0), (256, 0), (64, 12345)])
def test_every_flow_takes_the_predicted_slot(switch: PrivateOvs, slots: int, basis: int) -> None:
    pcap = switch.folder / "out.pcap"
    words = ["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy"]
    words += ["ofport_request=1"]
    words += ["--", "add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dummy"]
    words += ["ofport_request=2", f"options:tx_pcap={pcap}"]
    switch.run("ovs-vsctl", "--timeout=120", *words)
    buckets = ",".join(
        f"bucket=bucket_id:{i},weight:100,actions=set_field:02:00:00:00:00:{i:02x}->eth_dst,output:2"
        for i in range(slots)
    )
    method = f"selection_method=dp_hash,selection_method_param={basis}"
    ofctl = ("ovs-ofctl", "-O", "OpenFlow15")
    switch.run(*ofctl, "add-group", "br0", f"group_id=1,type=select,{method},{buckets}")
    switch.run(*ofctl, "add-flow", "br0", "in_port=1,actions=group:1")
    flows = some_flows(240)
    frames = [frame(flow, mark) for mark, flow in enumerate(flows)]
    for start in range(0, len(frames), 40):
        switch.run("ovs-appctl", "netdev-dummy/receive", "p1", *frames[start : start + 40])
    wait_until(lambda: len(read_slots(pcap)) == len(flows), f"{len(flows)} frames in {pcap}")

    seen = read_slots(pcap)
    predicted = {
        mark: slot_of(PacketFlow(protocol, src, sport, dst, dport), slots=slots, basis=basis)
        for mark, (src, dst, protocol, sport, dport) in enumerate(flows)
    }
    wrong = {
        flows[mark]: (seen[mark], predicted[mark]) for mark in seen if seen[mark] != predicted[mark]
    }
    assert not wrong, f"{len(wrong)} of {len(flows)} flows (seen, predicted), seed {SEED}: {wrong}"
    assert len(set(predicted.values())) > slots / 3
