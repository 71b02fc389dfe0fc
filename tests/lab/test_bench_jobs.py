"""`ri2n bench jobs` in a lab: both jobs' traffic at once, with and without job-begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.jobs import JobsSettings, run_jobs
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.vbft import rescaled
from ri2n_sdn.fabric.topology import load_topology

from .conftest import EXACT, TOPOLOGIES

RATE_BPS = 20_000_000
TOPOLOGY = rescaled(load_topology(TOPOLOGIES / "fig4" / "b.yaml"), RATE_BPS)
SETTINGS = JobsSettings([TOPOLOGY], policies=("none",), seconds=3, warmup=2, repeat=1)


def measured(settings: JobsSettings) -> Report:
    report = Report("jobs", None, settings.described())
    run_jobs(settings, report, Progress(lambda *_: None))
    assert report.document["complete"]
    return report


@pytest.mark.virtual
@pytest.mark.smoke
def test_without_a_policy_the_job_with_more_streams_has_more() -> None:
    rows = measured(SETTINGS).rows
    assert [(row["job"], row["beside"]) for row in rows] == [
        ("one", False),
        ("two", False),
        ("one", True),
        ("two", True),
    ]
    assert all(row["goodput_bps"] > 0 and row.get("why_not") is None for row in rows)
    if EXACT:
        shares = {row["job"]: row["of_alone"] for row in rows if row["beside"]}
        # One stream uses one link; of that it has its part among the eight of job two.
        assert shares["one"] < 0.5 < shares["two"]


@pytest.mark.virtual
def test_an_exclusive_path_is_the_jobs_own() -> None:
    rows = measured(replace(SETTINGS, policies=("none", "exclusive"))).rows
    figures = {row["job"]: row for row in rows if row["policy"] == "exclusive" and row["beside"]}
    assert all(row.get("why_not") is None for row in figures.values()), figures
    if EXACT:
        link_bps = RATE_BPS * 1448 / 1514
        for row in figures.values():
            assert 0.9 * link_bps < row["goodput_bps"] < 1.01 * link_bps
