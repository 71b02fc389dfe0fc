"""`ri2n bench jobs` without a lab: its cases, rows, guests, tables and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench import jobs
from ri2n_lab.bench.cells import jobs_cells
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.jobs import Case, JobsSettings, cases, compared
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement, thin_json
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.cli import bench_jobs
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology
from tests.unit.test_bench_figures import printed
from tests.unit.test_bench_report import table_after

Json = dict[str, Any]

RATES = {
    ("none", "one", False): 200e6,
    ("none", "two", False): 190e6,
    ("none", "one", True): 20e6,
    ("none", "two", True): 171e6,
    ("exclusive", "one", True): 100e6,
    ("exclusive", "two", True): 95e6,
}


def rows() -> list[Json]:
    return compared(
        [
            {
                **{"topology": "b", "mode": "flow", "policy": policy, "job": job},
                **{"beside": beside, "repeat": repeat, "retransmits": 3},
                "goodput_bps": round(rate_bps * factor),
            }
            for (policy, job, beside), rate_bps in RATES.items()
            for repeat, factor in ((1, 1.0), (2, 1.0), (3, 1.02))
        ]
    )


def test_each_job_is_alone_first_and_then_beside_the_other_with_every_policy() -> None:
    assert cases(("none", "exclusive")) == [
        Case("none", ("one",)),
        Case("none", ("two",)),
        Case("none", ("one", "two")),
        Case("exclusive", ("one", "two")),
    ]


def test_shares_are_of_what_the_same_job_has_alone() -> None:
    found = {
        (row["policy"], row["job"], row["beside"]): row["of_alone"]
        for row in rows()
        if row["repeat"] == 1
    }
    assert found == {
        ("none", "one", False): 1.0,
        ("none", "two", False): 1.0,
        ("none", "one", True): 0.1,
        ("none", "two", True): 0.9,
        ("exclusive", "one", True): 0.5,
        ("exclusive", "two", True): 0.5,
    }


def test_without_the_rate_alone_there_is_no_share() -> None:
    beside = [row for row in rows() if row["beside"]]
    assert all(row["of_alone"] is None for row in compared(beside))
    elsewhere = [{**row, "topology": "vbft_2_2"} for row in beside]
    alone = [row for row in rows() if not row["beside"]]
    assert all(row["of_alone"] is None for row in compared([*alone, *elsewhere])[len(alone) :])


def test_hosts_that_cannot_be_halved_are_refused() -> None:
    settings = JobsSettings([find_topology("fig4/c")], policies=("none",))
    odd = [topology for topology in settings.topologies if len(topology.managed_hosts()) % 2]
    assert odd, "fig4/c has an odd number of hosts"
    with pytest.raises(BadInput, match="even number"):
        jobs.check(settings)


def test_a_guest_for_each_topology_and_repeat() -> None:
    topologies = [find_topology("fig4/b"), find_topology("vbft_2_2")]
    settings = JobsSettings(topologies, seconds=5, repeat=2)
    files = {topology.name: Path(f"/x/{topology.name}.yaml") for topology in topologies}
    found = jobs_cells(settings, files, seed=7)
    assert [(cell.label, cell.seed) for cell in found] == [
        ("b", 7),
        ("b", 8),
        ("vbft-2-2", 7),
        ("vbft-2-2", 8),
    ]
    for cell in found:
        words = list(cell.arguments)
        assert words[0] == "jobs" and words[-2:] == ["--repeat", "1"]
        assert words[words.index("--policies") + 1] == "none,exclusive"
        assert words[words.index("--link-mbps") + 1] == "100"
        assert cell.planned_s > 4 * 5


def test_the_command_names_what_the_bench_has() -> None:
    assert list(jobs.POLICIES) == bench_jobs.POLICIES
    assert len(set(jobs.USERS.values())) == 2 and 0 not in jobs.USERS.values()


def report_of(found: list[Json]) -> Report:
    report = Report("jobs", None, {"topologies": []})
    report.replace(found, [], jobs.summarized(found))
    report.finish()
    return report


def test_table_and_report(tmp_path: Path) -> None:
    report = report_of(rows())
    text = printed(bench_jobs.jobs_table(report))
    assert "0.100 (0.100..0.102)" in text and "exclusive" in text
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(report.document))
    measurement = load_measurement(path)
    path.write_text(thin_json(measurement))
    assert load_measurement(path) == measurement
    made = make_report([measurement])
    found = table_after(made["results.md"], "|  | b, flow |")
    assert found[2:] == [["`none`", "0.10 / 0.90"], ["`exclusive`", "0.50 / 0.50"]]
    assert "20.0 (20.0..20.4)" in made["results/jobs-host.md"]


def test_a_policy_that_is_refused_says_why(tmp_path: Path) -> None:
    found = [row for row in rows() if row["policy"] == "none"]
    for job in jobs.USERS:
        key = {"topology": "b", "mode": "flow", "policy": "exclusive", "job": job, "beside": True}
        found.append(missing_row(key, "no lane is free", names(jobs.FIGURES)))
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(report_of(compared(found)).document))
    page = make_report([load_measurement(path)])["results.md"]
    assert "no (1)" in page and "no lane is free" in page
