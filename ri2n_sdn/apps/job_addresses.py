# SPDX-License-Identifier: Apache-2.0
"""Frames by which switches learn the secret addresses of an isolated job, and nobody else does.

A switch floods a frame whose destination it does not know. The first frame of a job would thus show
the job's addresses to everybody in the network. So each address is told to the switches first, in
frames that they do not flood: they go to an address that the switches know.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

from ri2n_sdn.apps.codec import mac_bytes, tagged
from ri2n_sdn.fabric.model import Fabric, Nic
from ri2n_sdn.pipeline.jobs import Enclosure
from ri2n_sdn.pipeline.layout import job_mac

__all__ = ["announcement", "announcements"]

# IEEE's EtherType for protocols of organisations; hosts drop what they do not know.
_ETHERTYPE = 0x88B7
_FRAME_BYTES = 60


def announcements(fabric: Fabric, name: str, enclosure: Enclosure) -> Iterator[tuple[int, bytes]]:
    """(port, frame) for each address of a host's NICs in a job.

    In a network of one switch the frame goes to the NIC's own address: the switch learns its source
    and drops it, since that address is at the same port. In a network of several switches it goes
    to the NICs of the job's other hosts, in each VLAN, so that all switches on the way learn it.
    Those hosts drop it.
    """
    for nic in fabric.hosts[name].nics:
        if nic.network is None or not nic.sends:
            continue
        source = job_mac(enclosure.key, nic.mac)
        if fabric.routing is None:
            yield nic.port, announcement(nic.mac, source)
            continue
        for peer in _peers(fabric, nic, enclosure):
            for vlan in fabric.routing.vlans(nic):
                yield nic.port, tagged(announcement(peer.mac, source), vlan)


def _peers(fabric: Fabric, nic: Nic, enclosure: Enclosure) -> Iterator[Nic]:
    """The NICs of the job's other hosts in the network of a NIC."""
    for name in sorted(enclosure.members - {nic.host}):
        host = fabric.hosts.get(name)
        for other in host.nics if host is not None else ():
            if other.network == nic.network:
                yield other


def announcement(target: str, source: str, content: bytes = b"") -> bytes:
    """A frame that nobody reads: on its way to `target`, switches learn where `source` is."""
    head = mac_bytes(target) + mac_bytes(source) + pack("!H", _ETHERTYPE)
    return (head + content).ljust(_FRAME_BYTES, b"\0")
