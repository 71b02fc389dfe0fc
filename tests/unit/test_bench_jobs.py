# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench jobs` without a lab: its cases, rows, guests, tables and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench import jobs, jobs_plan
from ri2n_lab.bench.cells import jobs_cells
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fair import GOODPUT_RATIO
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.jobs_exchange import PROGRAM, figures
from ri2n_lab.bench.jobs_meter import fullest_second_bps, read_samples
from ri2n_lab.bench.jobs_plan import (
    FIGURES,
    POLICIES,
    USERS,
    Case,
    JobsSettings,
    cases,
    compared,
    kept,
    pairs_of,
    places,
    promised_bps,
    refusal,
    wishes,
)
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement, thin_json
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.cli import bench_jobs
from ri2n_lab.traffic.iperf import NotTogether
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.shipped import find_topology
from tests.unit.commands import ri2n
from tests.unit.test_bench_figures import printed
from tests.unit.test_bench_report import table_after

pytestmark = pytest.mark.usefixtures("drawn_once")

Json = dict[str, Any]

FIG4_B, VBFT = find_topology("fig4/b"), find_topology("vbft_2_2")
BOTH = ("one", "two")
BLANKS: Json = dict.fromkeys(names(FIGURES))
# (policy, job, beside the other, hosts apart): bit/s
RATES = {
    ("none", "one", False, False): 200e6,
    ("none", "two", False, False): 190e6,
    ("none", "one", True, False): 20e6,
    ("none", "two", True, False): 171e6,
    ("exclusive", "one", True, False): 100e6,
    ("exclusive", "two", True, False): 95e6,
    ("none", "one", False, True): 50e6,
    ("none", "two", False, True): 60e6,
    ("none", "one", True, True): 40e6,
    ("none", "two", True, True): 45e6,
    ("isolated", "one", True, True): 45e6,
    ("isolated", "two", True, True): 42e6,
}
# (policy, job, beside the other): seconds of one exchange of job one, bit/s of job two
EXCHANGES = {
    ("none", "one", False): 0.040,
    ("none", "two", False): 95e6,
    ("none", "one", True): 0.200,
    ("none", "two", True): 76e6,
    ("exclusive", "one", False): 0.041,
    ("exclusive", "one", True): 0.048,
    ("exclusive", "two", True): 57e6,
}


def key(policy: str, job: str, beside: bool, *, apart: bool = False) -> Json:
    return {
        **{"topology": "b", "mode": "flow", "policy": policy, "job": job, "beside": beside},
        **{"apart": apart, "exchange": None},
    }


def rows() -> list[Json]:
    return compared(
        [
            {
                **BLANKS,
                **key(policy, job, beside, apart=apart),
                **{"repeat": repeat, "retransmits": 3},
                "goodput_bps": round(rate_bps * factor),
            }
            for (policy, job, beside, apart), rate_bps in RATES.items()
            for repeat, factor in ((1, 1.0), (2, 1.0), (3, 1.02))
        ]
    )


def exchange_rows() -> list[Json]:
    """Two rounds; in the second one the machine is half as fast."""
    found = []
    for (policy, job, beside), figure in EXCHANGES.items():
        for repeat, slower in ((1, 1.0), (2, 2.0)):
            row = {**BLANKS, **key(policy, job, beside), "exchange": "is", "repeat": repeat}
            if job == "one":
                row |= {"seconds": figure * slower, "goodput_bps": 1, "cpus_busy": 1.5}
            else:
                row |= {"goodput_bps": round(figure / slower)}
            found.append(row)
    return compared(found)


def test_each_job_is_alone_first_and_then_beside_the_other_with_every_policy() -> None:
    assert cases(("none", "exclusive"), FIG4_B) == [
        Case("none", ("one",)),
        Case("none", ("two",)),
        Case("none", BOTH),
        Case("exclusive", BOTH),
    ]


def test_with_the_price_of_a_policy_job_one_is_alone_with_it() -> None:
    assert cases(("none", "exclusive"), FIG4_B, with_cost=True) == [
        Case("none", ("one",)),
        Case("none", ("two",)),
        Case("none", BOTH),
        Case("exclusive", ("one",)),
        Case("exclusive", BOTH),
    ]


