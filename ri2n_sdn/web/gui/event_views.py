# SPDX-License-Identifier: Apache-2.0
"""What the page of events shows: problems first, then events by text, host and severity. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ri2n_sdn.contract.documents import Documents, Event, ProblemEntry, Said
from ri2n_sdn.contract.said import SEVERITIES as ORDER
from ri2n_sdn.contract.units import page_time
from ri2n_sdn.web.gui.words import address, has_words, sentence

__all__ = [
    "SEVERITIES",
    "cures",
    "event_row",
    "events_found",
    "hosts_of",
    "place_of",
    "problem_rows",
]

Row = dict[str, Any]

_WORDS = {"bad": "Problem", "warning": "Warning", "info": "Information"}
SEVERITIES = {severity: _WORDS[severity] for severity in ORDER}
"""How bad something is, and the word for it, the worst first."""


def severity_of(event: Event) -> str:
    """How bad an event is; an earlier controller does not say that."""
    return str(event.get("severity", "info"))


def hosts_of(said: Said) -> list[str]:
    """The hosts that a problem or an event is about, and then the others that it names."""
    of = {**said.get("args", {}), **said.get("subject", {})}
    listed = of.get("hosts", ())
    named = [of.get("host"), *(listed if isinstance(listed, list) else ()), of.get("other")]
    return list(dict.fromkeys(map(str, filter(None, named))))


def place_of(said: Said, state: Documents) -> tuple[str, str] | None:
    """(what it is about, the address of a page that shows it) of a problem or an event.

    None when it is about neither a job nor a host that is there.
    """
    job = said.get("subject", {}).get("job")
    if job in state["jobs"]:
        return f"job {job}", address("/jobs", search=job)
    host = next((host for host in hosts_of(said) if host in state["hosts"]), None)
    return (f"host {host}", address("/", host=host)) if host is not None else None


def cures(state: Documents) -> dict[str, str]:
    """By host, what to do about its worst problem.

    A problem of one of its NICs comes first: where none works, the problem of the host itself only
    says to look at those.
    """

    def place(problem: ProblemEntry) -> tuple[bool, int]:
        return "nic" not in problem.get("subject", {}), problem["rank"]

    found: dict[str, str] = {}
    for problem in sorted(state["problems"].values(), key=place, reverse=True):
        if problem["advice"]:
            found |= dict.fromkeys(hosts_of(problem), sentence(problem["advice"]))
    return found


def problem_rows(state: Documents, *, old: bool = False) -> list[Row]:
    """What is wrong now, the worst first, and what to do. What is `old` was wrong."""
    problems = sorted(state["problems"].items(), key=lambda item: item[1]["rank"])
    rows = [_row(key, problem, problem["severity"], state) for key, problem in problems]
    return [{**row, "what": f"Was a {row['what'].lower()}"} for row in rows] if old else rows


def events_found(
    state: Documents,
    *,
    search: str = "",
    host: str = "",
    severities: Sequence[str] = tuple(SEVERITIES),
) -> list[Event]:
    """The events that fit, the newest first.

    `search` are words that must all be in the text. `host` is the name of a host that the event
    must be about. `severities` are those that are shown.
    """
    return [
        event
        for event in reversed(state["events"])
        if has_words(search, event["text"])
        and (not host or host in hosts_of(event))
        and (len(severities) == len(SEVERITIES) or severity_of(event) in severities)
    ]


def event_row(event: Event, state: Documents) -> Row:
    """The row of one event, with a link to what it is about in this state."""
    row = _row(event["seq"], event, severity_of(event), state)
    return {"time": page_time(event["time_s"]), "time_s": event["time_s"], **row}


def _row(key: object, said: ProblemEntry | Event, severity: str, state: Documents) -> Row:
    return {
        "key": key,
        "severity": severity,
        "what": SEVERITIES[severity],
        "text": said["text"],
        "text_href": (place_of(said, state) or ("", ""))[1],
        "advice": sentence(said.get("advice", "")),
    }
