"""`ri2n vlan assign`:

which VLAN each pair of a list should use, computed without a network or a controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ri2n_sdn.cli.common import JsonOption, print_json
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.rates.one_path import fair_rates
from ri2n_sdn.shipped import find_topology
from ri2n_sdn.vlan.assign import Assignment
from ri2n_sdn.vlan.assign import assign as assign_pairs
from ri2n_sdn.vlan.build import topology_trees
from ri2n_sdn.vlan.matrix import PairList, read_pairs
from ri2n_sdn.vlan.tables import candidates as table_candidates
from ri2n_sdn.vlan.tables import cyclic
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
            "--pairs",
            help="Lines `sender receiver [rate_bps]`, or a matrix with `sender,receiver,bytes`.",
        ),
    ],
    table: Annotated[
        str, typer.Option("--table", help="adaptive, or the paper's cyclic.")
    ] = "adaptive",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write `sender,receiver,vlan` to this file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose a VLAN for every pair of a list, so that the fullest link between switches is as
    empty as possible.
    """
    if table not in TABLES:
        raise BadInput(f"--table: unknown {table!r}; choose from {', '.join(TABLES)}")
    wired = find_topology(topology)
    wanted = read_pairs(pairs, wired.hosts)
    try:
        trees = topology_trees(wired)
    except ValueError as error:
        raise BadInput(f"{topology}: {error}") from None
    ways = _ways(wired, trees, wanted)
    by_rule = assign_pairs(ways.demand_bps, ways.of_rule, ways.links, ways.capacity_bps)
    answer = by_rule
    if table == "adaptive":
        answer = assign_pairs(
            ways.demand_bps, ways.candidates, ways.links, ways.capacity_bps, ways.start
        )
    vlans = [
        trees.vlans[ways.trees[row, column]] for row, column in enumerate(answer.choice.tolist())
    ]
    rows = [f"{s},{r},{vlan}" for (s, r), vlan in zip(wanted.pairs, vlans, strict=True)]
    text = "\n".join(["sender,receiver,vlan", *rows]) + "\n"
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadInput(f"-o {output}: {error.strerror}") from None
    moved = int((answer.choice != by_rule.choice).sum())
    if as_json:
        document: dict[str, Any] = {
            "topology": wired.name,
            "table": table,
            "relative": wanted.relative,
            "fullest": _fullest(wired, ways, answer),
            "fullest_cyclic": _fullest(wired, ways, by_rule),
            "differ_from_cyclic": moved,
            "pairs": [
                {"sender": s, "receiver": r, "vlan": vlan, "demand_bps": demand}
                for (s, r), vlan, demand in zip(
                    wanted.pairs, vlans, ways.demand_bps.tolist(), strict=True
                )
            ],
        }
        print_json(document)
        return
    if output is None:
        print(text, end="")
    print(f"# {len(vlans)} pairs, {moved} of them on another VLAN than by the cyclic rule")
    for name, found in ((table, answer), ("cyclic", by_rule))[: 2 if table != "cyclic" else 1]:
        fullest = _fullest(wired, ways, found)
        if fullest is None:
            print(f"# {name}: no pair has a link between switches on its way")
        else:
            print(
                f"# {name}: the fullest link is {fullest['link']}, with "
                f"{fullest['of_capacity']:.2f} of its capacity"
            )


@dataclass(frozen=True, eq=False)
class _Ways:
    """Pairs' ways as `assign` reads them: first the links between switches, then the hosts'
    NICs.
    """

    trees: IntArray  # (P, K), -1 where there is none
    candidates: IntArray  # (P, K) those that adaptive chooses from
    of_rule: IntArray  # (P, K) the cyclic rule's only
    start: IntArray  # (P,) the cyclic rule's column where that is a candidate, -1 elsewhere
    links: IntArray  # (P, K, L)
    capacity_bps: FloatArray  # (E,)
    demand_bps: FloatArray  # (P,)


def _ways(topology: Topology, trees: Trees, wanted: PairList) -> _Ways:
    """The VLANs of every pair and their links.

    A pair uses the first network that both its hosts have a NIC in.
    """
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
    rule = cyclic(trees, a, b, leaf_a, leaf_b).astype(np.int64)
    found = table_candidates(
        trees, a, b, leaf_a, leaf_b, "adaptive", topology.vlans.per_pair
    ).astype(np.int64)
    for row, (sender, receiver) in enumerate(wanted.pairs):
        if not (topology.hosts[sender].managed and topology.hosts[receiver].managed):
            rule[row], found[row] = (
                0,
                -1,
            )  # a host without Open vSwitch has untagged frames, the base tree, only
            found[row, 0] = 0
    # The cyclic rule's VLAN need not be among the pair's: it gets a column of its own, which
    # adaptive does not use.
    every = np.concatenate([found, rule[:, None]], axis=1)
    columns = np.arange(every.shape[1])
    of_rule = np.where(columns == columns[-1], every, -1)
    candidates = np.where(columns == columns[-1], -1, every)
    same = found == rule[:, None]
    start = np.where(same.any(axis=1), same.argmax(axis=1), -1)
    of_rule[start >= 0] = np.where(columns == start[start >= 0, None], every[start >= 0], -1)
    pair, column = np.nonzero(every >= 0)
    here, there = leaf_a[pair].astype(np.int32), leaf_b[pair].astype(np.int32)
    between = trees.links(every[pair, column].astype(np.int32), here, there)
    links = np.full((*every.shape, between.shape[1] + 2), -1, dtype=np.int64)
    links[pair, column, : between.shape[1]] = between
    links[:, :, -2], links[:, :, -1] = nic_a[:, None], nic_b[:, None]
    capacity = np.array(rates, dtype=np.float64)
    nic_ways = np.stack([nic_a, nic_b], axis=1)
    if wanted.relative:
        load = (
            np.bincount(
                nic_ways.reshape(-1), np.repeat(wanted.rate_bps, 2), minlength=len(capacity)
            )
            / capacity
        )
        demand = wanted.rate_bps / (
            load.max(initial=0.0) or 1.0
        )  # as fast as the fullest NIC allows
    else:
        demand = fair_rates(wanted.rate_bps, nic_ways, capacity)
    return _Ways(every, candidates, of_rule, start, links, capacity, demand)


def _fullest(topology: Topology, ways: _Ways, found: Assignment) -> dict[str, object] | None:
    """The fullest link between switches; None when nothing goes over any."""
    between = found.utilisation[: 2 * len(topology.graph.ends)]
    if not between.any():
        return None
    link = int(between.argmax())
    return {"link": topology.graph.link_name(link), "of_capacity": round(float(between[link]), 4)}