def test_isolated_jobs_are_compared_on_hosts_of_their_own() -> None:
    assert cases(("isolated",), VBFT) == [
        Case("none", ("one",), apart=True),
        Case("none", ("two",), apart=True),
        Case("none", BOTH, apart=True),
        Case("isolated", BOTH, apart=True),
    ]
    hosts = places(Case("isolated", BOTH, apart=True), VBFT)
    assert sorted(hosts["one"] + hosts["two"]) == sorted(VBFT.managed_hosts())
    assert len(hosts["one"]) == len(hosts["two"])
    # Every pair of each job crosses the switches that both share.
    for job in BOTH:
        for pair in pairs_of(hosts[job]):
            leaves = {VBFT.hosts[host].nics[0].switch for host in pair}
            assert len(leaves) == 2


def test_two_hosts_are_too_few_for_an_isolated_job_and_another_one() -> None:
    why_not = refusal("isolated", FIG4_B)
    assert why_not is not None and "b has 2 in all" in why_not
    assert cases(("isolated",), FIG4_B) == [Case("isolated", BOTH, apart=True)]
    assert refusal("isolated", VBFT) is None
    assert all(refusal(policy, FIG4_B) is None for policy in POLICIES if policy != "isolated")


def test_what_the_jobs_ask_for() -> None:
    rate = str(promised_bps(FIG4_B, "min_rate"))
    assert rate == str(promised_bps(FIG4_B, "max_rate")) == "50000000", "half of the slowest NIC"
    shared = ("--policy", "shared")
    assert wishes("none", FIG4_B) == {}
    assert wishes("exclusive", FIG4_B) == {"one": ("--policy", "exclusive"), "two": shared}
    assert wishes("min_rate", FIG4_B) == {"one": (*shared, "--min-rate", rate), "two": shared}
    assert wishes("max_rate", FIG4_B) == {"one": shared, "two": (*shared, "--max-rate", rate)}
    assert wishes("isolated", VBFT)["one"] == ("--policy", "isolated")


@pytest.mark.parametrize(
    ("name", "rate_bps"),
    [("vbft_2_2", 12_500_000), ("vbft_2_2n4", 50_000_000), ("vbft_2_4", 12_500_000)],
)
def test_a_min_rate_is_one_that_a_lane_of_a_fat_tree_carries(name: str, rate_bps: int) -> None:
    """The hosts of a leaf share a link of 100 Mbit/s: 8 of them, or 2."""
    topology = find_topology(name)
    assert promised_bps(topology, "min_rate") == rate_bps
    assert promised_bps(topology, "max_rate") == 50_000_000
    rate = str(rate_bps)
    assert wishes("min_rate", topology)["one"][-4:] == ("--min-rate", rate, "--max-rate", rate)


def test_promised_rates_are_of_the_worst_host() -> None:
    """A min_rate is of the slowest, a max_rate of the fastest; both are rates on the wire."""
    rates_bps = {("a", "b"): 40e6 * GOODPUT_RATIO, ("c", "d"): 51e6 * GOODPUT_RATIO}
    least = kept(Case("min_rate", BOTH), "one", 50_000_000, rates_bps)
    assert least == {"of_min_rate": 0.8, "of_max_rate": None}
    most = kept(Case("max_rate", BOTH), "two", 50_000_000, rates_bps)
    assert most == {"of_min_rate": None, "of_max_rate": 1.02}
    for policy, job in (("min_rate", "two"), ("max_rate", "one"), ("exclusive", "one")):
        none = kept(Case(policy, BOTH), job, 50_000_000, rates_bps)
        assert set(none.values()) == {None}


def test_the_fullest_second_of_a_limit() -> None:
    """From the counters of a host's HTB classes, read a bit less often than every half second."""
    text = "at 9\n"  # before there is a limit
    sent = (0, 100, 200, 700, 800, 850)
    for place, count in enumerate(sent):
        text += f"at {10 + place * 0.52:.2f}\n"
        text += " Sent 99 bytes 1 pkt (dropped 0)\n"  # of the device that was asked about last
        text += "class htb 5249:1 root prio 0 rate 1Kbit ceil 1Kbit burst 15Kb cburst 15Kb\n"
        text += f" Sent {count} bytes 3 pkt (dropped 0, overlimits 0 requeues 0)\n"
        text += f"class htb 5249:2 root\n Sent {2 * count} bytes 3 pkt (dropped 0)\n"
    samples = read_samples(text)
    assert samples == [(10 + place * 0.52, 3 * n) for place, n in enumerate(sent)]
    assert fullest_second_bps(samples) == pytest.approx(3 * 600 * 8 / 1.04)
    assert fullest_second_bps(samples[:2]) is None
    assert read_samples("RTNETLINK answers: no such device\n Sent 5 bytes 1 pkt\n") == []


