# SPDX-License-Identifier: Apache-2.0
"""Fabrics and jobs for the tests of jobs: flat networks by a table, and fat trees."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from ri2n_sdn.contract.choices import Kind
from ri2n_sdn.fabric.model import Fabric, Host, Nic, Path
from ri2n_sdn.fabric.switches import VlanSpec
from ri2n_sdn.jobs.assign import Assignment
from ri2n_sdn.jobs.lanes import LaneMap
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Service
from ri2n_sdn.vlan.build import build_trees
from ri2n_sdn.vlan.routing import DeadParts, VlanRouting
from ri2n_sdn.vlan.tables import pair_candidates
from tests.unit.fat_model import vbft_graph

RATE_BPS = 10**8
THREE = {"A": "net1 net2 net3", "B": "net1 net2 net3", "C": "net1 net2", "D": "net1"}
"""Hosts with three, two and one networks."""


def flat(
    networks: Mapping[str, str],
    rates: Mapping[str, int] | None = None,
    dead: Collection[tuple[str, str]] = (),
) -> Fabric:
    """Hosts with a NIC eth1, eth2, ... for each network that is named.

    `rates` are those of networks, RATE_BPS without. A NIC in `dead`, (host, NIC), is dead.
    """
    hosts = {}
    for number, (name, named) in enumerate(networks.items(), start=1):
        nics = tuple(
            Nic(
                name,
                f"eth{port}",
                port,
                f"04:00:00:00:{number:02x}:{port:02x}",
                (rates or {}).get(network, RATE_BPS),
                up=(name, f"eth{port}") not in dead,
                network=network,
            )
            for port, network in enumerate(named.split(), start=1)
        )
        hosts[name] = Host(name, number, f"06:00:00:00:{number:02x}:00", nics)
    return Fabric(hosts)


def fat(
    leaves: int = 2,
    uppers: int = 2,
    per_leaf: int = 2,
    *,
    per_pair: int = 4,
    dead: DeadParts | None = None,
    second: bool = False,
) -> Fabric:
    """Hosts n1, n2, ... of VBFT(leaves, uppers), `per_leaf` on each leaf, by the table `spread`.

    With `second`, each host has a second NIC in a network of one switch.
    """
    graph = vbft_graph(leaves, uppers)
    trees = build_trees(graph, range(leaves), VlanSpec())

    def candidates(sender: str, receiver: str, a: int, b: int) -> tuple[int, ...]:
        return pair_candidates(trees, int(sender[1:]), int(receiver[1:]), a, b, "spread", per_pair)

    hosts = {}
    for number in range(1, leaves * per_leaf + 1):
        name, leaf = f"n{number}", graph.names[(number - 1) // per_leaf]
        mac = f"04:00:00:00:{number:02x}"
        nics = [Nic(name, "eth0", 1, f"{mac}:01", RATE_BPS, network="leaf1", switch=leaf)]
        if second:
            nics.append(Nic(name, "eth1", 2, f"{mac}:02", RATE_BPS, network="flat"))
        hosts[name] = Host(name, number, f"06:00:00:00:{number:02x}:00", tuple(nics))
    routing = VlanRouting(trees, candidates, {"leaf1": graph.names}, dead or DeadParts())
    return Fabric(hosts, routing=routing)


def broken(fabric: Fabric, *nics: str) -> Fabric:
    """The fabric with dead NICs, each named HOST:NIC."""
    hosts = {
        name: replace(
            host,
            nics=tuple(
                replace(nic, up=nic.up and f"{name}:{nic.name}" not in nics) for nic in host.nics
            ),
        )
        for name, host in fabric.hosts.items()
    }
    return replace(fabric, hosts=hosts)


def job(
    name: str,
    hosts: str,
    kind: str = "shared",
    paths: str = "",
    *,
    begin_s: float = 0.0,
    end_s: float | None = None,
    tables: Mapping[int, str] | None = None,
    min_rate_bps: int | None = None,
    services: Sequence[Service] = (),
    user: str = "",
    within: str | None = None,
) -> Job:
    """A job of user `u_NAME`; `hosts`, `paths` and `tables` are words."""
    default = [PathTable(None, tuple(paths.split()))] if paths else []
    others = [PathTable(dscp, tuple(names.split())) for dscp, names in (tables or {}).items()]
    policy = Policy(cast(Kind, kind), (*default, *others), tuple(services), min_rate_bps)
    return Job(
        name,
        user or f"u_{name}",
        20001,
        tuple(hosts.split()),
        policy,
        begin_s,
        end_s,
        within=within,
    )


def lanes(assignment: Assignment, name: str) -> list[str]:
    """The lanes of a job, as text, in order."""
    return sorted(assignment.lane_map.text(lane) for lane in assignment.lanes.get(name, ()))


def used(fabric: Fabric, paths: Sequence[Path]) -> list[str]:
    """The lanes of some paths, as text, in order; `-` for paths in none."""
    lane_map = LaneMap(fabric)
    found = lane_map.of_all(paths)
    return sorted("-" if lane is None else lane_map.text(lane) for lane in found)


def job_uses(assignment: Assignment, name: str, pair: str, dscp: int | None = None) -> list[str]:
    """The lanes that a job uses between two hosts."""
    sender, receiver = pair.split()
    paths = assignment.fabric.paths(sender, receiver)
    return used(assignment.fabric, assignment.paths(name, dscp, paths))


def all_use(assignment: Assignment, pair: str) -> list[str]:
    """The lanes that everybody else uses between two hosts."""
    sender, receiver = pair.split()
    paths = assignment.fabric.paths(sender, receiver)
    return used(assignment.fabric, assignment.common(sender, receiver, paths))
