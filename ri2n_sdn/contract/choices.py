# SPDX-License-Identifier: Apache-2.0
"""The closed lists of words that several processes know, and how a word of one is checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar, get_args

from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal

__all__ = [
    "DATAPATHS",
    "FAST_FILTERS",
    "FAST_ORDERS",
    "FAST_PEERS",
    "FAST_STATES",
    "HASH_BUILDS",
    "KINDS",
    "PATH_TABLES",
    "ROLES",
    "SOURCES",
    "STRATEGIES",
    "Datapath",
    "FastFilter",
    "FastOrder",
    "FastPeer",
    "FastState",
    "FastWay",
    "HashBuild",
    "Kind",
    "PathTables",
    "Role",
    "Source",
    "one_of",
]

Kind = Literal["shared", "paths", "exclusive", "isolated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The kinds of policies, from the one that asks for least to the one that asks for most."""

Source = Literal["host", "order"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""Who began a job: the job manager of its hosts, or the controller by an order."""

Role = Literal["viewer", "user", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""A viewer changes nothing, a user acts on his own jobs and reservations, an admin does all.

A role may do all that the ones before it may.
"""

HashBuild = Literal["portable", "sse42"]
HASH_BUILDS: tuple[HashBuild, ...] = get_args(HashBuild)
"""How an Open vSwitch was compiled, as far as its hashes depend on that."""

Datapath = Literal["netdev", "system"]
DATAPATHS: tuple[Datapath, ...] = get_args(Datapath)
"""The userspace datapath of Open vSwitch, and the kernel's."""

FastState = Literal["off", "in_force", "refused", "no_device", "silent"]
FAST_STATES: tuple[FastState, ...] = get_args(FastState)
"""What became of the programs of a host's fast path.

`off`: they were removed. `refused`: the kernel does not take them. `no_device`: the bridge or a NIC
is missing. `silent`: they were in force, and nothing is reported of them any more.
"""

FastFilter = Literal["not_needed", "in_force", "missing"]
FAST_FILTERS: tuple[FastFilter, ...] = get_args(FastFilter)
"""Whether Open vSwitch's packet sockets leave alone what the programs take.

A kernel datapath has no such sockets, so it needs no filter. Where one is missing, Open vSwitch
copies every frame that the programs take.
"""

FastOrder = Literal["none", "ready"]
FAST_ORDERS: tuple[FastOrder, ...] = get_args(FastOrder)
"""Whether helper and fast path of a host put TCP in order that comes beside the bridge."""

FastPeer = Literal["carried", "striped", "undecided", "unsupported", "too_many", "striped_tcp"]
FAST_PEERS: tuple[FastPeer, ...] = get_args(FastPeer)
"""How frames to a peer go: beside the bridge (`carried`), or why they stay in the bridge.

`striped`: the helper stripes them. `striped_tcp`: TCP is striped beside the bridge, the rest by the
helper.
"""

FastWay = Literal["bridge", "beside"]
"""By which way a flow leaves its host: through Open vSwitch, or beside it by the fast path."""

STRATEGIES = ("round_robin", "ri2n_plus", "ri2n_plus_plus", "max_min")
"""How weights are computed: the modules of ri2n_sdn.weights, which take long to import."""

PathTables = Literal["cyclic", "spread", "adaptive", "profile"]
PATH_TABLES: tuple[PathTables, ...] = get_args(PathTables)
"""How the VLANs of pairs are chosen (ri2n_sdn.vlan)."""

_Word = TypeVar("_Word", bound=str)


def one_of(word: object, words: Iterable[_Word], where: str) -> _Word:
    """A word of a list. Raises BadInput, which begins with `where`, for anything else."""
    known = tuple(words)
    for each in known:
        if word == each:
            return each
    raise refusal("value_not_one_of", where, value=shown(word), choices=list(known))
