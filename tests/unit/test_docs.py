# SPDX-License-Identifier: Apache-2.0
"""The documentation says what is there: links lead somewhere, commands and options in it exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.manual.links import broken_links
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.cli.main import loaded_tree
from tests.run.__main__ import _parser as run_parser
from tests.run.tiers import TIERS
from tests.unit.commands import REPOSITORY

OURS = [
    REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
]
DECISIONS = sorted(REPOSITORY.glob("docs/decisions/[0-9]*.md"))
MANUALS = sorted({*OURS, *DECISIONS, *REPOSITORY.glob("docs/*.md")} - {REPOSITORY / "CHANGELOG.md"})


def ids(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


# Folders that have no text of ours: what was built, and tools' own.
_NOT_OURS = re.compile(r"^(\..*|site|build|dist|target|junit|node_modules|.*\.egg-info)$")


def markdown_files(folder: Path) -> Iterator[Path]:
    """All Markdown files of the repository, wherever they are."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not _NOT_OURS.match(path.name):
            yield from markdown_files(path)
        elif path.suffix == ".md":
            yield path


def test_links_lead_somewhere() -> None:
    """To files that are there, and to headings that are in them."""
    files, anchors = list(markdown_files(REPOSITORY)), dict[Path, set[str]]()
    assert len(files) > 60
    broken = {ids(file): broken_links(file, anchors) for file in files}
    assert not {name: links for name, links in broken.items() if links}


