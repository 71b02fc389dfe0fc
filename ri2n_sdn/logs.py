# SPDX-License-Identifier: Apache-2.0
"""The log of a process that runs for long: one event is one line, as text or as JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ri2n_sdn.contract.bucket import TokenBucket
from ri2n_sdn.contract.printing import printable

__all__ = ["LOG_FORMATS", "LOG_LEVELS", "LogLines", "log_lines"]

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

MAX_TEXT = 8192
"""So many characters of a message are kept, and of each line of a trace."""
MAX_TRACE_LINES = 100

# A message with the same template may be repeated so often at once, and so often later on. A start
# with 1,000 hosts, or an operator's change, is within it in the first seconds; a peer that makes
# the controller complain without end is not, and fills no disk.
MAX_BURST = 200
REFILL_PER_S = 2.0
# What was left out is told at the latest after this time.
TELL_S = 10.0
# There are some hundred templates in the code. More come only from code that puts values in its
# templates; then the ones that were used longest ago are forgotten.
MAX_TEMPLATES = 500
# So many templates of one place in the code have limits of their own, and all others of it share
# one. Libraries put what a peer has sent into their templates, and a peer can send new text without
# end.
MAX_OF_PLACE = 20

_Place = tuple[str, str, int]
_Key = tuple[_Place, str | None]


class _Budget:
    """How much one template may still say, and how many of its records were left out."""

    def __init__(self, record: logging.LogRecord) -> None:
        self.name, self.levelname = record.name, record.levelname
        self.bucket = TokenBucket(REFILL_PER_S, MAX_BURST)
        self.left_out = 0
        self.example = ""


class LogLines(logging.Handler):
    """Writes records as lines, so many of each template, and no others between the parts of one.

    What comes from the network may hold any character. Characters that are not printable are
    written as escapes, so no message becomes two lines, and none changes a terminal. What the rate
    limit has left out is told as "N more like this" as soon as the template may speak again, or
    after TELL_S, or at the end.
    """

    def __init__(
        self,
        style: str = "text",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`style` is one of LOG_FORMATS. `stream` None stands for stderr, as it is at each line."""
        super().__init__()
        self._style, self._stream, self._clock = style, stream, clock
        self._budgets: OrderedDict[_Key, _Budget] = OrderedDict()
        self._of_place: Counter[_Place] = Counter()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as left out. Nothing is raised."""
        try:
            now_s = self._clock()
            budget = self._budget(record)
            if not budget.bucket.take(now_s):
                budget.left_out += 1
                if budget.left_out == 1:  # an example; to make all the texts would be work for all
                    budget.example = _printable(_message(record))
                self._tell_later()
                return
            self._tell(budget)
            self._write(self._line(record))
        except Exception:
            self.handleError(record)

    def tell(self) -> None:
        """Say how many records of each template were left out. A process does so at its end."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            with contextlib.suppress(ValueError, OSError):  # the stream may be closed
                for budget in self._budgets.values():
                    self._tell(budget)
        finally:
            self.release()

    def close(self) -> None:
        """Say what was left out. The handler may be used no longer."""
        self.tell()
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written must not end the program, and there is no place to say so.

        `logging` would print a trace, which is more than one line, to the same stream.
        """

    def _budget(self, record: logging.LogRecord) -> _Budget:
        """The budget of a record's `kind`, or else of its template at its place in the code.

        Where a place has very many templates, they share one, which has None in place of a text.
        """
        kind = getattr(record, "kind", None)
        place = (record.name, *((record.pathname, record.lineno) if kind is None else (kind, 0)))
        key: _Key = (place, str(record.msg)[:MAX_TEXT])
        if key not in self._budgets and self._of_place[place] >= MAX_OF_PLACE:
            key = (place, None)
        budget = self._budgets.get(key)
        if budget is None:
            while len(self._budgets) >= MAX_TEMPLATES:
                self._forget_oldest()
            budget = self._budgets[key] = _Budget(record)
            self._of_place[place] += 1
        self._budgets.move_to_end(key)
        return budget

    def _forget_oldest(self) -> None:
        (place, _), budget = self._budgets.popitem(last=False)
        self._tell(budget)
        self._of_place[place] -= 1
        if not self._of_place[place]:
            del self._of_place[place]

    def _tell(self, budget: _Budget) -> None:
        if not budget.left_out:
            return
        count, budget.left_out = budget.left_out, 0
        text = f"{count} more like this: {budget.example}"
        self._write(self._compose(budget, time.time(), text, {"left_out": count}, []))

    def _tell_later(self) -> None:
        """Have a thread tell what was left out, in case nobody says anything more."""
        if self._timer is None:
            self._timer = threading.Timer(TELL_S, self.tell)
            self._timer.daemon = True
            self._timer.name = "log"
            self._timer.start()

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        stream.write(text + "\n")
        stream.flush()

    def _line(self, record: logging.LogRecord) -> str:
        trace: list[str] = []
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            # The begin says where it was called, the end what has failed.
            left = len(lines) - MAX_TRACE_LINES
            if left > 0:
                half = MAX_TRACE_LINES // 2
                lines = [*lines[:half], f"... {left} lines ...", *lines[-half:]]
            trace = [_printable(line) for line in lines]
        fields: dict[str, Any] = {"where": f"{record.filename}:{record.lineno}"}
        if record.args and isinstance(record.msg, str) and record.msg != "%s":
            fields["template"] = record.msg[:MAX_TEXT]
        for name, value in getattr(record, "fields", {}).items():
            fields.setdefault(name, _printable(str(value)))
        message = _printable(_message(record))
        return self._compose(record, record.created, message, fields, trace)

    def _compose(
        self,
        of: logging.LogRecord | _Budget,
        time_s: float,
        message: str,
        fields: dict[str, Any],
        trace: list[str],
    ) -> str:
        milliseconds = int(time_s * 1000) % 1000
        if self._style == "text":
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
            line = f"{stamp},{milliseconds:03d} {of.levelname:<7} {of.name}: {message}"
            # No line of a trace looks like an event, whatever a peer has put into it.
            return "\n".join([line, *(f"    | {each}" for each in trace)])
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_s))
        document: dict[str, Any] = {
            "time": f"{stamp}.{milliseconds:03d}Z",
            "level": of.levelname.lower(),
            "logger": of.name,
            "message": message,
            **fields,
        }
        if trace:
            document["trace"] = trace
        return json.dumps(document)  # ASCII alone, so no character of it ends a line


@contextlib.contextmanager
def log_lines(level: str, style: str, others: str = "debug") -> Iterator[LogLines]:
    """Let all loggers of this process write to stderr, from `level` on; see LOG_FORMATS.

    Those of other packages write from `others` on, where that is the higher level.
    Threads that fail and warnings are lines of the log too. At the end, what the rate limit has
    left out is said, and everything is as it was before.
    """
    handler = LogLines(style)
    root = logging.getLogger()
    ours = logging.getLogger("ri2n")
    before, hook = root.handlers[:], threading.excepthook
    levels = root.level, ours.level
    root.handlers[:] = [handler]
    root.setLevel(max(level, others, key=LOG_LEVELS.index).upper())
    ours.setLevel(level.upper())
    logging.captureWarnings(True)

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is SystemExit:
            return
        name = args.thread.name if args.thread is not None else "a thread"
        error = args.exc_value or args.exc_type()
        logging.getLogger("ri2n").error("the thread %s has failed", name, exc_info=error)

    threading.excepthook = thread_failed
    try:
        yield handler
    finally:
        handler.tell()
        root.handlers[:], threading.excepthook = before, hook
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
        logging.captureWarnings(False)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit the template must not hide the event
        return f"{record.msg} {record.args!r}"


def _printable(text: str) -> str:
    """A text on one line, of bounded length, with all that is not printable as escapes."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}... ({len(text) - MAX_TEXT} characters more)"
    return printable(text, None)
