# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench report` of what is measured of the helper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.helper_plan import Load, beside, blank_row
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement, thin_json
from ri2n_sdn.errors import BadInput
from tests.unit.test_bench_report import table_after

pytestmark = pytest.mark.usefixtures("drawn_once")

Json = dict[str, Any]


def written(path: Path, kind: str, rows: list[Json], settings: Json | None = None) -> Path:
    report = Report(kind, None, settings or {})
    for row in rows:
        report.add(row, {"bulky": list(range(100))}, [])
    report.finish()
    path.write_text(json.dumps(report.document))
    return path


def page_of(path: Path) -> str:
    """The page, after what the report keeps was read again as the same measurement."""
    measurement = load_measurement(path)
    kept = path.with_name(f"{measurement.name}.json")
    kept.write_text(thin_json(measurement))
    assert load_measurement(kept) == measurement and "bulky" not in kept.read_text()
    return make_report([measurement])[f"results/{measurement.name}.md"]


def test_demand(tmp_path: Path) -> None:
    key = {"topology": "f", "strategy": "max_min", "peer": False, "mode": "packet"}
    shares = {"others_after_stop": 0.98, "worst_after_start": 0.97}
    rows: list[Json] = [
        {**key, "repeat": 1, "others_have_it_ms": 30, "all_fair_ms": None, **shares}
    ]
    rows.append({**key, "repeat": 2, "others_have_it_ms": 50, "all_fair_ms": 80, **shares})
    rows.append(
        {
            **key,
            "strategy": "ri2n_plus",
            "repeat": 1,
            **shares,
            "others_have_it_ms": None,
            "all_fair_ms": None,
        }
    )
    page = page_of(written(tmp_path / "demand.json", "demand", rows, {"stops": "B"}))
    assert table_after(page, "# A client stops")[2:] == [
        ["f", "`max_min`", "40 (30..50)", "80, 1 of 2 never", "0.980", "0.970"],
        ["f", "`ri2n_plus`", "never", "never", "0.980", "0.970"],
    ]


def test_a_row_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "stream.json", "stream", [{"topology": "f"}])
    with pytest.raises(BadInput, match=r"rows\[0\]\.links_mbps"):
        load_measurement(path)


def helper_row(what: str, load: Load, **figures: float) -> Json:
    return {**blank_row((what, "netdev" if what == "flow" else None), load, 1), **figures}


def test_contenders_are_beside_a_veth(tmp_path: Path) -> None:
    stream, ping, packets = Load("streams"), Load("ping"), Load("packets")
    rows = [
        helper_row("veth", stream, goodput_bps=20e9, cpu_s_per_gbit=0.1),
        helper_row("veth", ping, median_us=50.0, p99_us=90.0),
        helper_row("flow", stream, goodput_bps=1e9, cpu_s_per_gbit=1.0, foreign_cpus=0.5),
        helper_row("flow", ping, median_us=80.0, p99_us=95.0),
        {**helper_row("flow", packets), "repeat": 0, "why_not": "it does not"},
        {**helper_row("veth", packets), "failed": "no word"},
    ]
    path = written(tmp_path / "helper.json", "helper", beside(rows))
    page = page_of(path)
    found = table_after(page, "**Streams**")
    assert found[2][:3] == ["1 stream", "veth", ""]
    assert found[3] == ["1 stream", "flow", "netdev", "1.00", "0.050", "1.000", "10.00", "0.50"]
    assert table_after(page, "**Round trips**")[3][-2:] == ["1.60", "30.0"]
    answer = make_report([load_measurement(path)])["results.md"]
    assert "Other programs used 0.5 CPUs of the machine meanwhile" in answer
    matrix = table_after(answer, "## What do helper")
    assert matrix[2:] == [
        ["veth", "", "20.00 Gbit/s", "50.0 us", "-"],
        ["flow", "netdev", "0.050, CPU 10.0", "1.60", "no (1)"],
    ]
