# SPDX-License-Identifier: Apache-2.0
"""Takes in what the `ri2n-fast` of each host reports, and finds those that have stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ri2n_sdn.apps.cluster import Cluster, Member
from ri2n_sdn.contract.choices import FastState
from ri2n_sdn.pipeline.fast_path import MAX_PARTS, FastPath
from ri2n_sdn.pipeline.fast_reports import CountsReport, MalformedReport, SlotsReport, decode

__all__ = ["judge_fast_paths", "obeys", "take_fast_report"]

_EVENTS: Mapping[FastState, str] = {
    "off": "fast_off",
    "in_force": "fast_in_force",
    "refused": "fast_refused",
    "no_device": "fast_no_device",
    "silent": "fast_silent",
}


_NONE = FastPath()


def take_fast_report(cluster: Cluster, member: Member, frame: bytes, now_s: float) -> None:
    """Keep a report of a host's fast path; what is not one, or of another host, is counted."""
    try:
        report = decode(frame)
    except MalformedReport as error:
        cluster.counters.add(error.fault.value)
        return
    with cluster.lock:
        if member.mac.lower() != report.mac or cluster.members.get(member.name) is not member:
            cluster.counters.add("dropped_fast_report_of_stranger")
            return
        path = cluster.measured.fast.setdefault(member.name, FastPath())
        if not path.counts.begin(report.epoch):
            cluster.counters.add("dropped_fast_report_old")
            return
        too_many = 0
        if isinstance(report, CountsReport):
            too_many = path.counts.take(report.counts)
        elif isinstance(report, SlotsReport):
            too_many = path.counts.take_slots(report)
        elif report.parts > MAX_PARTS:
            too_many = 1
        else:
            ordered, obeyed = path.orders(now_s), path.obeyed
            if path.take_state(report, now_s):
                _tell(cluster, member, path)
            if path.orders(now_s) != ordered:
                cluster.wake.striping.set()  # helpers are told at once
            if path.obeyed != obeyed and member.name in cluster.jobs.lagging:
                cluster.wake.jobs.set()
        cluster.counters.add("fast_reports")
        if too_many:
            cluster.counters.add("dropped_fast_report_of_too_many", too_many)


def obeys(cluster: Cluster, member: Member, held_s: float) -> bool:
    """Whether what passes beside a host's bridge obeys its rows (the lock is held).

    The bridge has held those that matter since `held_s`.
    """
    # The last rows of a change may not be there yet, and walls are among them.
    if member.busy or member.installed is None:
        return False
    path = cluster.measured.fast.get(member.name, _NONE)
    return path.obeys(member.installed.digest, held_s, member.came_s, time.monotonic())


def judge_fast_paths(cluster: Cluster) -> frozenset[str]:
    """Find the fast paths that have stopped reporting, and return their hosts (the lock is held).

    Nobody knows what these hosts carry.
    """
    silent = set()
    for member, channel in cluster.connections():
        path = cluster.measured.fast.get(member.name)
        if path is None:
            continue
        if path.judge(channel.answered_s):
            _tell(cluster, member, path)
        if path.state == "silent":
            silent.add(member.name)
    return frozenset(silent)


def _tell(cluster: Cluster, member: Member, path: FastPath) -> None:
    """Tell the operator what became of a host's fast path."""
    if path.state is not None:
        cluster.note(_EVENTS[path.state], {"host": member.name})
