# SPDX-License-Identifier: Apache-2.0
"""Hosts are taken to be as the store remembers them until a controller that begins knows better.

That is what a controller that goes on thinks of a host that stops to answer. So other hosts keep
their rows towards it, and its jobs their paths; and it is forgotten in the same way, when it stays
away. A host that a new controller knew nothing of would cost all others their rows towards it,
though it may forward all the time.
"""

from __future__ import annotations

import re
import time

from ri2n_sdn.apps import identity
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.remembered import FORGET_S
from ri2n_sdn.contract.names import is_host_name
from ri2n_sdn.fabric.model import MAX_NIC_PORT
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from ri2n_sdn.store.rows import HostRow

__all__ = ["recall"]

_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\Z")


def recall(cluster: Cluster, now_s: float) -> None:
    """Take over what is remembered of hosts and is not known of them yet (cluster.lock is held).

    A host that has answered some requests may fall silent or leave before it answers the others, so
    it makes no difference which ones it has answered. Whether it still accepts frames with NIC
    addresses, its rows say once they are taken over.

    `now_s` is on the monotonic clock. A host is left out when it has been away for too long, when
    its row makes no sense, or when a host that is there has one of its addresses.
    """
    for name, row in cluster.remembered.rows.items():
        member = cluster.members.get(name)
        if member is None:
            member = _member_of(row, now_s) if name in cluster.remembered.hosts else None
            if member is None or now_s - member.left_s >= FORGET_S:
                continue
            own = identity.claims(member)
            if any(own & identity.claims(other) for other in cluster.members.values()):
                continue
            cluster.members[name] = member
        elif (row.datapath_id, row.mac) != (f"{member.dpid:016x}", member.mac):
            continue
        member.accepts_wire |= row.accepts_wire
        for number, port in member.ports.items():
            if (row.nic_names.get(number), row.nic_macs.get(number)) == (port.name, port.mac):
                cluster.wiring.recall((name, number), now_s)
    cluster.topology_changed()


def _member_of(row: HostRow, now_s: float) -> Member | None:
    """The host of a row, which is away; None when the row makes no sense."""
    macs = [row.mac, *(row.nic_macs.get(number, "") for number in row.nic_names)]
    if not is_host_name(row.name) or not all(map(_MAC.match, macs)):
        return None
    if not re.fullmatch("[0-9a-f]{16}", row.datapath_id):
        return None
    if not all(0 < number <= MAX_NIC_PORT for number in row.nic_names):
        return None
    ports = {
        number: Port(
            number,
            name,
            row.nic_macs[number],
            "link" not in row.nic_faults.get(number, "").split(),
            row.nic_speeds_bps.get(number, 0),
        )
        for number, name in row.nic_names.items()
    }
    left_s = now_s
    if row.away_since_s is not None:
        left_s = min(now_s, now_s - (time.time() - row.away_since_s))
    member = Member(row.name, int(row.datapath_id, 16), row.mac, "", ports, left_s=left_s)
    if row.helper:
        member.taps = dict.fromkeys((PLAIN_PORT, WIRE_PORT), row.helper == "on")
    return member if identity.own_fault(member) is None else None
