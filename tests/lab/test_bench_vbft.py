# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench vbft` as a whole, on a small fat tree."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from ri2n_lab.bench import vbft
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.patterns import pattern_bound
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.vbft import VbftSettings, rescaled, run_vbft
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.flooding import flooded_frames
from ri2n_lab.traffic.mpi import check_mpi
from ri2n_sdn.errors import NotAvailable
from tests.lab.conftest import EXACT
from tests.unit.test_bench_vbft import fat_tree

RATE = 20_000_000


@pytest.fixture(scope="module")
def settings() -> VbftSettings:
    topology = rescaled(fat_tree(2, 2, hosts=4), RATE)
    return VbftSettings([topology], ("bisection",), ("cyclic",), seconds=2, warmup=1, repeat=1)


def measured(settings: VbftSettings) -> Report:
    report = Report("vbft", None, settings.described())
    run_vbft(settings, report, Progress(lambda *_: None))
    assert report.document["complete"]
    return report


@pytest.mark.virtual
@pytest.mark.smoke
def test_every_engine_measures_what_comes_through(
    settings: VbftSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pairs use two cables, so that none shares anything with another.

    Unless both are given one cable.
    """
    engines: tuple[str, ...] = ("tcp", "iperf3")
    if not EXACT:  # MPI spins, which stops virtual time for ever
        with suppress(NotAvailable):  # tests/lab/test_mpi.py says that MPI is missing
            check_mpi()
            engines = (*engines, "mpi")
    counted: list[int] = []

    def count(lab: Lab) -> dict[str, int]:
        found = flooded_frames(lab)
        assert set(found) == {"n1", "n2", "n3", "n4"}
        found["n1"] += 1000 * len(counted)  # so that some frames are flooded
        counted.append(sum(found.values()))
        return found

    monkeypatch.setattr(vbft, "flooded_frames", count)
    report = measured(replace(settings, engines=engines))
    assert [row["engine"] for row in report.rows] == list(engines)
    for row in report.rows:
        assert (
            (0.35 * 2 * RATE / 8 if EXACT else 0)
            < row["bytes_per_s"]
            <= 1.02 * row["bound_bytes_per_s"]
        )
        assert set(row["hosts"]) == {"n3", "n4"} and min(row["hosts"].values()) > (
            0 if EXACT else -1
        )
        assert row["of_flat"] is None and row["hbspan_s"] > 0
    flooded = [after - before for before, after in zip(counted[::2], counted[1::2], strict=True)]
    assert [row["flooded"] for row in report.rows] == flooded
    frames = sum(row["bytes_per_s"] for row in report.rows) * settings.seconds / 1500
    assert sum(flooded) - 1000 * len(flooded) < 0.001 * frames, "switches know where everybody is"


def test_phases_follow_each_other(settings: VbftSettings) -> None:
    report = measured(replace(settings, patterns=("shift", "alltoall"), modes=("flow",)))
    shift, everybody = report.rows
    assert shift["bound_bytes_per_s"] == round(
        pattern_bound(settings.topologies[0], "shift").total_bps / 8
    )
    assert [len(phase) for phase in report.document["raw"][0]["received_bytes"]] == [4, 4, 4]
    assert all(
        count > 0
        for phase in report.document["raw"][0]["received_bytes"]
        for count in phase.values()
    )
    assert len(report.document["raw"][1]["received_bytes"][0]) == 12
    for row in (shift, everybody):
        assert set(row["hosts"]) == {"n1", "n2", "n3", "n4"} and min(row["hosts"].values()) > 0
