# SPDX-License-Identifier: Apache-2.0
"""The operation `explain` of the local interface: why a pair or a flow takes which path.

The answer has the sentences that the command prints.
"""

from __future__ import annotations

import time

# Before Python 3.11 this is another class than the built-in TimeoutError.
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from ipaddress import ip_address

from ri2n_sdn.apps import explain_jobs
from ri2n_sdn.apps.channel import Refused
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.measured import PathRates, Sample
from ri2n_sdn.apps.pairs import fair_rate_bps, path_documents
from ri2n_sdn.apps.placed_rows import deciding_row, deciding_rows
from ri2n_sdn.apps.slot_groups import slots_in_force
from ri2n_sdn.contract.answers import Explained, ExplainedPath, ManagedPair, Placed
from ri2n_sdn.contract.answers import Path as AnsweredPath
from ri2n_sdn.contract.choices import DATAPATHS, HASH_BUILDS, HashBuild, one_of
from ri2n_sdn.contract.operations import Request
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.fabric.model import Fabric, Path, PathKey
from ri2n_sdn.pipeline.explain import (
    Decider,
    Flow,
    Pair,
    Row,
    addresses_decide,
    decider,
    pair_verdict,
)
from ri2n_sdn.pipeline.explain import explain as explain_flow
from ri2n_sdn.pipeline.fast_way import striped_way, way_of
from ri2n_sdn.pipeline.flow_addresses import with_addresses
from ri2n_sdn.pipeline.placement import Connection

__all__ = ["explain"]

_ANSWER_S = 2.0

_KEYS = {"protocol", "sport", "dport", "src_ip", "dst_ip", "hash", "datapath"}


def explain(cluster: Cluster, request: Request) -> Explained:
    """The paths of a pair with their shares, or the path of one of its flows, and why.

    The request has the names of two hosts, `src` and `dst`, and may have a `flow`. That has
    `protocol` and, where they matter, `sport`, `dport`, `src_ip`, `dst_ip`, `hash` and `datapath`.
    With `job`, the id of a job, and where it matters a `dscp`, it is about packets of that job. An
    address that is not named is the one that the host's traffic has, as the host tells it
    (apps.declared_rows), and never that of the host's control connection. Raises BadInput for a
    wrong request, or when an address decides and is not known for certain, and NotAvailable when a
    row is needed and not known.
    """
    source, target = str(request.get("src")), str(request.get("dst"))
    question = _question(request["flow"]) if request.get("flow") is not None else None
    packets = explain_jobs.packets_of(request)
    with cluster.lock:
        fabric = cluster.fabric()
        if source not in fabric.hosts:
            known = sorted(fabric.hosts) or "none"
            raise refusal("no_such_host_of", name=source, known=known)
        if source == target:
            raise refusal("same_host", host=source)
        pair = explain_jobs.with_jobs(cluster, _pair(cluster, fabric, source, target), packets)
        verdict = pair_verdict(pair)
        managed = verdict.kind == "managed"
        about: ManagedPair = {}
        sample = cluster.measured.sample()
        links: list[Path] = []
        if managed:
            striped = fabric.striped(source, target)
            about = {
                "striped": striped,
                "tx_bps": sample.tx_bps((source, target)),
                "fair_bps": fair_rate_bps(sample, (source, target)),
                "by_flows": [
                    {"proto": traffic.proto, "port": traffic.port, "dscp": traffic.dscp}
                    for traffic in (fabric.by_flows if striped else ())
                ],
                "services": {
                    host: list(fabric.placement[host])
                    for host in (source, target)
                    if host in fabric.placement
                },
            }
            links = _links(cluster, pair)
        pair_paths = _paths(cluster, pair, sample) if managed else []
        fast = cluster.measured.fast.get(source)
        own_datapath = cluster.members[source].datapath or None
        told = {name: cluster.members[name].addresses for name in (source, target) if managed}
    flow = None
    by = Decider.HELPERS if links else Decider.SLOTS
    if question is not None and managed:
        asked, build, datapath = question
        if not pair.jobs.own_paths:
            by = decider(fabric, source, target, asked.protocol, asked.sport, asked.dport)
        if by is not Decider.HELPERS:
            by_row = by is Decider.ROW
            flow, datapath = asked, datapath or own_datapath
            with cluster.lock:
                way = way_of(fast, pair, flow, by_row, time.monotonic())
            row = None
            if addresses_decide(pair, by_row, datapath, way):
                flow = with_addresses(asked, (source, told[source]), (target, told[target]))
                row = _deciding(cluster, source, target, flow) if by_row else None
            verdict = explain_flow(pair, flow, row, datapath=datapath, build=build, way=way)
            about["way"] = verdict.way
            if by_row:
                about["placed"] = _placed(pair, row)
        else:
            with cluster.lock:
                way = striped_way(fast, pair, asked, links, time.monotonic())
            if way.why:
                about["way"] = way.way
                of = asked if asked.src_ip and asked.dst_ip else "this flow"
                verdict = replace(verdict, why=(*verdict.why, f"{of}: {way.why}"))
    if by is Decider.HELPERS:
        about["links"] = [_shown(path) for path in links]
    names: dict[PathKey, list[str | int | None]] = {
        path.key: [path.own.name, path.peer.name, path.route.vlan or None]
        for path in (pair.paths if managed else ())
    }
    path = verdict.path
    return {
        "src": source,
        "dst": target,
        "slots": [names[slot] for slot in pair.slots] if managed else [],
        "paths": pair_paths,
        "sampled_s": sample.sampled_s,
        **about,
        "kind": verdict.kind,
        "reason": verdict.reason,
        "why": list(verdict.why),
        "slot": verdict.slot,
        "path": None if path is None else _shown(path),
        "flow": str(flow) if flow is not None and flow.src_ip and flow.dst_ip else None,
    }


