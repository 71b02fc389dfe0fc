# SPDX-License-Identifier: Apache-2.0
"""What watchers of the controller see: the whole state as JSON, and how two states differ.

Everything here is pure. `watching.py` collects the facts and sends the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.state import EVENTS, MAX_EVENTS, State
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

    * `controller`: what is known of the controller itself, by key, without keys that have no value.
    * `rates`: by host and name of the NIC, (sent, received) in bit/s. A host that is away has none.
      The state has them without their fractions.
    * `helpers`: by host, what its helper has reported of all its links together.
    * `byte_counts`: by host and name of the NIC, (sent, received) bytes as the switch counts them,
      once they were read.
    * `activity`, `outages`, `lengths`, `openflow`: what `tallies.Tallies` has counted, and the
      OpenFlow messages by direction and type.
    * `graph`, `on_cables`, `networks`, `dead`: the declared switches and cables, the VLANs whose
      trees use each cable, the switches of each network that has several, and the dead parts. None
      and nothing where no cable is declared.
    * `switches`: the names of the declared switches.
    * `jobs`, `reservations`, `rights`, `policies`, `tokens`: documents by id, user or name.
    * `events`: the documents of the newest, oldest first.
    """

    controller: Mapping[str, Any]
    fabric: Fabric
    hosts: Mapping[str, HostFacts]
    rates: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    byte_counts: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    activity: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    outages: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    lengths: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    openflow: Mapping[str, dict[str, int]] = field(default_factory=dict)
    helpers: Mapping[str, dict[str, int]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    switches: Sequence[str] = ()
    graph: SwitchGraph | None = None
    on_cables: Sequence[Sequence[int]] = ()
    networks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dead: DeadParts = field(default_factory=DeadParts)
    jobs: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    reservations: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    rights: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    policies: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    tokens: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    events: Sequence[dict[str, Any]] = ()


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
    return {
        "controller": dict(facts.controller),
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
        "activity": facts.activity,
        "outages": facts.outages,
        "lengths": facts.lengths,
        "openflow": facts.openflow,
        "helpers": facts.helpers,
        "counters": dict(facts.counters),
        "problems": _problems(facts.problems),
        "jobs": facts.jobs,
        "reservations": facts.reservations,
        "rights": facts.rights,
        "policies": facts.policies,
        "tokens": facts.tokens,
        EVENTS: list(facts.events[-MAX_EVENTS:]),
    }


def _lists(pairs: Mapping[str, Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    return {
        host: {nic: [int(sent), int(received)] for nic, (sent, received) in nics.items()}
        for host, nics in pairs.items()
    }


def _host(host: Host, facts: HostFacts) -> dict[str, Any]:
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


def _networks(facts: Facts) -> dict[str, Any]:
    return {
        name: {
            "nics": [f"{nic.host}:{nic.name}" for nic in nics],
            "switches": list(facts.networks.get(name, ())),
        }
        for name, nics in facts.fabric.networks.items()
    }


def _cables(facts: Facts) -> dict[str, Any]:
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


def _switches(facts: Facts) -> dict[str, Any]:
    network_of = {name: network for network, names in facts.networks.items() for name in names}
    return {name: {"network": network_of.get(name)} for name in facts.switches}


def _problems(problems: Iterable[Problem]) -> dict[str, Any]:
    """The problems by id, the worst first. `rank` is a problem's place in that order."""
    return {
        problem.id: {**problem.document(), "rank": rank} for rank, problem in enumerate(problems)
    }
