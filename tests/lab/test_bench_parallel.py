"""`ri2n bench parallel` as a whole, on three slow links."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ri2n_sdn.bench.context import Report
from ri2n_sdn.bench.parallel import run_parallel
from ri2n_sdn.bench.parallel_plan import ParallelSettings
from ri2n_sdn.bench.progress import Progress
from ri2n_sdn.bench.vbft import rescaled
from ri2n_sdn.fabric.topology import load_topology

TOPOLOGY = Path(__file__).resolve().parents[2] / "topologies" / "parallel" / "six.yaml"
RATE = 10_000_000
SIZE = 1 << 20


@pytest.fixture(scope="module")
def settings() -> ParallelSettings:
    topology = rescaled(load_topology(TOPOLOGY), RATE)
    return ParallelSettings(topology, links=3, sizes=(SIZE,), streams=(3,), methods=("tcps", "parallel"), repeat=1)


def measured(settings: ParallelSettings) -> Report:
    report = Report("parallel", None, settings.described())
    run_parallel(settings, report, Progress(lambda *_: None))
    assert report.document["complete"] and report.document["summary"]
    return report


def test_three_links_are_faster_than_one(settings: ParallelSettings) -> None:
    rows = measured(replace(settings, parts=("transfer",))).rows
    kinds = [("fresh", "include"), ("fresh", "exclude"), ("warm", "exclude")]
    wanted = [(method, streams, *kind) for method, streams in (("tcp", 1), ("tcps", 3)) for kind in kinds]
    wanted += [("parallel", 3, *kind) for kind in (kinds[0], ("fresh", "early"), *kinds[1:])]
    assert [(row["method"], row["streams"], row["connection"], row["setup"]) for row in rows] == wanted
    for row in rows:
        assert row["goodput_bps"] == pytest.approx(SIZE * 8 / (row["time_ms"] / 1e3), rel=1e-6)
        assert 0 < row["goodput_bps"] <= 1.05 * RATE * row["streams"]
        assert row["speedup"] > 2 if row["streams"] == 3 else row["speedup"] == 1.0
    for method in ("tcp", "tcps", "parallel"):
        fresh = {
            row["setup"]: row["time_ms"] for row in rows if (row["method"], row["connection"]) == (method, "fresh")
        }
        assert fresh["include"] > fresh["exclude"]


def test_short_transfers_are_medians(settings: ParallelSettings) -> None:
    chosen = replace(settings, parts=("transfer",), sizes=(2048,), samples=3, connections=("fresh",))
    rows = measured(chosen).rows
    assert len(rows) == 2 + 2 + 3 and all(row["repeat"] == 1 and 0 < row["time_ms"] < 1e3 for row in rows)


def test_a_transfer_survives_its_links(settings: ParallelSettings) -> None:
    faults = ("one_blackhole", "all_then_one")
    chosen = replace(settings, parts=("fault",), methods=("parallel",), faults=faults, fault_bytes=4 << 20)
    rows = measured(chosen).rows
    assert [row["fault"] for row in rows] == list(faults)
    for row in rows:
        assert row["completed"] and row["intact"], row["error"]
        assert 0 < row["stall_s"] < row["total_s"]
        assert row["links_lost"] + row["links_suspected"] >= 1 and row["resent_bytes"] > 0
    assert rows[1]["stall_s"] > 1.5  # nothing can come while all links are dead


def test_many_connections_use_all_interfaces(settings: ParallelSettings) -> None:
    chosen = replace(settings, parts=("mix",), mix_methods=("parallel",), shorts=(2,), processes=4, window_s=2.0)
    report = measured(chosen)
    baseline, mixed = report.rows
    assert (baseline["method"], baseline["short"], baseline["speedup"]) == ("tcp", 0, 1.0)
    assert mixed["speedup"] > 2 and mixed["failed"] == 0 and mixed["processes"] == 12
    for row, raw in zip(report.rows, report.document["raw"], strict=True):
        assert row["goodput_bps"] == round(sum(each["bytes"] for each in raw["processes"]) * 8 / 2.0)
        assert len(raw["processes"]) == 12 and row["served_per_min"] > 0


def test_round_trips_are_by_turns(settings: ParallelSettings) -> None:
    rows = measured(replace(settings, parts=("roundtrip",), round_trips=100)).rows
    assert {row["method"] for row in rows} == {"tcp", "parallel"}
    for tcp, parallel in zip(rows[::2], rows[1::2], strict=True):
        assert 0 < tcp["rtt_us"] <= tcp["rtt_p99_us"] and tcp["over_tcp_us"] is None
        assert parallel["over_tcp_us"] == pytest.approx(parallel["rtt_us"] - tcp["rtt_us"], abs=0.01)
