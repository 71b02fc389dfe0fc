"""Pure: which guests a bench needs, one `ri2n bench` for each (see guests.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ri2n_sdn.bench import failover, fig4, fig9
from ri2n_sdn.bench.failover import FailoverSettings
from ri2n_sdn.bench.fig4 import Fig4Settings
from ri2n_sdn.bench.fig9 import Fig9Settings
from ri2n_sdn.bench.guests import Cell

__all__ = ["failover_cells", "fig4_cells", "fig9_cells"]


def fig4_cells(settings: Fig4Settings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """All strategies on one topology share a guest, since a controller and four hosts take long to start; every peer
    has its own.

    `files` are the topologies by name; repeat n has the seed `seed` + n - 1.
    """
    cells = []
    for topology in settings.topologies:
        one = replace(settings, topologies=[topology], repeat=1)
        groups = [replace(one, peers=())] if settings.strategies else []
        groups += [replace(one, strategies=[], peers=(name,)) for name in settings.peers]
        for group in groups:
            options = {
                "topologies": files[topology.name],
                "strategies": ",".join(group.strategies) or "none",
                "peers": ",".join(group.peers),
                "mode": group.mode,
                "streams": ",".join(map(str, group.streams)),
                "seconds": group.seconds,
                "warmup": group.warmup,
                "pattern": group.pattern,
                "clients": ",".join(group.clients),
            }
            who = ",".join(group.peers) or "strategies"
            streams = ",".join(map(str, group.streams))
            label = f"{topology.name} {who}, streams {streams}"
            cells += _repeats(label, "fig4", options, fig4.total_seconds(group), settings.repeat, seed)
    return cells


def failover_cells(settings: FailoverSettings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """A guest for each strategy and each peer, with all faults."""
    cells = []
    one = replace(settings, repeat=1)
    groups = [replace(one, strategies=[name], peers=()) for name in settings.strategies]
    groups += [replace(one, strategies=[], peers=(name,)) for name in settings.peers]
    for group in groups:
        options = {
            "topology": files[settings.topology.name],
            "fault": ",".join(group.faults),
            "strategies": ",".join(group.strategies) or "none",
            "peers": ",".join(group.peers),
            "mode": group.mode,
        }
        label = ",".join((*group.strategies, *group.peers))
        cells += _repeats(label, "failover", options, failover.total_seconds(group), settings.repeat, seed)
    return cells


def fig9_cells(settings: Fig9Settings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """One guest."""
    arguments = ["fig9", "--topology", str(files[settings.topology.name]), "--strategy", settings.strategy]
    arguments += ["--streams", str(settings.streams), "--phase-seconds", str(settings.phase_s)]
    return [Cell(f"fig9 {settings.strategy}", tuple(arguments), fig9.total_seconds(settings), seed)]


def _repeats(
    label: str, bench: str, options: Mapping[str, Any], planned_s: float, repeat: int, seed: int
) -> list[Cell]:
    words = [word for name, value in options.items() if value != "" for word in (f"--{name}", str(value))]
    return [
        Cell(label, (bench, *words, "--repeat", "1"), planned_s, seed + number - 1, {"repeat": number})
        for number in range(1, repeat + 1)
    ]
