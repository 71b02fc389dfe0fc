"""The documentation says what is there: links lead somewhere, commands and options in it exist."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ri2n_sdn.apps.config import ClusterConfig

REPOSITORY = Path(__file__).parents[2]
OURS = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/operations.md")]


def ids(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("file", sorted({*OURS, *REPOSITORY.glob("docs/*.md")}), ids=ids)
def test_links_lead_somewhere(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if "://" not in t and not (file.parent / t).exists()]
    assert not missing


@cache
def help_of(*command: str) -> str:
    """The help of a command, empty when there is no such command."""
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", *command, "--help"]
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "250", "NO_COLOR": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=REPOSITORY, env=env, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else ""


def commands_in(text: str) -> set[tuple[str, ...]]:
    """Every `ri2n ...` in code, as words up to the next backquote, comment or line end."""
    found = re.findall(r"(?:^|[`/\s(])ri2n ((?:[a-z][a-z0-9-]*)(?: [^`\n#]*)?)", text)
    return {tuple(line.split()) for line in found}


@pytest.mark.parametrize("file", OURS, ids=ids)
def test_commands_and_their_options_exist(file: Path) -> None:
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", file.read_text(encoding="utf-8"), flags=re.S))
    for words in commands_in(code):
        group = words[0] in ("lab", "bench") and len(words) > 1
        command = tuple(word.rstrip(",;") for word in (words[:2] if group else words[:1]))
        text = help_of(*command)
        assert text, f"{file.name}: there is no command `ri2n {' '.join(command)}`"
        options = [word.split("=")[0] for word in words if word.startswith("--") and len(word) > 2]
        for option in options:
            assert re.search(rf"{re.escape(option)}\b", text), f"{file.name}: ri2n {command} has no {option}"


def test_the_first_screen_of_the_readme_has_the_two_commands() -> None:
    screen = "\n".join((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()[:20])
    assert "sudo ./dev demo" in screen and "sudo ./dev test" in screen


def test_every_key_of_cluster_yaml_is_explained() -> None:
    text = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    for key in ClusterConfig.model_fields:
        assert re.search(rf"`{key}[.:`]", text), key


def test_host_up_options_in_the_documentation_exist() -> None:
    text = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    script = REPOSITORY / "ovs-host-scripts" / "host-up"
    help_text = subprocess.run([str(script), "--help"], capture_output=True, text=True, check=False).stdout
    used = {word for line in re.findall(r"host-up ([^`\n#]*)", text) for word in line.split() if word[:2] == "--"}
    assert used and all(option in help_text for option in used), used


def test_no_registry_host_and_no_path_of_a_machine_is_in_the_tree() -> None:
    for name in ("dev", ".ci/run", "requirements.lock", "setup.cfg", "pyproject.toml", *map(str, OURS)):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert not re.search(r"index-url|/home/|/work/|/root/|pypi\.org|deb\.debian\.org", text), name
