# SPDX-License-Identifier: Apache-2.0
"""The results of a run, read from JUnit files and from what cargo prints.

They are shown as one line per tier, and the slowest tests.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as tree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["NOTHING_SELECTED", "Case", "Outcome", "read_cargo", "read_junit", "summary"]

NOTHING_SELECTED = 5  # pytest's exit code
SLOWEST = 10  # how many tests the summary names
MAX_REASON_CHARS = 400  # of the first line of a reason


@dataclass(frozen=True)
class Case:
    """A test that has run, and its seconds by the machine's clock, in a guest by the guest's."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """The results of a tier.

    `why_skipped` says why none of its tests could run here; `failures` says which tests failed and
    why.
    """

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cases: tuple[Case, ...] = field(default=(), repr=False)
    why_skipped: str = ""
    failures: tuple[str, ...] = ()


def read_junit(tier: str, paths: Iterable[Path], seconds: float, broken: int = 0) -> Outcome:
    """The outcome of pytest runs from their JUnit files.

    A file that is missing or cannot be read means that a run broke, and counts as one failure.
    `broken` is the number of failures that no file shows, such as a pytest that ended with an error
    though none of its tests failed.
    """
    passed, failed, skipped = 0, broken, 0
    cases: list[Case] = []
    failures: list[str] = []
    for path in paths:
        try:
            suites = list(tree.parse(path).getroot().iter("testsuite"))
        except (OSError, tree.ParseError) as error:
            failed += 1
            failures.append(f"{path.name}: no whole JUnit file: {error}")
            continue
        for suite in suites:
            count = {
                key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
            }
            bad = count["failures"] + count["errors"]
            failed += bad
            skipped += count["skipped"]
            passed += max(0, count["tests"] - bad - count["skipped"])
            cases += [_case(element) for element in suite.iter("testcase")]
            failures += [text for element in suite.iter("testcase") for text in _failures(element)]
    return Outcome(tier, passed, failed, skipped, seconds, tuple(cases), failures=tuple(failures))


def read_cargo(text: str, seconds: float, code: int) -> Outcome:
    """The outcome of `cargo test`, from what it printed and its exit code.

    A test that needs root and prints SKIPPED is passed for cargo; here it counts as skipped, as
    ignored tests do.
    """
    passed = failed = skipped = 0
    for result in re.finditer(
        r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", text, re.MULTILINE
    ):
        passed += int(result[1])
        failed += int(result[2])
        skipped += int(result[3])
    failures = tuple(
        f"{name}: see above" for name in re.findall(r"^test (\S+) .*\bFAILED$", text, re.MULTILINE)
    )
    without_root = len(re.findall(r"^SKIPPED ", text, re.MULTILINE))
    if code and not failed:
        failed, failures = 1, ("cargo: it does not build",)
    skipped += without_root
    return Outcome("rust", passed - without_root, failed, skipped, seconds, failures=failures)


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The text at the end of a run: failures, slowest tests, a line per tier, and the totals.

    The run took `seconds`; the tiers' seconds together are more where tiers ran side by side.
    """
    lines = [f"FAILED {o.tier}: {text}" for o in outcomes for text in o.failures]
    slowest = sorted(
        ((case, o.tier) for o in outcomes for case in o.cases), key=lambda pair: -pair[0].seconds
    )[:SLOWEST]
    if slowest:
        lines.append(f"slowest {len(slowest)} tests:")
        lines += [f"  {case.seconds:7.1f} s  {tier:8} {case.name}" for case, tier in slowest]
    lines.append(f"{'tier':8} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    lines += [
        f"{o.tier:8} {o.passed:7} {o.failed:7} {o.skipped:8} {o.seconds:8.0f}{_why(o)}"
        for o in outcomes
    ]
    lines.append(f"tests took {seconds:.0f} s")
    passed, failed, skipped = (
        sum(getattr(o, key) for o in outcomes) for key in ("passed", "failed", "skipped")
    )
    return "\n".join([*lines, f"{passed} passed, {failed} failed, {skipped} skipped"])


def _why(outcome: Outcome) -> str:
    return f"  SKIPPED TIER: {outcome.why_skipped}" if outcome.why_skipped else ""


def _failures(element: tree.Element) -> list[str]:
    """The test's name with the first line of each reason for which it failed."""
    parts = [part for kind in ("failure", "error") for part in element.findall(kind)]
    reasons = [
        ((part.get("message") or part.text or "").strip().splitlines() or ["?"])[0]
        for part in parts
    ]
    return [f"{_case(element).name}: {reason[:MAX_REASON_CHARS]}" for reason in reasons]


def _case(element: tree.Element) -> Case:
    module = element.get("classname", "").removeprefix("tests.").replace(".", "/")
    return Case(f"{module}::{element.get('name', '')}", float(element.get("time", 0)))
