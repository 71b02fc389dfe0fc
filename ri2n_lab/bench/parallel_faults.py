# SPDX-License-Identifier: Apache-2.0
"""Links die under one transfer: whether it completes, with every byte right, and how it stalls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel_lab import CLIENT, Ends, limit_subflows, mptcp_lacks, numbered_lab
from ri2n_lab.bench.parallel_plan import (
    FAULT_METHODS,
    FAULT_S,
    LAB_S,
    ParallelSettings,
    blank_row,
    compared,
    narrowed,
    one_link_bps,
    size_text,
    summarized,
)
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.peers.subnets import silent_network
from ri2n_lab.bench.progress import Progress
from ri2n_lab.cluster import Lab
from ri2n_sdn.errors import NotAvailable

__all__ = ["FAULT_AT", "broken", "run_faults"]

FAULT_AT = 0.3
"""The fault comes after this share of the time that the transfer takes at best."""
DARK_S = 2.0  # how long all links are dead
LIMIT_S = 60.0
WHOLE_S = 30.0

Json = dict[str, Any]


def broken(fault: str, nics: Sequence[str]) -> list[tuple[str, str, str]]:
    """(kind of the lab's fault, host, NIC) of everything that breaks at once.

    The first link dies in all of them. one_down, all_...: the server's NIC, which the client cannot
    see. one_own_down: the client's own. one_blackhole: the switch port takes frames and delivers
    none.
    """
    if fault == "one_own_down":
        return [("nic_down", CLIENT, nics[0])]
    if fault == "one_blackhole":
        return [("blackhole", SERVER, nics[0])]
    count = {"one_down": 1, "all_but_one": len(nics) - 1, "all_then_one": len(nics)}[fault]
    return [("peer_nic_down", SERVER, nic) for nic in nics[:count]]


def run_faults(settings: ParallelSettings, report: Report, progress: Progress) -> None:
    """A row for each method, fault and repeat."""
    methods = [method for method in FAULT_METHODS if method in settings.methods]
    if not methods:
        return
    topology = narrowed(settings.topology, settings.links, (SERVER, CLIENT))
    progress.say("faults: building the lab")
    with numbered_lab(topology, report, "fault") as (lab, known), Ends(lab, known) as ends:
        progress.done(LAB_S)
        for method in methods:
            why_not = mptcp_lacks() if method == "mptcp" else None
            for fault in settings.faults:
                for repeat in range(1, settings.repeat + 1):
                    progress.say(
                        f"{method} {size_text(settings.fault_bytes)} {fault} "
                        f"{repeat}/{settings.repeat}"
                    )
                    key = ("fault", method, settings.links, settings.links, settings.fault_bytes)
                    row = blank_row(*key, fault=fault, why_not=why_not)
                    if why_not is None:
                        row |= {
                            "repeat": repeat,
                            **_one(lab, ends, settings, method, fault, repeat),
                        }
                    if why_not is None or repeat == 1:
                        rows = compared([*report.rows, row])
                        report.replace(rows, report.document["raw"], summarized(rows))
                    progress.done(FAULT_S)


def _one(
    lab: Lab, ends: Ends, settings: ParallelSettings, method: str, fault: str, repeat: int
) -> Json:
    if method == "mptcp":
        limit_subflows(lab, settings.links)
    at_best_s = settings.fault_bytes * 8 / (one_link_bps(settings) * settings.links)
    limit_s = LIMIT_S + 3 * at_best_s * settings.links
    nics = [nic.name for nic in lab.topology.hosts[SERVER].nics]
    request = {
        "op": "fault",
        "method": method,
        "streams": settings.links,
        "size": settings.fault_bytes,
    }
    ends.begin(**request, seed=repeat, limit_s=limit_s)
    try:
        begin_s = ends.client_answer(limit_s)["begin_s"]
        # The schedule of the experiment: the transfer must be under way.
        time.sleep(max(0.0, begin_s + FAULT_AT * at_best_s - time.monotonic()))
        fault_s = time.monotonic()
        for kind, host, nic in broken(fault, nics):
            lab.fault(kind, host=host, nic=nic)
        if fault == "all_then_one":
            time.sleep(DARK_S)  # the length of the fault
            lab.restore("peer_nic_down", host=SERVER, nic=nics[-1])
        found = ends.client_answer(limit_s)
    finally:
        lab.restore_all()
    if not begin_s < fault_s < found["end_s"]:
        raise NotAvailable(f"{fault}: the transfer was over before the fault: make it larger")
    _await_whole(lab)
    total_s = found["end_s"] - begin_s
    return {
        "completed": found["completed"],
        "intact": found["intact"],
        "stall_s": None if found.get("stall_s") is None else round(found["stall_s"], 6),
        "total_s": round(total_s, 6),
        "goodput_bps": round(settings.fault_bytes * 8 / total_s) if found["completed"] else None,
        **{key: found[key] for key in ("links_lost", "links_suspected", "resent_bytes")},
        "error": found["why"],
    }


def _await_whole(lab: Lab) -> None:
    """Wait until every network works again, so that the next transfer begins on all of them."""
    deadline_s = time.monotonic() + WHOLE_S
    while (silent := silent_network(lab, CLIENT, SERVER)) is not None:
        if time.monotonic() > deadline_s:
            raise NotAvailable(f"after the fault: {silent}")
        time.sleep(0.05)
