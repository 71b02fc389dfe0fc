# SPDX-License-Identifier: Apache-2.0
"""One problem or event of each code, with arguments of the kind that its template wants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from ri2n_sdn.contract.events import EVENTS, Event
from ri2n_sdn.contract.problems import PROBLEMS, Problem
from ri2n_sdn.contract.said import Kind

__all__ = ["all_events", "all_problems", "placeholders", "reworded", "state_of"]

_SUBJECT = ("host", "nic", "job", "switch", "cable", "network")
_PLACEHOLDER = re.compile(r"\{(\w+)(?:![ar])?(?::([^}]*))?\}")
# Of these words people would read how bad something is, and what it is about.
_MISLEADING = (
    *("disconnected", "again", "refused:", "job", "is down", "installed", "A", "B", "j2"),
    *("lost", "in charge of", "another controller", "100%", "7.5 s", "{{", "}}"),
)


def placeholders(kind: Kind) -> dict[str, str]:
    """The arguments of a kind's templates, with their format."""
    return {**dict.fromkeys(kind.apart, ""), **dict(_PLACEHOLDER.findall(kind.text + kind.advice))}


def _example(name: str, form: str) -> Any:
    if form.endswith(("f", "%", "g")):
        return 0.25
    return {"vlan": [101, 102], "and": ["A", "B:eth0"]}.get(
        form, {"host": "A"}.get(name, f"<{name}>")
    )


def _examples(table: Mapping[str, Kind]) -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """(subject, arguments) by code."""
    found = {}
    for code, kind in table.items():
        values = {name: _example(name, form) for name, form in placeholders(kind).items()}
        subject = {name: values.pop(name) for name in _SUBJECT if name in values}
        if code.startswith("job"):
            subject = {**subject, "job": "j1"}
        found[code] = (subject, values)
    return found


_PROBLEMS, _EVENTS = _examples(PROBLEMS), _examples(EVENTS)


def all_problems() -> list[Problem]:
    """A problem of each code."""
    return [Problem(code, *given) for code, given in _PROBLEMS.items()]


def all_events() -> list[Event]:
    """An event of each code."""
    return [Event(code, *given) for code, given in _EVENTS.items()]


def state_of() -> dict[str, Any]:
    """The part of a state that says all of it, as the sentences are now."""
    return {
        "problems": {
            each.id: {**each.document(), "rank": rank} for rank, each in enumerate(all_problems())
        },
        "events": [
            {"seq": number, "time_s": float(number), **each.document()}
            for number, each in enumerate(all_events(), 1)
        ],
    }


def reworded(table: Mapping[str, Any], random: Random, kept_share: float = 0.5) -> dict[str, Any]:
    """A table with other sentences: other words in another order, with a share of the values."""

    def sentence(template: str) -> str:
        found = [each.group() for each in _PLACEHOLDER.finditer(template)]
        kept = [each for each in found if random.random() < kept_share]
        words = [*kept, *random.choices(_MISLEADING, k=random.randrange(1, 8))]
        random.shuffle(words)
        return " ".join(words)

    return {
        code: kind._replace(
            **{
                part: sentence(getattr(kind, part))
                for part in ("text", "advice")
                if getattr(kind, part, "")
            }
        )
        for code, kind in table.items()
    }
