# SPDX-License-Identifier: Apache-2.0
"""Tables in a terminal of 80 columns, with long names: no line is wider, and no name is cut off."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from ri2n_lab.bench.fair import Optimum
from ri2n_lab.cli.demo_table import compared
from ri2n_lab.cli.lab import _LABS
from ri2n_sdn.cli.tables import Column, table
from ri2n_sdn.cli.views import helper_table, path_table, status_view
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.contract.units import short_rate, table_rate

from .test_cli import answer_of, explained, striped

COLUMNS = 80
HOST = "compute-node-0017.rack-4.example"
OTHER = "login-node-0002.rack-1.example"
NIC = "enp131s0f1np1"


def lines_of(shown: RenderableType, width: int = COLUMNS) -> list[str]:
    """What a terminal of that width gets."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def column_of(lines: list[str], heading: str, following: str) -> str:
    """All that stands in a column, without the line ends between folded parts."""
    head = next(line for line in lines if re.search(rf"\b{heading}\b.*\b{following}\b", line))
    start, end = head.index(heading), head.index(following)
    # A right column's heading may begin behind its cells; names are in left columns.
    return "".join(line[start:end].strip() for line in lines[lines.index(head) + 1 :])


def check(lines: list[str]) -> None:
    """No line is too wide, and nothing is cut off."""
    assert lines and max(map(len, lines)) <= COLUMNS, "\n".join(lines)
    assert not any("…" in line for line in lines), "\n".join(lines)


def renamed(pair: Any) -> Any:
    """A pair of hosts and NICs with long names."""
    paths = [{**path, "own": NIC, "peer": NIC} for path in pair["paths"]]
    return {**pair, "src": HOST, "dst": OTHER, "paths": paths}


def test_status_folds_names_and_keeps_what_matters() -> None:
    nic = {"network": "n1", "speed_bps": 10**8, "up": True, "alive": False}
    host: dict[str, Any] = {"address": "192.168.100.117", "ovs": "3.1.0", "connected": True}
    host |= {"helper": {"running": True, "reports": True}, "nics": {NIC: nic}}
    problem = {"severity": "warning", "text": f"{HOST}:{NIC} is dead", "advice": "look " * 30}
    answer = answer_of(
        hosts={HOST: host, OTHER: {**host, "connected": False}},
        rates={HOST: {NIC: [95.6e6, 1.2e9]}},
        problems={"dead": problem},
    )
    answer["pairs"] = [{**renamed(striped()), "active": True}]
    lines = lines_of(status_view(answer, 1000.0))
    check(lines)
    names = column_of(lines, "host", "NIC")
    assert f"{HOST} (helper)".replace(" ", "") in names.replace(" ", ""), "\n".join(lines)
    assert f"{HOST} -> {OTHER} striped".replace(" ", "") in column_of(
        lines, "pair", "fair"
    ).replace(" ", "")
    text = "\n".join(lines)
    assert "95.6M" in text and "1.2G" in text and "NO" in text


def test_explain_folds_names() -> None:
    pair = renamed(explained())
    check(lines_of(path_table(pair["paths"])))
    for shown in helper_table([renamed(striped())]):
        check(lines_of(shown))


@pytest.mark.parametrize(
    "clients",
    [
        ["B", "C", "D"],
        [HOST, OTHER],
        [f"{HOST}{number}" for number in range(12)],
    ],
)
@pytest.mark.parametrize("count", range(5))
def test_the_demo_shows_every_client(clients: list[str], count: int) -> None:
    fair = Optimum(95.6e6 * len(clients), dict.fromkeys(clients, 95.6e6))
    row: dict[str, Any] = {"clients": dict.fromkeys(clients, 12.3e6)}
    row |= {"total_of_optimum": 0.987, "worst_share": 0.5, "cpus_short": True}
    row["cpus"] = {"idle": 0.01, "stolen": 0.3, "waiting": 0.99}
    results = dict.fromkeys(STRATEGIES[:count], row)
    lines = lines_of(compared(results, clients, fair, STRATEGIES[max(0, count - 1)]))
    check(lines)
    text = "".join(line.split("  ")[0].strip() for line in lines) + "\n".join(lines)
    assert all(client in text for client in clients), "\n".join(lines)
    assert "\n".join(lines).count("12.3M") == count * len(clients)


def test_the_list_of_labs_fits() -> None:
    lab: dict[str, Any] = {
        "name": "a-lab-with-a-long-name-1",
        "topology": "twelve-chars",
        "phase": "making",
    }
    lab |= {"owner": "somebody-else", "created_s": 0.0, "kernel": "virtual", "datapath": "netdev"}
    lab |= {"hosts": {HOST: "", OTHER: ""}, "controller": True}
    fault: dict[str, Any] = {"kind": "peer_nic_down", "host": HOST, "nic": NIC, "switch": None}
    lines = lines_of(table(_LABS, [{**lab, "faults": [fault]}]))
    check(lines)


COLUMNS_OF_A_TABLE = (
    Column("name"),
    Column("far", wide=True),
    Column("further", wide=True),
    Column("rate", written=table_rate, right=True, short=short_rate),
)
ROW = {"name": "name", "far": "f" * 12, "further": "g" * 12, "rate": 95.6e6}


@pytest.mark.parametrize(
    ("width", "headings", "rate"),
    [
        (60, ["name", "far", "further", "rate"], "95.6 Mbit/s"),
        (42, ["name", "far", "further", "rate"], "95.6M"),
        (30, ["name", "far", "rate"], "95.6M"),
        (15, ["name", "rate"], "95.6M"),
    ],
)
def test_first_the_frame_goes_then_wide_columns(width: int, headings: list[str], rate: str) -> None:
    lines = lines_of(table(COLUMNS_OF_A_TABLE, [ROW]), width)
    text = "\n".join(lines)
    assert re.findall(r"\w+", next(line for line in lines if "name" in line)) == headings, text
    assert rate in text and ("┃" in text) == (width == 60)
