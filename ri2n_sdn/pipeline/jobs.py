# SPDX-License-Identifier: Apache-2.0
"""Rows of hosts with jobs: paths of their own for classes, and the walls of isolated jobs.

docs/pipeline.md describes them. A host's firewall hands a packet of a job to the bridge with the
job's class in the source address. Here the class becomes a register, and rows for (class,
destination) choose the paths. The hosts of an isolated job pass everything through two tables of
their own first, which let only the job's own frames and the named services pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from ri2n_sdn.fabric.model import Host, Nic, Path
from ri2n_sdn.jobs.model import Service
from ri2n_sdn.pipeline.dphash import PROTOCOLS
from ri2n_sdn.pipeline.layout import (
    CLASS_MACS,
    ETH_IPV4,
    ETH_IPV6,
    ETH_STRIPED,
    LOCAL,
    PLAIN_PORT,
    VLAN_PRESENT,
    WIRE_PORT,
    Table,
    group_id,
    job_mac,
)
from ri2n_sdn.pipeline.messages import (
    FINDING_ADDRESSES,
    ICMP_V6,
    Action,
    Bucket,
    Flow,
    Goto,
    Match,
    Note,
    Output,
    PopVlan,
    PushVlan,
    Rows,
    SetField,
    TakeClass,
    ToGroup,
    first_live,
    otherwise,
    row,
)
from ri2n_sdn.pipeline.priorities import ORDER, Classify, Enclosed, Place, Receive, Send
from ri2n_sdn.pipeline.slot_tables import slot_group, table_in_force

__all__ = [
    "NO_JOBS",
    "ClassTable",
    "Enclosure",
    "HostJobs",
    "channel_rows",
    "class_flows",
    "enclosure_flows",
    "host_flows",
    "message_rows",
    "wire_mac",
]

_JOB, _CHANNEL_FIRST = 8, 9
_PASSED = 1  # the value of reg7 that means "this frame was let through"
_TCP = 6
_TCP_ACK = (0x10, 0x10)
_UDP_V4: Match = {"eth_type": ETH_IPV4, "ip_proto": 17}
_UDP_V6: Match = {"eth_type": ETH_IPV6, "ip_proto": 17}
_ICMP_V4: Match = {"eth_type": ETH_IPV4, "ip_proto": 1}
_NEEDED_TO_SEND: tuple[Match, ...] = (
    # Requests for a lease of an address (DHCP).
    {**_UDP_V4, "udp_src": 68, "udp_dst": 67},
    {**_UDP_V6, "udp_src": 546, "udp_dst": 547},
    # IPv6 needs reports of group membership, so that switches deliver neighbour discovery.
    *({**ICMP_V6, "icmpv6_type": report} for report in (131, 132, 143)),
)
_NEEDED_TO_RECEIVE: tuple[Match, ...] = (
    # Leases of addresses (DHCP).
    {**_UDP_V4, "udp_src": 67, "udp_dst": 68},
    {**_UDP_V6, "udp_src": 547, "udp_dst": 546},
    # Routers' reports that a packet is too big.
    {**ICMP_V6, "icmpv6_type": 2},
    {**_ICMP_V4, "icmpv4_type": 3, "icmpv4_code": 4},
)


@dataclass(frozen=True)
class ClassTable:
    """The paths of a class on one host to each of its job's other hosts.

    `number` is the class, 1..63. The table is for packets with the mark `dscp`; None stands for all
    packets that no other table of the class takes. A receiver without paths is not in `paths`.
    """

    number: int
    dscp: int | None
    paths: Mapping[str, tuple[Path, ...]]
    channels: Mapping[str, int] = field(default_factory=dict)
    """The number of the job's channel to each receiver to which the helper may send for it."""


@dataclass(frozen=True)
class Enclosure:
    """The isolated job that has a host for itself.

    `members` are all its hosts, `services` what they may talk to besides. `key` is the job's
    secret, from which the addresses of its frames on the wire are made.
    """

    job: str
    key: bytes
    members: frozenset[str]
    services: tuple[Service, ...] = ()


