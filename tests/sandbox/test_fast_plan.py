# SPDX-License-Identifier: Apache-2.0
"""What `ri2n-fast` reads in rows is what Open vSwitch itself says of single frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ri2n_lab.cluster.programs import find_built
from ri2n_lab.cluster.sandbox import PrivateOvs
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from tests.baseline.fabrics import Draw
from tests.sandbox.planned_bridges import (
    Case,
    PlannedBridge,
    drawn_cases,
    named_cases,
    read_plan,
)

LOCAL = 0xFFFFFFFE
ETH_STRIPED = 0x88B6
TCP = 6
FRAMES = 12
"""So many frames are drawn for each peer and each kind of arrival."""

PORTS = (22, 80, 2049, 4791, 5201, 6653, 40000)
DSCPS = (0, 10, 26, 46)


class Sent(NamedTuple):
    """A frame that leaves the bridge."""

    port: int
    source: str
    destination: str
    vlan: int | None


class Packet(NamedTuple):
    """What of a frame its addresses do not say."""

    fields: str
    protocol: int
    source_port: int
    destination_port: int


@pytest.fixture(scope="module")
def program() -> Path:
    """The program under test."""
    try:
        return find_built("ri2n-fast")
    except NotAvailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def ovs() -> Iterator[PrivateOvs]:
    """An Open vSwitch for all cases."""
    with PrivateOvs() as running:
        yield running


def drawn_packet(draw: Draw) -> Packet:
    """Any IP packet but ICMPv6."""
    v6 = draw.chance(0.5)
    protocol = draw.one((1, 6, 6, 6, 17, 17, 47, 132))
    ports = draw.one(PORTS), draw.one(PORTS)
    last = draw.number(3) + 1, draw.number(3) + 1
    fields = "dl_type=0x86dd" if v6 else "dl_type=0x0800"
    fields += f",nw_proto={protocol},nw_tos={draw.one(DSCPS) << 2}"
    addresses = (
        ",ipv6_src=fd77::{},ipv6_dst=fd77::{}" if v6 else ",nw_src=10.0.0.{},nw_dst=10.0.0.{}"
    )
    fields += addresses.format(*last)
    name = {6: "tcp", 17: "udp", 132: "sctp"}.get(protocol)
    if name is None:
        return Packet(fields, protocol, 0, 0)
    fields += f",{name}_src={ports[0]},{name}_dst={ports[1]}"
    if protocol == 6:
        fields += f",tcp_flags={draw.one(('ack', 'syn', 'syn|ack', 'fin|ack', 'rst'))}"
    return Packet(fields, protocol, *ports)


def is_exception(plan: dict[str, Any], packet: Packet) -> bool:
    """Whether the plan leaves the packet to the bridge."""
    return any(
        one["protocol"] == packet.protocol
        and one["source_port"] in (None, packet.source_port)
        and one["destination_port"] in (None, packet.destination_port)
        for one in plan["exceptions"]
    )


def read_actions(text: str, ports: dict[str, int], frame: Sent) -> list[Sent]:
    """The frames that leave a datapath that gets `frame`."""
    sent = []
    for action in re.findall(r"[a-z_]+\((?:[^()]|\([^()]*\))*\)|[^,]+", text):
        if found := re.match(r"set\(eth\((.*)\)\)", action):
            fields = dict(part.split("=") for part in found[1].split(","))
            frame = frame._replace(
                source=fields.get("src", frame.source),
                destination=fields.get("dst", frame.destination),
            )
        elif found := re.match(r"push_vlan\(vid=(\d+),", action):
            frame = frame._replace(vlan=int(found[1]))
        elif action == "pop_vlan":
            frame = frame._replace(vlan=None)
        elif action.isdigit():
            sent.append(frame._replace(port=ports[action]))
        elif action != "drop":
            sent.append(frame._replace(port=-1, source=action))  # no plan has such a thing
    return sent


def check(bridge: PlannedBridge, plan: dict[str, Any], draw: Draw) -> Counter[str]:
    """Compare each frame that the plan takes with what Open vSwitch does with it."""
    ports = bridge.port_numbers()
    seen: Counter[str] = Counter()
    for peer, known in plan["peers"].items():
        for _ in range(FRAMES):
            packet, slot = drawn_packet(draw), draw.number(64)
            if is_exception(plan, packet):
                seen["excepted"] += 1
                continue
            path = known["paths"][known["slots"][slot]]
            flow = (
                f"in_port=LOCAL,dl_src={plan['own']},dl_dst={peer},{packet.fields},"
                f"dp_hash={64 | slot:#x}"
            )
            wanted = Sent(path["port"], path["source"], path["destination"], path["vlan"])
            said = bridge.trace(flow)
            frame = Sent(0, plan["own"], peer, None)
            assert read_actions(said, ports, frame) == [wanted], f"{bridge.case.name}: {flow}"
            seen["sent"] += 1
    for peer, links in plan["striped"].items():
        own = plan["own"]
        ends = f"dl_src={own},dl_dst={peer}"
        for _ in range(FRAMES):
            packet = drawn_packet(draw)
            if packet.protocol != TCP or is_exception(plan, packet):
                continue
            flow = f"in_port=LOCAL,{ends},{packet.fields}"
            frame = Sent(0, own, peer, None)
            wanted = frame._replace(port=PLAIN_PORT)
            said = bridge.trace(flow)
            assert read_actions(said, ports, frame) == [wanted], f"{bridge.case.name}: {flow}"
            seen["to the helper"] += 1
        for number, path in links.items():
            vlan = int(number) + 1
            flow = f"in_port={WIRE_PORT},{ends},dl_vlan={vlan},dl_type={ETH_STRIPED:#x}"
            wanted = Sent(path["port"], path["source"], path["destination"], path["vlan"])
            said = bridge.trace(flow)
            frame = Sent(0, own, peer, vlan)
            assert read_actions(said, ports, frame) == [wanted], f"{bridge.case.name}: {flow}"
            seen["by a link"] += 1
    for arrival in plan["arrivals"]:
        seen["by a lane"] += arrival["lane"] is not None
        for _ in range(FRAMES):
            packet = drawn_packet(draw)
            if is_exception(plan, packet):
                continue
            vlan = arrival["vlan"]
            tag = "" if vlan is None else f"dl_vlan={vlan},dl_vlan_pcp={draw.number(8)},"
            source, destination = arrival["source"], arrival["destination"]
            flow = (
                f"in_port={arrival['port']},dl_src={source},dl_dst={destination},{tag}"
                f"{packet.fields}"
            )
            frame = Sent(0, source, destination, vlan)
            wanted = Sent(LOCAL, arrival["peer"], plan["own"], None)
            said = bridge.trace(flow)
            assert read_actions(said, ports, frame) == [wanted], f"{bridge.case.name}: {flow}"
            seen["arrived"] += 1
    return seen


def run(program: Path, ovs: PrivateOvs, cases: Iterator[Case]) -> Counter[str]:
    """Check all cases."""
    seen: Counter[str] = Counter()
    for case in cases:
        bridge = PlannedBridge(ovs, case)
        plan = read_plan(program, ovs)
        if plan["peers"] or plan["striped"] or plan["arrivals"]:
            seen.update(check(bridge, plan, Draw(f"frames {case.name}")))
        seen.update(plan["left"].values())
    return seen


def test_named_bridges(program: Path, ovs: PrivateOvs) -> None:
    seen = run(program, ovs, named_cases())
    kinds = ["sent", "arrived", "excepted", "striped", "unsupported"]
    kinds += ["to the helper", "by a link", "by a lane"]
    assert all(seen[kind] for kind in kinds), seen


def test_drawn_bridges(program: Path, ovs: PrivateOvs) -> None:
    seen = run(program, ovs, drawn_cases(range(30)))
    assert min(seen["sent"], seen["arrived"], seen["excepted"]) > 30, seen
    assert min(seen["to the helper"], seen["by a link"], seen["by a lane"]) > 5, seen
    assert seen["striped"] and seen["undecided"] and seen["unsupported"], seen
