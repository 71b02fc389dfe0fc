# SPDX-License-Identifier: Apache-2.0
"""What the page of events shows: problems first, then events by text, host and severity. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ri2n_sdn.contract.said import SEVERITIES as ORDER
from ri2n_sdn.contract.units import page_time
from ri2n_sdn.web.gui.words import address, has_words, sentence

__all__ = [
    "SEVERITIES",
    "event_row",
    "events_found",
    "hosts_of",
    "place_of",
    "problem_rows",
]

Row = dict[str, Any]
Document = Mapping[str, Any]

_WORDS = {"bad": "Problem", "warning": "Warning", "info": "Information"}
SEVERITIES = {severity: _WORDS[severity] for severity in ORDER}
"""How bad something is, and the word for it, the worst first."""


def severity_of(event: Document) -> str:
    """How bad an event is; an earlier controller does not say that."""
    return str(event.get("severity", "info"))


def hosts_of(said: Document) -> list[str]:
    """The hosts that a problem or an event is about, and then the others that it names."""
    of = {**said.get("args", {}), **said.get("subject", {})}
    listed = of.get("hosts", ())
    named = [of.get("host"), *(listed if isinstance(listed, list) else ()), of.get("other")]
    return list(dict.fromkeys(map(str, filter(None, named))))


def place_of(said: Document, state: Document) -> tuple[str, str] | None:
    """(what it is about, the address of a page that shows it) of a problem or an event.

    None when it is about neither a job nor a host that is there.
    """
    job = said.get("subject", {}).get("job")
    if job in state.get("jobs", {}):
        return f"job {job}", address("/jobs", search=job)
    host = next((host for host in hosts_of(said) if host in state.get("hosts", {})), None)
    return (f"host {host}", address("/", host=host)) if host is not None else None


def problem_rows(state: Mapping[str, Any]) -> list[Row]:
    """What is wrong now, the worst first, and what to do."""
    problems = sorted(state.get("problems", {}).items(), key=lambda item: item[1]["rank"])
    return [
        {
            "key": key,
            "severity": problem["severity"],
            "what": SEVERITIES.get(problem["severity"], "Warning"),
            "text": problem["text"],
            "text_href": (place_of(problem, state) or ("", ""))[1],
            "advice": sentence(problem["advice"]),
        }
        for key, problem in problems
    ]


def events_found(
    state: Mapping[str, Any],
    *,
    search: str = "",
    host: str = "",
    severities: Sequence[str] = tuple(SEVERITIES),
) -> list[Mapping[str, Any]]:
    """The events that fit, the newest first.

    `search` are words that must all be in the text. `host` is the name of a host that the event
    must be about. `severities` are those that are shown.
    """
    return [
        event
        for event in reversed(state.get("events", ()))
        if has_words(search, event["text"])
        and (not host or host in hosts_of(event))
        and (len(severities) == len(SEVERITIES) or severity_of(event) in severities)
    ]


def event_row(event: Mapping[str, Any], state: Mapping[str, Any]) -> Row:
    """The row of one event, with a link to what it is about in this state."""
    severity = severity_of(event)
    return {
        "key": event["seq"],
        "time": page_time(event["time_s"]),
        "severity": severity,
        "what": SEVERITIES[severity],
        "text": event["text"],
        "text_href": (place_of(event, state) or ("", ""))[1],
        "advice": sentence(event.get("advice", "")),
    }
