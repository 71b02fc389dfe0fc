# SPDX-License-Identifier: Apache-2.0
"""What watchers of the controller see: the whole state as JSON, and how two states differ.

Everything here is pure. `watching.py` collects the facts and sends the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ri2n_sdn.contract.documents import (
    CableEntry,
    Documents,
    HostEntry,
    Kept,
    NetworkEntry,
    SwitchEntry,
)
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.state import State
from ri2n_sdn.fabric.model import Fabric, Host
from ri2n_sdn.fabric.switches import SwitchGraph
from ri2n_sdn.vlan.routing import DeadParts

__all__ = ["Facts", "HostFacts", "snapshot"]


class HostFacts(NamedTuple):
    """What is known of a host beside the fabric. `address` is None while it is away.

    `reports`: its helper has reported lately. `certificate_ends_s`: the Unix time at which the
    certificate ends with which it connected last; None where none is asked for.
    """

    address: str | None
    ovs: str
    datapath: str
    reports: bool
    certificate_ends_s: float | None = None


@dataclass(frozen=True)
class Facts:
    """What a state is made of, as it was at one moment.

    * `kept`: the parts of the state that are documents already.
    * `rates`: by host and name of the NIC, (sent, received) in bit/s. A host that is away has none.
      The state has them without their fractions.
    * `byte_counts`: by host and name of the NIC, (sent, received) bytes as the switch counts them,
      once they were read.
    * `graph`, `on_cables`, `networks`, `dead`: the declared switches and cables, the VLANs whose
      trees use each cable, the switches of each network that has several, and the dead parts. None
      and nothing where no cable is declared.
    * `switches`: the names of the declared switches.
    """

    kept: Kept
    fabric: Fabric
    hosts: Mapping[str, HostFacts]
    rates: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    byte_counts: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    switches: Sequence[str] = ()
    graph: SwitchGraph | None = None
    on_cables: Sequence[Sequence[int]] = ()
    networks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dead: DeadParts = field(default_factory=DeadParts)


def snapshot(facts: Facts, last: tuple[Facts, State] | None = None) -> State:
    """The state that follows from facts. What `last` had from the same facts is taken from there.

    So a state costs little where little has changed. Parts of a state are never changed later.
    """
    if last is None:
        old_facts, old = None, State()
    else:
        old_facts, old = last
    same_fabric = old_facts is not None and old_facts.fabric is facts.fabric
    same_hosts = same_fabric and old_facts is not None and old_facts.hosts == facts.hosts
    same_cables = (
        old_facts is not None
        and old_facts.graph is facts.graph
        and old_facts.on_cables is facts.on_cables
        and old_facts.dead == facts.dead
    )
    state: Documents = {
        **facts.kept,
        "hosts": old["hosts"]
        if same_hosts
        else {
            name: _host(host, facts.hosts[name])
            for name, host in facts.fabric.hosts.items()
            if name in facts.hosts
        },
        "networks": old["networks"] if same_fabric else _networks(facts),
        "cables": old["cables"] if same_cables else _cables(facts),
        "switches": old["switches"] if same_cables else _switches(facts),
        "rates": _lists(facts.rates),
        "bytes": _lists(facts.byte_counts),
        "problems": _problems(facts.problems),
    }
    return {**state}


def _lists(
    pairs: Mapping[str, Mapping[str, tuple[float, float]]],
) -> dict[str, dict[str, list[float]]]:
    return {
        host: {nic: [int(sent), int(received)] for nic, (sent, received) in nics.items()}
        for host, nics in pairs.items()
    }


def _host(host: Host, facts: HostFacts) -> HostEntry:
    """A host; values that may change while it is away are None then."""
    connected = host.connected
    return {
        "dpid": f"{host.dpid:016x}",
        "mac": host.mac,
        "address": facts.address,
        "connected": connected,
        "ovs": facts.ovs,
        "datapath": facts.datapath or None,
        "certificate_ends_s": facts.certificate_ends_s,
        "helper": {"running": host.helper_up, "reports": facts.reports}
        if host.helper and host.may_stripe
        else None,
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


def _networks(facts: Facts) -> dict[str, NetworkEntry]:
    return {
        name: {
            "nics": [f"{nic.host}:{nic.name}" for nic in nics],
            "switches": list(facts.networks.get(name, ())),
        }
        for name, nics in facts.fabric.networks.items()
    }


def _cables(facts: Facts) -> dict[str, CableEntry]:
    """The cables by `SWITCH/PORT-SWITCH/PORT`.

    `alive` is whether everything arrives, in both directions and in every tree. `vlans` are those
    whose trees use the cable.
    """
    if facts.graph is None:
        return {}
    broken = {link // 2 for _, link in facts.dead.links}
    return {
        f"{cable.a}/{cable.a_port}-{cable.b}/{cable.b_port}": {
            "ends": [cable.a, cable.b],
            "ports": [cable.a_port, cable.b_port],
            "rate_bps": cable.rate_bps,
            "alive": cable.number not in broken,
            "vlans": list(facts.on_cables[cable.number]) if facts.on_cables else [],
        }
        for cable in facts.graph.cables()
    }


def _switches(facts: Facts) -> dict[str, SwitchEntry]:
    network_of = {name: network for network, names in facts.networks.items() for name in names}
    return {name: {"network": network_of.get(name)} for name in facts.switches}


def _problems(problems: Iterable[Problem]) -> dict[str, Any]:
    """The problems by id, the worst first. `rank` is a problem's place in that order."""
    return {
        problem.id: {**problem.document(), "rank": rank} for rank, problem in enumerate(problems)
    }
