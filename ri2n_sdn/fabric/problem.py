"""Problems for an administrator: how bad it is, what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Problem", "Severity", "exit_code", "worst_first"]

Severity = Literal["bad", "warning"]
"""How bad a problem is.

`bad`: a host is without traffic, or nobody can tell. `warning`: all hosts have what they need, but
less is left in reserve.
"""

_EXIT_CODES: dict[Severity, int] = {"warning": 1, "bad": 2}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: a text that names the thing with the problem, and advice.

    `advice` is empty where the text needs none.
    """

    severity: Severity
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}" + (f": {self.advice}" if self.advice else "")


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """The problems in the given order, but bad ones before warnings."""
    return sorted(problems, key=lambda problem: -_EXIT_CODES[problem.severity])


def exit_code(problems: Iterable[Problem]) -> int:
    """The exit code for monitoring: 0 without a problem, 1 with warnings only, 2 with a bad one."""
    return max((_EXIT_CODES[problem.severity] for problem in problems), default=0)
