# SPDX-License-Identifier: Apache-2.0
"""The flows and groups that one host's bridge shall hold (docs/pipeline.md).

They are computed from the fabric and from the slot tables of the host's pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ri2n_sdn.fabric.model import UNTAGGED, Fabric, Host, Nic, Path, PathKey, Routing
from ri2n_sdn.pipeline import guests, jobs, placement, striping
from ri2n_sdn.pipeline.layout import (
    ALL_MULTICAST,
    ANNOUNCED_TO,
    COOKIE_LEARNED,
    ETH_IPV4,
    ETH_IPV6,
    ETH_RI2N,
    LOCAL,
    VLAN_PRESENT,
    Table,
    group_id,
    path_register,
)
from ri2n_sdn.pipeline.messages import (
    FINDING_ADDRESSES,
    Action,
    Bucket,
    Flow,
    Goto,
    Group,
    Learn,
    Match,
    Output,
    OutputRegister,
    PopVlan,
    PushVlan,
    Rows,
    SetField,
    ToController,
    ToGroup,
    Wanted,
    first_live,
    row,
)
from ri2n_sdn.pipeline.priorities import (
    CANARY,
    LAST,
    Classify,
    Place,
    Receive,
    ReceiveCount,
    Send,
    SendUnmanaged,
)
from ri2n_sdn.pipeline.slot_tables import slot_group, table_in_force

__all__ = [
    "RECEIVED",
    "SENT",
    "pair_cookie",
    "pair_group_id",
    "plan_host",
    "plan_probes_only",
    "restoring_cookies",
]

SENT = "sent"
RECEIVED = "received"

_LEARNED_IDLE_S = 300
# Kinds of groups: the upper four bits of their ids.
_PAIR, _SHARED, _NETWORK, _STANDBY = 1, 2, 3, 4


def plan_probes_only(host: Host) -> Wanted:
    """The rows of a host whose cables are not known yet.

    Probes reach the controller. All other frames go by the start-up rows of `host-up`.
    """
    return _wanted(_probe_flows())


def plan_host(
    fabric: Fabric,
    name: str,
    pair_slots: Mapping[str, tuple[PathKey, ...]],
    slots: int,
    of_jobs: jobs.HostJobs = jobs.NO_JOBS,
) -> Wanted:
    """All flows and groups of host `name`.

    `pair_slots` holds the slot tables of the peers that have a group of their own. All other peers
    with the same choice of paths share a group, which has `slots` slots. Peers that do not accept
    frames with the addresses of NICs yet are reached as unmanaged hosts are. `of_jobs` is what the
    rows must hold about jobs. Raises ValueError when two flows or groups contradict each other,
    which is a bug.
    """
    host = fabric.hosts[name]
    attachments = fabric.attachments(name)
    floods: dict[str, Sequence[int]] = dict.fromkeys(attachments, (UNTAGGED,))
    if fabric.routing is not None:
        floods = {
            network: fabric.routing.flood_vlans(network, fabric.networks[network])
            for network in attachments
        }
    network_groups = (
        _network_group(members, vlan)
        for network, members in attachments.items()
        for vlan in {UNTAGGED, *floods[network]}
    )
    parts: list[Iterable[Flow | Group]] = [_probe_flows(), network_groups]
    parts.append(_receive_flows(host, attachments))
    if fabric.routing is not None:
        parts.append(_untag_flows(host, fabric.routing))
    parts.append(_unmanaged_flows(host, attachments, floods))
    parts.append(guests.guest_flows(host))
    if host.helper:
        parts.append(striping.host_flows(host, fabric.by_flows))
    parts.append(placement.host_flows(host, fabric))
    parts.append(jobs.host_flows(host, of_jobs))
    parts.append(_job_rows(fabric, host, of_jobs, slots))
    if name in fabric.placement:
        parts.append(placement.ended_by_client(host, fabric.placement[name]))
    enclosure = of_jobs.enclosure
    for peer_name, peer in sorted(fabric.hosts.items()):
        if peer_name != name:
            own = pair_slots.get(peer_name)
            parts.append(_peer_rows(fabric, attachments, host, peer, own, slots, enclosure))
    return _wanted(chain.from_iterable(parts))


def pair_group_id(receiver: str) -> int:
    """The id of the group that a pair has for itself, on the bridge of its sender."""
    return group_id(_PAIR, receiver)


def pair_cookie(sender_mac: str, receiver_mac: str, receiver: str) -> int:
    """The cookie of the row by which a sender's bridge uses the pair's own group."""
    return _row_to_peer(sender_mac, receiver_mac, pair_group_id(receiver)).cookie


def _row_to_peer(sender_mac: str, receiver_mac: str, group_number: int) -> Flow:
    match: Match = {"eth_src": sender_mac, "eth_dst": receiver_mac}
    return row(Send.TO_PEER, match, [ToGroup(group_number)])


def _wanted(items: Iterable[Flow | Group]) -> Wanted:
    """All of these rows and groups; the same group may be among them any number of times.

    Open vSwitch would silently keep the last one of two rows with the same table, priority and
    match. Such rows are a bug, and so are two different groups with the same id: ValueError.
    """
    flows: dict[int, Flow] = {}
    places: set[tuple[object, ...]] = set()
    groups: dict[int, Group] = {}
    for item in items:
        if isinstance(item, Group):
            if groups.setdefault(item.group_id, item) != item:
                raise ValueError(f"two groups want the id {item.group_id:#x}")
            continue
        place = (item.table, item.priority, item.match)
        if place in places:
            raise ValueError(
                f"two flows for table {item.table}, priority {item.priority}, match {item.match}"
            )
        places.add(place)
        flows[item.cookie] = item
    return Wanted(flows, groups)


def _job_rows(fabric: Fabric, host: Host, of_jobs: jobs.HostJobs, slots: int) -> Rows:
    """The rows and groups of the host's classes, and the walls of an isolated job."""
    ready = {name: peer for name, peer in fabric.hosts.items() if peer.accepts_wire}
    yield from jobs.class_flows(host, ready, of_jobs, slots)
    striped = {
        name: peer
        for name, peer in ready.items()
        if name != host.name and fabric.stripes(host.name, name)
    }
    yield from jobs.channel_rows(host, striped, of_jobs, slots)
    if of_jobs.enclosure is not None:
        members = [
            fabric.hosts[name]
            for name in sorted(of_jobs.enclosure.members)
            if name != host.name and name in fabric.hosts
        ]
        ports = sorted({guest.port for guest in host.guests})
        yield from jobs.enclosure_flows(host, members, of_jobs.enclosure, ports)


