# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench parallel` as a whole, on three slow links."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench import parallel_mix
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel import run_parallel
from ri2n_lab.bench.parallel_lab import Ends
from ri2n_lab.bench.parallel_plan import ParallelSettings
from ri2n_lab.bench.parallel_trips import figures
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.vbft import rescaled
from ri2n_lab.cluster import Lab
from ri2n_sdn.fabric.topology import load_topology

from .conftest import EXACT

TOPOLOGY = Path(__file__).resolve().parents[2] / "topologies" / "parallel" / "six.yaml"
RATE = 10_000_000
SIZE = 1 << 20


@pytest.fixture(scope="module")
def settings() -> ParallelSettings:
    topology = rescaled(load_topology(TOPOLOGY), RATE)
    return ParallelSettings(
        topology, links=3, sizes=(SIZE,), streams=(3,), methods=("tcps", "parallel"), repeat=1
    )


def measured(settings: ParallelSettings) -> Report:
    report = Report("parallel", None, settings.described())
    run_parallel(settings, report, Progress(lambda *_: None))
    assert report.document["complete"] and report.document["summary"]
    return report


@pytest.mark.virtual
@pytest.mark.smoke
def test_three_links_are_faster_than_one(settings: ParallelSettings) -> None:
    rows = measured(replace(settings, parts=("transfer",))).rows
    kinds = [("fresh", "include"), ("fresh", "exclude"), ("warm", "exclude")]
    wanted = [
        (method, streams, *kind) for method, streams in (("tcp", 1), ("tcps", 3)) for kind in kinds
    ]
    wanted += [("parallel", 3, *kind) for kind in (kinds[0], ("fresh", "early"), *kinds[1:])]
    assert [
        (row["method"], row["streams"], row["connection"], row["setup"]) for row in rows
    ] == wanted
    for row in rows:
        assert row["goodput_bps"] == pytest.approx(SIZE * 8 / (row["time_ms"] / 1e3), rel=1e-6)
        assert 0 < row["goodput_bps"] <= 1.05 * RATE * row["streams"]
        assert (
            row["speedup"] == 1.0 if row["streams"] == 1 else row["speedup"] > (2 if EXACT else 0)
        )
    for method in ("tcp", "tcps", "parallel"):
        fresh = {
            row["setup"]: row["time_ms"]
            for row in rows
            if (row["method"], row["connection"]) == (method, "fresh")
        }
        assert fresh["include"] > fresh["exclude"]


@pytest.mark.virtual
@pytest.mark.skipif(not EXACT, reason="speed-ups are exact in virtual time alone: tier kernel")
def test_six_links_are_six_times_one_and_a_question_costs_no_more() -> None:
    """README.md's figure: from 8 MB on, 5.97 times the goodput of one TCP connection.

    2 KB that go with the greeting are as quick as over TCP.
    """
    chosen = ParallelSettings(
        load_topology(TOPOLOGY),
        links=6,
        sizes=(2048, 8 << 20),
        streams=(6,),
        methods=("parallel",),
        connections=("fresh",),
        parts=("transfer",),
        samples=45,  # of the short transfers, each of which meets frames' random delays
        repeat=1,
    )
    rows = [row for row in measured(chosen).rows if row["method"] == "parallel"]
    found = {(row["size_bytes"], row["setup"]): row["speedup"] for row in rows}
    assert found[8 << 20, "exclude"] > 5.9 and found[8 << 20, "include"] > 5.8, found
    assert found[2048, "early"] > 0.95, found


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The client's requests and answers, with which the test compares rows."""
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    ask = Ends.ask

    def kept(self: Ends, limit_s: float, **request: Any) -> dict[str, Any]:
        answer = ask(self, limit_s, **request)
        found.append((request, dict(answer)))
        return answer

    monkeypatch.setattr(Ends, "ask", kept)
    return found


