# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench rules` without hosts: the rules' text, rows from slices, tables and report."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from statistics import geometric_mean
from typing import Any, get_args, get_type_hints

import pytest

from ri2n_lab.bench import rules, rules_marking, rules_text
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement, thin_json
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.bench.rules import (
    METHODS,
    RulesSettings,
    Slice,
    block_rows,
    pairs_of_turn,
    parse_counts,
)
from ri2n_lab.bench.rules_pair import OVERS
from ri2n_lab.cli import bench_rules
from ri2n_sdn.errors import BadInput, NotAvailable
from tests.unit.test_bench_figures import printed
from tests.unit.test_bench_report import table_after

pytestmark = pytest.mark.usefixtures("drawn_once")

Json = dict[str, Any]

COUNTS = (0, 1, 2, 10, 63, 64, 1000, 10000)
PAIRS = {0: 1.0, 1: 1.3, 2: 0.8, 3: 1.1}
"""How much longer everything takes on a pair."""
QUIET = (1.0, 2.5, 1.7, 0.9)
"""How much longer everything takes in a turn."""
COSTS = {"none": 1.0, "again": 1.0, "map": 1.25, "owner": 40.0}


# ---- the rules


@pytest.mark.parametrize("count", COUNTS)
def test_the_sender_is_in_the_middle_of_all_users(count: int) -> None:
    every = list(rules_text.users(count))
    assert len(set(every)) == count
    if count:
        assert every.index(rules_text.SENDER_UID) == count // 2


@pytest.mark.parametrize("count", COUNTS)
def test_every_user_has_one_class_and_the_sender_a_job(count: int) -> None:
    jobs = rules_text.jobs(count)
    assert [number for number, _ in jobs] == list(range(1, min(count, 63) + 1))
    assert count == 0 or rules_text.SENDER_UID in {uid for _, uid in jobs}
    others = re.findall(r"(\d+) : goto class_(\d+)", rules_text.more_users(count))
    assert all(1 <= int(number) <= 63 for _, number in others)
    found = Counter([uid for _, uid in jobs] + [int(uid) for uid, _ in others])
    assert found == Counter(rules_text.users(count))


def test_the_papers_rules_are_one_mark_one_rule_and_one_table_for_each_user() -> None:
    lines = rules_text.owner_rules(10).splitlines()
    marks = dict(re.findall(r"--uid-owner (\d+) -j MARK --set-mark (\d+)", "\n".join(lines)))
    assert [int(uid) for uid in marks] == list(rules_text.users(10))
    assert lines[0] == "*mangle" and lines[-1] == "COMMIT" and len(lines) == 10 + 3
    added = rules_text.path_rules(10, "add", "nic", "10.0.0.0/24", "10.0.0.1")
    chosen = dict(re.findall(r"fwmark (\d+) table (\d+)", "\n".join(added)))
    assert list(chosen) == list(marks.values())
    routes = [line for line in added if line.startswith("route add 10.0.0.0/24 dev nic")]
    assert [line.split()[-1] for line in routes] == list(chosen.values())
    removed = rules_text.path_rules(10, "del", "nic", "10.0.0.0/24", "10.0.0.1")
    assert removed == [line.replace(" add ", " del ") for line in added]
    assert rules_text.owner_rules(0) == rules_text.no_owner_rules()


def test_a_bridge_gives_every_host_its_address_back() -> None:
    first = rules_text.bridge_rows(1, "02:00:00:00:00:07")[0]
    mac, mask = (
        int(text.replace(":", ""), 16) for text in (rules_text.CLASS_MAC, rules_text.CLASS_MAC_MASK)
    )
    for number in range(1, rules_text.CLASSES + 1):
        assert (mac + number) & mask == mac
    assert f"dl_src={rules_text.CLASS_MAC}/{rules_text.CLASS_MAC_MASK}" in first
    assert "set_field:02:00:00:00:00:07->eth_src" in first and "in_port=LOCAL" in first


