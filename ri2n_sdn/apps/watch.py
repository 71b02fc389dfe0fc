# SPDX-License-Identifier: Apache-2.0
"""The documents of hosts, networks, cables, switches and problems in what watchers see.

Everything here is pure. `watching.py` collects what they are made of and sends the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ri2n_sdn.apps.measured import Sample
from ri2n_sdn.contract.documents import (
    CableEntry,
    FairEntry,
    Fast,
    HostEntry,
    NetworkEntry,
    SwitchEntry,
)
from ri2n_sdn.contract.fair import fair_entry
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.fabric.model import Fabric, Host
from ri2n_sdn.vlan.routing import DeadParts
from ri2n_sdn.vlan.trees import Trees

__all__ = [
    "HostFacts",
    "cable_documents",
    "fair_documents",
    "host_documents",
    "network_documents",
    "problem_documents",
    "switch_documents",
]


class HostFacts(NamedTuple):
    """What is known of a host beside the fabric. `address` is None while it is away.

    `reports`: its helper has reported lately. `certificate_ends_s`: the Unix time at which the
    certificate ends with which it connected last; None where none is asked for. `addresses` are the
    IP addresses of its traffic. `fast` is its fast path; None where none reports.
    """

    address: str | None
    ovs: str
    datapath: str
    reports: bool
    certificate_ends_s: float | None = None
    addresses: tuple[str, ...] = ()
    fast: Fast | None = None


def host_documents(fabric: Fabric, facts: Mapping[str, HostFacts]) -> dict[str, HostEntry]:
    """The hosts of a fabric of which something is known beside it, by name."""
    return {name: _host(host, facts[name]) for name, host in fabric.hosts.items() if name in facts}


def _host(host: Host, facts: HostFacts) -> HostEntry:
    """A host; values that may change while it is away are None then."""
    connected = host.connected
    return {
        "dpid": f"{host.dpid:016x}",
        "mac": host.mac,
        "address": facts.address,
        "addresses": list(facts.addresses),
        "connected": connected,
        "ovs": facts.ovs,
        "datapath": facts.datapath or None,
        "certificate_ends_s": facts.certificate_ends_s,
        "helper": {"running": host.helper_up, "reports": facts.reports}
        if host.helper and host.may_stripe
        else None,
        "fast": facts.fast,
        "nics": {
            nic.name: {
                "port": nic.port,
                "mac": nic.mac,
                "network": nic.network,
                "switch": nic.switch,
                "speed_bps": nic.rate_bps,
                "up": nic.up if connected else None,
                "alive": nic.sends and nic.receives if connected else None,
            }
            for nic in host.nics
        },
    }


def network_documents(
    fabric: Fabric, switches: Mapping[str, Sequence[str]]
) -> dict[str, NetworkEntry]:
    """The networks by name; `switches` are those of each network that has several."""
    return {
        name: {
            "nics": [f"{nic.host}:{nic.name}" for nic in nics],
            "switches": list(switches.get(name, ())),
        }
        for name, nics in fabric.networks.items()
    }


def cable_documents(trees: Trees, dead: DeadParts) -> dict[str, CableEntry]:
    """The cables by `SWITCH/PORT-SWITCH/PORT`.

    `alive` is whether everything arrives, in both directions and in every tree. `vlans` are those
    whose trees use the cable.
    """
    broken = {link // 2 for _, link in dead.links}
    return {
        f"{cable.a}/{cable.a_port}-{cable.b}/{cable.b_port}": {
            "ends": [cable.a, cable.b],
            "ports": [cable.a_port, cable.b_port],
            "rate_bps": cable.rate_bps,
            "alive": cable.number not in broken,
            "vlans": list(trees.on_cables[cable.number]),
        }
        for cable in trees.graph.cables()
    }


def switch_documents(
    switches: Iterable[str], networks: Mapping[str, Sequence[str]]
) -> dict[str, SwitchEntry]:
    """The declared switches by name; `networks` are the switches of networks that have several."""
    network_of = {name: network for network, names in networks.items() for name in names}
    return {name: {"network": network_of.get(name)} for name in switches}


def fair_documents(sample: Sample) -> dict[str, FairEntry]:
    """What senders get of what is fair, by host; those that a link limits have an entry."""
    of_host: dict[str, list[tuple[str, float, float]]] = {}
    for pair, fair_bps in sample.fair_bps.items():
        tx_bps = sample.tx_bps(pair)
        if tx_bps is not None:
            of_host.setdefault(pair[0], []).append((pair[1], tx_bps, fair_bps))
    entries = {host: fair_entry(pairs) for host, pairs in of_host.items()}
    return {host: entry for host, entry in entries.items() if entry is not None}


def problem_documents(problems: Iterable[Problem]) -> dict[str, Any]:
    """The problems by id, the worst first. `rank` is a problem's place in that order."""
    return {
        problem.id: {**problem.document(), "rank": rank} for rank, problem in enumerate(problems)
    }