@dataclass(frozen=True)
class HostJobs:
    """What one host's rows must hold about jobs.

    `notes` are messages for the host's scripts: (priority, text) of rows in Table.JOB_ANSWERS.
    """

    tables: tuple[ClassTable, ...] = ()
    enclosure: Enclosure | None = None
    notes: Mapping[int, bytes] = field(default_factory=dict)

    def same_rows(self, other: HostJobs) -> bool:
        """Whether packets go the same way by both; the messages may differ."""
        return (self.tables, self.enclosure) == (other.tables, other.enclosure)


NO_JOBS = HostJobs()


def wire_mac(nic: Nic, peer: str, enclosure: Enclosure | None) -> str:
    """The address that a NIC has in frames to and from `peer` on the wire."""
    if enclosure is not None and peer in enclosure.members:
        return job_mac(enclosure.key, nic.mac)
    return nic.mac


def host_flows(host: Host, jobs: HostJobs) -> Iterator[Flow]:
    """Rows that every host has, and the messages for its scripts.

    The class of a frame goes into reg6, also when no job has it: then no row asks for it, and the
    frame goes as everybody's. Frames from elsewhere with the address of a class are dropped.
    """
    take = (TakeClass(), SetField("eth_src", host.mac), Goto(Table.CLASSIFY))
    yield row(Classify.OF_CLASS, {"in_port": LOCAL, "eth_src": CLASS_MACS}, take)
    yield row(Receive.OWN_SOURCE, {"eth_src": CLASS_MACS}, [])
    yield from message_rows(jobs.notes)


def message_rows(notes: Mapping[int, bytes]) -> Iterator[Flow]:
    """The rows with the messages for a host's scripts, which no frame meets.

    The match says which class an answer is for, or which number an order has, so that a script can
    delete that one row: it deletes the answer to an earlier job of its class.
    """
    for priority, text in notes.items():
        match: Match = {"in_port": LOCAL, "reg6": priority}
        if priority >= ORDER:
            match |= {"reg6": 0, "reg7": priority - ORDER}
        yield row(Place(Table.JOB_ANSWERS, priority), match, [Note(text)])


def class_flows(host: Host, peers: Mapping[str, Host], jobs: HostJobs, slots: int) -> Rows:
    """A row and a group for each class, table and receiver.

    `peers` are the hosts that accept frames with the addresses of NICs. Frames to any other host go
    as everybody's.
    """
    for table in jobs.tables:
        for name, paths in table.paths.items():
            if name not in peers or not paths:
                continue
            own = table_in_force(paths, None, slots)
            ends: Match = {"eth_src": host.mac, "eth_dst": peers[name].mac}
            of_class: Match = {"reg6": table.number, **ends}
            # Classes with the same slot table share a group.
            group = slot_group(group_id(_JOB, own), own, host.hash_algorithm)
            yield group
            to_group = [ToGroup(group.group_id)]
            if table.dscp is None:
                yield row(Send.OF_CLASS, of_class, to_group)
                continue
            for family in (ETH_IPV4, ETH_IPV6):
                marked = {**of_class, "eth_type": family, "ip_dscp": table.dscp}
                yield row(Send.OF_CLASS_DSCP, marked, to_group)


def channel_rows(host: Host, peers: Mapping[str, Host], jobs: HostJobs, slots: int) -> Rows:
    """Rows that give a class's frames to the helper, with their groups.

    `peers` are the hosts to which this host's helper stripes now. While the helper does not run,
    and when it hands a frame back, the class's slot table decides.
    """
    if host.helper:
        # A tag below 64 on the wire port may be a helper link's or a channel's.
        yield row(Classify.NO_LINK, {"in_port": WIRE_PORT, "eth_type": ETH_STRIPED}, [])
    for table in jobs.tables:
        for name, channel in table.channels.items():
            if name not in peers or not table.paths.get(name):
                continue
            own = group_id(_JOB, table_in_force(table.paths[name], None, slots))
            tag = VLAN_PRESENT | channel
            tagged = (PushVlan(), SetField("vlan_vid", tag), Output(PLAIN_PORT))
            number = group_id(_CHANNEL_FIRST, (own, channel))
            yield first_live(number, Bucket(PLAIN_PORT, tagged), otherwise(own))
            ends: Match = {"eth_src": host.mac, "eth_dst": peers[name].mac}
            of_class: Match = {"in_port": LOCAL, "reg6": table.number, "vlan_vid": 0, **ends}
            yield row(Send.OF_CHANNEL, of_class, [ToGroup(number)])
            back: Match = {"in_port": WIRE_PORT, "vlan_vid": tag, **ends}
            take: list[Action] = [PopVlan(), SetField("reg6", table.number), Goto(Table.SEND)]
            yield row(Classify.OF_CHANNEL, back, take)


