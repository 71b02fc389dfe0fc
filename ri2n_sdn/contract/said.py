# SPDX-License-Identifier: Apache-2.0
"""What is said to people: a code that lasts, what it is about, and arguments of its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypedDict, TypeVar

from ri2n_sdn.contract.wording import Args, Subject, fill

__all__ = ["SEVERITIES", "Document", "Kind", "Line", "Said", "Severity", "exit_code", "worst_first"]

Severity = Literal["bad", "warning", "info"]
"""How bad something is.

`bad`: a host is without traffic, or nobody can tell. `warning`: all hosts have what they need, but
less is left in reserve. `info`: nothing is wrong.
"""

SEVERITIES: Mapping[str, int] = {"bad": 2, "warning": 1, "info": 0}
"""The severities, the worst first, with the exit code of a command that finds it."""


class Kind(NamedTuple):
    """What a code stands for: how bad it is, and the templates of its text and of its advice.

    `apart` are the arguments that tell several of one subject apart.
    """

    severity: Severity
    text: str
    advice: str = ""
    apart: tuple[str, ...] = ()


class Document(TypedDict):
    """What is said, as JSON."""

    code: str
    subject: dict[str, str]
    severity: Severity
    args: dict[str, Any]
    text: str
    advice: str


class _Graded(Protocol):
    @property
    def severity(self) -> str: ...


_GradedT = TypeVar("_GradedT", bound=_Graded)


class Line(NamedTuple):
    """A line for an administrator; `advice` is empty where the text needs none."""

    severity: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}" + (f": {self.advice}" if self.advice else "")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Line:
        """The line of a problem's document."""
        return cls(document["severity"], str(document["text"]), str(document.get("advice", "")))


@dataclass(frozen=True)
class Said:
    """One thing that is said. The sentences are made of `table`, and only for people."""

    code: str
    subject: Subject = field(default_factory=dict)
    args: Args = field(default_factory=dict)
    table: ClassVar[Mapping[str, Kind]]

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.table[self.code].severity

    @property
    def text(self) -> str:
        """What was seen; it names the thing that it is about."""
        return fill(self.table[self.code].text, {**self.subject, **self.args})

    @property
    def advice(self) -> str:
        """What to do about it; empty where the text needs no advice."""
        return fill(self.table[self.code].advice, {**self.subject, **self.args})

    def document(self) -> Document:
        """All of it as JSON."""
        return {
            "code": self.code,
            "subject": dict(self.subject),
            "severity": self.severity,
            "args": dict(self.args),
            "text": self.text,
            "advice": self.advice,
        }


def worst_first(graded: Iterable[_GradedT]) -> list[_GradedT]:
    """The same in the given order, but bad ones before warnings."""
    return sorted(graded, key=lambda each: -SEVERITIES[each.severity])


def exit_code(graded: Iterable[_Graded]) -> int:
    """The exit code for monitoring: 0 without a problem, 1 with warnings only, 2 with a bad one."""
    return max((SEVERITIES[each.severity] for each in graded), default=0)
