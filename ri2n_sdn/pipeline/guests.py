# SPDX-License-Identifier: Apache-2.0
"""Rows for containers and virtual machines that have ports of their own on a host's bridge.

docs/pipeline.md describes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ri2n_sdn.fabric.model import Host
from ri2n_sdn.pipeline.layout import ETH_RI2N, ETH_STRIPED, LOCAL, Table
from ri2n_sdn.pipeline.messages import Action, Flow, Goto, Output, row
from ri2n_sdn.pipeline.priorities import Classify, Place, Send

__all__ = ["copies", "guest_flows"]


def copies(host: Host) -> list[Action]:
    """The actions that send a frame to all guests of a host.

    Open vSwitch never sends a frame out of the port that it came in by.
    """
    return [Output(port) for port in _ports(host)]


def guest_flows(host: Host) -> Iterator[Flow]:
    """Rows for frames that guests send, and for frames between guests and their host.

    A guest may send only under its own address. On the way to other hosts its frames meet the rows
    of the host itself. Those handle them as frames of an unmanaged host: they keep their addresses,
    and one NIC per network sends them.
    """
    for port in _ports(host):
        # A guest cannot pretend to be a helper, and cannot send probes.
        for kind in (ETH_RI2N, ETH_STRIPED):
            yield row(Classify.FORGED, {"in_port": port, "eth_type": kind}, [])
    for guest in host.guests:
        yield row(
            Classify.FROM_PORT, {"in_port": guest.port, "eth_src": guest.mac}, [Goto(Table.SEND)]
        )
        yield row(Send.TO_GUEST, {"eth_dst": guest.mac}, [Output(guest.port)])
        yield row(Place(Table.DELIVER), {"eth_dst": guest.mac}, [Output(guest.port)])
    if host.guests:
        for mac in (host.mac, *host.extra_macs):
            yield row(Send.TO_GUEST, {"eth_dst": mac}, [Output(LOCAL)])


def _ports(host: Host) -> list[int]:
    return sorted({guest.port for guest in host.guests})
