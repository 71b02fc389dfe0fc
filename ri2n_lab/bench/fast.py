# SPDX-License-Identifier: Apache-2.0
"""What the benches share where the fast path runs: when it carries, in words what it lacks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypedDict

from ri2n_lab.bench.peers.base import pings
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.fast_paths import find_fast_program
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "FLOW_FAST",
    "PACKET",
    "PACKET_FAST",
    "await_all_fast",
    "await_fast",
    "lacking",
    "lacks_fast",
    "parts",
]

FLOW_FAST = "flow_fast"
"""The mode of rows: flow mode, by the fast path beside the bridges."""

PACKET, PACKET_FAST = "packet", "packet_fast"
"""Packet mode, by the helper alone, and by helper and fast path together."""

READY_S = 60.0
POLL_S = 0.1
PACED = "max_min"


def lacks_fast() -> str | None:
    """Why there is no fast path here: its program is missing. None where it is there."""
    try:
        find_fast_program()
    except NotAvailable as error:
        return str(error)
    return None


class Parts(TypedDict):
    """What a lab has besides Open vSwitch: options of `Lab.create`."""

    helpers: bool
    fast: bool


def parts(mode: str) -> Parts:
    """What a lab of this mode has."""
    return {
        "helpers": mode in (PACKET, PACKET_FAST),
        "fast": mode in (FLOW_FAST, PACKET_FAST),
    }


def await_fast(
    lab: Lab,
    clients: Iterable[str],
    server: str,
    timeout_s: float = READY_S,
    *,
    strategy: str = PACED,
) -> dict[str, Any]:
    """Wait until clients and server carry frames to each other beside their bridges.

    Between hosts with a helper that is TCP, and only at granted rates (`strategy`). Returns the
    status of each of these hosts. It has nothing to do in a lab without the fast path. NotAvailable
    with what is missing when it takes longer than `timeout_s`.
    """
    ready, helped = set(lab.fast_paths.hosts), set(lab.helpers.hosts)
    wanted: dict[str, Counter[str]] = {}
    for client in clients:
        if not {client, server} <= ready:
            continue
        state = "carried"
        if {client, server} <= helped:
            state = "striped_tcp" if strategy == PACED else "striped"
        for host in (client, server):
            wanted.setdefault(host, Counter())[state] += 1
    deadline_s = time.monotonic() + timeout_s
    found: dict[str, Any] = {}
    for host, peers in wanted.items():
        while True:
            missing: str | None = "no word from it"
            with suppress(NotAvailable):  # it may be starting
                found[host] = lab.fast_paths.status(host)
                missing = lacking(found[host], peers)
            if missing is None:
                break
            if time.monotonic() > deadline_s:
                raise NotAvailable(f"the fast path of {host} does not carry: {missing}")
            for client in clients:
                pings(lab, client, lab.address(server))  # known is who has spoken
            time.sleep(POLL_S)
    return found


def await_all_fast(lab: Lab) -> None:
    """Wait until all hosts carry frames to all others beside their bridges, as `await_fast`."""
    hosts = lab.fast_paths.hosts
    for number, host in enumerate(hosts):
        await_fast(lab, hosts[number + 1 :], host)


def lacking(status: dict[str, Any], wanted: Mapping[str, int]) -> str | None:
    """What keeps a host from having so many peers in each state, in words; None when nothing does.

    From what `ri2n-fast status --json` says.
    """
    if status.get("programs") != "in_force":
        return f"programs {status.get('programs')}"
    if status.get("filter") not in ("in_force", "not_needed"):
        return f"filter {status.get('filter')}"
    peers = status.get("peers", {})
    for state, count in wanted.items():
        if peers.get(state, 0) < count:
            return f"{peers.get(state, 0)} of {count} peers {state}"
    return None
