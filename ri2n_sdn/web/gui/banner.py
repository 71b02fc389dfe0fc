"""What is wrong, before what is right: the banner at the top of each page."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.words import counted

__all__ = ["MAX_SHOWN", "banner", "clock"]

MAX_SHOWN = 3
"""So many problems are shown at once. The others unfold."""


def banner(state: Mapping[str, Any], *, connected: bool, why: str | None, since_s: float) -> Markup:
    """The banner as HTML.

    `since_s` is the Unix time since when the controller is reachable, or not. First comes that
    the controller is not reachable, then the problems that it reports, the worst first, then that
    it is not in charge. Only where nothing is wrong, it says so.
    """
    lines = []
    if not connected:
        lines.append(_unreachable(state, why, since_s))
    problems = sorted(state.get("problems", {}).values(), key=lambda each: each["rank"])
    lines += [_problem(problem) for problem in problems[:MAX_SHOWN]]
    if len(problems) > MAX_SHOWN:
        rest = problems[MAX_SHOWN:]
        lines.append(
            tag(
                "details",
                tag("summary", f"{counted(len(rest), 'more problem')}"),
                *(_problem(problem) for problem in rest),
                class_="more",
            )
        )
    waits = state.get("controller", {}).get("waits_because")
    if connected and waits:
        lines.append(
            _line(
                "warning",
                f"This controller is not in charge: {waits}.",
                "open the page of the controller that is in charge; nothing can be changed here",
            )
        )
    if not lines:
        lines.append(_line("good", _all_is_well(state), ""))
    return text(*lines)


def clock(time_s: float) -> str:
    """A Unix time as hours, minutes and seconds, with the date unless it is today's."""
    moment = datetime.datetime.fromtimestamp(time_s).astimezone()
    today = datetime.datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")


def _unreachable(state: Mapping[str, Any], why: str | None, since_s: float) -> Markup:
    known = any(state.get(part) for part in ("hosts", "controller"))
    old = f" You see how it was at {clock(since_s)}." if known else ""
    return _line(
        "bad",
        f"The controller is not reachable{': ' + why.rstrip('.') if why else ''}.{old}",
        "run systemctl status ri2n-controller on its machine. This page goes on by itself when the"
        " controller is back.",
    )


def _problem(problem: Mapping[str, Any]) -> Markup:
    severity = "bad" if problem["severity"] == "bad" else "warning"
    return _line(severity, problem["text"], problem.get("advice") or "")


def _line(severity: str, said: str, advice: str) -> Markup:
    """One line. The word for the severity is there for those who do not see its colour."""
    word = {"bad": "Problem", "warning": "Warning", "good": "Good"}[severity]
    return tag(
        "div",
        tag("strong", f"{word}:"),
        " ",
        tag("span", said if said.endswith(".") else f"{said}."),
        *((" ", tag("span", f"What to do: {advice}", class_="advice")) if advice else ()),
        class_=f"line {severity}",
    )


def _all_is_well(state: Mapping[str, Any]) -> str:
    hosts = state.get("hosts", {})
    if not hosts:
        return "The controller runs, and waits for hosts. Start host-start on each host."
    networks = state.get("networks", {})
    strategy = state.get("controller", {}).get("strategy", "unknown")
    return (
        f"No problem is known. {counted(len(hosts), 'host')}, "
        f"{counted(len(networks), 'network')}, strategy {strategy}."
    )
