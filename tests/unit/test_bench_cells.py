# SPDX-License-Identifier: Apache-2.0
"""Which guests a bench needs, and how their reports become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench.cells import failover_cells, fig4_cells, fig9_cells
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.failover import FAULTS, FailoverSettings
from ri2n_lab.bench.fig4 import Fig4Settings
from ri2n_lab.bench.fig9 import Fig9Settings
from ri2n_lab.bench.guests import Cell, run_cells, write_topology
from ri2n_lab.bench.progress import Progress
from ri2n_lab.guests.kernels import Kernel
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology, load_topology
from tests.unit.bench_options import option

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FILES = {name: Path(f"/x/{name}.yaml") for name in "bd"}


@pytest.fixture
def b_and_d() -> list[Topology]:
    return [load_topology(TOPOLOGIES / "fig4" / f"{name}.yaml") for name in "bd"]


def test_fig4_measures_everything_once_per_repeat(b_and_d: list[Topology]) -> None:
    settings = Fig4Settings(
        b_and_d, ["max_min", "ri2n_plus"], streams=(1, 8), repeat=2, peers=("lcb", "mptcp")
    )
    cells = fig4_cells(settings, FILES, seed=5)
    seen = [
        (option(cell, "topologies"), who, streams, cell.seed)
        for cell in cells
        for who in (
            *(option(cell, "strategies") or "").split(","),
            *(option(cell, "peers") or "").split(","),
        )
        for streams in (option(cell, "streams") or "").split(",")
        if who not in ("", "none")
    ]
    wanted = [
        (f"/x/{name}.yaml", who, streams, seed)
        for name in "bd"
        for who in ("max_min", "ri2n_plus", "lcb", "mptcp")
        for streams in "18"
        for seed in (5, 6)
    ]
    assert sorted(seen) == sorted(wanted)
    assert all(
        cell.overlay == {"repeat": cell.seed - 4} and option(cell, "repeat") == "1"
        for cell in cells
    )
    assert all(cell.planned_s > 0 for cell in cells)


def test_options_that_change_the_traffic_reach_the_guest(b_and_d: list[Topology]) -> None:
    settings = Fig4Settings(
        b_and_d[1:],
        ["max_min"],
        seconds=7,
        warmup=2,
        repeat=1,
        pattern="ping-B",
        clients=("C",),
        streams=(3,),
    )
    (cell,) = fig4_cells(settings, FILES, seed=1)
    assert [
        option(cell, name) for name in ("seconds", "warmup", "pattern", "clients", "streams")
    ] == [*("7", "2", "ping-B", "C", "3")]


def test_failover_and_fig9(b_and_d: list[Topology]) -> None:
    settings = FailoverSettings(b_and_d[0], FAULTS, ["max_min"], repeat=1, peers=("lcb",))
    cells = failover_cells(settings, FILES, seed=1)
    assert [(option(cell, "strategies"), option(cell, "peers")) for cell in cells] == [
        ("max_min", None),
        ("none", "lcb"),
    ]
    assert {option(cell, "fault") for cell in cells} == {",".join(FAULTS)}
    (cell,) = fig9_cells(Fig9Settings(b_and_d[0], phase_s=9), FILES, seed=3)
    assert (cell.arguments[0], option(cell, "phase-seconds"), cell.seed) == ("fig9", "9", 3)


def test_a_written_topology_is_the_same_one(b_and_d: list[Topology], tmp_path: Path) -> None:
    for topology in b_and_d:
        path = write_topology(tmp_path, topology.name, topology.model_dump(mode="json"))
        assert load_topology(path) == topology


def test_parts_are_laid_together_in_order_and_failures_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guests that end in any order; one dies once, another always."""
    from ri2n_lab.bench import guests as module

    deaths = {"slow": 0, "dies once": 1, "fine": 0}
    polls = {"slow": 3, "dies once": 1, "fine": 1}

    class Guest:
        stderr = "[3 of about 9 s] at work\n"
        share = tmp_path

        def __init__(self, kernel: Kernel, argv: list[str], **_: Any) -> None:
            self.label = argv[-3]
            self.left = polls[self.label]

        def __enter__(self) -> Guest:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def end(self) -> None:
            pass

    def result(guest: Guest) -> dict[str, Any] | None:
        guest.left -= 1
        if guest.left > 0:
            return None
        if deaths[guest.label] > 0:
            deaths[guest.label] -= 1
            raise NotAvailable("the guest died")
        context = {"labs": {guest.label: {}}, "kernel": "6.1"}
        return {
            "rows": [{"who": guest.label}],
            "raw": [guest.label],
            "context": context,
            "guest_s": 10.0,
        }

    monkeypatch.setattr(module, "Guest", Guest)
    monkeypatch.setattr(module, "_result", result)
    monkeypatch.setattr(module, "POLL_S", 0)
    cells = [Cell(label, (label,), 9.0, overlay={"repeat": 1}) for label in polls]
    kernel = Kernel("virtual", Path("/x"), virtual=True)
    report = Report("fig4", None, {})
    run_cells(kernel, cells, report, Progress(lambda *_: None), lambda rows: [{"count": len(rows)}])
    assert [row["who"] for row in report.rows] == ["slow", "dies once", "fine"]
    assert all(row["seed"] == 1 and row["repeat"] == 1 for row in report.rows)
    assert report.document["summary"] == [{"count": 3}]
    assert report.document["complete"] and report.document["context"]["guest_s"] == 30.0
    assert set(report.document["context"]["labs"]) == set(polls)

    deaths["fine"] = 99
    report = Report("fig4", None, {})
    with pytest.raises(NotAvailable, match="1 of 3 guests failed; the first: fine: the guest died"):
        run_cells(kernel, cells, report, Progress(lambda *_: None), lambda rows: [])
    assert [row["who"] for row in report.rows] == ["slow", "dies once"]
    assert not report.document["complete"]