def test_shares_are_of_what_the_same_job_has_alone() -> None:
    found = {
        (row["policy"], row["job"], row["beside"], row["apart"]): row["of_alone"]
        for row in rows()
        if row["repeat"] == 1
    }
    assert found == {
        ("none", "one", False, False): 1.0,
        ("none", "two", False, False): 1.0,
        ("none", "one", True, False): 0.1,
        ("none", "two", True, False): 0.9,
        ("exclusive", "one", True, False): 0.5,
        ("exclusive", "two", True, False): 0.5,
        ("none", "one", False, True): 1.0,
        ("none", "two", False, True): 1.0,
        ("none", "one", True, True): 0.8,
        ("none", "two", True, True): 0.75,
        ("isolated", "one", True, True): 0.9,
        ("isolated", "two", True, True): 0.7,
    }


def test_exchanges_are_compared_with_those_of_the_same_round() -> None:
    for row in exchange_rows():
        wanted = {
            ("none", "one", False): 1.0,
            ("none", "two", False): 1.0,
            ("none", "one", True): 0.2,
            ("none", "two", True): 0.8,
            ("exclusive", "one", False): round(40 / 41, 4),
            ("exclusive", "one", True): round(40 / 48, 4),
            ("exclusive", "two", True): 0.6,
        }[row["policy"], row["job"], row["beside"]]
        assert row["of_alone"] == wanted, row


def test_without_the_rate_alone_there_is_no_share() -> None:
    beside = [row for row in rows() if row["beside"]]
    assert all(row["of_alone"] is None for row in compared(beside))
    elsewhere = [{**row, "topology": "vbft_2_2"} for row in beside]
    alone = [row for row in rows() if not row["beside"]]
    assert all(row["of_alone"] is None for row in compared([*alone, *elsewhere])[len(alone) :])
    # What a job has alone with a policy is not what it has without one.
    with_policy = [{**row, "policy": "exclusive"} for row in alone]
    assert all(row["of_alone"] is None for row in compared(with_policy))


def test_an_exchange_that_says_nothing_is_no_figure() -> None:
    found = {"seconds": 0.05, "count": 100, "bytes": 1_000_000, "wrong": 0, "late": False}
    assert figures(found, 1.234) == {
        "seconds": 0.05,
        "goodput_bps": 160_000_000,
        "cpus_busy": 1.23,
    }
    with pytest.raises(NotTogether, match="too late"):
        figures({**found, "late": True}, 1.0)
    with pytest.raises(NotAvailable, match="2 MPI messages"):
        figures({**found, "wrong": 2}, 1.0)
    with pytest.raises(NotAvailable, match="--seconds"):
        figures({**found, "seconds": None}, 1.0)
    assert PROGRAM.is_file()


def test_hosts_that_cannot_be_halved_are_refused() -> None:
    settings = JobsSettings([find_topology("fig4/c")], policies=("none",))
    odd = [topology for topology in settings.topologies if len(topology.managed_hosts()) % 2]
    assert odd, "fig4/c has an odd number of hosts"
    with pytest.raises(BadInput, match="even number"):
        jobs.check(settings)


def test_a_guest_for_each_topology_and_repeat() -> None:
    topologies = [FIG4_B, VBFT]
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
        assert words[words.index("--policies") + 1] == ",".join(POLICIES)
        assert words[words.index("--link-mbps") + 1] == "100"
        assert cell.planned_s > 4 * 5


