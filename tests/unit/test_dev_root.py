# SPDX-License-Identifier: Apache-2.0
"""`./dev demo` and `./dev test` ask for root by themselves, where somebody can be asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guide import Terminal
from tests.unit.dev_checkout import environment, make_checkout
from tests.waiting import LONG_S

NOBODY = 65534
ASKERS = ("sudo", "doas", "su")
ASKER = """#!/bin/bash
[[ $1 == -n ]] && exit "$([[ -e without-password ]]; echo $?)"
echo "${0##*/} was asked: $* with $PIP_INDEX_URL"
"""


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A checkout of a user who is not root."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ri2n-dev-") as folder:
        made = make_checkout(Path(folder))
        for name in ASKERS:
            (made / "programs" / name).write_text(ASKER)
            (made / "programs" / name).chmod(0o755)
        if os.geteuid() == 0:
            for path in (made, *made.rglob("*")):
                shutil.chown(path, NOBODY, NOBODY)
        yield made


def as_user() -> list[str]:
    """What runs a command as somebody who is not root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def surroundings(checkout: Path, there: tuple[str, ...]) -> dict[str, str]:
    """An environment in which only these programs can ask for root."""
    hidden = " ".join(name for name in ASKERS if name not in there)
    # Bash takes this for its `command`.
    command = f'() {{ [[ " {hidden} " != *" $2 "* ]] && builtin command "$@"; }}'
    return environment(checkout) | {
        "BASH_FUNC_command%%": command,
        "PIP_INDEX_URL": "http://pip.example/simple",
        "SECRET": "1",
    }


def without_terminal(
    checkout: Path, *argv: str, there: tuple[str, ...] = ASKERS
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*as_user(), "./dev", *argv],
        cwd=checkout,
        env=surroundings(checkout, there),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        check=False,
    )


@pytest.mark.parametrize("there", [ASKERS, ("doas", "su"), ("su",)])
def test_in_a_terminal_the_first_that_is_there_asks(checkout: Path, there: tuple[str, ...]) -> None:
    command = " ".join([*as_user(), "./dev", "demo", "--seconds", "5"])
    with Terminal(command, checkout, surroundings(checkout, there)) as terminal:
        assert terminal.wait(LONG_S) == 0
        asked = terminal.text
    assert f"{there[0]} was asked: " in asked
    assert "./dev demo --seconds 5 with http://pip.example/simple" in asked


def test_sudo_keeps_what_a_registry_needs_and_nothing_else(checkout: Path) -> None:
    (checkout / "without-password").touch()
    done = without_terminal(checkout, "demo")
    assert done.returncode == 0 and "sudo was asked: --preserve-env=" in done.stdout
    kept = done.stdout.partition("--preserve-env=")[2].split()[0].split(",")
    assert "PIP_INDEX_URL" in kept and "SECRET" not in kept and "PATH" not in kept


@pytest.mark.parametrize(
    ("there", "line"),
    [
        (ASKERS, "sudo ./dev demo --seconds 5"),
        (("doas", "su"), "doas ./dev demo --seconds 5"),
        (("su",), r"su root -c ./dev\ demo\ --seconds\ 5"),
        ((), r"su root -c ./dev\ demo\ --seconds\ 5"),
    ],
)
def test_without_a_terminal_it_says_what_to_type(
    checkout: Path, there: tuple[str, ...], line: str
) -> None:
    done = without_terminal(checkout, "demo", "--seconds", "5", there=there)
    assert done.returncode == 2 and done.stdout.splitlines()[-1].endswith(f"type: {line}")


def test_tests_go_on_without_root_where_nobody_can_be_asked(checkout: Path) -> None:
    done = without_terminal(checkout, "test", "--seed", "2")
    assert done.returncode == 0 and "type: sudo ./dev test --seed 2" in done.stdout
    assert (checkout / "asked").read_text().splitlines()[-1] == "tests.run --seed 2"


@pytest.mark.parametrize(
    "argv", [["--tier", "unit"], ["--tier=rust"], ["tests/unit"], ["tests/sandbox/x.py"], ["-h"]]
)
def test_tests_that_need_no_root_do_not_ask_for_it(checkout: Path, argv: list[str]) -> None:
    (checkout / "without-password").touch()
    done = without_terminal(checkout, "test", *argv)
    assert done.returncode == 0 and "was asked" not in done.stdout
    assert (checkout / "asked").read_text().splitlines()[-1] == " ".join(["tests.run", *argv])


@pytest.mark.parametrize(
    "argv", [["tests/lab/x.py"], ["tests/unit", "tests/lab"], ["--tier", "lab"]]
)
def test_tests_that_need_root_ask_for_it(checkout: Path, argv: list[str]) -> None:
    (checkout / "without-password").touch()
    done = without_terminal(checkout, "test", *argv)
    assert "sudo was asked" in done.stdout and " ".join(argv) in done.stdout
