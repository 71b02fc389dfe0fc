# SPDX-License-Identifier: Apache-2.0
"""Which flows of a host pass beside its bridge, as far as reports of its fast path tell."""

from __future__ import annotations

from collections.abc import Sequence

from ri2n_sdn.fabric.model import Path
from ri2n_sdn.pipeline.dphash import PROTOCOLS, Flow
from ri2n_sdn.pipeline.explain import IN_BRIDGE, Pair, Way, keeps_one_link
from ri2n_sdn.pipeline.fast_hash import FAST_SLOTS
from ri2n_sdn.pipeline.fast_path import FastPath

__all__ = ["striped_way", "way_of"]


def way_of(path: FastPath | None, pair: Pair, flow: Flow, by_row: bool, now_s: float) -> Way:
    """By which way a flow of a pair leaves its host, and why. `path` is the sender's fast path.

    `by_row`: a row of a placed connection decides on the flow. Rows like this, and rows that name a
    protocol and a port, are left to the bridge, and so are the packets of jobs.
    """
    if path is None or path.state not in ("in_force", "silent"):
        return IN_BRIDGE
    kept = _kept(pair, flow, by_row)
    if kept:
        return Way("bridge", f"it passes the bridge of {pair.source}: {kept}")
    mac = pair.fabric.hosts[pair.target].mac
    way = path.way_to(mac, now_s)
    if way is None:
        return _unknown(path, pair, now_s)
    if way == "beside":
        return Way("beside", f"it passes beside the bridge of {pair.source} (fast path)")
    state = path.peers.get(mac.lower(), "unknown")
    return Way(
        "bridge",
        f"it passes the bridge of {pair.source}: its fast path leaves frames to {pair.target} to "
        f"the bridge ({state})",
    )


def striped_way(
    path: FastPath | None, pair: Pair, flow: Flow, links: Sequence[Path], now_s: float
) -> Way:
    """By which way a flow leaves its host whose packets are striped over `links`, and why."""
    if path is None or path.state not in ("in_force", "silent"):
        return IN_BRIDGE
    host = pair.fabric.hosts[pair.source]
    if pair.jobs.own_paths:
        kept = "the packets of jobs are left to the helper"
    elif flow.protocol != PROTOCOLS["tcp"]:
        kept = "only TCP is striped beside the bridge"
    elif host.control_port in (flow.sport, flow.dport):
        kept = "the controller's connection is left to it"
    elif path.is_late(now_s):
        return _unknown(path, pair, now_s)
    elif path.stripes_tcp(pair.fabric.hosts[pair.target].mac):
        taken = ", ".join(f"{each.own.name} -> {each.peer.name}" for each in links)
        return Way(
            "beside",
            f"it is striped beside the bridge of {pair.source} over links {taken} (fast path)",
        )
    else:
        kept = f"TCP to {pair.target} is left to the helper"
    return Way("bridge", f"it passes the bridge of {pair.source}: {kept}")


def _unknown(path: FastPath, pair: Pair, now_s: float) -> Way:
    return Way(
        None,
        f"nobody knows whether it passes the bridge of {pair.source} or beside it: its fast "
        f"path has reported nothing for {now_s - path.heard_s:.0f} s",
    )


def _kept(pair: Pair, flow: Flow, by_row: bool) -> str:
    """Why the fast path does not take a flow, whoever the peer is; empty where it may."""
    host = pair.fabric.hosts[pair.source]
    if by_row:
        return "rows of placed connections are left to it"
    if pair.jobs.own_paths:
        return "the packets of jobs are left to it"
    if flow.protocol == PROTOCOLS["icmp6"]:
        return "ICMPv6 is left to it"
    if flow.protocol == PROTOCOLS["tcp"] and host.control_port in (flow.sport, flow.dport):
        return "the controller's connection is left to it"
    if host.helper and keeps_one_link(pair.fabric, flow.protocol, flow.sport, flow.dport):
        return "flows of this class are left to it"
    if len(pair.slots) != FAST_SLOTS:
        return f"a slot table of {len(pair.slots)} slots is left to it"
    return ""