@pytest.mark.parametrize("count", [0, 1, 200])
def test_the_map_is_what_the_host_scripts_make(count: int) -> None:
    text = rules_marking.marking(count, "nic", "02:00:00:00:00:07")
    found = Counter(int(uid) for uid in re.findall(r"\b(\d{6,}) : goto class_\d+", text))
    assert found == Counter(rules_text.users(count))
    assert ("hook egress device" in text) is (count > 0)
    made = set(re.findall(r"(?:add|delete) table (inet|netdev) (\w+)", text))
    assert made == {("inet", rules_text.TABLE), ("netdev", rules_text.TABLE)}


# ---- rows


def slices_of(method: str, pair: int, turn: int) -> list[Slice]:
    factor = COSTS[method] * PAIRS[pair] * QUIET[turn]
    return [Slice(20.0 * factor, 1e9, 0.1 * factor, 0.09 * factor)] * 3


def turns() -> list[dict[str, list[Slice]]]:
    """A block as the bench takes it: in every turn each method on another pair."""
    return [
        {method: slices_of(method, pair, turn) for method, pair in pairs_of_turn(turn).items()}
        for turn in range(len(METHODS))
    ]


def test_every_method_is_on_every_pair_once() -> None:
    every = [pairs_of_turn(turn) for turn in range(len(METHODS))]
    for places in every:
        assert sorted(places.values()) == list(range(len(METHODS)))
    for method in METHODS:
        assert sorted(places[method] for places in every) == list(range(len(METHODS)))


def test_neither_a_fast_pair_nor_a_quiet_turn_is_in_the_shares() -> None:
    rows = block_rows({"over": "veth", "beside": 100, "repeat": 1}, turns())
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        cost = COSTS[row["method"]]
        assert row["rtt_of_none"] == pytest.approx(cost, rel=1e-3)
        assert row["goodput_of_none"] == pytest.approx(1 / cost, rel=1e-2)
        assert row["cpu_of_none"] == pytest.approx(cost, rel=1e-3)
        assert row["rules"] == (100 if row["method"] in ("map", "owner") else 0)
        assert row["beside"] == 100
    # What the shares are made of is not even: a plain mean of a method's slices would be wrong.
    assert geometric_mean(PAIRS.values()) != pytest.approx(1.0, rel=1e-2)


def test_a_round_trip_that_is_longer_by_some_us_is_so_on_every_pair() -> None:
    added_us = {"none": 0.0, "again": 0.0, "map": 2.0, "owner": 900.0}
    block = [
        {
            method: [Slice(20.0 + 3 * pair + 5 * turn + added_us[method], 1, 1, 1)]
            for method, pair in pairs_of_turn(turn).items()
        }
        for turn in range(len(METHODS))
    ]
    rows = block_rows({"over": "veth", "beside": 1, "repeat": 1}, block)
    assert {row["method"]: row["rtt_over_none_us"] for row in rows} == added_us


def test_one_disturbed_slice_is_not_in_a_figure() -> None:
    block = turns()
    block[2]["map"][1] = Slice(9e6, 1e9, 50.0, 0.1)
    row = next(
        row
        for row in block_rows({"over": "veth", "beside": 1, "repeat": 1}, block)
        if row["method"] == "map"
    )
    assert row["rtt_of_none"] == pytest.approx(COSTS["map"], rel=1e-3)
    assert row["goodput_of_none"] == pytest.approx(1 / COSTS["map"], rel=1e-2)


def test_cpu_time_that_nobody_can_tell_is_no_figure() -> None:
    block = [
        {
            method: [Slice(each.rtt_us, each.bits, each.seconds, None) for each in slices]
            for method, slices in turn.items()
        }
        for turn in turns()
    ]
    rows = block_rows({"over": "gigabit", "beside": 1, "repeat": 1}, block)
    assert all(row["cpu_s_per_gbit"] is None and row["cpu_of_none"] is None for row in rows)
    assert all(row["rtt_of_none"] for row in rows)


