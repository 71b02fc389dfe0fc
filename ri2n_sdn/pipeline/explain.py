"""Which NIC a flow takes and why: a verdict, and the sentences that say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from ri2n_sdn.fabric.model import Fabric, Path, PathKey
from ri2n_sdn.pipeline.dphash import PROTOCOLS, HashBuild, slot_of
from ri2n_sdn.pipeline.placement import server_of

__all__ = [
    "Decider",
    "Flow",
    "Pair",
    "Row",
    "Verdict",
    "decider",
    "explain",
    "kept",
    "pair_verdict",
]


@dataclass(frozen=True)
class Flow:
    """What a flow's packets have in common; for ICMP the ports are type and code."""

    protocol: int
    src_ip: str
    sport: int
    dst_ip: str
    dport: int

    def __str__(self) -> str:
        name = next(
            (name for name, number in PROTOCOLS.items() if number == self.protocol),
            str(self.protocol),
        )
        return f"{name} {self.src_ip}:{self.sport} -> {self.dst_ip}:{self.dport}"


@dataclass(frozen=True)
class Row:
    """The row that places a connection:

    the controller's own, or one that the sender learned from its peer.
    """

    by_controller: bool
    path: PathKey


@dataclass(frozen=True)
class Pair:
    """What is known of two hosts:

    the slot table in force, whether it is the pair's own, and the paths' shares.
    """

    fabric: Fabric
    source: str
    target: str
    slots: tuple[PathKey, ...] = ()
    own_table: bool = False
    strategy: str = ""
    share: Mapping[PathKey, float] = field(default_factory=dict)

    @property
    def paths(self) -> Sequence[Path]:
        return self.fabric.paths(self.source, self.target)


@dataclass(frozen=True)
class Verdict:
    """`path` is the one that the flow takes, `slot` the slot of its hash; None when that is not
    said.

    `reason` is about the pair, `why` the whole, a sentence each.
    """

    kind: Literal["managed", "unmanaged", "none"]
    reason: str
    why: tuple[str, ...]
    slot: int | None = None
    path: Path | None = None


class Decider(Enum):
    """What decides which NIC a flow takes."""

    HELPERS = "the helpers, packet by packet"
    ROW = "the row of a placed connection, else the slot table"
    SLOTS = "the slot table"


def kept(fabric: Fabric, protocol: int, sport: int, dport: int) -> bool:
    """Whether the flow is of a class that stays with one link, also between helpers."""
    return any(each.has(protocol, sport, dport) for each in fabric.by_flows)


def decider(
    fabric: Fabric, source: str, target: str, protocol: int, sport: int, dport: int
) -> Decider:
    """What decides for a flow of two managed hosts."""
    if (
        protocol == PROTOCOLS["tcp"]
        and server_of(fabric.placement, source, sport, target, dport) is not None
    ):
        return Decider.ROW
    if fabric.striped(source, target) and not kept(fabric, protocol, sport, dport):
        return Decider.HELPERS
    return Decider.SLOTS