def test_short_transfers_are_medians(
    settings: ParallelSettings, answers: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    chosen = replace(
        settings, parts=("transfer",), sizes=(2048,), samples=3, connections=("fresh",)
    )
    rows = measured(chosen).rows
    times_s: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for request, found in answers:
        assert request["size"] == 2048
        key = (request["method"], request["streams"])
        if request["op"] == "early":
            times_s[(*key, "early")].append(found["early_s"])
        else:
            times_s[(*key, "exclude")].append(found["fresh_s"])
            times_s[(*key, "include")].append(found["connect_s"] + found["fresh_s"])
    assert len(rows) == len(times_s) == 2 + 2 + 3
    for row in rows:
        taken_s = times_s[row["method"], row["streams"], row["setup"]]
        assert len(set(taken_s)) == 3 and row["repeat"] == 1
        assert row["time_ms"] == pytest.approx(sorted(taken_s)[1] * 1e3, abs=1e-5)


@pytest.mark.virtual
@pytest.mark.smoke
def test_a_transfer_survives_its_links(settings: ParallelSettings) -> None:
    """A link that stops carrying anything costs half a second, as README.md says."""
    faults = ("one_blackhole", "all_then_one")
    chosen = replace(
        settings, parts=("fault",), methods=("parallel",), faults=faults, fault_bytes=4 << 20
    )
    rows = measured(chosen).rows
    assert [row["fault"] for row in rows] == list(faults)
    for row in rows:
        assert row["completed"] and row["intact"], row["error"]
        assert 0 < row["stall_s"] < row["total_s"]
        assert row["links_lost"] + row["links_suspected"] >= 1 and row["resent_bytes"] > 0
    if EXACT:
        assert rows[0]["stall_s"] < 0.6
    assert rows[1]["stall_s"] > 1.5  # nothing can arrive while all links are dead


class Watched(Ends):
    """Ends that read what the server's NICs have sent when a run begins and when it has ended."""

    sent_bytes: list[dict[str, int]]

    def __init__(self, lab: Lab, *arguments: Any, **options: Any) -> None:
        self._lab = lab
        super().__init__(lab, *arguments, **options)

    def uneven(self) -> dict[str, Any]:
        devices = json.loads(self._lab.exec(SERVER, ["ip", "-j", "-s", "link"]).stdout)
        nics = {nic.name for nic in self._lab.topology.hosts[SERVER].nics}
        counted = {
            each["ifname"]: each["stats64"]["tx"]["bytes"]
            for each in devices
            if each["ifname"] in nics
        }
        self.sent_bytes.append(counted)
        return super().uneven()


def test_many_connections_use_all_interfaces(
    settings: ParallelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_mix, "Ends", Watched)
    monkeypatch.setattr(Watched, "sent_bytes", [], raising=False)
    chosen = replace(
        settings, parts=("mix",), mix_methods=("parallel",), shorts=(2,), processes=4, window_s=2.0
    )
    report = measured(chosen)
    baseline, mixed = report.rows
    assert (baseline["method"], baseline["short"], baseline["speedup"]) == ("tcp", 0, 1.0)
    assert mixed["failed"] == 0, [
        each["errors"] for each in report.document["raw"][1]["processes"] if each["failed"]
    ]
    assert mixed["processes"] == 12
    for row, raw in zip(report.rows, report.document["raw"], strict=True):
        assert row["goodput_bps"] == round(
            sum(each["bytes"] for each in raw["processes"]) * 8 / 2.0
        )
        assert len(raw["processes"]) == 12 and row["served_per_min"] > 0
    assert mixed["speedup"] == pytest.approx(
        mixed["goodput_bps"] / baseline["goodput_bps"], rel=0.01
    )
    parts = []
    for before, after in zip(Watched.sent_bytes[::2], Watched.sent_bytes[1::2], strict=True):
        sent = [after[nic] - before[nic] for nic in before]
        parts.append([count / sum(sent) for count in sent])
    of_tcp, of_parallel = parts
    assert len(of_parallel) == 3 and max(of_tcp) > 0.98, "plain TCP goes to one address"
    # Four connections of twelve are on each link. How much each of them transfers depends on which
    # process has the CPUs.
    assert min(of_parallel) > 0, parts
    assert mixed["uneven"] < 2 < baseline["uneven"], (
        "connections on the fullest interface more than on the emptiest"
    )


def test_round_trips_are_those_of_the_client(
    settings: ParallelSettings, answers: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    rows = measured(replace(settings, parts=("roundtrip",), round_trips=100)).rows
    assert [row["method"] for row in rows] == ["tcp", "parallel"] * len(answers) and answers
    for tcp, parallel, (_, found) in zip(rows[::2], rows[1::2], answers, strict=True):
        for row in (tcp, parallel):
            assert len(found[row["method"]]) == 100
            assert {"rtt_us": row["rtt_us"], "rtt_p99_us": row["rtt_p99_us"]} == figures(
                found[row["method"]]
            )
            assert row["rtt_us"] == pytest.approx(
                statistics.median(found[row["method"]][10:]) * 1e6, abs=0.01
            )
        assert tcp["over_tcp_us"] is None
        assert parallel["over_tcp_us"] == pytest.approx(
            parallel["rtt_us"] - tcp["rtt_us"], abs=0.02
        )
