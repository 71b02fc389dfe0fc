# SPDX-License-Identifier: Apache-2.0
"""From a clone to the live page on a Debian 12 that has nothing, and back.

The seconds go to the output (`pytest -s`), and no test asserts them: 60 s to the page, and 90 s in
all, are wanted on two CPUs with nothing else to do. RI2N_FRESH_SPINNERS=2 measures beside two
programs that spin, where 150 s are wanted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .fresh_machine import CLONE, FreshMachine, Run

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * 3600)]

PAGE = r"(http://127\.0\.0\.1:\d+/\S*)"
DEMO = ("./dev", "demo", "--seconds", "20")


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """So many programs that take all the CPU time that they get."""
    spinner = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(spinner) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def demo(machine: FreshMachine, what: str) -> Run:
    """A demo whose page was opened as soon as its address was there."""
    pages: list[str] = []

    def look(found: object) -> None:
        url = found[1]  # type: ignore[index]
        with urllib.request.urlopen(url, timeout=60) as answer:
            pages.append(answer.read().decode())

    load = os.getloadavg()[0]
    run = machine.run(*DEMO, watch={PAGE: look})
    assert run.code == 0 and "Traceback" not in run.text, run.text
    assert len(pages) == 1 and "ri2n" in pages[0]
    assert "removing lab" in run.text and "max_min" in run.text
    measured = {
        "what": what,
        "cpus": os.cpu_count(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "page_s": round(run.when(PAGE)[0], 1),
        "all_s": round(run.seconds, 1),
        "cpu_s": round(run.cpu_s, 1),
        "venv_mb": machine.megabytes(f"{CLONE}/.venv"),
        "all_mb": machine.megabytes("/"),
    }
    print(json.dumps(measured), flush=True)
    return run


def test_from_a_clone_to_the_page_and_back(tmp_path: Path) -> None:
    """The demo twice, then tests, which need the rest, and then all goes that was installed."""
    machine = FreshMachine(tmp_path / "machine")
    before = machine.packages()
    with spinning(int(os.environ.get("RI2N_FRESH_SPINNERS", "0"))):
        first = demo(machine, "first start")
        second = demo(machine, "second start")
    first.when("Debian packages to install")
    assert "install" not in second.text and "gcc" not in first.text
    assert not machine.path(f"{CLONE}/.venv/bin/ri2n-reorder").exists()
    assert machine.megabytes(f"{CLONE}/.venv") < 400

    tests = machine.run("./dev", "test", "--tier", "unit", "tests/unit/test_units.py")
    assert tests.code == 0, tests.text
    tests.when("for tests of the GUI in a browser: chromium")
    tests.when("^[1-9][0-9]* passed, 0 failed")
    measured = {
        "what": "the rest, and a test",
        "all_s": round(tests.seconds, 1),
        "venv_mb": machine.megabytes(f"{CLONE}/.venv"),
        "all_mb": machine.megabytes("/"),
    }
    print(json.dumps(measured), flush=True)

    gone = machine.run("./dev", "uninstall", "--yes")
    assert gone.code == 0, gone.text
    assert machine.packages() == before
    for name in (f"{CLONE}/.venv", "/root/.cache/ri2n", "/var/lib/ri2n-dev"):
        assert not machine.path(name).exists()


def test_one_more_first_start(tmp_path: Path) -> None:
    """Each start on a machine of its own, to measure again."""
    with spinning(int(os.environ.get("RI2N_FRESH_SPINNERS", "0"))):
        demo(FreshMachine(tmp_path / "machine"), "first start")
