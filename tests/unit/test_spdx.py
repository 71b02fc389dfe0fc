# SPDX-License-Identifier: Apache-2.0
"""Each source file says its licence in its first line, in the form that tools read (SPDX)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
IDENTIFIER = "SPDX-License-Identifier: Apache-2.0"
MARKS = {".py": "#", ".sh": "#", ".rs": "//", ".c": "//", ".h": "//"}
SCRIPT_SUFFIXES = ("", ".postinst", ".postrm", ".prerm")
# Folders without source files of ours: what was built, tools' own, measured data, seeds of fuzzing,
# and what a command must write (golden).
_NOT_OURS = re.compile(
    r"^(\..+|site|build|dist|target|junit|node_modules|corpus|docs|golden|__pycache__|.*\.egg-info)$"
)


def first_lines(path: Path) -> tuple[str, str]:
    """The first two lines of a text file; empty ones of a file that is no text."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline(), file.readline()
    except UnicodeDecodeError:
        return "", ""


def sources(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each source file below a folder, with what begins a comment there; empty ones have none."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or _NOT_OURS.match(path.name):
            continue
        if path.is_dir():
            yield from sources(path)
        elif path.suffix in MARKS and path.stat().st_size:
            yield path, MARKS[path.suffix]
        elif path.suffix in SCRIPT_SUFFIXES and re.match(
            r"#!.*\b(bash|sh|python3?|perl)\b", first_lines(path)[0]
        ):
            yield path, "#"


def says_its_licence(path: Path, mark: str) -> bool:
    """Whether the first line, or the second one after a shebang, is the identifier."""
    first, second = first_lines(path)
    return (second if first.startswith("#!") else first) == f"{mark} {IDENTIFIER}\n"


def test_each_source_file_says_its_licence() -> None:
    found = list(sources(REPOSITORY))
    assert len(found) > 900
    assert [path for path, mark in found if not says_its_licence(path, mark)] == []
    ci = REPOSITORY / ".ci" / "run"
    assert not ci.exists() or says_its_licence(ci, "#")


@pytest.mark.parametrize(
    ("name", "text", "good"),
    [
        ("a.py", f"# {IDENTIFIER}\n", True),
        ("a.py", f'"""What it is."""\n# {IDENTIFIER}\n', False),
        ("a.py", "# SPDX-License-Identifier: MIT\n", False),
        ("a.rs", f"// {IDENTIFIER}\n", True),
        ("a.rs", f"# {IDENTIFIER}\n", False),
        ("script", f"#!/bin/bash\n# {IDENTIFIER}\n", True),
        ("script", "#!/bin/bash\n# What it does.\n", False),
    ],
)
def test_a_missing_licence_is_seen(name: str, text: str, good: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "empty.py").touch()
    ((path, mark),) = sources(tmp_path)
    assert says_its_licence(path, mark) == good
