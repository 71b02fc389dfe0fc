# SPDX-License-Identifier: Apache-2.0
"""Pure: which guests a bench needs, one `ri2n bench` for each (see guests.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ri2n_lab.bench import demand, failover, fig4, fig9, jobs, stream, vbft
from ri2n_lab.bench.demand import DemandSettings
from ri2n_lab.bench.failover import FailoverSettings
from ri2n_lab.bench.fig4 import Fig4Settings
from ri2n_lab.bench.fig9 import Fig9Settings
from ri2n_lab.bench.guests import Cell
from ri2n_lab.bench.jobs_plan import JobsSettings
from ri2n_lab.bench.stream import StreamSettings
from ri2n_lab.bench.vbft import VbftSettings

__all__ = [
    "demand_cells",
    "failover_cells",
    "fig4_cells",
    "fig9_cells",
    "jobs_cells",
    "stream_cells",
    "vbft_cells",
]


def fig4_cells(settings: Fig4Settings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """Guests for figure 4: one for each topology with all strategies, one for each peer on it.

    A controller and four hosts take long to start, so all strategies share them. `files` are the
    topologies by name; repeat n has the seed `seed` + n - 1.
    """
    cells = []
    for topology in settings.topologies:
        one = replace(settings, topologies=[topology], repeat=1)
        alone = replace(one, strategies=[], autonomous=(), peers=())
        groups = [replace(one, autonomous=(), peers=())] if settings.strategies else []
        groups += [replace(alone, autonomous=(name,)) for name in settings.autonomous]
        groups += [replace(alone, peers=(name,)) for name in settings.peers]
        for group in groups:
            options = {
                "topologies": files[topology.name],
                "strategies": ",".join(group.strategies) or "none",
                "peers": ",".join(group.peers),
                "autonomous": ",".join(group.autonomous),
                "mode": group.mode,
                "plain": ",".join(group.plain),
                "streams": ",".join(map(str, group.streams)),
                "seconds": group.seconds,
                "warmup": group.warmup,
                "pattern": group.pattern,
                "clients": ",".join(group.clients),
            }
            who = ",".join(group.beside) or "strategies"
            streams = ",".join(map(str, group.streams))
            label = f"{topology.name} {who}, streams {streams}"
            flags = ("--ping",) if group.ping else ()
            cells += _repeats(
                label, ("fig4", *flags), options, fig4.total_seconds(group), settings.repeat, seed
            )
    return cells


def failover_cells(settings: FailoverSettings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """A guest for each strategy and each peer, with all faults."""
    cells = []
    alone = replace(settings, repeat=1, strategies=[], autonomous=(), peers=())
    groups = [replace(alone, strategies=[name]) for name in settings.strategies]
    groups += [replace(alone, autonomous=(name,)) for name in settings.autonomous]
    groups += [replace(alone, peers=(name,)) for name in settings.peers]
    for group in groups:
        options = {
            "topology": files[settings.topology.name],
            "fault": ",".join(group.faults),
            "strategies": ",".join(group.strategies) or "none",
            "peers": ",".join(group.peers),
            "autonomous": ",".join(group.autonomous),
            "mode": group.mode,
        }
        label = ",".join((*group.strategies, *group.beside))
        cells += _repeats(
            label, ("failover",), options, failover.total_seconds(group), settings.repeat, seed
        )
    return cells


def fig9_cells(settings: Fig9Settings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """The bench in one guest."""
    arguments = [
        "fig9",
        "--topology",
        str(files[settings.topology.name]),
        "--strategy",
        settings.strategy,
    ]
    arguments += ["--streams", str(settings.streams), "--phase-seconds", str(settings.phase_s)]
    return [Cell(f"fig9 {settings.strategy}", tuple(arguments), fig9.total_seconds(settings), seed)]


def stream_cells(settings: StreamSettings, seed: int) -> list[Cell]:
    """A guest for each set of links with all strategies, and for each contender with own labs.

    On busy CPUs one guest has them all: they are compared with plain TCP of the same run.
    """
    cells = []
    for links in settings.links:
        alone = replace(settings, links=(links,), repeat=1, strategies=[], autonomous=(), peers=())
        groups = [replace(alone, strategies=settings.strategies)] if settings.strategies else []
        groups += [replace(alone, autonomous=(name,)) for name in settings.autonomous]
        groups += [replace(alone, peers=(name,)) for name in settings.peers]
        if settings.busy:
            groups = [replace(settings, links=(links,), repeat=1)]
        for group in groups:
            options = {
                "links": links,
                "strategies": ",".join(group.strategies) or "none",
                "peers": ",".join(group.peers),
                "autonomous": ",".join(group.autonomous),
                "proto": ",".join(group.protos),
                "cc": ",".join(group.ccs),
                "mode": group.mode,
                "seconds": group.seconds,
            }
            label = f"{links} {','.join(group.beside) or 'strategies'}"
            flags = ("--busy",) if group.busy else ()
            cells += _repeats(
                label,
                ("stream", *flags),
                options,
                stream.total_seconds(group),
                settings.repeat,
                seed,
            )
    return cells


def demand_cells(settings: DemandSettings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """A guest for each strategy, with a controller or without."""
    cells = []
    alone = replace(settings, repeat=1, strategies=[], autonomous=())
    groups = [replace(alone, strategies=[name]) for name in settings.strategies]
    groups += [replace(alone, autonomous=(name,)) for name in settings.autonomous]
    for group in groups:
        options = {
            "topology": files[settings.topology.name],
            "strategies": ",".join(group.strategies) or "none",
            "autonomous": ",".join(group.autonomous),
            "stops": group.stops,
            "before-seconds": group.before_s,
            "pause-seconds": group.pause_s,
            "after-seconds": group.after_s,
        }
        label = ",".join((*group.strategies, *group.beside))
        cells += _repeats(
            label, ("demand",), options, demand.total_seconds(group), settings.repeat, seed
        )
    return cells


def vbft_cells(settings: VbftSettings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """A guest for each topology, path table and mode, with all patterns.

    Shares of flat are filled in afterwards.
    """
    cells = []
    for topology, table, mode in vbft.labs(settings):
        tables = settings.tables if table is None else (table,)
        one = replace(settings, topologies=[topology], tables=tables, modes=(mode,), repeat=1)
        fastest = max(nic.rate_bps for host in topology.hosts.values() for nic in host.nics)
        options = {
            "topologies": files[topology.name],
            "pattern": ",".join(settings.patterns),
            "tables": ",".join(tables),
            "mode": mode,
            "engine": ",".join(settings.engines),
            "seconds": settings.seconds,
            "warmup": settings.warmup,
            "streams": settings.streams,
            "link-mbps": fastest // 1_000_000,
        }
        label = " ".join(filter(None, (topology.name, table, mode)))
        cells += _repeats(
            label, ("vbft", "--no-flat"), options, vbft.total_seconds(one), settings.repeat, seed
        )
    return cells


def jobs_cells(settings: JobsSettings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """A guest for each topology, with all policies.

    What the jobs have alone is of the same guest; shares are filled in afterwards, too.
    """
    cells = []
    for topology in settings.topologies:
        one = replace(settings, topologies=[topology], repeat=1)
        fastest = max(nic.rate_bps for host in topology.hosts.values() for nic in host.nics)
        options = {
            "topologies": files[topology.name],
            "policies": ",".join(settings.policies),
            "mode": settings.mode,
            "streams": settings.streams,
            "seconds": settings.seconds,
            "warmup": settings.warmup,
            "link-mbps": fastest // 1_000_000,
        }
        planned_s = jobs.total_seconds(one)
        cells += _repeats(topology.name, ("jobs",), options, planned_s, settings.repeat, seed)
    return cells


def _repeats(
    label: str,
    bench: Sequence[str],
    options: Mapping[str, Any],
    planned_s: float,
    repeat: int,
    seed: int,
) -> list[Cell]:
    words = [
        word for name, value in options.items() if value != "" for word in (f"--{name}", str(value))
    ]
    return [
        Cell(
            label,
            (*bench, *words, "--repeat", "1"),
            planned_s,
            seed + number - 1,
            {"repeat": number},
        )
        for number in range(1, repeat + 1)
    ]
