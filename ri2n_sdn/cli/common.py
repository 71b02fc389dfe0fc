"""What every command shares:

the `--json` and `--socket` options, output, and how errors become one line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from ri2n_sdn.errors import BadInput, Ri2nError

__all__ = [
    "JsonOption",
    "LabOption",
    "SocketOption",
    "console",
    "note",
    "parse_listen",
    "print_json",
    "rate_text",
    "run_guarded",
    "split_list",
    "terminate_as_interrupt",
]

EXIT_USER_ERROR = 2
_PIPE_COLUMNS = 160  # tables fit, with names as hosts have them
EXIT_INTERRUPTED = 130

LabOption = Annotated[str | None, typer.Option("--lab", help="The controller of this lab.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")
]
SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        envvar="RI2N_SOCKET",
        help="The controller's unix socket; default /run/ri2n-controller/controller.sock or the "
        "one running lab's.",
    ),
]


def console() -> Console:
    """A rich console on stdout; plain and at least `_PIPE_COLUMNS` wide when stdout is not a
    terminal.

    A file or a pipe has no width: a COLUMNS of 80 there is of another place, and so narrow a table
    would leave out what a reader looks for; a larger one is meant.

    It has no markup: names come from hosts, and one like `eth[/]0` is no style.
    """
    if sys.stdout.isatty():
        return Console(markup=False)
    said = os.environ.get("COLUMNS", "")
    columns = max(_PIPE_COLUMNS, int(said) if said.isdecimal() else 0)
    return Console(width=columns, highlight=False, markup=False)


def print_json(document: object) -> None:
    """Print `document` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=False) + "\n")


def note(text: str) -> None:
    """Say something beside the answer: one line on stderr, so that stdout stays
    machine-readable.
    """
    print(text, file=sys.stderr)


def rate_text(rate_bps: float | None) -> str:
    """A rate for people, `95.6 Mbit/s`; `-` when unknown."""
    if rate_bps is None:
        return "-"
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate_bps >= factor:
            return f"{rate_bps / factor:.1f} {unit}"
    return f"{rate_bps:.0f} bit/s"


def parse_listen(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT` as a pair; raises BadInput."""
    host, colon, port = text.rpartition(":")
    if (
        not colon
        or not host
        or not port.isascii()
        or not port.isdigit()
        or not 1 <= int(port) <= 65535
    ):
        raise BadInput(f"--listen {text}: must be HOST:PORT with a port from 1 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def split_list(text: str, allowed: list[str], option: str) -> list[str]:
    """A comma list whose items must all be in `allowed`, in the user's order; raises BadInput."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise BadInput(f"{option}: is empty; choose from {', '.join(allowed)}")
    for item in items:
        if item not in allowed:
            raise BadInput(f"{option}: unknown {item!r}; choose from {', '.join(allowed)}")
    return list(dict.fromkeys(items))


def terminate_as_interrupt() -> None:
    """Let SIGTERM end a command as Ctrl-C does, so that what it built is removed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def run_guarded(command: Callable[[], Any]) -> int:
    """Run `command` and return the exit code: what it returned if that is a number, else 0.

    Errors that a user can cause (Ri2nError, wrong usage) are one line on stderr and code 2, Ctrl-C
    is 130 without a word, a reader that went away (`ri2n top | head`) is 0.
    """
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) and not isinstance(result, bool) else 0
    except Ri2nError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        # Typer ships its own copy of click or uses the installed one, by version: know usage errors
        # by shape.
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return EXIT_USER_ERROR
        if hasattr(error, "format_message"):
            return _fail(error.format_message())
        raise


def _fail(text: str) -> int:
    print("ri2n: " + " ".join(text.split()), file=sys.stderr)
    return EXIT_USER_ERROR
