# SPDX-License-Identifier: Apache-2.0
"""What helper and fast path cost on this machine: in memory, and from end to end.

End to end, every contender has a lab of two hosts whose links have no rate and no switch. All labs
are up at the same time and are measured by turns, round by round, so that a ratio to the plain veth
is of one round. Other load on the machine is in these figures: they are ratios, not speeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fast import await_fast, lacks_fast, parts
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.helper_loads import End
from ri2n_lab.bench.helper_memory import memory_rows
from ri2n_lab.bench.helper_plan import (
    CALM_CPUS,
    CONTENDERS,
    FIGURES,
    LAB_S,
    MEMORY,
    MEMORY_S,
    PLAIN,
    HelperSettings,
    Load,
    Place,
    beside,
    blank_row,
    loads,
    round_seconds,
    summarized,
    total_seconds,
)
from ri2n_lab.bench.peers import Peer, await_whole
from ri2n_lab.bench.peers.base import SERVER, pings
from ri2n_lab.bench.peers.ovs_bond import OvsBondDirect
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.bench.stream import CLIENT, topology_of
from ri2n_lab.bench.striped import Autonomous, await_striped, contender
from ri2n_lab.bench.unshaped import unshape
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.ovs import has_kernel_datapath
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "CONTENDERS",
    "FIGURES",
    "MEMORY",
    "HelperSettings",
    "run_helper",
    "summarized",
    "total_seconds",
]

LINK_MBPS = 10_000

Json = dict[str, Any]


def run_helper(settings: HelperSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each load.

    Labs are removed also when it is interrupted.
    """
    progress.say("in memory")
    for row in memory_rows():
        _add(report, row, row)
    progress.done(MEMORY_S)
    with ExitStack() as stack:
        ends: dict[Place, End] = {}
        for place in settings.places:
            progress.say(f"{_label(place)}: building the lab")
            why_not = _why_not(place)
            if why_not is None:
                ends[place] = stack.enter_context(_end(place, settings, report))
            else:
                _add_missing(report, place, settings, why_not)
                progress.done(settings.repeat * round_seconds(settings))
            progress.done(LAB_S)
        for repeat in range(1, settings.repeat + 1):
            for place, end in ends.items():
                progress.say(f"{_label(place)} {repeat}/{settings.repeat}")
                _measure(end, place, repeat, settings, report)
                progress.done(round_seconds(settings))
    rows = beside(report.rows)
    report.replace(rows, report.document["raw"], summarized(rows))
    report.finish()


def _measure(end: End, place: Place, repeat: int, settings: HelperSettings, report: Report) -> None:
    """Every load once. A load that fails has a row that says why, and the others go on."""
    try:
        end.wait_ready()  # a flood of the last round may have broken something
    except NotAvailable as error:
        for load in loads(settings):
            _add(report, {**blank_row(place, load, repeat), "failed": str(error)}, None)
        return
    for load in loads(settings):
        row = blank_row(place, load, repeat)
        why_not = end.why_not(load)
        if why_not is not None:
            if repeat == 1:
                _add(report, missing_row(row, why_not, names(FIGURES)), None)
            continue
        try:
            figures, raw = _calmest(end, load, settings)
        except NotAvailable as error:
            row["failed"] = str(error)
            _add(report, row, None)
            continue
        row |= figures
        _add(report, row, {**row, **raw})


def _calmest(end: End, load: Load, settings: HelperSettings) -> tuple[Json, Json]:
    """The try beside which foreign programs used least, and what it was computed from.

    The choice looks at nothing else, so it favours no contender. The first calm one is the last.
    """
    best: tuple[Json, Json] | None = None
    for _ in range(settings.tries):
        found = end.measure(load, settings.seconds)
        if best is None or found[0]["foreign_cpus"] < best[0]["foreign_cpus"]:
            best = found
        if best[0]["foreign_cpus"] <= CALM_CPUS:
            break
    assert best is not None
    return best


def _add(report: Report, row: Json, raw: Json | None) -> None:
    report.add(row, raw, summarized([*report.rows, row]))


def _add_missing(report: Report, place: Place, settings: HelperSettings, why_not: str) -> None:
    for load in loads(settings):
        _add(report, missing_row(blank_row(place, load, 0), why_not, names(FIGURES)), None)


def _label(place: Place) -> str:
    what, datapath = place
    return what if datapath is None else f"{what}, {datapath}"


# ---- labs


def _peer(what: str) -> Peer | None:
    """The peer or the lone helper that this contender is, if it is one."""
    return {
        "mptcp": contender("mptcp"),
        "ovs_bond": OvsBondDirect(),
        "autonomous": Autonomous("max_min"),
    }.get(what)


def _why_not(place: Place) -> str | None:
    what, datapath = place
    if datapath == "system" and not has_kernel_datapath():
        return "this kernel has no datapath of Open vSwitch"
    wanted = parts(what)
    peer = Autonomous("max_min") if wanted["helpers"] else _peer(what)
    why_not = None if peer is None else peer.lacks()
    return lacks_fast() if why_not is None and wanted["fast"] else why_not


@contextmanager
def _end(place: Place, settings: HelperSettings, report: Report) -> Iterator[End]:
    """A lab in which the contender is ready to carry traffic."""
    what, datapath = place
    peer, tso, wanted = _peer(what), datapath == "netdev-tso", parts(what)
    count = 1 if what == PLAIN else settings.links
    with Lab.create(
        topology_of(",".join([str(LINK_MBPS)] * count)),
        datapath="system" if datapath == "system" else "netdev",
        software=peer.software if peer else "none" if what == PLAIN else "ri2n",
        **wanted,
        userspace_tso=tso,
        switches="cable",
    ) as lab:
        unshape(lab, userspace_tso=tso, fast=wanted["fast"])
        if peer is not None:
            peer.set_up(lab)
        elif lab.software == "ri2n":
            start_and_wait(lab, "max_min")
        address = peer.target(lab, CLIENT, SERVER) if peer else lab.address(SERVER)
        end = End(
            lab,
            address,
            peer.prefix if peer else (),
            peer is None or peer.udp,
            partial(_await_ready, lab, peer),
        )
        end.wait_ready()
        more = {"fast": await_fast(lab, [CLIENT], SERVER)} if wanted["fast"] else {}
        report.describe_lab(lab, _label(place), **more)
        yield end


def _await_ready(lab: Lab, peer: Peer | None) -> None:
    """Wait until the contender carries traffic as it should; NotAvailable with what is missing."""
    if peer is not None:
        await_whole(peer, lab, [CLIENT], SERVER)
        return
    await_striped(lab, [CLIENT], SERVER)
    await_fast(lab, [CLIENT], SERVER)
    if not pings(lab, CLIENT, lab.address(SERVER), count=3):
        raise NotAvailable(f"{SERVER} does not answer {CLIENT}")
