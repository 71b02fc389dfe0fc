# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench report` of what is measured of the helper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench import helper
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement, thin_json
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.bench.stream import FIGURES
from ri2n_sdn.errors import BadInput
from tests.unit.test_bench_report import table_after

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


def test_streams(tmp_path: Path) -> None:
    key: Json = {"links_mbps": "100,50", "strategy": "max_min", "peer": False, "mode": "packet"}
    figures: Json = {
        **dict.fromkeys(names(FIGURES)),
        "goodput_bps": 140e6,
        "retransmits": 3,
        "out_of_order": 9,
    }
    tcp = {**key, "proto": "tcp", "cc": "cubic"}
    rows = [
        {**tcp, "repeat": number, **figures, "of_sum": share}
        for number, share in ((1, 0.97), (2, 0.99))
    ]
    rows.append(
        {
            **key,
            "proto": "udp",
            "cc": None,
            "repeat": 1,
            **figures,
            "of_sum": 0.9,
            "lost": 2,
            "sent": 7,
        }
    )
    other = {**key, "strategy": "lcb", "peer": True, "mode": None, "proto": "tcp", "cc": "bbr"}
    rows.append(missing_row(other, "no bonding | here", names(FIGURES)))
    page = page_of(written(tmp_path / "stream.json", "stream", rows))
    assert table_after(page, "# One stream")[2:] == [
        [
            "100,50",
            "`max_min`",
            "tcp cubic",
            "140.0",
            "0.980 (0.970..0.990)",
            "3",
            "-",
            "-",
            "9",
            "-",
        ],
        ["100,50", "`max_min`", "udp", "140.0", "0.900", "3", "2", "7", "9", "-"],
        ["100,50", "*lcb*", "tcp bbr", "no (1)", "", "", "", "", "", ""],
    ]
    assert "(1) *lcb*: no bonding \\| here." in page


def test_a_stream_beside_spinning_programs_says_what_was_taken_for_dead(tmp_path: Path) -> None:
    key: Json = {"links_mbps": "100,100", "peer": False, "proto": "tcp", "cc": "cubic", "repeat": 1}
    figures: Json = {
        **dict.fromkeys(names(FIGURES)),
        "goodput_bps": 140e6,
        "of_sum": 0.8,
        "of_links": 0.82,
    }
    rows = [
        {
            **key,
            "strategy": "max_min",
            "mode": "packet",
            **figures,
            "link_deaths": 0,
            "nic_deaths": 1,
        }
    ]
    rows.append({**key, "strategy": "mptcp", "peer": True, "mode": None, **figures})
    rows.append(
        missing_row(
            {**key, "strategy": "lcb", "peer": True, "mode": None},
            "no bonding here",
            names(FIGURES),
        )
    )
    head, _, *shown = table_after(
        page_of(written(tmp_path / "stream.json", "stream", rows)), "# One stream"
    )
    assert head[-3:] == [
        "of one link's plain TCP x links",
        "links taken for dead",
        "NICs taken for dead",
    ]
    assert [row[-3:] for row in shown] == [["0.820", "0", "1"], ["0.820", "-", "-"], ["", "", ""]]


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


def test_what_the_helper_costs(tmp_path: Path) -> None:
    nothing = dict.fromkeys(names(helper.FIGURES))
    memory = {"part": "memory", "what": "in order", "userspace_tso": None, "repeat": 1, **nothing}
    flow = {"part": "end to end", "what": "flow", "userspace_tso": True, "repeat": 1, **nothing}
    measured = {
        "goodput_bps": 4e9,
        "of_veth": 0.5,
        "cpu_s_per_gbit": 0.25,
        "rtt_us": 60.4,
        "rtt_awake_us": 30,
    }
    mptcp = missing_row(
        {"part": "end to end", "what": "mptcp", "userspace_tso": None},
        "no mptcpize",
        names(helper.FIGURES),
    )
    rows = [{**memory, "packets_per_s": 5_500_000}, {**flow, **measured}, mptcp]
    page = page_of(written(tmp_path / "helper.json", "helper", rows))
    assert table_after(page, "| in memory")[2:] == [["in order", "5,500,000"]]
    assert table_after(page, "| end to end")[2:] == [
        ["flow", "on", "4.00", "0.50", "0.25", "60", "-", "30", "-"],
        ["mptcp", "", "no (1)", "", "", "", "", "", ""],
    ]


def test_the_death_of_a_helper_has_columns_of_its_own(tmp_path: Path) -> None:
    key = {
        "strategy": "max_min",
        "peer": False,
        "mode": "packet",
        "repeat": 1,
        "lasting": False,
        "sent": 60_000,
    }
    figures: Json = {"outage_ms": 40.0, "lost": 5, "out_of_order": 0, "tcp_stall_ms": 60.0}
    rows: list[Json] = [
        {
            **key,
            "fault": "helper_killed",
            **figures,
            "traffic_again_ms": 41.5,
            "striped_again_s": 0.5,
        }
    ]
    rows.append(
        {**key, "fault": "nic_down", **figures, "traffic_again_ms": None, "striped_again_s": None}
    )
    page = page_of(written(tmp_path / "failover.json", "failover", rows))
    assert "10,000 UDP packets per second" in page
    found = table_after(page, "# One fault")
    figures_shown = [dict(zip(found[0], row, strict=True)) for row in found[2:]]
    assert [row["fault"] for row in figures_shown] == ["`nic_down`", "`helper_killed`"]
    assert [
        (row["out of order"], row["traffic again after, ms"], row["striped again after, s"])
        for row in figures_shown
    ] == [("0", "-", "-"), ("0", "42", "0.50")]


def test_a_row_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "stream.json", "stream", [{"topology": "f"}])
    with pytest.raises(BadInput, match=r"rows\[0\]\.links_mbps"):
        load_measurement(path)
