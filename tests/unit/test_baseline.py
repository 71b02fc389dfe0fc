# SPDX-License-Identifier: Apache-2.0
"""What the product does is what is written down: the quick parts of `./dev baseline`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.baseline import __main__ as baseline

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", baseline.QUICK)
def test_nothing_has_changed_that_is_not_written_down(part: str) -> None:
    """Each part is made in a process of its own, where texts have other hashes than here."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.baseline", part],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{part}: the same" in done.stdout, done.stdout


def test_a_difference_is_shown_and_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(baseline, "DATA", tmp_path)
    assert baseline.main(["vectors"]) == 1
    assert "vectors: DIFFERENT" in capsys.readouterr().out
    assert baseline.main(["--write", "vectors"]) == 0
    assert baseline.main(["vectors"]) == 0
    written = tmp_path / "vectors.txt"
    sha, *others = written.read_text().splitlines()
    written.write_text("\n".join(["sha256 0", *others, ""]))
    capsys.readouterr()
    assert baseline.main(["vectors"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "-sha256 0" in said and f"+{sha}" in said


def test_every_file_is_of_a_part() -> None:
    there = {path.name for path in baseline.DATA.iterdir()}
    assert there == {part.file for part in baseline.PARTS.values()}