def enclosure_flows(
    host: Host, members: Sequence[Host], enclosure: Enclosure, guests: Sequence[int] = ()
) -> Iterator[Flow]:
    """The walls around a host of an isolated job, for what it sends and what it receives.

    `members` are the job's other hosts, `guests` the ports of containers and virtual machines. A
    frame that may pass gets a mark in reg7, and begins again in the table that it came from.
    """
    for port in (LOCAL, *guests):
        yield row(Classify.ENCLOSED, {"in_port": port, "reg7": 0}, [Goto(Table.ENCLOSED_SENDS)])
    sends: list[Action] = [SetField("reg7", _PASSED), Goto(Table.CLASSIFY)]
    for mac in (host.mac, *(guest.mac for guest in host.guests), *(peer.mac for peer in members)):
        yield row(Enclosed.SEND_OF_JOB, {"eth_dst": mac}, sends)
    # Without what finds addresses, services could not be reached.
    services = (*FINDING_ADDRESSES, *_of_services(enclosure.services))
    for match in (*services, *_NEEDED_TO_SEND):
        yield row(Enclosed.SEND, match, sends)
    yield row(Receive.ENCLOSED, {"reg7": 0}, [Goto(Table.ENCLOSED_RECEIVES)])
    receives: list[Action] = [SetField("reg7", _PASSED), Goto(Table.RECEIVE)]
    restore = SetField("eth_dst", host.mac)
    for nic in host.nics:
        # Only the job's hosts know this address, so it shows that the frame is the job's.
        own = job_mac(enclosure.key, nic.mac)
        at_nic: Match = {"in_port": nic.port, "eth_dst": own}
        yield row(Enclosed.RECEIVE_OF_JOB, at_nic, receives)
        yield row(Receive.TO_NIC, at_nic, [restore, Goto(Table.RECEIVE_COUNT)])
        if host.helper:
            striped: Match = {**at_nic, "eth_type": ETH_STRIPED, "vlan_vid": 0}
            yield row(Receive.STRIPED, striped, [restore, Goto(Table.STRIPED)])
        yield row(Receive.OWN_SOURCE, {"eth_src": own}, [])
    for match in (*services, *_NEEDED_TO_RECEIVE):
        yield row(Enclosed.RECEIVE, match, receives)
    if host.control_port is not None:
        for family in (ETH_IPV4, ETH_IPV6):
            tcp: Match = {"eth_type": family, "ip_proto": _TCP}
            to = {**tcp, "tcp_dst": host.control_port}
            back = {**tcp, "tcp_src": host.control_port}
            yield row(Enclosed.SEND, to, sends)
            yield row(Enclosed.SEND, back, sends)
            yield row(Enclosed.RECEIVE, to, receives)
            # Nobody may open a connection by sending from the controller's port.
            answer = {**back, "tcp_flags": _TCP_ACK}
            yield row(Enclosed.RECEIVE, answer, receives)


def _of_services(services: Sequence[Service]) -> Iterator[Match]:
    """What goes to a service, and what comes from it, each once."""
    for service in dict.fromkeys(services):
        version = ip_address(service.address).version
        for end in ("src", "dst"):
            yield {
                "eth_type": ETH_IPV6 if version == 6 else ETH_IPV4,
                "ip_proto": PROTOCOLS[service.proto],
                f"ipv{version}_{end}": service.address,
                f"{service.proto}_{end}": service.port,
            }
