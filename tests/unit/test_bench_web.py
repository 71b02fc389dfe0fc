# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench web`: windows are compared with those beside them, and what is asked must be true."""

from __future__ import annotations

import pytest

from ri2n_lab.bench import web, web_clients
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.web import WebCostSettings, compared, run_web, summarized, total_seconds
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.gui import PAGES


def rows(*cycles_s: float) -> list[web.Json]:
    return [
        {
            **dict.fromkeys(figure.name for figure in web.FIGURES),
            **{"watched": "all" if index % 2 else "none", "hosts": 4, "active_pairs": 2},
            **{"cycle_s": cycle_s, "cpu_s": cycle_s / 2},
        }
        for index, cycle_s in enumerate(cycles_s)
    ]


def test_a_window_is_compared_with_both_windows_beside_it() -> None:
    """So what grows by itself, such as the machine's other load, is no growth."""
    found = compared(rows(1.0, 2.2, 3.0, 4.0, 5.0))
    assert [row["cycle_growth"] for row in found] == [None, pytest.approx(0.1), None, 0.0, None]
    assert [row["cpu_growth"] for row in found][1] == pytest.approx(0.1)
    lines = {line["watched"]: line for line in summarized(found)}
    assert lines["all"]["cycle_growth_spread"] == [0.0, pytest.approx(0.1)]
    assert lines["none"]["cycle_growth"] is None


def test_the_last_window_with_clients_is_not_compared_when_the_run_was_interrupted() -> None:
    assert compared(rows(1.0, 2.0))[-1]["cycle_growth"] is None


def test_more_pairs_than_there_are_is_one_line() -> None:
    settings = WebCostSettings(hosts=3, pairs=7)
    report = Report("web", None, settings.described())
    with pytest.raises(BadInput, match="--pairs 7: 3 hosts have 1 to 6 pairs"):
        run_web(settings, report, Progress(lambda text, over_s: None))
    assert total_seconds(settings) > settings.seconds * 11


def test_sessions_look_at_pages_that_there_are() -> None:
    assert set(web_clients.PAGES) <= {page.path for page in PAGES}
