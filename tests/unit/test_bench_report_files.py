# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench report`: bad files, incomplete runs, names, and folders that cannot be written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench.report import write_report
from ri2n_sdn.cli.main import main
from ri2n_sdn.errors import BadInput
from tests.unit.test_bench_report import Json, contents, fig4, fig9

pytestmark = pytest.mark.usefixtures("drawn_once")


def edited(change: Callable[[Json], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        document = json.loads(fig4(path).read_text())
        change(document)
        path.write_text(json.dumps(document))

    return write


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_text("not json"), "is not JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not JSON"),
        (lambda path: path.write_text("[" * 100_000), "is not JSON"),
        (lambda path: path.write_text("[]"), "must be a JSON mapping"),
        (edited(lambda document: document.update(format=2)), "format: is 2"),
        (edited(lambda document: document.pop("format")), "format: is None"),
        (edited(lambda document: document.update(kind="fig5")), "kind: is 'fig5'"),
        (edited(lambda document: document.update(kind=["fig4"])), "kind: is ['fig4']"),
        (edited(lambda document: document.update(kind="fig9")), "rows[0].phase"),
        (edited(lambda document: document.update(rows={})), "rows: is missing or no list"),
        (edited(lambda document: document.pop("context")), "context: is missing"),
        (edited(lambda document: document["rows"][2].pop("worst_share")), "rows[2].worst_share"),
        (edited(lambda document: document["rows"][2].update(streams="8")), "rows[2].streams"),
        (
            edited(lambda document: document["rows"][2].update(worst_share=float("nan"))),
            "NaN is no number",
        ),
        (edited(lambda document: document["context"].update(labs=[1])), "context.labs"),
    ],
)
def test_bad_files_are_one_line_and_nothing_is_written(
    make: Callable[[Path], object], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, out = fig9(tmp_path / "good.json"), tmp_path / "bad.json", tmp_path / "out"
    make(bad)
    code = ri2n("bench", "report", str(good), str(bad), "-o", str(out))
    captured = capsys.readouterr()
    assert code == 2 and captured.err.count("\n") == 1 and not captured.out
    assert str(bad) in captured.err and words in captured.err
    assert not out.exists()


def ri2n(*arguments: str) -> int:
    """The exit code of the command line in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["ri2n", *arguments])
        main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_an_incomplete_run_is_marked_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fig4(tmp_path / "fig4-short.json")
    path.write_text(path.read_text().replace('"complete": true', '"complete": false'))
    assert ri2n("bench", "report", str(path), "-o", str(tmp_path / "out")) == 0
    captured = capsys.readouterr()
    assert f"warning: {path}: the run is incomplete" in captured.err
    assert str(tmp_path / "out/results.md") in captured.out.splitlines()
    page, detail = (tmp_path / "out" / name for name in ("results.md", "results/fig4-short.md"))
    assert "[fig4-short](results/fig4-short.md) (incomplete)" in page.read_text()
    assert detail.read_text().startswith("# Everybody sends to one host: fig4-short (incomplete)\n")


def test_two_runs_need_two_names(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, two = (
        fig4(tmp_path / "fig4-x.json"),
        fig4(tmp_path / "other" / "fig4-x.json", shares=(0.8,)),
    )
    with pytest.raises(BadInput, match=r"would be fig4-x\.json.*rename one"):
        write_report([one, two], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pictures_of_an_older_page_are_told(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json")
    write_report([path], tmp_path / "out")
    _, warnings = write_report([fig4(tmp_path / "fig4.json", streams=(8,))], tmp_path / "out")
    assert [line.rsplit("/", 1)[-1] for line in warnings] == [
        "fig4-host-total-1.svg: is not part of this page",
        "fig4-host-worst-1.svg: is not part of this page",
    ]


def test_a_full_disk_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report([fig4(tmp_path / "fig4.json")], tmp_path / "out")
    before = contents(tmp_path / "out")
    write_text, calls = Path.write_text, []

    def full(self: Path, *args: Any, **keywords: Any) -> int:
        calls.append(self)
        if len(calls) == 4:
            raise OSError(28, "No space left on device", str(self))
        return write_text(self, *args, **keywords)

    path = fig4(tmp_path / "fig4.json", shares=(0.3,))
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BadInput, match="No space left on device"):
        write_report([path], tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    path = fig4(tmp_path / "fig4.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        write_report([path], tmp_path / "file" / "docs")