def pair_verdict(pair: Pair) -> Verdict:
    """How packets of a pair go, whatever their flow."""
    fabric, source, target = pair.fabric, pair.source, pair.target
    if target not in fabric.hosts:
        reason = "sent by the NIC on which its address was heard last, else into every network once"
        return Verdict("unmanaged", reason, (f"{target} is not a managed host: {reason}",))
    if not pair.paths:
        reason = f"{source} and {target} have no common network"
        return Verdict("none", reason, (f"{source} cannot reach {target}: {reason}",))
    reason = (
        f"the pair carries traffic: a slot table of its own, weighted by {pair.strategy}"
        if pair.own_table
        else "no traffic of note: the shared slot table, by the paths' rates"
    )
    if fabric.striped(source, target):
        reason = f"both helpers run: packet by packet over all links; without them, {reason}"
    reason += "".join(_placing(fabric, server) for server in (source, target))
    dead = sum(not path.alive for path in pair.paths)
    reason += f"; {dead} of {len(pair.paths)} paths are dead" if dead else ""
    why = [f"{source} -> {target}: {reason}"]
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
) -> Verdict:
    """How a flow of a pair goes that helpers do not stripe (see `decider`).

    `row` places it, where its connection is placed. `datapath` is the sender's, `build` how its
    Open vSwitch was compiled. BadInput for addresses that cannot be.
    """
    whole = pair_verdict(pair)
    if whole.kind != "managed":
        return whole
    reason, why = whole.reason, list(whole.why)
    is_kept = kept(pair.fabric, flow.protocol, flow.sport, flow.dport)
    if is_kept:
        why.insert(1, "this flow is of a class that keeps one link (by_flows in cluster.yaml)")
    paths = {path.key: path for path in pair.paths}
    live = {key for key, path in paths.items() if path.alive}
    if not live:
        return Verdict("managed", reason, tuple(why))
    if (
        decider(pair.fabric, pair.source, pair.target, flow.protocol, flow.sport, flow.dport)
        is Decider.ROW
    ):
        why.append(f"{flow}: {_row_text(pair, row, paths)}")
        if row is not None and row.path in live:
            path = paths[row.path]
            why.append(f"{_leaves(pair, path)}, whatever its hash")
            return Verdict("managed", reason, tuple(why), path=path)
    if datapath == "system":
        why.append(
            "unknown NIC: the kernel datapath hashes by the socket's random number, nobody can "
            "predict it"
        )
        return Verdict("managed", reason, tuple(why))
    count = len(pair.slots)
    slot = slot_of(
        flow.src_ip, flow.dst_ip, flow.protocol, flow.sport, flow.dport, slots=count, build=build
    )
    belongs = paths[pair.slots[slot]]
    why.append(
        f"{flow}: hash slot {slot} of {count}, which belongs to {belongs.own.name} -> "
        f"{belongs.peer.name}{_in(belongs)}"
    )
    # Open vSwitch takes the next slot whose bucket lives.
    skipped = next((n for n in range(count) if pair.slots[(slot + n) % count] in live), 0)
    path = paths[pair.slots[(slot + skipped) % count]]
    if skipped:
        why.append(f"that path is dead; the next slot on a live path is {(slot + skipped) % count}")
    share = f"{pair.share.get(path.key, 0.0):.1%} ({pair.slots.count(path.key)} slots)"
    why.append(f"{_leaves(pair, path)}; this path's share of the pair is {share}")
    if datapath is None:
        why.append(
            f"this is so if {pair.source} uses the netdev datapath (--datapath system: nobody can "
            "predict it)"
        )
    return Verdict("managed", reason, tuple(why), slot, path)


def _placing(fabric: Fabric, server: str) -> str:
    """What is said of a host whose services' connections are placed; empty for others."""
    ports = fabric.placement.get(server)
    if ports is None:
        return ""
    which = f"to ports {', '.join(map(str, ports))} of" if ports else "to"
    return (
        f"; TCP connections {which} {server} go each by the NIC that had the fewest when it began"
    )


def _row_text(pair: Pair, row: Row | None, paths: dict[PathKey, Path]) -> str:
    if row is None:
        return f"{pair.source} has no row that places it (table 13), so the slot table decides"
    which = (
        f"the row that the controller gave {pair.source}"
        if row.by_controller
        else f"the row that {pair.source} learned from {pair.target}"
    )
    path = paths.get(row.path)
    if path is None:
        return f"{which} places it on a path that is no more; the slot table decides"
    where = f"{which} places it on {path.own.name} -> {path.peer.name}{_in(path)}"
    return where + ("" if path.alive else "; that is dead, so the slot table decides")


def _leaves(pair: Pair, path: Path) -> str:
    return (
        f"so it leaves {pair.source} by {path.own.name} and reaches {pair.target} at "
        f"{path.peer.name} "
        f"over {path.network}{_in(path)}"
    )


def _in(path: Path) -> str:
    return f" in VLAN {path.route.vlan}" if path.route.vlan else ""