def test_each_decision_has_its_parts_and_stands_in_the_list() -> None:
    index = (REPOSITORY / "docs/decisions/index.md").read_text(encoding="utf-8")
    listed, navigation = [], (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    for number, path in enumerate(DECISIONS, 1):
        title, *parts = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
        assert parts == ["Context", "Decision", "Rejected", "Consequences"], path
        assert title.startswith(f"{number}. ") and f": decisions/{path.name}\n" in navigation
        listed.append(f"{number}. [{title.partition('. ')[2]}]({path.name})")
    assert len(listed) >= 10 and index.endswith("\n".join(["", *listed, ""]))


def test_each_pattern_of_the_owners_has_files_and_each_owner_is_a_team() -> None:
    for line in (REPOSITORY / "CODEOWNERS").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern, *owners = line.split()
            assert pattern == "*" or (REPOSITORY / pattern.strip("/")).exists(), pattern
            assert owners and all(re.fullmatch(r"@[\w-]+/[\w-]+", owner) for owner in owners)


def test_promises_name_tests_that_are_there() -> None:
    """docs/security.md: the last column of each row."""
    rows = [
        line
        for line in (REPOSITORY / "docs/security.md").read_text(encoding="utf-8").splitlines()
        if line[:1] == "|"
    ]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[-2])}
    sources = [*REPOSITORY.glob("tests/**/test_*.py"), *REPOSITORY.glob("reorder/**/*.rs")]
    defined = re.compile(r"(?:def|fn) (\w+)\(")
    there = {name for path in sources for name in defined.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 30 and not named - there


@cache
def options_of(*command: str) -> frozenset[str] | None:
    """The options of a command; None when there is no such command."""
    node: Any = loaded_tree()
    for word in command:
        node = getattr(node, "commands", {}).get(word)
        if node is None:
            return None
    options = {name for given in node.params for name in (*given.opts, *given.secondary_opts)}
    return frozenset({*options, "--help"})


@cache
def groups() -> frozenset[str]:
    """The commands that have commands below them."""
    below: dict[str, Any] = getattr(loaded_tree(), "commands", {})
    return frozenset(name for name, command in below.items() if hasattr(command, "commands"))


def commands_in(text: str) -> set[tuple[str, ...]]:
    """Every `ri2n ...` in code, as words up to the next backquote, comment or line end."""
    found = re.findall(r"(?:^|[`/\s(])ri2n ((?:[a-z][a-z0-9-]*)(?: [^`\n#]*)?)", text)
    return {tuple(line.split()) for line in found}


@pytest.mark.parametrize("file", MANUALS, ids=ids)
def test_commands_and_their_options_exist(file: Path) -> None:
    code = "\n".join(
        re.findall(r"```.*?```|`[^`\n]+`", file.read_text(encoding="utf-8"), flags=re.S)
    )
    for words in commands_in(code):
        inner = re.sub(r"[,;.:)]+$", "", words[1]) if len(words) > 1 else ""
        named = inner.split("|") if words[0] in groups() and inner[:1].isalpha() else []
        commands: list[tuple[str, ...]] = [(words[0], name) for name in named] or [
            (words[0].rstrip(",;"),)
        ]
        options = {word.split("=")[0] for word in words if word.startswith("--") and len(word) > 2}
        for command in commands:
            there = options_of(*command)
            assert there is not None, f"{file.name}: there is no `ri2n {' '.join(command)}`"
            unknown = {re.sub(r"[,;.:)]+$", "", option) for option in options} - there
            assert not unknown, f"{file.name}: ri2n {' '.join(command)} has no {unknown}"


# ---- ./dev


@cache
def help_of_dev() -> str:
    """The text of `./dev help`.

    It has a line `  COMMAND ...` for each command; the command's options are in it and below it.
    """
    done = subprocess.run(
        ["./dev", "help"], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )
    assert done.returncode == 0 and "usage: ./dev" in done.stdout, done
    return done.stdout


def dev_commands() -> dict[str, str]:
    """The commands of `./dev`, and what its help says of each."""
    parts = re.split(r"^  (?=[a-z])", help_of_dev(), flags=re.M)[1:]
    return {part.split()[0]: part for part in parts}


def dev_tiers() -> list[str]:
    """The tiers, from `--tier ONE|ANOTHER|...` in the help."""
    found = re.search(r"--tier[ =]([a-z-]+(?:\|[a-z-]+)+)", help_of_dev())
    assert found, "`./dev help` names no tiers: --tier ONE|ANOTHER"
    return found[1].split("|")


@pytest.mark.parametrize("file", MANUALS, ids=ids)
def test_commands_options_and_tiers_of_dev_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.S))
    commands, tiers = dev_commands(), dev_tiers()
    for line in re.findall(r"(?<![\w.])\./dev (\w[^`\n#]*)", code):
        command, *words = line.split()
        assert command in commands, f"{file.name}: there is no `./dev {command}`"
        for word in words:
            option = word.partition("=")[0]
            known = not option.startswith("--") or re.search(
                rf"(?<![\w-]){option}(?![\w-])", commands[command]
            )
            assert known, f"{file.name}: `./dev help` has no {option} of {command}"
        named = re.findall(r"--tier[ =](\S+)", line)
        assert set(named) <= set(tiers), f"{file.name}: {line}: the tiers are {', '.join(tiers)}"
    called = set(re.findall(r"\btiers? `([^`]+)`", text))
    assert called <= set(tiers), (
        f"{file.name}: the tiers are {', '.join(tiers)}, not {', '.join(called)}"
    )


def test_the_help_of_dev_and_the_runner_name_the_same_tiers_and_options() -> None:
    """`./dev` passes all on to `python -m tests.run`, whose own help nobody reads."""
    assert dev_tiers() == [tier.name for tier in TIERS]
    options = set(re.findall(r"--[a-z]+", run_parser().format_help())) - {"--help"}
    told = set(re.findall(r"--[a-z]+", dev_commands()["test"]))
    assert told == options


PROSE = [*MANUALS, *sorted(REPOSITORY.glob("docs/results/*.md")), REPOSITORY / "CHANGELOG.md"]


@pytest.mark.parametrize("file", PROSE, ids=ids)
def test_prose_has_at_most_100_columns(file: Path) -> None:
    """But for tables, and commands in blocks."""
    prose = re.sub(r"^ *```.*?^ *```$", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert not [
        line for line in prose.splitlines() if len(line) > 100 and not line.lstrip().startswith("|")
    ]


def test_scripts_and_configuration_have_at_most_100_columns() -> None:
    """All of `dev` and setup/, `.ci/run`, the host scripts with their units, the topologies."""
    folders = [REPOSITORY / name for name in ("ovs-host-scripts", "topologies", "setup")]
    files = [REPOSITORY / "dev", REPOSITORY / ".ci" / "run"]
    files += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 100
    ]


