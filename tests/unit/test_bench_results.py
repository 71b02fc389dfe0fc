# SPDX-License-Identifier: Apache-2.0
"""docs/results.md and docs/results are what `ri2n bench report` makes of the data there."""

from __future__ import annotations

from ri2n_lab.bench.report import make_report
from ri2n_lab.bench.report_input import load_measurement
from tests.unit.commands import REPOSITORY
from tests.unit.test_bench_pictures import content


def test_the_page_in_the_repository_is_what_its_data_make() -> None:
    docs = REPOSITORY / "docs"
    data = sorted(docs.glob("results/*.json"))
    made = make_report([load_measurement(path) for path in data]) if data else {}
    for name, text in made.items():
        if name.endswith(".svg"):
            # Another version of matplotlib may write other bytes: what a reader sees is the same.
            there_svg = (docs / name).read_text(encoding="utf-8")
            assert content(there_svg) == content(text), name
            continue
        assert (docs / name).read_text(encoding="utf-8") == text, (
            f"{name}: ri2n bench report docs/results/*.json"
        )
    there = {
        str(path.relative_to(docs)) for path in [*docs.glob("results/*"), *docs.glob("results.md")]
    }
    assert there == set(made)