def _peer_rows(
    fabric: Fabric,
    attachments: Mapping[str, tuple[Nic, ...]],
    host: Host,
    peer: Host,
    own_slots: tuple[PathKey, ...] | None,
    slots: int,
    enclosure: jobs.Enclosure | None,
) -> Rows:
    """The rows and groups for one peer.

    `attachments` has the NICs of `host` by network. `own_slots` is the pair's own slot table, or
    None; `slots` is the number of slots of a shared one. `enclosure` is the isolated job that has
    the host for itself.
    """
    into, out = fabric.paths(peer.name, host.name), fabric.paths(host.name, peer.name)
    follows, places = peer.name in fabric.placement, host.name in fabric.placement
    # Frames from the peer.
    back = {path.key: placement.path_back(path, out) for path in into} if follows else {}
    incoming = {
        path.key: placement.incoming_actions(places, follows, back.get(path.key)) for path in into
    }
    yield from _receive_from_peer(host, peer, into, fabric.routing is not None, incoming, enclosure)
    if follows:
        yield from placement.follow_flows(peer, fabric.placement[peer.name])
    yield from _broadcast_from_peer(fabric, peer, attachments)
    # Frames to the peer.
    yield from _output_flows(host, peer, out, enclosure)
    if out:
        # Frames of a container, and all frames for a peer that is not ready, keep their addresses
        # and go into one network only.
        network = next((path for path in out if path.alive), out[0]).network
        plain = ToGroup(_network_group(attachments[network]).group_id)
        yield row(Send.PLAIN, {"eth_dst": peer.mac}, [plain])
    if host.helper and peer.helper:
        yield from striping.peer_flows(peer, fabric.helper_links(host.name, peer.name))
    if not out or not peer.accepts_wire:
        return
    common = fabric.common_paths(host.name, peer.name)
    table = table_in_force(common, own_slots, slots)
    number = group_id(_SHARED, table) if own_slots is None else pair_group_id(peer.name)
    group = slot_group(number, table, host.hash_algorithm)
    yield group
    yield _row_to_peer(host.mac, peer.mac, group.group_id)
    if fabric.stripes(host.name, peer.name):
        yield from striping.to_helper_first(host, peer, group)
    if follows or places:
        yield from placement.by_path(host, peer, common, group)


