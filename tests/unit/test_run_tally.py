# SPDX-License-Identifier: Apache-2.0
"""What `./dev test` prints at its end: no failure is lost, however a run ended."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.run import __main__ as run
from tests.run.guests import Pace, Say, by_length
from tests.run.tally import Case, Outcome, read_cargo, read_junit, summary
from tests.run.tiers import ROOT, TIERS, Tier, marks, of_a_tier, select

JUNIT = """<?xml version="1.0"?><testsuites>
<testsuite tests="5" failures="1" errors="1" skipped="1">
<testcase classname="tests.unit.test_x" name="test_one" time="2.5"/>
<testcase classname="tests.unit.test_x" name="test_two" time="0.5">
<failure message="AssertionError: 3&#10;assert 3 == 4">
trace</failure></testcase></testsuite></testsuites>"""
CARGO = """
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
SKIPPED needs root
test links::tests::one ... FAILED
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""
TIER = {tier.name: tier for tier in TIERS}


def test_junit_files_are_added_up(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(JUNIT)
    outcome = read_junit("unit", [tmp_path / "a", tmp_path / "b"], 7.0)
    assert (outcome.passed, outcome.failed, outcome.skipped, outcome.seconds) == (4, 4, 2, 7.0)
    assert outcome.cases[0] == Case("unit/test_x::test_one", 2.5)
    assert outcome.failures == ("unit/test_x::test_two: AssertionError: 3",) * 2
    assert summary([outcome], 1.0).startswith(
        "FAILED unit: unit/test_x::test_two: AssertionError: 3\n"
    )


@pytest.mark.parametrize("content", [None, "", "<testsuites><test"])
def test_a_run_without_a_whole_file_is_a_failure(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "a").write_text(content)
    assert read_junit("unit", [tmp_path / "a"], 0.0).failed == 1


def test_a_run_that_broke_is_a_failure_though_no_test_of_it_failed() -> None:
    assert read_junit("kernel", [], 0.0, broken=2).failed == 2


def test_cargo_is_added_up_and_what_needed_root_is_skipped() -> None:
    outcome = read_cargo(CARGO, 1.0, 101)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (4, 1, 2)
    assert outcome.failures == ("links::tests::one: see above",)


def test_a_helper_that_does_not_build_is_a_failure() -> None:
    assert read_cargo("error[E0308]: mismatched types\n", 1.0, 101).failed == 1
    assert read_cargo("", 1.0, 0).failed == 0


def test_the_end_has_a_line_per_tier_the_slowest_tests_and_last_the_sums() -> None:
    cases = tuple(Case(f"t{number}", float(number)) for number in range(20))
    outcomes = [
        Outcome("unit", 20, 1, 0, 12.4, cases),
        Outcome("lab", 0, 0, 7, 0.0, why_skipped="needs root"),
    ]
    lines = summary(outcomes, 12.3).splitlines()
    assert lines[-1] == "20 passed, 1 failed, 7 skipped"
    assert [line.split()[-1] for line in lines if " s  unit" in line] == [
        f"t{number}" for number in range(19, 9, -1)
    ]
    assert ["unit", "20", "1", "0", "12"] in [line.split() for line in lines]
    assert any(line.startswith("lab") and "needs root" in line for line in lines)


def test_a_users_marks_are_added_to_the_tiers() -> None:
    assert marks(TIER["unit"], False, "slow") == "(not long) and (slow)"
    assert marks(TIER["unit"], True) == ""
    assert marks(TIER["kernel"], True) == "(virtual)"


def test_a_path_belongs_to_its_tier_and_to_guests_only_when_asked() -> None:
    paths = ["tests/lab/test_trunk.py::test_x", "tests/unit", "tests/laboratory.py"]
    assert select(TIER["lab"], paths, asked=False) == ["tests/lab/test_trunk.py::test_x"]
    assert select(TIER["unit"], paths, asked=False) == ["tests/unit"]
    assert select(TIER["kernel"], paths, asked=False) == []
    assert select(TIER["kernel"], paths, asked=True) == ["tests/lab/test_trunk.py::test_x"]
    assert select(TIER["rust"], paths, asked=True) == []
    assert select(TIER["rust"], [], asked=False) == ["reorder"]


def test_the_file_with_the_most_tests_is_the_first() -> None:
    assert by_length("a.py::x\nb.py::x\nb.py::y\n\n3 tests collected\n") == ["b.py", "a.py"]


def a_run(scratch: Path) -> run._Run:
    return run._Run(argparse.Namespace(all=False, workers=1, tier=None, seed=1), [], [], scratch)


def test_a_file_that_cannot_be_read_is_a_failure_and_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_text("def test_it(): pass\n")
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    good, broken = (str(tmp_path / f"test_{name}.py") for name in ("good", "broken"))
    assert a_run(tmp_path)._collect(TIER["unit"], [good])[1] == 0
    assert a_run(tmp_path)._collect(TIER["unit"], [good, broken])[1] == 1


def test_a_kernel_that_is_not_built_fails_the_tiers_that_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "why_not", lambda tier: "there is no kernel")
    made = a_run(tmp_path)
    made.unbuilt = "it could not be built"
    for name in ("kernel", "virtual"):
        outcome = made._tier(TIER[name], [TIER[name].folder], lambda _: None)
        assert (outcome.failed, outcome.failures) == (1, ("it could not be built",))


@pytest.mark.parametrize("breaks", [False, True])
def test_guests_run_beside_the_other_tiers_and_have_the_machine_when_those_are_done(
    breaks: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What they print meanwhile appears between two tiers; a run that is ended ends them."""
    made = a_run(tmp_path)
    begun, order, printed = threading.Event(), list[str](), list[bool]()

    def tier(tier: Tier, paths: list[str], say: Say) -> Outcome:
        if tier.name == "kernel":
            assert made.pace is Pace.GENTLE
            say("of a guest")
            begun.set()
            while made.pace is Pace.GENTLE:
                time.sleep(0.01)
            order.append(made.pace.value)
        else:
            assert begun.wait(100)
            printed.append("of a guest" in capsys.readouterr().out)
            if breaks and tier.name == "lab":
                raise KeyboardInterrupt
            order.append(tier.name)
        return Outcome(tier.name)

    monkeypatch.setattr(made, "_tier", tier)
    monkeypatch.setattr(made, "_start_kernel_build", lambda: None)
    if breaks:
        with pytest.raises(KeyboardInterrupt):
            made.tiers()
        assert order == ["unit", "sandbox", "rust", "stop"]
    else:
        assert [outcome.tier for outcome in made.tiers()] == list(TIER)
        assert order == ["unit", "sandbox", "rust", "lab", "virtual", "full"]
    assert printed[:4] == [False, True, False, False]


def test_a_path_that_no_tier_has_is_refused() -> None:
    assert of_a_tier("tests/unit/test_run_tally.py::test_x") and of_a_tier("tests/lab")
    argv = [sys.executable, "-m", "tests.run", "tests/labs/test_lab.py"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith("tests/labs/test_lab.py: no tier has such a test")