def test_the_command_names_what_the_bench_has() -> None:
    assert list(POLICIES) == bench_jobs.POLICIES
    assert list(jobs_plan.EXCHANGES) == bench_jobs.EXCHANGES
    assert set(bench_jobs.EXCHANGE_POLICIES.split(",")) <= set(POLICIES)
    assert len(set(USERS.values())) == 2 and 0 not in USERS.values()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--exchange", "is", "--kernel", "virtual"), "--exchange: needs --kernel host"),
        (("--exchange", "ft"), "--exchange"),
        (("--policies", "none,min"), "--policies"),
    ],
)
def test_bad_options_are_refused_in_a_line(arguments: tuple[str, ...], words: str) -> None:
    ended = ri2n("bench", "jobs", *arguments)
    assert ended.returncode == 2 and words in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def report_of(found: list[Json]) -> Report:
    report = Report("jobs", None, {"topologies": []})
    report.replace(found, [], jobs_plan.summarized(found))
    report.finish()
    return report


def pages(found: list[Json], tmp_path: Path) -> dict[str, str]:
    """The report of these rows, once they have been read from the report's own file."""
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(report_of(found).document))
    measurement = load_measurement(path)
    path.write_text(thin_json(measurement))
    assert load_measurement(path) == measurement
    return make_report([measurement])


def test_table_and_report(tmp_path: Path) -> None:
    text = printed(bench_jobs.jobs_table(report_of(rows())))
    assert "0.100 (0.100..0.102)" in text and "exclusive" in text
    assert "exchange" not in text, "no column for what was not measured"
    made = pages(rows(), tmp_path)
    assert table_after(made["results.md"], "|  | b, flow |")[2:] == [
        ["`none`", "0.10 / 0.90"],
        ["`exclusive`", "0.50 / 0.50"],
        ["`none`, apart", "0.80 / 0.75"],
        ["`isolated`", "0.90 / 0.70"],
    ]
    assert "20.0 (20.0..20.4)" in made["results/jobs-host.md"]
    text = " ".join(made["results.md"].split())
    assert (
        "* With `exclusive` job one gets 0.50 of what it has alone (without a policy 0.10), and "
        "job two gets 0.50 of what it has alone (without a policy 0.90)." in text
    )
    assert "With `isolated` job one gets 0.90 of what it has alone (without a policy 0.80)" in text
    assert "kept" not in text, "no rate was promised"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("of_min_rate", 0.98, "has 0.98 of it: kept."),
        ("of_min_rate", 0.96, "has 0.96 of it: **not kept** on b, flow."),
        ("second_of_max_rate", 1.015, "sends 1.01 of it: kept."),
        ("second_of_max_rate", 1.03, "sends 1.03 of it: **not kept** on b, flow."),
    ],
)
def test_the_page_says_whether_a_rate_was_kept(
    name: str, value: float, words: str, tmp_path: Path
) -> None:
    found = rows()
    found[-1] |= {name: value}
    assert words in " ".join(pages(found, tmp_path)["results.md"].split())


def test_table_and_report_of_exchanges(tmp_path: Path) -> None:
    text = printed(bench_jobs.jobs_table(report_of(exchange_rows())))
    assert "one exchange, ms" in text and "300.0 (200.0..400.0)" in text
    page = pages(exchange_rows(), tmp_path)["results.md"]
    assert table_after(page, "| policy of job one | job two | b, `is` |")[2:] == [
        ["`none`", "sends", "5.00 / 0.80"],
        ["`exclusive`", "does not", "1.03"],
        ["`exclusive`", "sends", "1.20 / 0.60"],
    ]
    assert (
        "Beside job two an exchange takes 5.00 times as long as alone without a policy, and 1.20 "
        "times as long as alone with `exclusive`." in " ".join(page.split())
    )
    paper = table_after(page, "|  | round trip, ms |")
    assert paper[-2][1:] == ["0.201", "914", "953", "1.25 to 1.43"]
    assert paper[-1] == ["ours, `exclusive`", "-", "-", "-", "1.03"]
    assert "Does a job keep its path to itself?" not in page


def test_a_policy_that_is_refused_says_why(tmp_path: Path) -> None:
    found = [row for row in rows() if row["policy"] == "none" and not row["apart"]]
    for job in USERS:
        found.append(
            missing_row(key("exclusive", job, True), "no lane is free", names(FIGURES)),
        )
    page = pages(compared(found), tmp_path)["results.md"]
    assert "no (1)" in page and "no lane is free" in page