def _probe_flows() -> Iterator[Flow]:
    """Rows that bring probes to the controller, and the canary."""
    # Only a frame that comes in from a NIC is a probe. A process of the host itself cannot make
    # one.
    yield row(Classify.FORGED, {"in_port": LOCAL, "eth_type": ETH_RI2N}, [])
    yield row(Classify.PROBE, {"eth_type": ETH_RI2N}, [ToController()])
    # No frame hits the canary. A poll that does not find it knows that somebody emptied the tables.
    yield row(CANARY, {"in_port": LOCAL}, [])


def _receive_flows(host: Host, attachments: Mapping[str, tuple[Nic, ...]]) -> Rows:
    """Rows and groups for frames that come in, as far as they do not depend on any peer.

    They lead from the NICs to the receiving tables, and drop the host's own frames and those of
    bridges.
    """
    yield row(Classify.FROM_PORT, {"in_port": LOCAL}, [Goto(Table.SEND)])
    to_host = (SetField("eth_dst", host.mac), Goto(Table.RECEIVE_COUNT))
    for nic in host.nics:
        yield row(Classify.FROM_PORT, {"in_port": nic.port}, [Goto(Table.RECEIVE)])
        yield row(Receive.TO_NIC, {"in_port": nic.port, "eth_dst": nic.mac}, to_host)
        # A switch that forgot the address floods the frame. The copy at the right NIC is delivered,
        # and the copies at the other NICs are dropped.
        yield row(Receive.TO_OTHER_NIC, {"eth_dst": nic.mac}, [])
        yield row(Receive.OWN_SOURCE, {"eth_src": nic.mac}, [])
    yield row(Receive.OWN_SOURCE, {"eth_src": host.mac}, [])
    yield row(Receive.FOR_SWITCHES, {"eth_dst": ("01:80:c2:00:00:00", "ff:ff:ff:ff:ff:f0")}, [])
    for match in FINDING_ADDRESSES:
        asking: Match = {**match, "eth_dst": ALL_MULTICAST}
        yield row(Receive.NEIGHBOUR, asking, [Goto(Table.NEIGHBOUR)])
    yield row(Receive.UNMANAGED, {}, [Goto(Table.UNMANAGED)])
    yield row(Place(Table.NEIGHBOUR, LAST), {}, [Goto(Table.UNMANAGED)])
    for members in attachments.values():
        yield from _from_one_nic(members, Place(Table.UNMANAGED), {}, Table.LEARN)
    learn = Learn(Table.LEARNED, "reg2", _LEARNED_IDLE_S, COOKIE_LEARNED << 48)
    yield row(Place(Table.LEARN), {}, [learn, Goto(Table.DELIVER)])
    for mac in (host.mac, *host.extra_macs):
        yield row(Place(Table.DELIVER), {"eth_dst": mac}, [Output(LOCAL)])
    everybody = (Output(LOCAL), *guests.copies(host))
    yield row(Place(Table.DELIVER), {"eth_dst": ALL_MULTICAST}, everybody)


def _untag_flows(host: Host, routing: Routing) -> Iterator[Flow]:
    """Rows that take the fabric's tag off frames that come in, and keep its VLAN ID in reg4.

    Frames without a tag have 0 there. Announcements have a row of their own, so that the row for
    frames between other hosts counts what switches flood.
    """
    yield row(Receive.FOR_SWITCHES, {"eth_dst": ANNOUNCED_TO}, [])
    for nic in host.nics:
        for vlan in routing.vlans(nic):
            if vlan != UNTAGGED:
                match: Match = {"in_port": nic.port, "vlan_vid": VLAN_PRESENT | vlan}
                untag = (PopVlan(), SetField("reg4", vlan), Goto(Table.RECEIVE))
                yield row(Classify.TAGGED, match, untag)


