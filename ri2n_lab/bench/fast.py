# SPDX-License-Identifier: Apache-2.0
"""What the benches share where the fast path runs: when it carries, in words what it lacks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ri2n_lab.bench.peers.base import pings
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.fast_paths import find_fast_program
from ri2n_sdn.errors import NotAvailable

__all__ = ["FLOW_FAST", "await_fast", "lacking", "lacks_fast"]

FLOW_FAST = "flow_fast"
"""The mode of rows: flow mode, by the fast path beside the bridges."""

READY_S = 60.0
POLL_S = 0.1


def lacks_fast() -> str | None:
    """Why there is no fast path here: its program is missing. None where it is there."""
    try:
        find_fast_program()
    except NotAvailable as error:
        return str(error)
    return None


def await_fast(
    lab: Lab, clients: Iterable[str], server: str, timeout_s: float = READY_S
) -> dict[str, Any]:
    """Wait until clients and server carry frames to each other beside their bridges.

    Returns the status of each of these hosts. It has nothing to do in a lab without the fast path.
    NotAvailable with what is missing when it takes longer than `timeout_s`.
    """
    ready = set(lab.fast_paths.hosts)
    clients = [client for client in clients if {client, server} <= ready]
    wanted = {server: len(clients), **dict.fromkeys(clients, 1)} if clients else {}
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


def lacking(status: dict[str, Any], peers: int) -> str | None:
    """What keeps a host from carrying frames to so many peers, in words; None when nothing does.

    From what `ri2n-fast status --json` says.
    """
    if status.get("programs") != "in_force":
        return f"programs {status.get('programs')}"
    if status.get("filter") not in ("in_force", "not_needed"):
        return f"filter {status.get('filter')}"
    carried = status.get("peers", {}).get("carried", 0)
    return None if carried >= peers else f"{carried} of {peers} peers"
