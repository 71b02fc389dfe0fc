"""What the page of events shows: problems first, then events by text, host and severity. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from ri2n_sdn.contract.units import page_time

__all__ = [
    "SEVERITIES",
    "event_row",
    "event_rows",
    "events_found",
    "hosts_in",
    "place_of",
    "problem_rows",
    "severity_of",
]

Row = dict[str, Any]

SEVERITIES = {"bad": "Problem", "warning": "Warning", "info": "Information"}
"""How bad something is, and the word for it, the worst first."""

# An event is a text alone. These words stand in the texts that tell of something worse than a
# change: the first ones where a host is without its paths, the others where traffic goes on by
# other paths. A text that tells of an end of trouble is none, so the last ones are asked first.
_BAD = re.compile(
    r"disconnected|has not answered|refused|were emptied|standing back|another controller"
)
_WARNING = re.compile(
    r" is down\b|was removed|no link|repaired|does not run|not reloaded|moved from|cut off"
    r"|nothing arrives|nothing it sends|\bdead\b|\blost\b|silent|wrong|cannot be|\bfailed\b"
    r"|reported nothing|hangs|ahead of this one|waiting: "
)
_BETTER = re.compile(r"\bagain$| connected from |^in charge of|\binstalled$|has ended: ")
_CABLE = "Check its cable and its switch port."
_ADVICE = (
    (re.compile(r"disconnected|has not answered"), "Run host-status on that host: it says why."),
    (re.compile(r" is down\b|no link|nothing arrives|nothing it sends|cut off|\bdead\b"), _CABLE),
    (re.compile(r"were emptied|repaired"), "Find out who else changes the rows of that host."),
    (
        re.compile(r"another controller|standing back"),
        "Stop one of the controllers, or give both one store.",
    ),
    (re.compile(r"refused"), "The text says why. Correct that, and try again."),
    (
        re.compile(r"moved from"),
        "Plug the cable in where cluster.yaml says, or correct cluster.yaml.",
    ),
    (re.compile(r"not reloaded"), "Correct the file that the text names, then run ri2n reload."),
    (re.compile(r"helper"), "Run systemctl restart ri2n-reorder on that host."),
)
_WORDS = re.compile(r"[A-Za-z0-9_.-]+")
# Problems and events of jobs begin so; a host that is named after it is not what it is about.
_JOB = re.compile(r"(?:(?:refused|waiting): |job )(?P<id>[A-Za-z0-9][A-Za-z0-9._:@-]*?):? ")


def severity_of(text: str) -> str:
    """How bad an event is: `bad`, `warning` or `info`."""
    if _BETTER.search(text):
        return "info"
    if _BAD.search(text):
        return "bad"
    return "warning" if _WARNING.search(text) else "info"


def hosts_in(text: str, hosts: Iterable[str]) -> list[str]:
    """The hosts that a text names."""
    known = hosts if isinstance(hosts, Mapping) else set(hosts)
    found = dict.fromkeys(word.rstrip(".") for word in _WORDS.findall(text))
    return [word for word in found if word in known]


def place_of(text: str, state: Mapping[str, Any]) -> tuple[str, str] | None:
    """(what it is about, the address of a page that shows it) of a problem or an event.

    None when the text names neither a job nor a host that is there.
    """
    found = _JOB.match(text)
    if found and found["id"] in state.get("jobs", {}):
        return f"job {found['id']}", f"/jobs?{urlencode({'search': found['id']})}"
    hosts = hosts_in(text, state.get("hosts", {}))
    return (f"host {hosts[0]}", f"/?{urlencode({'host': hosts[0]})}") if hosts else None


def problem_rows(state: Mapping[str, Any]) -> list[Row]:
    """What is wrong now, the worst first, and what to do."""
    problems = sorted(state.get("problems", {}).items(), key=lambda item: item[1]["rank"])
    return [
        {
            "key": key,
            "severity": problem["severity"],
            "what": SEVERITIES.get(problem["severity"], "Warning"),
            "text": problem["text"],
            "text_href": (place_of(problem["text"], state) or ("", ""))[1],
            "advice": _sentence(problem["advice"]),
        }
        for key, problem in problems
    ]


def event_rows(
    state: Mapping[str, Any],
    *,
    search: str = "",
    host: str = "",
    severities: Sequence[str] = tuple(SEVERITIES),
) -> list[Row]:
    """The events that fit, the newest first.

    `search` are words that must all be in the text. `host` is the name of a host that the text
    must name. `severities` are those that are shown.
    """
    found = events_found(state, search=search, host=host, severities=severities)
    return [event_row(event, state) for event in found]


def events_found(
    state: Mapping[str, Any],
    *,
    search: str = "",
    host: str = "",
    severities: Sequence[str] = tuple(SEVERITIES),
) -> list[Mapping[str, Any]]:
    """The events of `event_rows`, as the state has them."""
    words = search.casefold().split()
    return [
        event
        for event in reversed(state.get("events", ()))
        if (not words or all(word in event["text"].casefold() for word in words))
        and (not host or host in hosts_in(event["text"], (host,)))
        and (len(severities) == len(SEVERITIES) or severity_of(event["text"]) in severities)
    ]


def event_row(event: Mapping[str, Any], state: Mapping[str, Any]) -> Row:
    """The row of one event, with a link to what it is about in this state."""
    text = event["text"]
    severity = severity_of(text)
    return {
        "key": event["seq"],
        "time": page_time(event["time_s"]),
        "severity": severity,
        "what": SEVERITIES[severity],
        "text": text,
        "text_href": (place_of(text, state) or ("", ""))[1],
        "advice": _advice(text) if severity != "info" else "",
    }


def _advice(text: str) -> str:
    return next((advice for found, advice in _ADVICE if found.search(text)), "")


def _sentence(text: str) -> str:
    """An advice as a sentence."""
    if not text:
        return ""
    return text[:1].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