def _receive_from_peer(
    host: Host,
    peer: Host,
    into: Sequence[Path],
    tagged: bool,
    incoming: Mapping[PathKey, Sequence[Action]],
    enclosure: jobs.Enclosure | None,
) -> Iterator[Flow]:
    """Rows for frames of a managed peer, which count R_ijk and restore the peer's own MAC.

    Each path (peer's NIC, own NIC, VLAN) has a row with a counter of its own. `tagged` says whether
    networks have several VLANs. `incoming` has the actions by path that placed connections need.
    Between the hosts of an isolated job (`enclosure`) frames carry the job's own addresses.
    """
    deliver: Action = Goto(Table.TO_HELPER) if host.helper else Output(LOCAL)
    source = SetField("eth_src", peer.mac)
    for path in into:
        wire_mac = jobs.wire_mac(path.own, peer.name, enclosure)
        match: Match = {"in_port": path.peer.port, "eth_src": wire_mac}
        if tagged:
            match["reg4"] = path.route.vlan
        actions = [source, *incoming[path.key], deliver]
        yield row(ReceiveCount.PATH, match, actions, counts=(RECEIVED, peer.name, path.key))
    for nic in peer.nics:
        # The cables may differ from what the controller has learned. Frames are delivered all the
        # same.
        for mac in dict.fromkeys((nic.mac, jobs.wire_mac(nic, peer.name, enclosure))):
            yield _restoring_row(peer.mac, mac, host.helper)
        if peer.connected:
            # These frames are what the peer's kernel sends by itself under its NIC's address. A
            # peer that is not connected may use that address for all its frames, after host-down or
            # in a rescue system. So they are dropped only while it is connected.
            yield row(Receive.FROM_NIC, {"eth_src": nic.mac}, [])
    yield row(Place(Table.NEIGHBOUR), {"eth_src": peer.mac}, [Output(LOCAL), *guests.copies(host)])
    yield row(Receive.FROM_HOST, {"eth_src": peer.mac}, [Goto(Table.DELIVER)])


def _restoring_row(host_mac: str, nic_mac: str, to_helper: bool) -> Flow:
    """The row that gives a frame from a peer's NIC that peer's own MAC address back."""
    deliver: Action = Goto(Table.TO_HELPER) if to_helper else Output(LOCAL)
    return row(
        ReceiveCount.OTHER_CABLE, {"eth_src": nic_mac}, [SetField("eth_src", host_mac), deliver]
    )


def restoring_cookies(host_mac: str, nic_mac: str) -> frozenset[int]:
    """The cookies of the rows by which a bridge shows that it knows this NIC as that host's.

    There is one for a host with a helper and one for a host without.
    """
    return frozenset(
        _restoring_row(host_mac, nic_mac, to_helper).cookie for to_helper in (False, True)
    )


def _broadcast_from_peer(
    fabric: Fabric, peer: Host, attachments: Mapping[str, tuple[Nic, ...]]
) -> Rows:
    """Rows and groups that take a peer's broadcast and multicast from one NIC at a time.

    The peer sends one copy into each of its networks, and programs must get exactly one. So one NIC
    delivers, and each further NIC delivers only while all NICs before it have no carrier. NICs come
    first on which the peer sends and this host receives.

    ARP and neighbour discovery are taken from all NICs (rows of `Table.NEIGHBOUR`): a second copy
    does no harm there, and a lost one would cut the pair off.
    """
    of_peer = fabric.attachments(peer.name)
    sends_into = {
        network: of_peer[network][0].sends for network in attachments if network in of_peer
    }
    order = [
        nic
        for network in sorted(sends_into, key=lambda network: not sends_into[network])
        for nic in attachments[network]
    ]
    order.sort(key=lambda nic: not (nic.receives and sends_into[nic.network or ""]))
    match: Match = {"eth_src": peer.mac, "eth_dst": ALL_MULTICAST}
    yield from _from_one_nic(order, Receive.BROADCAST, match, Table.DELIVER)


def _from_one_nic(nics: Sequence[Nic], place: Place, match: Match, table: int) -> Rows:
    """Rows and groups that take frames from one NIC at a time, also without a controller.

    The first NIC's go on in `table`. Those of each further NIC are dropped while any NIC before it
    has carrier, else go on there too.
    """
    for position, nic in enumerate(nics):
        action: Action = Goto(table)
        if position:
            ports = tuple(sorted(other.port for other in nics[:position]))
            drop = (Bucket(port, ()) for port in ports)
            number = group_id(_STANDBY, (ports, nic.port, table))
            yield first_live(number, *drop, Bucket(nic.port, (action,)))
            action = ToGroup(number)
        yield row(place, {"in_port": nic.port, **match}, [action])


