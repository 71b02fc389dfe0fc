# SPDX-License-Identifier: Apache-2.0
"""Explain which NIC a flow takes: a verdict, and the sentences that give the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

from ri2n_sdn.contract.choices import FastWay, HashBuild
from ri2n_sdn.fabric.model import Fabric, Path, PathKey
from ri2n_sdn.pipeline.dphash import PROTOCOLS, Flow, slot_of
from ri2n_sdn.pipeline.fast_hash import fast_hash, fast_slot_of
from ri2n_sdn.pipeline.placement import server_of

__all__ = [
    "IN_BRIDGE",
    "Decider",
    "Flow",
    "JobView",
    "Pair",
    "Row",
    "Verdict",
    "Way",
    "addresses_decide",
    "decider",
    "explain",
    "keeps_one_link",
    "pair_verdict",
]

_WAYS: Mapping[FastWay, str] = {"bridge": "through the bridge", "beside": "beside the bridge"}


@dataclass(frozen=True)
class Row:
    """A row that places a connection on a path.

    It comes from the controller, or the sender learned it from its peer.
    """

    by_controller: bool
    path: PathKey


class Way(NamedTuple):
    """By which way a flow leaves its host (None: nobody knows), and a sentence that says why.

    The sentence is empty where the host has no fast path, so that there is one way alone.
    """

    way: FastWay | None
    why: str = ""


IN_BRIDGE = Way("bridge")


@dataclass(frozen=True)
class JobView:
    """What jobs have to do with the packets of a pair.

    * `text`: the job that was asked about, and what its policy means here; empty without one.
    * `own_paths`: whether the packets of that job have a slot table of their own.
    * `striped`: whether the helpers send them one by one over the paths of that table.
    * `reserved`: the jobs that have paths of this pair for themselves, and which paths.
    * `wall`: why the packets do not pass between these hosts; empty when they do.
    """

    text: str = ""
    own_paths: bool = False
    striped: bool = False
    reserved: str = ""
    wall: str = ""


@dataclass(frozen=True)
class Pair:
    """What the controller knows of two hosts, with a direction.

    `slots` is the slot table in force; `own_table` says whether it is the pair's own or a shared
    one. `share` has the shares of the paths as decided by `strategy`. `jobs` is what jobs change.
    """

    fabric: Fabric
    source: str
    target: str
    slots: tuple[PathKey, ...] = ()
    own_table: bool = False
    strategy: str = ""
    share: Mapping[PathKey, float] = field(default_factory=dict)
    jobs: JobView = JobView()

    @property
    def paths(self) -> Sequence[Path]:
        """All paths of the pair, dead ones too."""
        return self.fabric.paths(self.source, self.target)


@dataclass(frozen=True)
class Verdict:
    """How a flow, or all packets of a pair, go.

    `path` is the path that the flow takes, and `slot` the slot of its hash; each is None where it
    does not apply or cannot be predicted. `way` is that of the flow, None where nobody knows it or
    no flow was asked about. `reason` is a sentence about the pair. `why` is the whole
    explanation, one sentence each.
    """

    kind: Literal["managed", "unmanaged", "none"]
    reason: str
    why: tuple[str, ...]
    slot: int | None = None
    path: Path | None = None
    way: FastWay | None = None


class Decider(Enum):
    """The thing that decides which NIC a flow takes."""

    HELPERS = "the helpers, packet by packet"
    ROW = "the row of a placed connection, else the slot table"
    SLOTS = "the slot table"


def keeps_one_link(fabric: Fabric, protocol: int, sport: int, dport: int) -> bool:
    """Whether the flow belongs to a class that keeps one link per flow, also between helpers."""
    return any(traffic.has(protocol, sport, dport) for traffic in fabric.by_flows)


def decider(
    fabric: Fabric, source: str, target: str, protocol: int, sport: int, dport: int
) -> Decider:
    """The thing that decides for a flow between two managed hosts."""
    server = server_of(fabric.placement, source, sport, target, dport)
    if protocol == PROTOCOLS["tcp"] and server is not None:
        return Decider.ROW
    if fabric.striped(source, target) and not keeps_one_link(fabric, protocol, sport, dport):
        return Decider.HELPERS
    return Decider.SLOTS


def addresses_decide(pair: Pair, by_row: bool, datapath: str | None, way: Way = IN_BRIDGE) -> bool:
    """Whether `explain` needs a flow's addresses: for the row of its connection, or for its hash.

    It does not where all packets of the pair are dropped, or where nobody can tell the NIC.
    """
    passes = not pair.jobs.wall and any(path.alive for path in pair.paths)
    return passes and (by_row or way.way != "bridge" or datapath != "system")


def pair_verdict(pair: Pair) -> Verdict:
    """How the packets of a pair go, as far as it does not depend on their flow."""
    fabric, source, target = pair.fabric, pair.source, pair.target
    if target not in fabric.hosts:
        reason = (
            "its frames leave by the NIC on which its address was heard last, "
            "or into every network once if there is none"
        )
        return Verdict("unmanaged", reason, (f"{target} is not a managed host: {reason}",))
    if not pair.paths:
        reason = f"{source} and {target} have no common network"
        return Verdict("none", reason, (f"{source} cannot reach {target}: {reason}",))
    if pair.jobs.wall:
        return Verdict("managed", pair.jobs.wall, (f"{source} -> {target}: {pair.jobs.wall}",))
    reason = (
        f"the pair carries traffic: it has a slot table of its own, weighted by {pair.strategy}"
        if pair.own_table
        else "the pair carries little traffic: it uses a shared slot table, by the paths' rates"
    )
    if pair.jobs.own_paths:
        reason = pair.jobs.text
    elif fabric.striped(source, target):
        reason = f"both helpers run: packets go one by one over all links; without them, {reason}"
    reason += "".join(_placement_text(fabric, server) for server in (source, target))
    dead = sum(not path.alive for path in pair.paths)
    reason += f"; {dead} of {len(pair.paths)} paths are dead" if dead else ""
    why = [f"{source} -> {target}: {reason}"]
    if pair.jobs.text and not pair.jobs.own_paths:
        why.append(pair.jobs.text)
    if pair.jobs.reserved:
        why.append(pair.jobs.reserved)
    if dead == len(pair.paths):
        why.append("every path is dead: packets are dropped")
    return Verdict("managed", reason, tuple(why))


def explain(
    pair: Pair,
    flow: Flow,
    row: Row | None = None,
    *,
    datapath: str | None = None,
    build: HashBuild = "portable",
    way: Way = IN_BRIDGE,
) -> Verdict:
    """How a flow of a pair goes if helpers do not stripe it (see `decider`).

    `row` is the row that places its connection, if there is one. `datapath` is the type of the
    sender's datapath, None when unknown. `build` says how the sender's Open vSwitch was compiled.
    `way` is by which way the flow leaves its host. Where that is not known, both ways are
    explained, and the path is known where it is the same. Raises BadInput for addresses that are
    not valid.
    """
    whole = pair_verdict(pair)
    if whole.kind != "managed" or pair.jobs.wall:
        return whole
    reason, why = whole.reason, list(whole.why)
    if keeps_one_link(pair.fabric, flow.protocol, flow.sport, flow.dport):
        why.insert(1, "this flow belongs to a class that keeps one link (by_flows in cluster.yaml)")
    paths = {path.key: path for path in pair.paths}
    live = {key for key, path in paths.items() if path.alive}
    if not live:
        return Verdict("managed", reason, tuple(why))
    by = decider(pair.fabric, pair.source, pair.target, flow.protocol, flow.sport, flow.dport)
    if by is Decider.ROW and not pair.jobs.own_paths:
        why.append(f"{flow}: {_row_text(pair, row, paths)}")
        if row is not None and row.path in live:
            path = paths[row.path]
            why.append(f"{_leaves(pair, path)}, whatever its hash")
            return Verdict("managed", reason, tuple(why), path=path, way="bridge")
    if way.why:
        why.append(f"{flow}: {way.why}")
    ways: tuple[FastWay, ...] = ("bridge", "beside") if way.way is None else (way.way,)
    taken = [_by_slot(pair, flow, each, datapath, build) for each in ways]
    for each, (_, _, steps) in zip(ways, taken, strict=True):
        which = f"{_WAYS[each]}: " if len(ways) > 1 else ""
        why += [f"{which}{step}" for step in steps]
    slot, found, _ = taken[0]
    if len(taken) > 1:
        slot, found = None, found if found == taken[1][1] else None
        why.append(
            "so the path is unknown"
            if found is None
            else f"so by both ways, it leaves {pair.source} by {found.own.name}"
        )
    return Verdict("managed", reason, tuple(why), slot, found, way.way)


def _by_slot(
    pair: Pair, flow: Flow, way: FastWay, datapath: str | None, build: HashBuild
) -> tuple[int | None, Path | None, list[str]]:
    """The slot and the path of a flow by one way, and why; None where nobody can predict them.

    A path of the pair must be alive.
    """
    paths = {path.key: path for path in pair.paths}
    live = {key for key, path in paths.items() if path.alive}
    if way == "bridge" and datapath == "system":
        unknown = (
            "the NIC is unknown: the kernel datapath hashes by a random number of the socket, and "
            "nobody can predict it"
        )
        return None, None, [unknown]
    count = len(pair.slots)
    if way == "beside":
        hashed, slot = f"hash {fast_hash(flow):#018x}, slot", fast_slot_of(flow)
    else:
        hashed, slot = "hash slot", slot_of(flow, slots=count, build=build)
    slot_path = paths[pair.slots[slot]]
    steps = [
        f"{flow}: {hashed} {slot} of {count}, which belongs to {slot_path.own.name} -> "
        f"{slot_path.peer.name}{_vlan_text(slot_path)}"
    ]
    # Open vSwitch takes the next slot whose bucket is live, and so does the fast path.
    skipped = next((n for n in range(count) if pair.slots[(slot + n) % count] in live), 0)
    path = paths[pair.slots[(slot + skipped) % count]]
    if skipped:
        steps.append(
            f"that path is dead; the next slot on a live path is {(slot + skipped) % count}"
        )
    share = f"{pair.share.get(path.key, 0.0):.1%} ({pair.slots.count(path.key)} slots)"
    steps.append(f"{_leaves(pair, path)}; this path's share of the pair is {share}")
    if way == "bridge" and datapath is None:
        steps.append(
            f"this is so if {pair.source} uses the netdev datapath (with --datapath system nobody "
            "can predict the NIC)"
        )
    return slot, path, steps


def _placement_text(fabric: Fabric, server: str) -> str:
    """The text about a host whose services' connections are placed; empty for other hosts."""
    ports = fabric.placement.get(server)
    if ports is None:
        return ""
    services = f"to ports {', '.join(map(str, ports))} of" if ports else "to"
    return (
        f"; each TCP connection {services} {server} goes by the NIC that had the fewest when it "
        "began"
    )


def _row_text(pair: Pair, row: Row | None, paths: dict[PathKey, Path]) -> str:
    """The text about the row that places a flow, and whether it decides."""
    if row is None:
        return f"{pair.source} has no row that places it (table 13), so the slot table decides"
    origin = (
        f"the row that the controller gave {pair.source}"
        if row.by_controller
        else f"the row that {pair.source} learned from {pair.target}"
    )
    path = paths.get(row.path)
    if path is None:
        return (
            f"{origin} places it on a path that does not exist any more, so the slot table decides"
        )
    text = f"{origin} places it on {path.own.name} -> {path.peer.name}{_vlan_text(path)}"
    return text if path.alive else f"{text}, but that path is dead, so the slot table decides"


def _leaves(pair: Pair, path: Path) -> str:
    """The text about the NICs and the network of a path."""
    return (
        f"so it leaves {pair.source} by {path.own.name} and reaches {pair.target} at "
        f"{path.peer.name} over {path.network}{_vlan_text(path)}"
    )


def _vlan_text(path: Path) -> str:
    return f" in VLAN {path.route.vlan}" if path.route.vlan else ""
