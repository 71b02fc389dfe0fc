# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench helper` on this machine, in small: every row is measured."""

from __future__ import annotations

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.helper import run_helper
from ri2n_lab.bench.helper_plan import HelperSettings, loads
from ri2n_lab.bench.progress import Progress


def test_every_load_is_measured_by_turns_with_and_without_the_fast_path() -> None:
    settings = HelperSettings(
        what=("veth", "flow", "flow_fast"), seconds=1, repeat=1, streams=(1,), datapaths=("netdev",)
    )
    report = Report("helper", None, settings.described())
    run_helper(settings, report, Progress(lambda *_: None))
    assert report.document["complete"]
    rows = [row for row in report.rows if row["part"] != "memory"]
    assert [(row["what"], row["load"]) for row in rows] == [
        (what, load.name) for what in settings.what for load in loads(settings)
    ]
    for row in rows:
        assert row.get("why_not") is None and row.get("failed") is None, row
        assert {
            "streams": row["goodput_bps"],
            "round trips": row["median_us"],
            "rates": row["per_s"],
        }[row["part"]] > 0, row
        assert row["of_veth"] or row["times_veth"], row
    assert "fast" in report.document["context"]["labs"]["flow_fast, netdev"]
