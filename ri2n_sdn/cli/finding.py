"""One row of `ri2n doctor`: what was looked at, how it is, what was seen, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ri2n_sdn.fabric.problem import Problem, Severity

__all__ = ["Finding", "Verdict", "problems_in"]

Verdict = Severity | Literal["ok"]


@dataclass(frozen=True)
class Finding:
    """`advice` is empty when the verdict is ok."""

    host: str
    check: str
    verdict: Verdict
    seen: str
    advice: str = ""


def problems_in(findings: Iterable[Finding]) -> list[Problem]:
    """The findings that are not ok, each with its host."""
    return [
        Problem(finding.verdict, f"{finding.host}: {finding.seen}", finding.advice)
        for finding in findings
        if finding.verdict != "ok"
    ]
