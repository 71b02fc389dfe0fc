# SPDX-License-Identifier: Apache-2.0
"""Rows and groups of hosts with a helper, for frames between helpers.

If a frame of another helper comes in while no helper runs here, it is sent back once
(`Table.STRIPED`). So its sender learns within a round trip that no helper runs. No frame from a TAP
can reach a TAP of the same host again, so no frame can go in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ri2n_sdn.fabric.classes import PROTOCOLS, TrafficClass
from ri2n_sdn.fabric.helper_links import MAX_PORT
from ri2n_sdn.fabric.model import Host, Nic, Path
from ri2n_sdn.pipeline.layout import (
    ALL_MULTICAST,
    ETH_IPV4,
    ETH_IPV6,
    ETH_RI2N,
    ETH_STRIPED,
    HELPER_VLAN,
    IN_PORT,
    LOCAL,
    PLAIN_PORT,
    VLAN_PRESENT,
    WIRE_PORT,
    Table,
    group_id,
    path_register,
    returned_mac,
)
from ri2n_sdn.pipeline.messages import (
    Action,
    Bucket,
    CopyField,
    Flow,
    Goto,
    Group,
    Match,
    Output,
    PopVlan,
    PushVlan,
    Rows,
    SetField,
    ToController,
    ToGroup,
    first_live,
    otherwise,
    row,
)
from ri2n_sdn.pipeline.priorities import LAST, Classify, Place, Receive, Send, Striped

__all__ = ["host_flows", "peer_flows", "to_helper_first"]

_STRIPED, _BOUNCE = 5, 6
_NO_TAG = 0
_BY_FLOWS = 1  # the value of reg3 that means "not for the helper"
_SENT_BACK = 7  # the priority in the tag on the wire port that means "one of our own frames"


def host_flows(host: Host, by_flows: Sequence[TrafficClass]) -> Rows:
    """Rows that do not depend on any peer: from the helper's TAPs, and from the NICs to the helper.

    Frames of a class in `by_flows` that the host sends get a mark in reg3. The rows that lead to
    the helper match only frames without the mark. Each NIC has a group: to the helper while it
    runs, else back to the NIC that sent the frame.
    """
    mark = (SetField("reg3", _BY_FLOWS), Goto(Table.SEND))
    for match in (match for traffic in by_flows for match in _matches(traffic)):
        yield row(Classify.KEEPS_LINK, {"in_port": LOCAL, **match}, mark)
    # Neither the host itself nor the other end of a striped connection can pretend to be a helper
    # or send a probe.
    yield row(Classify.FORGED, {"in_port": LOCAL, "eth_type": ETH_STRIPED}, [])
    for port in (PLAIN_PORT, WIRE_PORT):
        yield row(Classify.FORGED, {"in_port": port, "eth_type": ETH_RI2N}, [])
        yield row(Classify.FROM_HELPER, {"in_port": port}, [])
    for target in (host.mac, ALL_MULTICAST):
        yield row(Classify.FROM_PORT, {"in_port": PLAIN_PORT, "eth_dst": target}, [Output(LOCAL)])
    yield row(
        Classify.TAGGED,
        {"in_port": WIRE_PORT, "eth_type": ETH_STRIPED, "vlan_vid": VLAN_PRESENT | HELPER_VLAN},
        [PopVlan(), ToController()],
    )
    # A frame that the helper hands back goes by the slot table, since the row that leads to the
    # helper matches only frames from LOCAL.
    untagged: Match = {"in_port": WIRE_PORT, "eth_src": host.mac, "vlan_vid": _NO_TAG}
    yield row(Classify.FROM_PORT, untagged, [Goto(Table.SEND)])
    yield row(Receive.STRIPED_ELSEWHERE, {"eth_type": ETH_STRIPED}, [])
    yield row(Striped.FORGED, {"eth_src": ALL_MULTICAST}, [])
    yield row(Place(Table.TO_HELPER, LAST), {}, [Output(LOCAL)])
    for nic in _usable(host):
        yield row(
            Receive.STRIPED,
            {"in_port": nic.port, "eth_dst": nic.mac, "eth_type": ETH_STRIPED, "vlan_vid": _NO_TAG},
            [SetField("eth_dst", host.mac), Goto(Table.STRIPED)],
        )
        back = (
            CopyField("eth_src", "eth_dst"),
            SetField("eth_src", returned_mac(nic.mac)),
            Output(IN_PORT),
        )
        bounce = first_live(
            group_id(_BOUNCE, nic.port),
            Bucket(WIRE_PORT, (Goto(Table.RECEIVE_COUNT),)),
            Bucket(nic.port, back),
        )
        yield bounce
        yield row(Striped.FROM_PEER, {"in_port": nic.port}, [ToGroup(bounce.group_id)])
        tag: list[Action] = [PushVlan(), SetField("vlan_vid", VLAN_PRESENT | nic.port)]
        to_helper: Match = {"in_port": nic.port, "eth_type": ETH_STRIPED}
        yield row(Place(Table.TO_HELPER), to_helper, [*tag, Output(WIRE_PORT)])
        sent_back = SetField("vlan_pcp", _SENT_BACK)
        yield row(
            Place(Table.RETURNED), {"in_port": nic.port}, [*tag, sent_back, Output(WIRE_PORT)]
        )


def peer_flows(peer: Host, links: Mapping[int, Path]) -> Iterator[Flow]:
    """Rows for a peer that has a helper too, whether it runs or not.

    They send the helper's frames over `links` by their numbers, and take frames that the peer sent
    back.
    """
    to_peer: Match = {"in_port": WIRE_PORT, "eth_type": ETH_STRIPED, "eth_dst": peer.mac}
    for number, path in links.items():
        tagged: Match = {**to_peer, "vlan_vid": VLAN_PRESENT | (number + 1)}
        by_path = SetField("reg1", path_register(*path.key))
        yield row(Classify.TAGGED, tagged, [PopVlan(), by_path, Goto(Table.SEND_COUNT)])
    for nic in peer.nics:
        restore: list[Action] = [SetField("eth_src", peer.mac), Goto(Table.RETURNED)]
        yield row(Striped.RETURNED, {"eth_src": returned_mac(nic.mac)}, restore)


def to_helper_first(host: Host, peer: Host, slots: Group) -> Rows:
    """The row for frames that the host itself sends to a striped peer, and the group of that row.

    The group sends to the helper while it runs, else by the slot table `slots`. Tagged frames go by
    the slot table, since the helper could not hand them back: on its wire port a tag has a meaning
    of its own.
    """
    number = group_id(_STRIPED, slots.group_id)
    to_helper = Bucket(PLAIN_PORT, (Output(PLAIN_PORT),))
    yield first_live(number, to_helper, otherwise(slots.group_id))
    untagged: Match = {"in_port": LOCAL, "vlan_vid": _NO_TAG, "reg3": 0}
    ends: Match = {"eth_src": host.mac, "eth_dst": peer.mac}
    yield row(Send.STRIPED, {**untagged, **ends}, [ToGroup(number)])


def _matches(traffic: TrafficClass) -> Iterator[Match]:
    """The OpenFlow matches of a class of traffic.

    There is one per address family, and for a port one as source and one as destination.
    """
    for family, icmp in ((ETH_IPV4, 1), (ETH_IPV6, 58)):
        match: Match = {"eth_type": family}
        if traffic.dscp is not None:
            match["ip_dscp"] = traffic.dscp
        if traffic.proto is not None:
            match["ip_proto"] = icmp if traffic.proto == "icmp" else PROTOCOLS[traffic.proto][0]
        if traffic.port is None:
            yield match
            continue
        for end in ("src", "dst"):
            yield {**match, f"{traffic.proto}_{end}": traffic.port}


def _usable(host: Host) -> Iterator[Nic]:
    """The NICs that helper links can use: their port numbers fit the helper's tag."""
    return (nic for nic in host.nics if nic.port <= MAX_PORT)
