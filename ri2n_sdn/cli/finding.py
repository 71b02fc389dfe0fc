# SPDX-License-Identifier: Apache-2.0
"""One finding of `ri2n doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ri2n_sdn.contract.said import Line

__all__ = ["Finding", "Verdict", "problems_in"]

Verdict = Literal["bad", "warning", "ok"]


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


def problems_in(findings: Iterable[Finding]) -> list[Line]:
    """The findings that are not ok, as lines whose texts name the host."""
    return [
        Line(finding.verdict, f"{finding.host}: {finding.seen}", finding.advice)
        for finding in findings
        if finding.verdict != "ok"
    ]
