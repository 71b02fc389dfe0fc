# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench parallel` without a lab: its options, its rows, guests, both ends, the page."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ri2n_lab.bench import parallel_ends
from ri2n_lab.bench import parallel_plan as plan
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel_cells import parallel_cells
from ri2n_lab.bench.parallel_faults import broken
from ri2n_lab.bench.parallel_plan import (
    ParallelSettings,
    blank_row,
    compared,
    parse_numbers,
    parse_sizes,
)
from ri2n_lab.bench.parallel_trips import figures
from ri2n_lab.bench.parallel_wire import (
    HEAD,
)
from ri2n_lab.bench.report_parallel import paper_speedup
from ri2n_lab.cli import bench_parallel
from ri2n_lab.cli.bench import app
from ri2n_sdn.cli.common import run_guarded
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology, load_topology
from tests.unit.test_bench_report import table_after
from tests.unit.test_bench_report_striped import page_of, written

Json = dict[str, Any]
TOPOLOGIES = Path(__file__).parents[2] / "topologies"


@pytest.fixture(scope="module")
def six() -> Topology:
    return load_topology(TOPOLOGIES / "parallel" / "six.yaml")


def transfer(
    method: str, streams: int, size: int, bps: float, repeat: int = 1, **more: object
) -> Json:
    key: Json = {
        "connection": "fresh",
        "setup": "include",
        "repeat": repeat,
        "goodput_bps": bps,
        "time_ms": 1.0,
        **more,
    }
    return blank_row("transfer", method, 6, streams, size, **key)


# ---- options


def test_sizes() -> None:
    assert parse_sizes("2K..256M") == tuple(2048 << step for step in range(18))
    assert parse_sizes("1M, 56k,1M") == (56 << 10, 1 << 20)
    assert parse_sizes("3K..12K") == (3072, 6144, 12288)
    for size in (*parse_sizes("1K..1G"), 56 << 10, 1500):
        assert parse_sizes(plan.size_text(size)) == (size,)