def section(title: str) -> str:
    """A section of CONTRIBUTING.md."""
    parts = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")
    found = [part for part in parts if part.startswith(f"{title}\n")]
    assert len(found) == 1, title
    return found[0]


def test_contributing_lists_the_tiers() -> None:
    """Each in a table row or a list item that begins with its name: "| `unit` | ..." or "* `unit`:

    ...".
    """
    assert re.findall(r"^(?:\| |[*-] )`([a-z-]+)`", section("Tests"), flags=re.M) == dev_tiers()


def test_contributing_names_the_markers() -> None:
    markers = re.findall(
        r'^    "([a-z]+): ', (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), flags=re.M
    )
    assert len(markers) >= 3
    for marker in markers:
        assert f"`{marker}`" in section("Tests"), marker


def folders_with_files(parent: Path) -> set[str]:
    """Folders that git keeps: not those it ignores, nor what is left of a removed one.

    Hidden ones are tools' own.
    """
    ignored = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").split()

    def kept(path: Path) -> bool:
        return not any(path.match(pattern.rstrip("/")) for pattern in ignored)

    def filled(folder: Path) -> bool:
        return any(
            kept(path) and (path.is_file() or (path.is_dir() and filled(path)))
            for path in folder.iterdir()
        )

    return {
        path.name
        for path in parent.iterdir()
        if path.is_dir()
        and kept(path)
        and (path.name == ".ci" or not path.name.startswith("."))
        and filled(path)
    }


def test_the_map_of_folders_is_that_of_the_repository() -> None:
    """The first word of each line of the map is a folder, with a slash, or a file."""
    block = re.search(r"```\n(.*?)```", section("Where things live"), flags=re.S)
    assert block
    entries = [line.split()[0] for line in block[1].splitlines() if line[:1].strip()]
    assert len(set(entries)) == len(entries)
    for entry in entries:
        path = REPOSITORY / entry
        assert path.is_dir() if entry.endswith("/") else path.is_file(), f"there is no {entry}"
    top = {entry.split("/")[0] for entry in entries if "/" in entry}
    assert top == folders_with_files(REPOSITORY)
    for name in ("ri2n_sdn", "ri2n_lab", "ri2n_parallel"):
        package = {entry.split("/")[1] for entry in entries if entry.startswith(f"{name}/")} - {""}
        modules = {path.name for path in (REPOSITORY / name).glob("*.py")} - {"__init__.py"}
        assert package == folders_with_files(REPOSITORY / name) | (
            modules if name == "ri2n_sdn" else set()
        ), name


def test_the_first_screen_of_the_readme_has_the_two_commands() -> None:
    screen = "\n".join((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()[:20])
    lines = screen.splitlines()
    assert any(line.startswith("./dev demo ") for line in lines), "it asks for root by itself"
    assert any(line.startswith("./dev test ") for line in lines)


def test_every_key_of_cluster_yaml_is_explained() -> None:
    text = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    for key in ClusterConfig.model_fields:
        assert re.search(rf"`{key}[.:`]", text), key


def test_host_up_options_in_the_documentation_exist() -> None:
    text = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    script = REPOSITORY / "ovs-host-scripts" / "host-up"
    help_text = subprocess.run(
        [str(script), "--help"], capture_output=True, text=True, check=False
    ).stdout
    used = {
        word
        for line in re.findall(r"host-up ([^`\n#]*)", text)
        for word in line.split()
        if word[:2] == "--"
    }
    assert used and all(option in help_text for option in used), used


def test_no_registry_host_and_no_path_of_a_machine_is_in_the_tree() -> None:
    for name in (
        "dev",
        ".ci/run",
        "requirements.lock",
        "requirements-run.lock",
        "requirements-uv.lock",
        "setup.cfg",
        "pyproject.toml",
        *map(str, OURS),
    ):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert not re.search(r"index-url|/home/|/work/|/root/|pypi\.org|deb\.debian\.org", text), (
            name
        )