def rows_of(*counts: int) -> list[Json]:
    return [
        {**row, "load_s": None}
        for repeat in (1, 2)
        for over in ("veth", "bridge")
        for count in counts
        for row in block_rows({"over": over, "beside": count, "repeat": repeat}, turns())
    ]


def test_a_line_for_each_link_method_and_number_of_rules() -> None:
    lines = rules.summarized(rows_of(1, 100))
    keys = [(line["over"], line["method"], line["rules"], line["repeats"]) for line in lines]
    assert ("veth", "none", 0, 4) in keys and ("veth", "map", 1, 2) in keys
    assert ("bridge", "owner", 100, 2) in keys and len(keys) == 2 * (2 + 2 * 2)


# ---- settings


def test_counts_come_once_and_in_order() -> None:
    assert parse_counts("100, 0,1,100") == (0, 1, 100)


@pytest.mark.parametrize("text", ["", "1,,2", "-1", "ten", "1.5", "20001", "١"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--counts"):
        parse_counts(text)


def test_the_command_names_what_the_bench_has() -> None:
    assert list(OVERS) == bench_rules.OVERS
    defaults = RulesSettings()
    assert parse_counts(bench_rules.COUNTS) == defaults.counts
    assert bench_rules.rules.__defaults__ is not None
    assert bench_rules.rules.__defaults__[2:4] == (defaults.seconds, defaults.repeat)
    option = get_args(get_type_hints(bench_rules.rules, include_extras=True)["counts"])[1]
    assert f"0 to {rules.MAX_RULES}" in option.help


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do it")
def test_without_root_nothing_begins() -> None:
    with pytest.raises(NotAvailable, match="root"):
        rules.check()


# ---- tables and report


def report_of(rows: list[Json]) -> Report:
    report = Report("rules", None, RulesSettings().described())
    report.replace(rows, [], rules.summarized(rows))
    report.finish()
    return report


def test_the_table_has_every_line() -> None:
    text = printed(bench_rules.rules_table(report_of(rows_of(1, 100))))
    assert len(re.findall(r"(?:veth|bridge) .* (?:none|again|map|owner) ", text)) == 12
    assert "40.000" in text and "1.250" in text


def test_the_report_has_the_shares_and_the_papers_figures(tmp_path: Path) -> None:
    report = report_of(rows_of(0, 1, 10, 50, 100, 1000))
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(report.document))
    measurement = load_measurement(path)
    path.write_text(thin_json(measurement))
    assert load_measurement(path) == measurement
    made = make_report([measurement])
    page = made["results.md"]
    head = next(line for line in page.splitlines() if "1 user | 10 users" in line)
    found = table_after(page, head)
    by_name = {(line[0], line[1]): line[2:] for line in found[2:]}
    assert by_name["`veth`", "`map`"] == ["1.25 (+7.1) / 0.80 / 1.25"] * 6
    assert by_name["`bridge`", "*owner*"] == ["40 (+1273) / 0.03 / 40"] * 6
    # 0.136, 0.141, 0.151 and 0.168 of 0.119 ms; 913 of 938 Mbit/s; 98.4 of 25.8 % CPU.
    assert by_name["*the paper*", "*owner*"] == [
        "1.00 (+0.0) / 1.00 / 1.00",
        *("1.14 (+17) / - / -", "1.18 (+22) / - / -", "1.27 (+32) / - / -"),
        *("1.41 (+49) / 0.97 / 3.81", "-"),
    ]
    assert "## What do users' rules cost?" in page
    assert "What users' rules cost" in made["results/rules-host.md"].splitlines()[0]


def test_a_method_that_cannot_be_measured_says_why(tmp_path: Path) -> None:
    rows = [row for row in rows_of(10) if row["method"] != "owner"]
    key = {"over": "veth", "method": "owner", "rules": 10, "beside": 10}
    rows.append(missing_row(key, "iptables is missing", names(rules.FIGURES)))
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(report_of(rows).document))
    page = make_report([load_measurement(path)])["results.md"]
    assert "no (1)" in page and "iptables is missing" in page
    assert "iptables is missing" in printed(bench_rules.rules_table(report_of(rows)))
