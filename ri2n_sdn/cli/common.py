# SPDX-License-Identifier: Apache-2.0
"""What all commands share: common options, output, and the one line that an error becomes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError

if TYPE_CHECKING:
    from rich.console import Console

    from ri2n_sdn.contract.documents import Documents

__all__ = [
    "EXIT_USER_ERROR",
    "JsonOption",
    "check_choice",
    "console",
    "note",
    "number_option",
    "os_errors_of",
    "parse_listen",
    "print_answer",
    "print_json",
    "run_guarded",
    "split_list",
    "state_of",
    "terminate_as_interrupt",
    "tries",
]

EXIT_USER_ERROR = 2
MAX_NUMBER = 1_000_000
EXIT_INTERRUPTED = 130
# Tables fit into this width, with names of usual length.
_PIPE_COLUMNS = 160

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")
]


def console() -> Console:
    """A rich console on stdout, plain and wide when stdout is not a terminal.

    A file or a pipe has no width. The variable COLUMNS is often inherited from a terminal there,
    and a table of 80 columns would cut off what a reader looks for. So the console is at least
    `_PIPE_COLUMNS` wide, and wider if COLUMNS says so.

    Markup is off, because names come from hosts: `eth[/]0` may be one.
    """
    # Commands that print no tables, as `ri2n controller`, need not import it.
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(markup=False)
    wanted = os.environ.get("COLUMNS", "")
    columns = max(_PIPE_COLUMNS, int(wanted) if wanted.isdecimal() else 0)
    return Console(width=columns, highlight=False, markup=False)


def print_json(document: object) -> None:
    """Print `document` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=False) + "\n")


def print_answer(document: object, text: str, as_json: bool) -> None:
    """Print an answer: the whole of it as JSON, or the line that says it to people."""
    if as_json:
        print_json(document)
    else:
        print(text)


def state_of(path: Path) -> Documents:
    """The controller's state. Raises NotAvailable also when an earlier controller answers."""
    status = call(path, ops.STATUS, pairs=False)
    if "state" not in status:
        raise NotAvailable("the controller's answer is of another version; start it anew")
    return status["state"]


def note(text: str) -> None:
    """Print one line on stderr, so that stdout holds the answer alone."""
    print(text, file=sys.stderr)


def _check_number(value: float | None) -> float | None:
    """For options that are numbers, such as seconds: the value, if it is one that can be used.

    `nan` is no number between any limits, and what waits takes no number that is too large. Raises
    typer.BadParameter, which names the option.
    """
    if value is not None and not value <= MAX_NUMBER:
        raise typer.BadParameter(f"{value:g} is not a number up to {MAX_NUMBER}")
    return value


def number_option(help: str, least: float, metavar: str | None = "SECONDS") -> Any:
    """An option that is a number from `least` on, and no larger than can be used."""
    return typer.Option(min=least, callback=_check_number, metavar=metavar, help=help)


def parse_listen(text: str, option: str = "--listen", *, any_port: bool = False) -> tuple[str, int]:
    """(host, port) of `HOST:PORT` or `[IPV6]:PORT`. Raises BadInput, which begins with `option`.

    With `any_port`, the port may be 0.
    """
    host, _, port = text.rpartition(":")
    least = 0 if any_port else 1
    is_number = port.isascii() and port.isdigit()
    if not (host and is_number and least <= int(port) <= 65535):
        raise BadInput(f"{option} {text}: must be HOST:PORT with a port from {least} to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextmanager
def os_errors_of(what: object, kind: type[Ri2nError] = BadInput) -> Iterator[None]:
    """An OSError within this becomes an error for the user, which begins with `what`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from None


def check_choice(value: str, allowed: Sequence[str], option: str) -> None:
    """Raises BadInput, which begins with `option`, when a value is not in `allowed`."""
    if value not in allowed:
        raise BadInput(f"{option}: unknown {value!r}; choose from {', '.join(allowed)}")


def split_list(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """The items of a comma list, in the user's order, each once.

    Raises BadInput when one is not in `allowed`, or when the list is empty.
    """
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise BadInput(f"{option}: is empty; choose from {', '.join(allowed)}")
    for item in items:
        check_choice(item, allowed, option)
    return list(dict.fromkeys(items))


def tries(limit_s: float, pause_s: float) -> Iterator[None]:
    """Once now, and again after each pause, until `limit_s` are over."""
    until_s = time.monotonic() + limit_s
    yield
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(pause_s, left_s))
        yield


def terminate_as_interrupt() -> None:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, so that it removes what it has built.

    A terminal that closes sends SIGHUP more than once, to the command and to the programs that it
    runs. So after the first signal of these two, all further ones are ignored, also by programs
    that are started from then on. A command that was started with SIGHUP ignored, as by `nohup`,
    keeps it so.
    """
    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)

    def end(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, end)


def run_guarded(command: Callable[[], Any]) -> int:
    """Run `command` and return the exit code: the number that it returned, or 0.

    An error that a user can cause (Ri2nError, wrong usage) prints one line on stderr and gives 2.
    Ctrl-C prints nothing and gives 130. A reader that ends early (`ri2n top | head`) gives 0.
    """
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) and not isinstance(result, bool) else 0
    except Ri2nError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit, so stdout must be writable.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        # By its version, Typer has its own copy of click or uses the installed one. So usage errors
        # are recognised by their names and methods, not by their classes.
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return EXIT_USER_ERROR
        if hasattr(error, "format_message"):
            return _fail(error.format_message())
        raise


def _fail(text: str) -> int:
    print("ri2n: " + " ".join(text.split()), file=sys.stderr)
    return EXIT_USER_ERROR
