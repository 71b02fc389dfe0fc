# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan assign`: chooses a VLAN for each pair of a list, without a controller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import JsonOption, check_choice, os_errors_of, print_json
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_sdn.fabric.topology import Topology
    from ri2n_sdn.rates.arrays import FloatArray, IntArray
    from ri2n_sdn.vlan.assign import Assignment
    from ri2n_sdn.vlan.matrix import PairList
    from ri2n_sdn.vlan.trees import Trees

__all__ = ["assign"]

TABLES = ("adaptive", "cyclic")


def assign(
    topology: Annotated[
        str, typer.Argument(help="A topology file, or the name of one that comes with the package.")
    ],
    pairs: Annotated[
        Path,
        typer.Option(
            help="Lines `sender receiver [rate_bps]`, or a matrix with `sender,receiver,bytes`."
        ),
    ],
    table: Annotated[str, typer.Option(help="adaptive, or the paper's cyclic.")] = "adaptive",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write `sender,receiver,vlan` to this file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose a VLAN for every pair of a list.

    The choice makes the fullest link between switches as empty as possible.
    """
    from ri2n_sdn.vlan.assign import assign as assign_pairs
    from ri2n_sdn.vlan.build import topology_trees
    from ri2n_sdn.vlan.matrix import read_pairs

    check_choice(table, TABLES, "--table")
    wired = find_topology(topology)
    wanted = read_pairs(pairs, wired.hosts)
    try:
        trees = topology_trees(wired)
    except ValueError as error:
        raise BadInput(f"{topology}: {error}") from None
    paths = _paths_of(wired, trees, wanted)
    by_rule = assign_pairs(paths.demand_bps, paths.cyclic_only, paths.links, paths.capacity_bps)
    answer = by_rule
    if table == "adaptive":
        answer = assign_pairs(
            paths.demand_bps, paths.candidates, paths.links, paths.capacity_bps, paths.start
        )
    vlans = [
        trees.vlans[paths.trees[row, column]] for row, column in enumerate(answer.choice.tolist())
    ]
    rows = [f"{s},{r},{vlan}" for (s, r), vlan in zip(wanted.pairs, vlans, strict=True)]
    text = "\n".join(["sender,receiver,vlan", *rows]) + "\n"
    if output is not None:
        with os_errors_of(f"-o {output}"):
            output.write_text(text, encoding="utf-8")
    n_differ = int((answer.choice != by_rule.choice).sum())
    if as_json:
        document = {
            "topology": wired.name,
            "table": table,
            "relative": wanted.relative,
            "fullest": _fullest(wired, paths, answer),
            "fullest_cyclic": _fullest(wired, paths, by_rule),
            "differ_from_cyclic": n_differ,
            "pairs": [
                {"sender": s, "receiver": r, "vlan": vlan, "demand_bps": demand}
                for (s, r), vlan, demand in zip(
                    wanted.pairs, vlans, paths.demand_bps.tolist(), strict=True
                )
            ],
        }
        print_json(document)
        return
    if output is None:
        print(text, end="")
    print(f"# {len(vlans)} pairs, {n_differ} of them on another VLAN than the cyclic rule gives")
    for name, assignment in ((table, answer), ("cyclic", by_rule))[: 2 if table != "cyclic" else 1]:
        fullest = _fullest(wired, paths, assignment)
        if fullest is None:
            print(f"# {name}: no pair has a link between switches on its path")
        else:
            print(
                f"# {name}: the fullest link is {fullest['link']}, with "
                f"{fullest['of_capacity']:.2f} of its capacity"
            )


@dataclass(frozen=True, eq=False)
class _PairPaths:
    """The paths of P pairs with up to K trees each, as `vlan.assign` reads them.

    Links are numbered: first those between switches, then those of the hosts' NICs.
    """

    trees: IntArray
    """(P, K) the trees of each pair; -1 where there is none."""
    candidates: IntArray
    """(P, K) the trees from which adaptive chooses; -1 elsewhere."""
    cyclic_only: IntArray
    """(P, K) the tree of the cyclic rule alone; -1 elsewhere."""
    start: IntArray
    """(P,) the column of the cyclic rule's tree where that is a candidate, -1 elsewhere."""
    links: IntArray
    """(P, K, L) the links of each path. The last two are the NICs'; -1 stands for no link."""
    capacity_bps: FloatArray
    """(E,) the capacity of each link."""
    demand_bps: FloatArray
    """(P,) what each pair wants to send."""


def _paths_of(topology: Topology, trees: Trees, wanted: PairList) -> _PairPaths:
    """The trees of every pair and the links of their paths.

    A pair uses the first network in which both its hosts have a NIC. Raises BadInput for a pair
    without a common network.
    """
    import numpy as np

    from ri2n_sdn.rates.one_path import fair_rates
    from ri2n_sdn.vlan.tables import candidates as table_candidates

    graph = topology.graph
    nics: dict[str, dict[str, tuple[int, int]]] = {host: {} for host in topology.hosts}
    number = {host: place for place, host in enumerate(topology.hosts, start=1)}
    rates: list[int] = np.repeat(graph.rate_bps, 2).tolist()
    for host, spec in topology.hosts.items():
        for nic in spec.nics:
            network = topology.network_of[nic.switch]
            if network not in nics[host]:
                nics[host][network] = (graph.index[nic.switch], len(rates))
                rates += [nic.rate_bps, nic.rate_bps]
    ends: list[tuple[int, int, int, int]] = []
    for sender, receiver in wanted.pairs:
        shared = [name for name in nics[sender] if name in nics[receiver]]
        if not shared:
            raise BadInput(f"--pairs: {sender} and {receiver} share no network")
        (leaf, sending), (far, receiving) = nics[sender][shared[0]], nics[receiver][shared[0]]
        ends.append((leaf, far, sending, receiving + 1))
    leaf_a, leaf_b, nic_a, nic_b = np.array(ends, dtype=np.int64).reshape(-1, 4).T
    a, b = np.array([[number[host] for host in pair] for pair in wanted.pairs]).reshape(-1, 2).T
    rule = table_candidates(trees, a, b, leaf_a, leaf_b, "cyclic")[:, 0].astype(np.int64)
    trees_of = table_candidates(
        trees, a, b, leaf_a, leaf_b, "adaptive", topology.vlans.per_pair
    ).astype(np.int64)
    for row, (sender, receiver) in enumerate(wanted.pairs):
        if not (topology.hosts[sender].managed and topology.hosts[receiver].managed):
            # A host without Open vSwitch sends untagged frames alone, which use the base tree.
            rule[row], trees_of[row] = 0, -1
            trees_of[row, 0] = 0
    # The cyclic rule's tree need not be one of the pair's candidates. So it gets a column of its
    # own, which adaptive does not use.
    every = np.concatenate([trees_of, rule[:, None]], axis=1)
    columns = np.arange(every.shape[1])
    cyclic_only = np.where(columns == columns[-1], every, -1)
    candidates = np.where(columns == columns[-1], -1, every)
    same = trees_of == rule[:, None]
    start = np.where(same.any(axis=1), same.argmax(axis=1), -1)
    cyclic_only[start >= 0] = np.where(columns == start[start >= 0, None], every[start >= 0], -1)
    pair, column = np.nonzero(every >= 0)
    here, there = leaf_a[pair].astype(np.int32), leaf_b[pair].astype(np.int32)
    between = trees.links(every[pair, column].astype(np.int32), here, there)
    links = np.full((*every.shape, between.shape[1] + 2), -1, dtype=np.int64)
    links[pair, column, : between.shape[1]] = between
    links[:, :, -2], links[:, :, -1] = nic_a[:, None], nic_b[:, None]
    capacity = np.array(rates, dtype=np.float64)
    nic_links = np.stack([nic_a, nic_b], axis=1)
    if wanted.relative:
        sent = np.repeat(wanted.rate_bps, 2)
        load = np.bincount(nic_links.reshape(-1), sent, minlength=len(capacity)) / capacity
        # All pairs are scaled alike, as fast as the fullest NIC allows.
        demand = wanted.rate_bps / (load.max(initial=0.0) or 1.0)
    else:
        demand = fair_rates(wanted.rate_bps, nic_links, capacity)
    return _PairPaths(every, candidates, cyclic_only, start, links, capacity, demand)


def _fullest(
    topology: Topology, paths: _PairPaths, assignment: Assignment
) -> dict[str, object] | None:
    """The fullest link between switches and its load; None when no pair uses such a link."""
    between = assignment.utilisation[: 2 * len(topology.graph.ends)]
    if not between.any():
        return None
    link = int(between.argmax())
    return {"link": topology.graph.link_name(link), "of_capacity": round(float(between[link]), 4)}
