# SPDX-License-Identifier: Apache-2.0
"""What is wrong, before what is right: the banner at the top of each page."""

from __future__ import annotations

from ri2n_sdn.contract.documents import Documents, ProblemEntry
from ri2n_sdn.contract.units import counted, page_time
from ri2n_sdn.web.age import Age
from ri2n_sdn.web.gui.event_views import place_of
from ri2n_sdn.web.gui.markup import Markup, tag, text

__all__ = ["MAX_SHOWN", "banner"]

MAX_SHOWN = 3
"""So many problems are shown at once. The others unfold."""


def banner(
    state: Documents, *, connected: bool, why: str | None, age: Age, listed: bool = False
) -> Markup:
    """The banner as HTML.

    `age` is that of the state. `listed`: the page itself has all problems of the state, which then
    are not said twice. First comes that the controller is not reachable, then the problems
    that it reports, the worst first, then that it is not in charge. Only where nothing is wrong,
    and what is known is not old, it says so.
    """
    lines = []
    if not connected:
        lines.append(_unreachable(why, age))
    known = sorted(state["problems"].values(), key=lambda each: each["rank"])
    problems = [] if listed else known
    lines += [_problem(problem, state, old=age.old) for problem in problems[:MAX_SHOWN]]
    if len(problems) > MAX_SHOWN:
        rest = problems[MAX_SHOWN:]
        lines.append(
            tag(
                "details",
                tag("summary", f"{counted(len(rest), 'more problem')}"),
                *(_problem(problem, state, old=age.old) for problem in rest),
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
    elif connected and age.old and age.read_s is not None:
        lines.append(
            _line(
                "warning",
                f"The controller has read no counters since {page_time(age.read_s)}.",
                "run journalctl -u ri2n-controller on its machine: it says why",
            )
        )
    if not lines and not known:
        lines.append(_line("good", _all_is_well(state), ""))
    return text(*lines)


def _unreachable(why: str | None, age: Age) -> Markup:
    old = f" You see how it was at {page_time(age.read_s)}." if age.old else ""
    return _line(
        "bad",
        f"The controller is not reachable{': ' + why.rstrip('.') if why else ''}.{old}",
        "run systemctl status ri2n-controller on its machine. This page goes on by itself when the"
        " controller is back.",
    )


def _problem(problem: ProblemEntry, state: Documents, *, old: bool) -> Markup:
    """The line of a problem; nobody knows whether one of an `old` state is there still."""
    place = place_of(problem, state)
    severity = "old" if old else problem["severity"]
    return _line(severity, problem["text"], problem["advice"], place)


def _line(severity: str, said: str, advice: str, place: tuple[str, str] | None = None) -> Markup:
    """One line. The word for the severity is there for those who do not see its colour.

    `place` is what it is about, and the address of the page that shows it.
    """
    words = {"bad": "Problem", "warning": "Warning", "good": "Good", "old": "Was a problem"}
    return tag(
        "div",
        tag("strong", f"{words[severity]}:"),
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
