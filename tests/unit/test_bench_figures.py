# SPDX-License-Identifier: Apache-2.0
"""A figure of a bench is declared once: summaries, tables, report and pictures follow from it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from ri2n_lab.bench import (
    cycle,
    demand,
    failover,
    fig4,
    fig9,
    helper_plan,
    jobs_plan,
    rules,
    stream,
    vbft,
    vbft_rows,
    web,
)
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import Figure, Plot, names
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement, thin_json
from ri2n_lab.bench.report_rows import KINDS, figures_of
from ri2n_lab.cli import bench_jobs, bench_rules, bench_tables, bench_vbft, bench_web
from ri2n_sdn.errors import BadInput
from tests.unit.test_bench_pictures import named, texts
from tests.unit.test_bench_report import table_after

pytestmark = pytest.mark.usefixtures("drawn_once")

Json = dict[str, Any]

EXTRA = Figure("colour_nm", "colour", "um", combine=max, show=".2f", scale=1e-3)
BENCHES: dict[
    str, tuple[Any, Callable[[Report], RenderableType], Callable[[list[Json]], list[Json]]]
] = {
    "fig4": (fig4, lambda report: bench_tables.fig4_table(report, "bulk"), fig4.summarized),
    "failover": (failover, bench_tables.failover_table, failover.summarized),
    "fig9": (fig9, bench_tables.fig9_table, lambda rows: rows),
    "stream": (stream, bench_tables.stream_table, stream.summarized),
    "demand": (demand, bench_tables.demand_table, demand.summarized),
    "helper": (helper_plan, bench_tables.helper_tables, helper_plan.summarized),
    "vbft": (vbft_rows, bench_vbft.vbft_table, vbft.summarized),
    "cycle": (cycle, bench_tables.cycle_table, lambda rows: rows),
    "rules": (rules, bench_rules.rules_table, rules.summarized),
    "web": (web, bench_web.web_table, web.summarized),
    "jobs": (jobs_plan, bench_jobs.jobs_table, jobs_plan.summarized),
}
KEYS: dict[str, Json] = {
    "fig4": {"topology": "d", "strategy": "max_min", "streams": 8, "clients": {}, "weights": {}},
    "failover": {"fault": "nic_down", "strategy": "max_min", "mode": "flow", "path": "-"},
    "fig9": {"phase": "e", "hbspan_s": 1, "weights": {}, "goodput_bps": {}},
    "stream": {"links_mbps": "1,1", "strategy": "max_min", "peer": False, "proto": "udp"},
    "demand": {"topology": "f", "strategy": "max_min"},
    "helper": {"part": "streams", "what": "veth", "datapath": None, "load": "1 stream"},
    "vbft": {"topology": "flat", "pattern": "cg", "table": None, "mode": "flow", "engine": "udp"},
    "cycle": {"hosts": 2, "active_pairs": 1, "rounds": 3},
    "web": {"watched": "all", "hosts": 2, "active_pairs": 1},
    "jobs": {
        **{"topology": "b", "mode": "flow", "policy": "none", "job": "one", "beside": True},
        **{"apart": False, "exchange": None},
    },
    "rules": {"over": "veth", "method": "map", "rules": 10, "beside": 10},
}


def rows_of(kind: str, figures: Sequence[Figure]) -> list[Json]:
    """Two repeats with the extra figure, all others as little as may be."""
    least = {
        figure.name: 1 if figure.kind in (int, int | float) else None
        for figure in figures
        if figure.name not in KEYS[kind]
    }
    common: Json = {**KEYS[kind], **least}
    if kind in ("fig4", "failover"):
        common["peer"] = False
    if kind == "stream":
        common |= {"cc": None, "mode": "packet"}
    if kind == "vbft":
        common["streams"] = None
    count = 1 if kind in ("cycle", "fig9") else 2
    return [
        {**common, "repeat": number, EXTRA.name: 500 * number} for number in range(1, count + 1)
    ]


def printed(table: RenderableType) -> str:
    output = io.StringIO()
    Console(file=output, width=400).print(table)
    return output.getvalue()


@pytest.mark.parametrize("kind", BENCHES)
def test_one_more_declaration_is_one_more_figure_everywhere(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, table, summarized = BENCHES[kind]
    monkeypatch.setattr(bench, "FIGURES", (*bench.FIGURES, EXTRA))
    if kind == "vbft":
        monkeypatch.setattr(vbft, "FIGURES", bench.FIGURES)
    rows = rows_of(kind, bench.FIGURES)
    several = len(rows) == 2
    report = Report(kind, None, {"topology": "-"})
    report.replace(rows, [], summarized(rows))
    if several:
        line = report.document["summary"][0]
        assert (line["colour_nm"], line["colour_nm_spread"]) == (1000, [500, 1000])
    cell = "1.00 (0.50..1.00)" if several else "0.50"
    text = printed(table(report))
    assert "colour, um" in text and cell in text
    report.finish()
    document = report.document
    if kind == "fig9":
        document["raw"] = []
    path = tmp_path / f"{kind}.json"
    path.write_text(json.dumps(document))
    measurement = load_measurement(path)
    page = make_report([measurement])[f"results/{measurement.name}.md"]
    head = next(line for line in page.splitlines() if "colour, um" in line)
    found = table_after(page, head)
    assert found[2][found[0].index("colour, um")] == cell
    # The file that the report keeps has it, too.
    path.write_text(thin_json(measurement))
    assert load_measurement(path).name == measurement.name
    assert "colour_nm" in path.read_text()


def test_the_part_of_a_bench_has_figures_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ri2n_lab.bench import parallel_plan as plan
    from ri2n_lab.cli.bench_parallel import parallel_table

    declared = {**plan.FIGURES, "fault": (*plan.FIGURES["fault"], EXTRA)}
    monkeypatch.setattr(plan, "FIGURES", declared)
    monkeypatch.setattr("ri2n_lab.bench.report_parallel.FIGURES", declared)
    row = plan.blank_row("fault", "parallel", 6, 6, 1 << 20, fault="one_down", repeat=1)
    assert EXTRA.name in row
    row |= {"completed": True, "intact": True, "stall_s": 1, "total_s": 2, EXTRA.name: 500}
    report = Report("parallel", None, {})
    report.replace([row], [], plan.summarized([row]))
    assert report.document["summary"][0]["colour_nm"] == 500
    assert "colour, um 0.50" in printed(parallel_table(report))
    report.finish()
    path = tmp_path / "parallel.json"
    path.write_text(json.dumps(report.document))
    page = make_report([load_measurement(path)])["results/parallel-host.md"]
    found = table_after(page, "## Links die")
    assert (found[0][-1], found[2][-1]) == ("colour, um", "0.50")


def test_a_declared_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plot = Plot("colour", "The colour", "nm", (1000.0, "red"))
    extra = Figure(EXTRA.name, "colour", "nm", plot=plot)
    monkeypatch.setattr(failover, "FIGURES", (*failover.FIGURES, extra))
    rows = rows_of("failover", failover.FIGURES)
    report = Report("failover", None, {"topology": "-"})
    report.replace(rows, [], [])
    path = tmp_path / "failover.json"
    path.write_text(json.dumps(report.document))
    made = make_report([load_measurement(path)])
    svg = made["results/failover-host-colour.svg"]
    assert {"The colour", "nm", "red", "nic_down"} <= set(texts(svg))
    # Repeats are combined here as declared, too.
    assert list(named(svg, "bar")) == ["nic_down:max_min:750"]
    assert "](failover-host-colour.svg)" in made["results/failover-host.md"]


def test_the_report_checks_what_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = Figure(EXTRA.name, "colour", required=True)
    monkeypatch.setattr(demand, "FIGURES", (*demand.FIGURES, extra))
    rows = rows_of("demand", demand.FIGURES)
    del rows[1][EXTRA.name]
    report = Report("demand", None, {})
    report.replace(rows, [], [])
    path = tmp_path / "demand.json"
    path.write_text(json.dumps(report.document))
    with pytest.raises(BadInput, match=r"rows\[1\]\.colour_nm"):
        load_measurement(path)


def test_names_are_unique_and_columns_have_headings() -> None:
    for kind in KINDS:
        figures = figures_of(kind)
        assert len(set(names(figures))) == len(figures)
        titles = [figure.title for figure in figures if figure.heading]
        # Parts of the parallel bench have tables of their own.
        assert kind == "parallel" or len(set(titles)) == len(titles)


def test_what_a_figure_shows() -> None:
    share = Figure("share", "share", show=".2f")
    assert share.cell([0.5, None, 1.0]) == "0.75 (0.50..1.00)"
    assert share.cell([0.5, 0.5]) == "0.50" and share.cell([None]) == "-" and share.cell([]) == "-"
    assert share.middle([0.5, 1.0]) == "0.75"
    assert (
        share.summary_cell({"share": 0.5, "share_spread": [0.25, 1.0]}, []) == "0.50 (0.25..1.00)"
    )
    words = Figure("done", "done", combine=None, show=lambda values: f"{sum(values)} done")
    assert words.summary_cell({}, [{"done": 1}, {"done": 0}]) == "1 done"
    late = Figure("late", "late", when_measured=True)
    assert late.shown([None, 1]) and not late.shown([None]) and not Figure("late").shown([1])
