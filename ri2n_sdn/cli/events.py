# SPDX-License-Identifier: Apache-2.0
"""`ri2n events`: what has happened, and what happens."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import note
from ri2n_sdn.cli.labs import Asked
from ri2n_sdn.client import Watch, call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import one_of
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.contract.said import SEVERITIES, Line
from ri2n_sdn.contract.units import time_text
from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import Event

__all__ = ["events"]

_PAUSE_S = 1.0


def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", min=0, metavar="N", help="The newest N. Default: all kept."),
    ] = None,
    at_least: Annotated[
        str, typer.Option(help=f"Only what is so bad: {', '.join(reversed(SEVERITIES))}.")
    ] = "info",
    *,
    at: Asked,
) -> None:
    """Show what has happened, the newest last.

    The controller keeps the newest events only. With `--follow` the command waits for a controller
    that starts again, and shows what that one says. With `--json` each line is one event.
    """
    least = SEVERITIES[one_of(at_least, SEVERITIES, "--at-least")]
    path = at.path
    # The events of now are asked for in both cases, so that a controller that is not there is an
    # error, as for every other command.
    known = call(path, ops.EVENTS)["events"]
    fitting = [event for event in known if _grade(event) >= least]
    shown = fitting if last is None else fitting[len(fitting) - min(last, len(fitting)) :]
    _print(shown, at.as_json)
    if follow:
        for event in _following(path, known[-1]["seq"] if known else 0):
            if _grade(event) >= least:
                _print([event], at.as_json)


def _following(path: Path, seen: int) -> Iterator[Event]:
    """Each event after the one with the number `seen`, as it happens.

    Another controller counts from 1 again. So when a new stream begins with a newest number that is
    lower than `seen`, all that it has is new.
    """
    while True:
        try:
            with Watch(path) as watch:
                newest = watch.state["events"][-1:]
                if not newest or newest[0]["seq"] < seen:
                    seen = 0
                for state in watch:
                    for event in state["events"]:
                        if event["seq"] > seen:
                            seen = event["seq"]
                            yield event
            note("ri2n: the controller has ended or starts anew; waiting for it")
        except NotAvailable:
            time.sleep(_PAUSE_S)


def _grade(event: Event) -> int:
    """How bad an event is. An earlier controller does not say it."""
    return SEVERITIES[event.get("severity", "info")]


def _print(shown: Iterable[Event], as_json: bool) -> None:
    for event in shown:
        print(json.dumps(event) if as_json else _line(event), flush=True)


def _line(event: Event) -> str:
    line = Line(event.get("severity", "info"), event["text"], event.get("advice", ""))
    return printable(f"{time_text(event['time_s'])} {line}", None)
