"""What an administrator should look at: how bad it is, what is seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Problem", "Severity", "exit_code", "worst_first"]

Severity = Literal["bad", "warning"]
"""`bad`: somebody is without traffic, or nobody can tell; `warning`:

all have what they need, with less to spare.
"""

_EXIT_CODES: dict[Severity, int] = {"warning": 1, "bad": 2}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, in words that name what it is about.

    `advice` is empty where the text says it all.
    """

    severity: Severity
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}" + (f": {self.advice}" if self.advice else "")


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """The bad ones before the warnings, each in the order given."""
    return sorted(problems, key=lambda problem: -_EXIT_CODES[problem.severity])


def exit_code(problems: Iterable[Problem]) -> int:
    """For monitoring: 0 without a problem, 1 with warnings only, 2 when something is bad."""
    return max((_EXIT_CODES[problem.severity] for problem in problems), default=0)
