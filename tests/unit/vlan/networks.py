# SPDX-License-Identifier: Apache-2.0
"""VBFT(n, m) for the tests of the assignment: its graph, its trees, and the paths of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from ri2n_sdn.fabric.model import PairKey
from ri2n_sdn.fabric.switches import LinkSpec, SwitchGraph, SwitchSpec, switch_graph
from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.vlan.adaptive import PairPaths
from ri2n_sdn.vlan.trees import Trees, trees_from_cables

RATE = 1e8
CG = [(1, 4), (2, 8), (3, 12), (6, 9), (7, 13), (11, 14)]
CG_CYCLIC = [2, 3, 4, 3, 4, 2]  # the paper's VLAN IDs with m = 4 (per-user-path 3.2)
CG_BOTH_WAYS = CG + [(b, a) for a, b in CG]


@dataclass(frozen=True, eq=False)
class Network:
    """Trees, the leaf of every host (numbered from 0), and the capacities of links in bit/s.

    The links between switches come first, then the two directions of each NIC.
    """

    trees: Trees
    leaf: tuple[int, ...]
    capacity: FloatArray

    def paths(self, pairs: Sequence[tuple[int, int]]) -> tuple[IntArray, IntArray]:
        """Candidates (P, T) and links (P, T, L) of pairs of hosts."""
        count = self.trees.count
        tree = np.tile(np.arange(count, dtype=np.int32), len(pairs))
        hosts = np.repeat(np.array(pairs, dtype=np.int64).reshape(-1, 2), count, axis=0)
        leaf = np.array(self.leaf, dtype=np.int32)
        between = self.trees.links(tree, leaf[hosts[:, 0]], leaf[hosts[:, 1]])
        first = 2 * len(self.trees.graph.ends)
        ends = np.stack([first + 2 * hosts[:, 0], first + 2 * hosts[:, 1] + 1], axis=1)
        links = np.concatenate([ends[:, :1], between, ends[:, 1:]], axis=1).astype(np.int64)
        return tree.reshape(-1, count).astype(np.int64), links.reshape(len(pairs), count, -1)

    @property
    def names(self) -> list[str]:
        """Names of the links, in order."""
        graph = self.trees.graph
        switch_links = [graph.link_name(link) for link in range(2 * len(graph.ends))]
        return switch_links + [
            name for host in range(len(self.leaf)) for name in (f"h{host}>", f">h{host}")
        ]

    @property
    def by_name(self) -> dict[str, float]:
        """Capacities by name."""
        return dict(zip(self.names, self.capacity.tolist(), strict=True))

    def pair_ways(
        self,
        pairs: Sequence[tuple[int, int]],
        rate: Sequence[float],
        dead: frozenset[int] = frozenset(),
    ) -> list[PairPaths]:
        """Pairs of hosts as `Adaptive` reads them; the VLANs `dead` are dead for all of them."""
        names = self.names
        _, links = self.paths(pairs)
        return [
            PairPaths(
                key(a, b),
                float(rate[row]),
                tuple(
                    (
                        vlan,
                        tuple(names[link] for link in links[row, t] if link >= 0),
                        vlan not in dead,
                    )
                    for t, vlan in enumerate(self.trees.vlans)
                ),
            )
            for row, (a, b) in enumerate(pairs)
        ]


def key(a: int, b: int) -> PairKey:
    """The names of two hosts."""
    return f"h{a}", f"h{b}"


def vbft(leaves: int, uppers: int, hosts: int = 16) -> Network:
    """VBFT(leaves, uppers); VLAN IDs from 1 on, as in the paper."""
    down = [LinkSpec(to=f"leaf{n}", port=n + 1, rate_bps=int(RATE)) for n in range(leaves)]
    switches = {
        f"leaf{n}": SwitchSpec(
            links=tuple(
                LinkSpec(to=f"up{m}", port=100 + m, rate_bps=int(RATE)) for m in range(uppers)
            )
        )
        for n in range(leaves)
    }
    switches.update({f"up{m}": SwitchSpec(links=tuple(down)) for m in range(uppers)})
    graph = switch_graph(switches)
    cables = [_at(graph, leaves + m) for m in range(uppers)]
    trees = trees_from_cables(
        graph, tuple(range(1, uppers + 1)), cables, [[leaves + m] for m in range(uppers)]
    )
    return _network(trees, hosts, leaves)


def three_stages() -> Network:
    """32 hosts on 8 leaves: 4 pods of 2 leaves and 2 middle switches, and 4 tops, so 4 trees."""
    links: dict[str, list[LinkSpec]] = {}

    def join(lower: str, upper: str) -> None:
        for one, other in ((lower, upper), (upper, lower)):
            ends = links.setdefault(one, [])
            ends.append(LinkSpec(to=other, port=10 + len(ends), rate_bps=int(RATE)))

    for leaf in range(8):
        links[f"leaf{leaf}"] = []
    for leaf in range(8):
        for middle in range(2):
            join(f"leaf{leaf}", f"mid{leaf // 2}{middle}")
    for pod in range(4):
        for top in range(4):
            join(f"mid{pod}{top // 2}", f"top{top}")
    graph = switch_graph({name: SwitchSpec(links=tuple(ends)) for name, ends in links.items()})
    cables, roots = [], []
    for top in range(4):
        middles = [graph.index[f"mid{pod}{top // 2}"] for pod in range(4)]
        below = [c for middle in middles for other, c in graph.neighbours[middle] if other < 8]
        cables.append(_at(graph, graph.index[f"top{top}"]) + below)
        roots.append([graph.index[f"top{top}"]])
    return _network(trees_from_cables(graph, (1, 2, 3, 4), cables, roots), 32, 8)


def lp_bound(
    demand: FloatArray,
    candidates: IntArray,
    links: IntArray,
    capacity: FloatArray,
    counted: BoolArray,
) -> float:
    """The least utilisation of the fullest link of `counted` (E,) if pairs could be split."""
    pairs, width = candidates.shape
    pair, column, place = np.nonzero((links >= 0) & (candidates >= 0)[:, :, None])
    link = links[pair, column, place]
    kept = counted[link]
    pair, column, link = pair[kept], column[kept], link[kept]
    size = pairs * width
    load: Any = coo_array(
        (
            np.concatenate([demand[pair] / capacity[link], -np.ones(len(capacity))]),
            (
                np.concatenate([link, np.arange(len(capacity))]),
                np.concatenate([pair * width + column, np.full(len(capacity), size)]),
            ),
        ),
        (len(capacity), size + 1),
    )
    whole: Any = coo_array(
        (np.ones(size), (np.repeat(np.arange(pairs), width), np.arange(size))), (pairs, size + 1)
    )
    bounds = [(0.0, float(there)) for there in candidates.reshape(-1) >= 0] + [(0.0, np.inf)]
    answer = linprog(
        np.append(np.zeros(size), 1.0),
        A_ub=load.tocsr(),
        b_ub=np.zeros(len(capacity)),
        A_eq=whole.tocsr(),
        b_eq=np.ones(pairs),
        bounds=bounds,
        method="highs",
    )
    assert answer.fun is not None
    return float(answer.fun)


def _at(graph: SwitchGraph, switch: int) -> list[int]:
    return [cable for _, cable in graph.neighbours[switch]]


def _network(trees: Trees, hosts: int, leaves: int) -> Network:
    graph = trees.graph
    leaf = tuple(host * leaves // hosts for host in range(hosts))
    capacity = np.concatenate([np.repeat(graph.rate_bps, 2), np.full(2 * hosts, RATE)]).astype(
        np.float64
    )
    return Network(trees, leaf, capacity)