def _output_flows(
    host: Host, peer: Host, out: Sequence[Path], enclosure: jobs.Enclosure | None
) -> Iterator[Flow]:
    """Rows that put on the addresses of the NICs and the tag of the path, and send the frame.

    There is one row per path, whose counter is S_ijk. Between the hosts of an isolated job
    (`enclosure`) the addresses are the job's own.
    """
    for path in out:
        addresses = (
            SetField("eth_src", jobs.wire_mac(path.own, peer.name, enclosure)),
            SetField("eth_dst", jobs.wire_mac(path.peer, peer.name, enclosure)),
        )
        yield row(
            Place(Table.SEND_COUNT),
            {"reg1": path_register(*path.key), "eth_dst": peer.mac},
            [*addresses, *_tag(path.route.vlan), Output(path.own.port)],
            counts=(SENT, peer.name, path.key),
        )


def _tag(vlan: int) -> tuple[Action, ...]:
    """The actions that put the tag of a VLAN on a frame; none for UNTAGGED."""
    return () if vlan == UNTAGGED else (PushVlan(), SetField("vlan_vid", VLAN_PRESENT | vlan))


def _unmanaged_flows(
    host: Host, attachments: Mapping[str, tuple[Nic, ...]], floods: Mapping[str, Sequence[int]]
) -> Iterator[Flow]:
    """Rows for broadcast, and for frames to hosts without Open vSwitch.

    A frame to such a host goes into the network where its address was learned, or into every
    network if it was not. One NIC per network sends. `floods` has the VLANs by which each network
    is flooded, best first.
    """
    once = [
        ToGroup(_network_group(members, floods[name][0]).group_id)
        for name, members in attachments.items()
    ]
    flood = [
        ToGroup(_network_group(members, vlan).group_id)
        for name, members in attachments.items()
        for vlan in floods[name]
    ]
    untagged = [ToGroup(_network_group(members).group_id) for members in attachments.values()]
    here: list[Action] = [Output(LOCAL), *guests.copies(host)] if host.guests else []
    yield row(Send.BROADCAST, {"eth_dst": ALL_MULTICAST}, [*here, *once])
    # Answers go into every network too. If an answer took one path, and that path's far end were
    # dead, the pair would be cut off.
    for match in FINDING_ADDRESSES:
        yield row(Send.NEIGHBOUR, match, [*here, *flood])
    if host.control_port is not None:
        # The controller's connection repairs everything else, so it must not depend on one path.
        # TCP drops the second copy. The rows match the port alone: the controller's own host does
        # not know by which of its addresses others reach it, and nobody knows its address after a
        # move.
        for eth_type in (ETH_IPV4, ETH_IPV6):
            for end in ("src", "dst"):
                match = {"eth_type": eth_type, "ip_proto": 6, f"tcp_{end}": host.control_port}
                yield row(Send.CONTROL, match, flood)
    yield row(Send.UNMANAGED, {}, [Goto(Table.LEARNED), Goto(Table.SEND_UNMANAGED)])
    yield row(Place(Table.LEARNED, LAST), {}, [SetField("reg2", 0)])
    yield row(SendUnmanaged.BY_NETWORK, {"reg2": 0}, untagged)
    for members in attachments.values():
        number = _network_group(members).group_id
        for nic in members:
            # When the NIC on which the address was learned dies, the next NIC of its network sends,
            # with or without a controller.
            yield row(SendUnmanaged.BY_NETWORK, {"reg2": nic.port}, [ToGroup(number)])
    yield row(SendUnmanaged.BY_PORT, {}, [OutputRegister("reg2")])


def _network_group(members: Sequence[Nic], vlan: int = UNTAGGED) -> Group:
    """A group that sends by the first NIC of a network that has carrier, in one VLAN."""
    ports = tuple(nic.port for nic in members)
    number = group_id(_NETWORK, (ports, vlan) if vlan else ports)
    return first_live(number, *(Bucket(port, (*_tag(vlan), Output(port))) for port in ports))
