# SPDX-License-Identifier: Apache-2.0
"""The help of `ri2n`: all commands under headings, and examples that are commands."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from ri2n_sdn.cli.entries import OWN, SHOWN
from ri2n_sdn.cli.main import loaded_tree
from ri2n_sdn.errors import NotAvailable
from tests.unit.commands import ri2n

ROOT = loaded_tree()


def test_the_help_names_all_commands_in_80_columns() -> None:
    said = ri2n("--help", COLUMNS="80").stdout
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines if line.startswith("  ")} - {"Example:"} == set(
        ROOT.commands
    )
    assert [line[:-1] for line in lines if re.fullmatch(r"\S.*:", line)] == list(SHOWN)
    assert said.count("  Example: ") == len(SHOWN)
    assert "--version" in lines[-1] and "--help" in lines[-1]


def test_no_command_is_without_a_heading_a_line_and_an_example() -> None:
    for name, entry in ROOT.entries.items():
        assert entry.kind in SHOWN and entry.line and entry.example, name
        assert f"Example: {entry.example}" in " ".join(ri2n(name, "--help").stdout.split())


@pytest.mark.parametrize("name", sorted(ROOT.commands))
def test_an_example_is_a_command_with_its_options(name: str) -> None:
    words = shlex.split(ROOT.entries[name].example)
    words = words[words[0] == "sudo" :]
    assert words[:2] == ["ri2n", name]
    command, context, rest = ROOT, ROOT.make_context("ri2n", words[1:]), words[1:]
    while hasattr(command, "commands"):  # raises when a word or an option is wrong
        word, command, rest = command.resolve_command(context, rest)
        context = command.make_context(word, list(rest), parent=context)
    assert context.args == []


def test_a_broken_package_breaks_its_own_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name, module = "broken", "ri2n_nosuch.cli.commands"

        def load(self) -> Any:
            raise ImportError("No module named 'ri2n_nosuch'")

    from ri2n_sdn.cli import main

    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [Broken()])
    main.tree.cache_clear()
    try:
        assert "broken" in ri2n("--help").stdout
        assert ri2n("check-config", "topologies/fig4/d.yaml").returncode == 0
        done = ri2n("broken")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "ri2n: broken cannot be loaded: No module named 'ri2n_nosuch'\n"
        with pytest.raises(NotAvailable):
            main.tree().load("broken")
    finally:
        main.tree.cache_clear()


def test_each_command_of_the_table_is_there() -> None:
    assert set(OWN) <= set(ROOT.commands)
    assert "Did you mean 'status'" in ri2n("statsu").stderr
    assert ri2n("nosuchcommand").stderr == "ri2n: No such command 'nosuchcommand'.\n"
