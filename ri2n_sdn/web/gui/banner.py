# SPDX-License-Identifier: Apache-2.0
"""What is wrong, before what is right: the banner at the top of each page."""

from __future__ import annotations

from ri2n_sdn.contract.documents import Documents, ProblemEntry
from ri2n_sdn.contract.units import counted, page_time
from ri2n_sdn.web.gui.event_views import place_of
from ri2n_sdn.web.gui.markup import Markup, tag, text

__all__ = ["MAX_SHOWN", "banner"]

MAX_SHOWN = 3
"""So many problems are shown at once. The others unfold."""


def banner(state: Documents, *, connected: bool, why: str | None, since_s: float) -> Markup:
    """The banner as HTML.

    `since_s` is the Unix time since when the controller is reachable, or not. First comes that
    the controller is not reachable, then the problems that it reports, the worst first, then that
    it is not in charge. Only where nothing is wrong, it says so.
    """
    lines = []
    if not connected:
        lines.append(_unreachable(state, why, since_s))
    problems = sorted(state["problems"].values(), key=lambda each: each["rank"])
    lines += [_problem(problem, state) for problem in problems[:MAX_SHOWN]]
    if len(problems) > MAX_SHOWN:
        rest = problems[MAX_SHOWN:]
        lines.append(
            tag(
                "details",
                tag("summary", f"{counted(len(rest), 'more problem')}"),
                *(_problem(problem, state) for problem in rest),
                class_="more",
                id="more-problems",
            )
        )
    waits = state["controller"].get("waits_because")
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


def _unreachable(state: Documents, why: str | None, since_s: float) -> Markup:
    known = any(state.get(part) for part in ("hosts", "controller"))
    old = f" You see how it was at {page_time(since_s)}." if known else ""
    return _line(
        "bad",
        f"The controller is not reachable{': ' + why.rstrip('.') if why else ''}.{old}",
        "run systemctl status ri2n-controller on its machine. This page goes on by itself when the"
        " controller is back.",
    )


def _problem(problem: ProblemEntry, state: Documents) -> Markup:
    place = place_of(problem, state)
    return _line(problem["severity"], problem["text"], problem["advice"], place)


def _line(severity: str, said: str, advice: str, place: tuple[str, str] | None = None) -> Markup:
    """One line. The word for the severity is there for those who do not see its colour.

    `place` is what it is about, and the address of the page that shows it.
    """
    word = {"bad": "Problem", "warning": "Warning", "good": "Good"}[severity]
    return tag(
        "div",
        tag("strong", f"{word}:"),
        " ",
        tag("span", said if said.endswith(".") else f"{said}."),
        *((" ", tag("span", f"What to do: {advice}", class_="advice")) if advice else ()),
        *((" ", tag("a", f"Show {place[0]}", href=place[1])) if place is not None else ()),
        class_=f"line {severity}",
    )


def _all_is_well(state: Documents) -> str:
    hosts = state["hosts"]
    if not hosts:
        return "The controller runs, and waits for hosts. Run host-up --controller on each host."
    networks = state["networks"]
    strategy = state["controller"].get("strategy", "unknown")
    return (
        f"No problem is known. {counted(len(hosts), 'host')}, "
        f"{counted(len(networks), 'network')}, strategy {strategy}."
    )
