"""Rows and groups of hosts with a helper: frames between helpers, and what becomes of them when one
does not run.

A frame of another helper that finds none here is sent back once (`Table.STRIPED`): its sender
learns within a round trip that nobody is there. Nothing that a TAP says can get to a TAP again, so
no frame can go in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ri2n_sdn.fabric.classes import PROTOCOLS, TrafficClass
from ri2n_sdn.fabric.links import MAX_PORT
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
    MatchValue,
    Output,
    PopVlan,
    PushVlan,
    SetField,
    ToController,
    ToGroup,
    row,
)

__all__ = ["bounce_groups", "host_flows", "peer_flows", "to_helper_first"]

_STRIPED, _BOUNCE = 5, 6
_NO_TAG = 0
_BY_FLOWS = 1  # in reg3: not for the helper
_SENT_BACK = 7  # the tag's priority on the wire port: one of our own frames


def host_flows(host: Host, by_flows: Sequence[TrafficClass] = ()) -> Iterator[Flow]:
    """Rows that do not depend on any peer: from the helper's TAPs, and from the NICs to the helper.

    What the host sends that is `by_flows` gets a mark, which the rows that lead to the helper do
    not want.
    """
    for match in (match for each in by_flows for match in _matches(each)):
        yield row(
            Table.CLASSIFY,
            105,
            {"in_port": LOCAL, **match},
            [SetField("reg3", _BY_FLOWS), Goto(Table.SEND)],
        )
    # Neither the host itself nor the other end of a striped connection can feign a helper or a
    # probe.
    yield row(Table.CLASSIFY, 1001, {"in_port": LOCAL, "eth_type": ETH_STRIPED}, [])
    for port in (PLAIN_PORT, WIRE_PORT):
        yield row(Table.CLASSIFY, 1001, {"in_port": port, "eth_type": ETH_RI2N}, [])
        yield row(Table.CLASSIFY, 90, {"in_port": port}, [])
    for target in (host.mac, ALL_MULTICAST):
        yield row(Table.CLASSIFY, 100, {"in_port": PLAIN_PORT, "eth_dst": target}, [Output(LOCAL)])
    yield row(
        Table.CLASSIFY,
        110,
        {"in_port": WIRE_PORT, "eth_type": ETH_STRIPED, "vlan_vid": VLAN_PRESENT | HELPER_VLAN},
        [PopVlan(), ToController()],
    )
    # Handed back by the helper: goes as if it had none, since the row that leads to the helper asks
    # for LOCAL.
    untagged: dict[str, MatchValue] = {
        "in_port": WIRE_PORT,
        "eth_src": host.mac,
        "vlan_vid": _NO_TAG,
    }
    yield row(Table.CLASSIFY, 100, untagged, [Goto(Table.SEND)])
    yield row(Table.RECEIVE, 196, {"eth_type": ETH_STRIPED}, [])
    yield row(Table.STRIPED, 120, {"eth_src": ALL_MULTICAST}, [])
    yield row(Table.TO_HELPER, 0, {}, [Output(LOCAL)])
    for nic in _usable(host):
        yield row(
            Table.RECEIVE,
            197,
            {"in_port": nic.port, "eth_dst": nic.mac, "eth_type": ETH_STRIPED, "vlan_vid": _NO_TAG},
            [SetField("eth_dst", host.mac), Goto(Table.STRIPED)],
        )
        yield row(Table.STRIPED, 100, {"in_port": nic.port}, [ToGroup(_bounce_id(nic))])
        tag: list[Action] = [PushVlan(), SetField("vlan_vid", VLAN_PRESENT | nic.port)]
        to_helper: dict[str, MatchValue] = {"in_port": nic.port, "eth_type": ETH_STRIPED}
        yield row(Table.TO_HELPER, 100, to_helper, [*tag, Output(WIRE_PORT)])
        sent_back = SetField("vlan_pcp", _SENT_BACK)
        yield row(Table.RETURNED, 100, {"in_port": nic.port}, [*tag, sent_back, Output(WIRE_PORT)])


def bounce_groups(host: Host) -> Iterator[Group]:
    """A group per NIC: to the helper while it runs, else back to the NIC that the frame is from."""
    for nic in _usable(host):
        back = (
            CopyField("eth_src", "eth_dst"),
            SetField("eth_src", returned_mac(nic.mac)),
            Output(IN_PORT),
        )
        buckets = (Bucket(WIRE_PORT, (Goto(Table.RECEIVE_COUNT),)), Bucket(nic.port, back))
        yield Group(_bounce_id(nic), Group.FAST_FAILOVER, buckets)


def peer_flows(peer: Host, links: Mapping[int, Path]) -> Iterator[Flow]:
    """Rows of a peer that has a helper too, whether it runs or not:

    over `links` by their numbers, and sent back.
    """
    for number, path in links.items():
        yield row(
            Table.CLASSIFY,
            110,
            {
                "in_port": WIRE_PORT,
                "eth_type": ETH_STRIPED,
                "vlan_vid": VLAN_PRESENT | (number + 1),
                "eth_dst": peer.mac,
            },
            [PopVlan(), SetField("reg1", path_register(*path.key)), Goto(Table.SEND_COUNT)],
        )
    for nic in peer.nics:
        restore: list[Action] = [SetField("eth_src", peer.mac), Goto(Table.RETURNED)]
        yield row(Table.STRIPED, 110, {"eth_src": returned_mac(nic.mac)}, restore)


def to_helper_first(host: Host, peer: Host, slots: Group) -> tuple[Flow, Group]:
    """The row for what the host itself sends to a striped peer, and its group: the helper, else the
    table `slots`.

    Tagged frames are left to the slot table, since the helper could not hand them back: on its wire
    port a tag has a meaning of its own.
    """
    number = group_id(_STRIPED, slots.group_id)
    buckets = (
        Bucket(PLAIN_PORT, (Output(PLAIN_PORT),)),
        Bucket(None, (ToGroup(slots.group_id),), watch_group=slots.group_id),
    )
    match: dict[str, MatchValue] = {
        "in_port": LOCAL,
        "eth_src": host.mac,
        "eth_dst": peer.mac,
        "vlan_vid": _NO_TAG,
    }
    return row(Table.SEND, 110, {**match, "reg3": 0}, [ToGroup(number)]), Group(
        number, Group.FAST_FAILOVER, buckets
    )


def _matches(each: TrafficClass) -> Iterator[dict[str, MatchValue]]:
    """A class as matches of OpenFlow:

    by address family, and a port once as source and once as destination.
    """
    for family, icmp in ((ETH_IPV4, 1), (ETH_IPV6, 58)):
        match: dict[str, MatchValue] = {"eth_type": family}
        if each.dscp is not None:
            match["ip_dscp"] = each.dscp
        if each.proto is not None:
            match["ip_proto"] = icmp if each.proto == "icmp" else PROTOCOLS[each.proto][0]
        if each.port is None:
            yield match
            continue
        for end in ("src", "dst"):
            yield {**match, f"{each.proto}_{end}": each.port}


def _usable(host: Host) -> Iterator[Nic]:
    """NICs that links can have: their port numbers fit the helper's tag."""
    return (nic for nic in host.nics if nic.port <= MAX_PORT)


def _bounce_id(nic: Nic) -> int:
    return group_id(_BOUNCE, nic.port)