def _pair(cluster: Cluster, fabric: Fabric, source: str, target: str) -> Pair:
    """What is known about a pair (cluster.lock is held)."""
    if target not in fabric.hosts:
        return Pair(fabric, source, target)
    slots = slots_in_force(cluster, source, target) if fabric.paths(source, target) else ()
    rates = cluster.measured.rates.get((source, target), {})
    share = {}
    for path in fabric.paths(source, target):
        decided = rates.get(path.key, PathRates()).share
        share[path.key] = slots.count(path.key) / max(1, len(slots)) if decided is None else decided
    has_own_table = (source, target) in cluster.pair_slots
    return Pair(fabric, source, target, slots, has_own_table, cluster.loop.strategy_name, share)


def _links(cluster: Cluster, pair: Pair) -> list[Path]:
    """The paths over which helpers send the pair's packets one by one; none where they do not.

    cluster.lock is held. A path is among them if it is alive, the packets may take it, and the
    strategy gives it a part.
    """
    fabric, ends, jobs = pair.fabric, (pair.source, pair.target), pair.jobs
    if not fabric.striped(*ends) or jobs.wall or (jobs.own_paths and not jobs.striped):
        return []
    linked = {path.key for path in fabric.helper_links(*ends).values() if path.alive}
    if jobs.striped:
        return [path for path in pair.paths if path.key in linked & pair.share.keys()]
    rates = cluster.measured.rates.get(ends, {})
    unused = {key for key, rate in rates.items() if rate.share == 0.0}
    return [path for path in fabric.common_paths(*ends) if path.key in linked - unused]


def _paths(cluster: Cluster, pair: Pair, sample: Sample) -> list[AnsweredPath]:
    """The paths of a pair, with the shares that its packets have (cluster.lock is held)."""
    found = path_documents(cluster, pair.fabric, sample, pair.source, pair.target)
    if pair.jobs.own_paths:
        for document, path in zip(found, pair.paths, strict=True):
            document["share"] = pair.share.get(path.key, 0.0)
            document["slots"] = pair.slots.count(path.key)
    return found


def _shown(path: Path) -> ExplainedPath:
    return {
        "own": path.own.name,
        "peer": path.peer.name,
        "vlan": path.route.vlan or None,
        "network": path.network,
    }


def _deciding(cluster: Cluster, source: str, target: str, flow: Flow) -> Row | None:
    """The row of `source` that decides for a TCP connection to `target`; None when there is none.

    Raises NotAvailable when `source` does not answer, or when either host is gone.
    """
    with cluster.lock:
        hosts = cluster.fabric().hosts
        if not {source, target} <= hosts.keys():
            raise refusal("host_has_left", hosts=[source, target])
        connection = Connection(flow.src_ip, flow.sport, flow.dst_ip, flow.dport, hosts[target].mac)
        channel = cluster.members[source].channel
    if channel is None:
        raise refusal("host_away_for_rows", host=source)
    try:
        row = deciding_row(channel.request(deciding_rows(connection)).result(timeout=_ANSWER_S))
    except (FutureTimeoutError, Refused, ConnectionError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise refusal("host_rows_unread", host=source, why=str(why)) from None
    return None if row is None else Row(*row)


def _placed(pair: Pair, row: Row | None) -> Placed | None:
    """The row of a placed connection. NICs are None when the pair no longer has its path."""
    if row is None:
        return None
    path = next((path for path in pair.paths if path.key == row.path), None)
    return {
        "row": "placed" if row.by_controller else "followed",
        "own": path.own.name if path is not None else None,
        "peer": path.peer.name if path is not None else None,
        "vlan": row.path[2] or None,
        "alive": path is not None and path.alive,
    }


def _question(asked: object) -> tuple[Flow, HashBuild, str | None]:
    """(flow, hash, datapath or None) of a request, checked. Raises BadInput.

    An address of "" stands for the one that the host has.
    """
    if not isinstance(asked, dict) or not {"protocol"} <= set(asked) <= _KEYS:
        raise refusal("flow_form", "flow", keys=sorted(_KEYS - {"protocol"}))
    for key, maximum in (("protocol", 255), ("sport", 65535), ("dport", 65535)):
        if type(asked.get(key, 0)) is not int or not 0 <= asked.get(key, 0) <= maximum:
            raise refusal("out_of_range", f"flow.{key}", low=0, high=maximum)
    one, other = (
        "" if asked.get(key) is None else _address(key, asked[key]) for key in ("src_ip", "dst_ip")
    )
    if one and other and ip_address(one).version != ip_address(other).version:
        raise refusal("address_families", "flow", one=one, other=other)
    build, datapath = asked.get("hash", "portable"), asked.get("datapath")
    one_of(build, HASH_BUILDS, "flow.hash")
    if datapath is not None:
        one_of(datapath, DATAPATHS, "flow.datapath")
    sport, dport = asked.get("sport", 0), asked.get("dport", 0)
    return Flow(asked["protocol"], one, sport, other, dport), build, datapath


def _address(key: str, value: object) -> str:
    """An IP address as Open vSwitch's rows write it. Raises BadInput."""
    try:
        return str(ip_address(str(value)))
    except ValueError as error:
        raise refusal("address_wrong", f"flow.{key}", why=str(error)) from None
