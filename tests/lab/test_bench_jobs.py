# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench jobs` in a lab: both jobs' traffic at once, with and without job-begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.jobs import run_jobs
from ri2n_lab.bench.jobs_plan import POLICIES, JobsSettings
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.vbft import rescaled
from ri2n_lab.traffic.mpi import check_mpi
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import load_topology
from tests.unit.test_bench_vbft import fat_tree

from .conftest import EXACT, TOPOLOGIES

RATE_BPS = 20_000_000
TOPOLOGY = rescaled(load_topology(TOPOLOGIES / "fig4" / "b.yaml"), RATE_BPS)
SETTINGS = JobsSettings([TOPOLOGY], seconds=3, warmup=2, repeat=1)
LINK_BPS = RATE_BPS * 1448 / 1514

Json = dict[str, Any]


def measured(settings: JobsSettings) -> Report:
    report = Report("jobs", None, settings.described())
    run_jobs(settings, report, Progress(lambda *_: None))
    assert report.document["complete"]
    return report


def with_policy(rows: list[Json], policy: str) -> dict[str, Json]:
    """{job: its row} with a policy beside the other; nobody has refused it."""
    found = {row["job"]: row for row in rows if row["beside"] and row["policy"] == policy}
    assert found and all(row.get("why_not") is None for row in found.values()), found
    return found


@pytest.fixture(scope="module")
def rows() -> list[Json]:
    """What the jobs got on the same two hosts, alone and with each policy.

    The rows alone belong to all policies. So one lab measures every policy for all tests.
    """
    return measured(replace(SETTINGS, policies=POLICIES)).rows


@pytest.mark.virtual
@pytest.mark.smoke
def test_without_a_policy_the_job_with_more_streams_has_more(rows: list[Json]) -> None:
    rows = [row for row in rows if row["policy"] == "none"]
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
def test_an_exclusive_path_and_one_for_a_min_rate_are_the_jobs_own(rows: list[Json]) -> None:
    for policy in ("exclusive", "min_rate"):
        figures = with_policy(rows, policy)
        if EXACT:
            for row in figures.values():
                assert 0.9 * LINK_BPS < row["goodput_bps"] < 1.01 * LINK_BPS
    if EXACT:
        assert with_policy(rows, "min_rate")["one"]["of_min_rate"] > 0.97


@pytest.mark.virtual
@pytest.mark.smoke
def test_a_max_rate_holds_one_job_and_leaves_the_rest_to_the_other(rows: list[Json]) -> None:
    both = with_policy(rows, "max_rate")
    assert both["two"]["second_of_max_rate"] > 0
    if EXACT:
        assert both["two"]["second_of_max_rate"] < 1.02
        assert 0.97 < both["two"]["of_max_rate"] < 1.02
        assert both["one"]["of_alone"] > 0.5


@pytest.mark.virtual
@pytest.mark.smoke
def test_two_hosts_are_too_few_for_an_isolated_job_and_another_one(rows: list[Json]) -> None:
    refused = [row for row in rows if row["policy"] == "isolated"]
    assert len(refused) == 2 and all("b has 2 in all" in row["why_not"] for row in refused)


@pytest.mark.virtual
def test_an_isolated_job_and_the_other_one_have_hosts_apart() -> None:
    topology = rescaled(fat_tree(2, 2, hosts=4), RATE_BPS)
    rows = measured(replace(SETTINGS, topologies=[topology], policies=("isolated",))).rows
    assert all(row["apart"] for row in rows)
    assert [(row["policy"], row["job"], row["beside"]) for row in rows] == [
        ("none", "one", False),
        ("none", "two", False),
        ("none", "one", True),
        ("none", "two", True),
        ("isolated", "one", True),
        ("isolated", "two", True),
    ]
    for row in with_policy(rows, "isolated").values():
        assert row["goodput_bps"] > 0


def test_an_exchange_by_mpi_is_timed_alone_and_beside_streams() -> None:
    """In real time alone: MPI spins, which stops virtual time for ever."""
    try:
        check_mpi()
    except NotAvailable as error:
        pytest.skip(str(error))
    settings = replace(SETTINGS, policies=("none", "exclusive"), exchanges=("cg",))
    rows = measured(settings).rows
    assert [(row["policy"], row["job"], row["beside"]) for row in rows] == [
        ("none", "one", False),
        ("none", "two", False),
        ("none", "one", True),
        ("none", "two", True),
        ("exclusive", "one", False),
        ("exclusive", "one", True),
        ("exclusive", "two", True),
    ]
    for row in rows:
        assert row["exchange"] == "cg" and row.get("why_not") is None, row
        assert row["goodput_bps"] > 0 and row["of_alone"] > 0
        assert (row["seconds"] is not None) is (row["job"] == "one")