@pytest.mark.parametrize(
    "text",
    ["", "K", "2K..", "4K..2K", "2K..5K", "2K..3M", "1", "2G", "-2K", "2KK", "²K", "1e3", "9" * 40],
)
def test_bad_sizes(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--sizes "):
        parse_sizes(text)


def test_numbers() -> None:
    assert parse_numbers("1..3,6,2", "--streams", 1, 8) == (1, 2, 3, 6)
    for text in ("", "0", "9", "3..1", "a", "1..", "²", "1,,2"):
        with pytest.raises(BadInput, match=r"^--streams"):
            parse_numbers(text, "--streams", 1, 8)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--sizes 3..4", "--sizes 3"),
        ("--links 7", "--links 7: topology six has 6"),
        ("--links 9", "--links"),
        ("--links 3 --streams 4", "--streams 4: at most one for each of 3 links"),
        ("--streams x", "--streams x: must be numbers"),
        ("--methods udp", "--methods: unknown 'udp'"),
        ("--parts all", "--parts: unknown 'all'"),
        ("--setup include --connections warm", "has been set up before"),
        ("--faults fire", "--faults: unknown 'fire'"),
        ("--links 1 --parts fault", "faults need at least 2"),
        ("--fault-size 1M,2M", "must be one size"),
        ("--short 9", "--short 9"),
        ("--topology one-switch", "A has two NICs on one switch"),
        ("--topology d --links 1 --parts mix", "B is not on the same networks as A"),
        ("--topology nothing", "topology nothing"),
        ("--kernel virtual --parts roundtrip", "not in virtual time"),
    ],
)
def test_bad_options_are_one_line(
    options: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_guarded(lambda: app(["parallel", *options.split()], standalone_mode=False)) == 2
    captured = capsys.readouterr()
    assert text in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_the_names_in_the_help_are_those_of_the_bench() -> None:
    for name in ("METHODS", "MIX_METHODS", "PARTS", "SETUPS", "CONNECTIONS", "FAULTS"):
        assert list(getattr(plan, name)) == getattr(bench_parallel, name)


def test_narrowed(six: Topology) -> None:
    small = plan.narrowed(six, 2, ("A", "B"))
    assert list(small.hosts) == ["A", "B"] and list(small.switches) == ["n1", "n2"]
    assert [nic.name for nic in small.hosts["B"].nics] == ["p0", "p1"] and len(
        six.hosts["B"].nics
    ) == 6
    assert {nic.rate_bps for spec in six.hosts.values() for nic in spec.nics} == {100_000_000}
    assert list(six.hosts) == ["A", "B", "C", "D"] and six.warnings() == []


# ---- rows


def test_speedups_are_over_plain_tcp_of_the_same_size() -> None:
    rows = [transfer("tcp", 1, 1024, bps, n) for n, bps in enumerate((10.0, 30.0, 20.0), 1)]
    rows += [
        transfer("tcp", 1, 2048, 50.0),
        transfer("tcps", 2, 1024, 40.0),
        transfer("parallel", 2, 1024, 38.0),
    ]
    rows += [
        transfer("parallel", 2, 1024, 9.0, setup="exclude"),
        transfer("parallel", 1, 2048, 50.0),
    ]
    found = compared(rows)
    assert [row["speedup"] for row in found] == [0.5, 1.5, 1.0, 1.0, 2.0, 1.9, None, 1.0]
    assert found[5]["of_one_link"] == 0.76 and found[5]["of_tcps"] == 0.95
    assert found[7]["of_tcps"] == 1.0 and found[4]["of_tcps"] is None
    assert rows[0]["speedup"] is None  # what came in stays as it was


def test_mixes_and_round_trips_are_compared_with_their_own() -> None:
    rows = [blank_row("mix", "tcp", 6, 1, 9, short=0, repeat=1, goodput_bps=10.0)]
    rows += [
        blank_row("mix", method, 6, 1, 9, short=4, repeat=1, goodput_bps=30.0)
        for method in ("tcp", "parallel")
    ]
    rows.append(transfer("tcp", 1, 1024, 99.0))
    assert [row["speedup"] for row in compared(rows)] == [1.0, 3.0, 3.0, 1.0]
    trips = [
        blank_row("roundtrip", method, 6, 1, 1024, awake=awake, repeat=1, rtt_us=value)
        for awake, base in ((False, 40.0), (True, 20.0))
        for method, value in (("tcp", base), ("parallel", base + 7))
    ]
    assert [row["over_tcp_us"] for row in compared(trips)] == [None, 7.0, None, 7.0]


def test_without_plain_tcp_there_is_no_speedup() -> None:
    assert compared([transfer("parallel", 2, 1024, 5.0)])[0]["speedup"] is None


def test_first_bytes_handed_to_connect_are_compared_with_a_plain_connection() -> None:
    rows = [transfer("tcp", 1, 1024, 10.0), transfer("tcp", 1, 1024, 20.0, setup="exclude")]
    rows += [
        transfer("parallel", 1, 1024, 10.0, setup=setup)
        for setup in ("include", "early", "exclude")
    ]
    assert [row["speedup"] for row in compared(rows)] == [1.0, 1.0, 1.0, 1.0, 0.5]
    assert [row["of_tcps"] for row in compared(rows)] == [None, None, 1.0, 1.0, 0.5]


def test_short_transfers_have_several_samples(six: Topology) -> None:
    settings = ParallelSettings(six, samples=9)
    assert [
        plan.samples(settings, size) for size in (2048, plan.SHORT_BYTES, plan.SHORT_BYTES + 1)
    ] == [9, 9, 1]
    assert all(
        "--samples 9" in " ".join(cell.arguments)
        for cell in parallel_cells(settings, {"six": Path("x")}, 1)[:3]
    )


def test_only_parallel_connections_take_first_bytes(six: Topology) -> None:
    settings = ParallelSettings(six)
    every = [("fresh", "include"), ("fresh", "exclude"), ("warm", "exclude")]
    for method in plan.METHODS:
        early = [("fresh", "early")] if method == "parallel" else []
        assert plan.kinds(settings, method) == [every[0], *early, *every[1:]]
    assert plan.kinds(replace(settings, connections=("fresh",), setups=("exclude",)), "tcp") == [
        every[1]
    ]


def test_the_summary_is_part_by_part() -> None:
    rows = [transfer("tcp", 1, 1024, bps, n) for n, bps in enumerate((10.0, 30.0), 1)]
    rows += [
        blank_row("fault", "parallel", 6, 6, 9, fault="one_down", repeat=n, stall_s=n / 2)
        for n in (1, 2)
    ]
    rows.append(
        blank_row(
            "transfer",
            "mptcp",
            6,
            2,
            1024,
            connection="fresh",
            setup="include",
            why_not="none here",
        )
    )
    tcp, mptcp, fault = plan.summarized(rows)
    assert (tcp["goodput_bps"], tcp["goodput_bps_spread"], tcp["repeats"]) == (
        20.0,
        [10.0, 30.0],
        2,
    )
    assert (mptcp["why_not"], mptcp["repeats"], fault["stall_s"]) == ("none here", 0, 0.75)


def test_round_trips_are_by_turns_and_who_is_first_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    class Echo:
        """An end that echoes what it is sent."""

        def __init__(self, name: str) -> None:
            self.name, self.data = name, b""

        def __enter__(self) -> Echo:
            return self

        def __exit__(self, *_: object) -> None:
            asked.append((f"{self.name} closed", 0))

        def settimeout(self, limit_s: float | None) -> None:
            assert limit_s is None

        def sendall(self, data: bytes) -> None:
            asked.append((self.name, len(data)))
            self.data = data

        def recv_into(self, buffer: Any) -> int:
            count = min(len(buffer), len(self.data))
            buffer[:count], self.data = self.data[:count], self.data[count:]
            return count

    monkeypatch.setattr(parallel_ends, "connect", lambda settings, method, streams: Echo(method))
    ends = parallel_ends.EndSettings(("192.0.2.1",), 1)
    found = parallel_ends._round_trips(
        ends, {"size": 100, "count": 4, "streams": 3}, lambda answer: None
    )
    assert [len(found[name]) for name in ("tcp", "parallel")] == [4, 4]
    head = HEAD.size
    turns = ["parallel", "tcp", "tcp", "parallel"] * 2
    assert asked[:-2] == [("tcp", head), ("parallel", head), *((name, 100) for name in turns)]


def test_round_trips_without_the_first_ones() -> None:
    assert figures([1.0] * 20 + [2e-6] * 199 + [9e-6]) == {"rtt_us": 2.0, "rtt_p99_us": 2.0}
    assert figures([3e-6] * 10) == {"rtt_us": 3.0, "rtt_p99_us": 3.0}


def test_every_fault_breaks_what_it_says() -> None:
    nics = ["p0", "p1", "p2"]
    assert broken("one_own_down", nics) == [("nic_down", "B", "p0")]
    assert broken("one_blackhole", nics) == [("blackhole", "A", "p0")]
    counts = {fault: len(broken(fault, nics)) for fault in plan.FAULTS}
    assert counts == {
        "one_down": 1,
        "one_own_down": 1,
        "one_blackhole": 1,
        "all_but_one": 2,
        "all_then_one": 3,
    }


# ---- guests


def test_guests_measure_everything_once(six: Topology) -> None:
    settings = ParallelSettings(
        six, sizes=parse_sizes("2K..8K"), streams=(1, 6), repeat=2, parts=plan.PARTS[:3]
    )
    cells = parallel_cells(settings, {"six": Path("/x/six.yaml")}, seed=5)
    labels = [cell.label for cell in cells]
    wanted = ["tcp 1", *(f"{name} {n}" for name in ("tcps", "parallel", "mptcp") for n in (1, 6))]
    wanted += ["trunk_packet 1", "trunk_flow 1", "faults parallel", "faults mptcp"]
    wanted += [f"mix {name} {short}" for name in plan.MIX_METHODS for short in (0, 2, 4, 6, 8)]
    assert labels == [label for label in wanted for _ in range(2)]
    assert [(cell.seed, cell.overlay["repeat"]) for cell in cells[:2]] == [(5, 1), (6, 2)]
    assert all(cell.planned_s > 0 and "--no-baseline" in cell.arguments for cell in cells)
    first = " ".join(cells[0].arguments)
    assert "--sizes 2K,4K,8K" in first and "--methods tcp" in first and "--parts transfer" in first


def test_a_guest_without_baseline_measures_its_own_alone(six: Topology) -> None:
    alone = ParallelSettings(six, methods=("parallel",), streams=(4,), baseline=False)
    assert plan.contestants(alone) == [("parallel", 4)]
    assert plan.contestants(replace(alone, baseline=True)) == [("tcp", 1), ("parallel", 4)]
    mix = replace(alone, mix_methods=("dns",), shorts=(4,))
    assert plan.mix_runs(mix) == [("dns", 4)]
    assert plan.mix_runs(replace(mix, baseline=True)) == [("tcp", 0), ("dns", 4)]


# ---- what people see


def measured() -> list[Json]:
    rows = [transfer("tcp", 1, 64 << 20, 90e6), transfer("tcps", 6, 64 << 20, 540e6)]
    rows += [transfer("parallel", 6, 64 << 20, bps, n) for n, bps in ((1, 520e6), (2, 530e6))]
    rows.append(
        blank_row(
            "transfer",
            "mptcp",
            6,
            6,
            64 << 20,
            connection="fresh",
            setup="include",
            why_not="none | here",
        )
    )
    fault: Json = {
        "fault": "one_down",
        "completed": True,
        "stall_s": 0.5,
        "total_s": 2.0,
        "resent_bytes": 1 << 20,
    }
    rows += [
        blank_row("fault", "parallel", 6, 6, 64 << 20, repeat=n, intact=n == 1, **fault)
        for n in (1, 2)
    ]
    rows.append(
        blank_row(
            "mix",
            "tcp",
            6,
            1,
            56 << 10,
            short=0,
            repeat=1,
            goodput_bps=90e6,
            served_per_min=12.0,
            failed=0,
            uneven=2.0,
        )
    )
    rows.append(
        blank_row(
            "mix",
            "parallel",
            6,
            1,
            56 << 10,
            short=0,
            repeat=1,
            goodput_bps=450e6,
            served_per_min=60.0,
            failed=3,
            uneven=0.5,
        )
    )
    for method, value in (("tcp", 50.0), ("parallel", 58.0)):
        rows.append(
            blank_row(
                "roundtrip", method, 6, 6, 1024, awake=True, repeat=1, rtt_us=value, rtt_p99_us=99.0
            )
        )
    return compared(rows)


def test_the_page(tmp_path: Path) -> None:
    page = page_of(written(tmp_path / "parallel.json", "parallel", measured()))
    assert "# Parallel networking: parallel-host" in page
    found = table_after(page, "## Transfers over fresh connections, with their set-up")
    assert found[0] == ["size", "plain TCP, Mbit/s", "parallel, 6", "MPTCP, 6", "paper, 6"]
    assert found[2] == ["64M", "90.0", "5.83 (0.97)", "no (1)", "5.6"]
    assert "(1) *mptcp*: none \\| here." in page
    found = table_after(page, "## Links die under a transfer")
    assert found[2] == ["`one_down`", "parallel, 6", "yes", "1 of 2", "0.50", "2.00", "1.0"]
    found = table_after(page, "## Many connections")
    assert [line[1] for line in found[2:]] == ["1.00 / 12 / 2.0", "5.00 / 60 / 0.5, 3 failed"]
    found = table_after(page, "## Round trips")
    assert [line[2:] for line in found[2:]] == [["50.0", "99.0", "-"], ["58.0", "99.0", "8.0"]]


def test_a_row_without_its_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rows\[0\]\.part"):
        page_of(written(tmp_path / "parallel.json", "parallel", [{"method": "tcp"}]))


def test_what_the_paper_says() -> None:
    assert (
        paper_speedup(6, 64 << 20, "include") == "5.6"
        and paper_speedup(6, 32 << 20, "include") == "-"
    )
    assert [paper_speedup(6, size << 10, "exclude") for size in (2, 4, 8)] == [
        "no gain",
        "-",
        "gain",
    ]
    assert (
        paper_speedup(4, 4 << 10, "exclude") == "gain"
        and paper_speedup(1, 8 << 10, "exclude") == "-"
    )


def test_the_table_for_people() -> None:
    report = Report("parallel", None, {})
    report.replace(measured(), [], plan.summarized(measured()))
    output = io.StringIO()
    Console(file=output, width=200).print(bench_parallel.parallel_table(report))
    text = output.getvalue()
    assert "5.833 (5.778..5.889)" in text and "none | here" in text and "+8.0 us over TCP" in text
    assert "completed, CORRUPT, stall 0.500 s" in text and "60 connections/min, 3 failed" in text
    assert json.loads(json.dumps(report.document["summary"])) == report.document["summary"]
