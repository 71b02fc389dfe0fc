"""One finding of `ri2n doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ri2n_sdn.fabric.problem import Problem, Severity

__all__ = ["Finding", "Verdict", "problems_in"]

Verdict = Severity | Literal["ok"]


@dataclass(frozen=True)
class Finding:
    """What was checked on a host, the verdict, what was seen, and what to do.

    `advice` is empty when the verdict is ok.
    """

    host: str
    check: str
    verdict: Verdict
    seen: str
    advice: str = ""


def problems_in(findings: Iterable[Finding]) -> list[Problem]:
    """The findings that are not ok, as problems whose texts name the host."""
    return [
        Problem(finding.verdict, f"{finding.host}: {finding.seen}", finding.advice)
        for finding in findings
        if finding.verdict != "ok"
    ]
