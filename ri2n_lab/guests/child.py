# SPDX-License-Identifier: Apache-2.0
"""One command that the agent in a guest runs: its process, and its three streams.

Of each stream only as many bytes are sent as the reader has given credit for.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pty
import selectors
import signal
import struct
import sys
import termios
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

from ri2n_lab.guests.link import CHUNK_BYTES, WINDOW_BYTES, Frame, Kind, credit, encode
from ri2n_sdn.errors import BadInput

__all__ = ["Child"]

STDIN, STDOUT, STDERR = 0, 1, 2
KILL_AFTER_S = 2.0
"""Seconds that a command has to end by itself after its client went away."""

TERMINAL_DRAIN_S = 0.2
"""Seconds after a command's end in which its terminal may still pass on its last output."""

MAX_DESCRIPTORS = 65536
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Child:
    """One command, which is started at once.

    Call `watch`, `work` and `handle` until `ended`, then `close`. A command ends when its process
    does: processes that it leaves running keep running, and nobody waits for their output.
    """

    def __init__(self, channel: int, request: dict[str, Any]) -> None:
        """Start what a frame RUN asks for; BadInput when `request` has values of a wrong type."""
        self.channel = channel
        argv, module = request.get("argv"), request.get("module")
        env, cwd = request.get("env", {}), request.get("cwd", "/")
        if (
            not isinstance(argv, list)
            or not argv
            or not all(isinstance(word, str) for word in argv)
        ):
            raise BadInput("argv: must be a list of words")
        if (
            not isinstance(env, dict)
            or not isinstance(cwd, str)
            or not isinstance(module, str | None)
        ):
            raise BadInput("env, cwd or module: is of the wrong type")
        self._terminal = bool(request.get("tty"))
        self._started_s = time.monotonic()
        self._kill_at_s: float | None = None
        self._selector: selectors.BaseSelector | None = None
        self._code: int | None = None
        self._ended_s = 0.0
        self._todo = bytearray()  # bytes to write to the command's stdin
        self._no_more_input = False
        self._credit = {STDOUT: WINDOW_BYTES, STDERR: WINDOW_BYTES}
        # After the command has ended: how many bytes of each stream are still to be read.
        self._left: dict[int, int] = {}
        theirs = self._open(request)
        # Signals are blocked: an interrupt in the first moments of the copy would raise an error
        # here, and the copy would go on as a second agent.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, module, env, cwd, theirs, self._terminal)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for descriptor in set(theirs):
            os.close(descriptor)
        self._pidfd = os.pidfd_open(self.pid)

    def _open(self, request: dict[str, Any]) -> list[int]:
        """Make the streams: keep our ends in self._ends, and return the command's ends."""
        if self._terminal:
            master, slave = pty.openpty()
            _resize(master, request)
            self._ends = {STDIN: os.dup(master), STDOUT: master}
            theirs = [slave, slave, slave]
            if request.get("stderr_apart"):
                self._ends[STDERR], theirs[STDERR] = os.pipe()
        else:
            (their_in, our_in), (our_out, their_out), (our_err, their_err) = (
                os.pipe(),
                os.pipe(),
                os.pipe(),
            )
            self._ends, theirs = (
                {STDIN: our_in, STDOUT: our_out, STDERR: our_err},
                [their_in, their_out, their_err],
            )
        for descriptor in self._ends.values():
            os.set_blocking(descriptor, False)
        return theirs

    # ---- what the agent calls

    def watch(self, selector: selectors.BaseSelector, roomy: bool) -> None:
        """Register with `selector` what can happen next.

        `roomy` says whether the agent can take more output.
        """
        wanted: dict[int, int] = {}
        if STDIN in self._ends and self._todo:
            wanted[self._ends[STDIN]] = selectors.EVENT_WRITE
        for stream in (STDOUT, STDERR):
            if stream in self._ends and roomy and self._credit[stream] > 0:
                wanted[self._ends[stream]] = selectors.EVENT_READ
        if self._code is None:
            wanted[self._pidfd] = selectors.EVENT_READ
        known = selector.get_map()
        for descriptor in (*self._ends.values(), self._pidfd):
            events = wanted.get(descriptor, 0)
            if descriptor in known and known[descriptor].events != events:
                selector.unregister(descriptor)
            if events and descriptor not in known:
                selector.register(descriptor, events)
        self._selector = selector

    def work(self, roomy: bool) -> Iterator[bytes]:
        """Do everything that needs no waiting, and yield the frames to send."""
        self._reap()
        yield from self._feed()
        for stream in (STDOUT, STDERR):
            if stream in self._ends and roomy and self._credit[stream] > 0:
                yield from self._drain(stream)
        if (
            self._kill_at_s is not None
            and time.monotonic() > self._kill_at_s
            and self._code is None
        ):
            self._signal(signal.SIGKILL)

    def handle(self, frame: Frame) -> None:
        """Take a frame of this command's channel; BadInput when it is damaged."""
        if frame.kind is Kind.STDIN:
            self._no_more_input |= not frame.payload
            self._todo += frame.payload
            if len(self._todo) > WINDOW_BYTES:
                self._signal(signal.SIGKILL)
                self._todo.clear()
        elif frame.kind is Kind.CREDIT:
            stream, size = frame.credit()
            if stream in self._credit:
                self._credit[stream] = min(WINDOW_BYTES, self._credit[stream] + size)
        elif frame.kind is Kind.SIGNAL:
            number = frame.number()
            if number not in signal.valid_signals():
                raise BadInput(f"signal {number}: there is none")
            self._signal(number)
        elif frame.kind is Kind.WINDOW and self._terminal and STDOUT in self._ends:
            _resize(self._ends[STDOUT], frame.json())
        elif frame.kind is Kind.KILL:
            self._signal(signal.SIGHUP if self._terminal else signal.SIGTERM)
            self._kill_at_s = time.monotonic() + KILL_AFTER_S
            self._credit = dict.fromkeys(self._credit, WINDOW_BYTES)

    @property
    def ended(self) -> bool:
        """Whether the process has ended and everything that it wrote is sent.

        Nothing is sent any more to a client that went away.
        """
        if self._code is None:
            return False
        over = self._kill_at_s is not None
        return over or not any(
            stream in self._ends and left > 0 for stream, left in self._left.items()
        )

    @property
    def blocked(self) -> bool:
        """Whether the command waits for its client to read."""
        return any(self._credit[stream] <= 0 for stream in self._credit if stream in self._ends)

    def patience_s(self) -> float | None:
        """Seconds after which `work` must be called again even if nothing happens; None: never."""
        if self._code is not None and self._terminal:
            return TERMINAL_DRAIN_S / 4
        if self._kill_at_s is not None:
            return KILL_AFTER_S / 4
        return None

    def result(self) -> dict[str, Any]:
        """The exit code `code` and the seconds `guest_s` that it ran by the guest's clock.

        The code is 128 + n after signal n, as in a shell.
        """
        return {"code": self._code, "guest_s": self._ended_s - self._started_s}

    def close(self) -> None:
        """Close all descriptors."""
        for stream in list(self._ends):
            self._shut(stream)
        self._forget(self._pidfd)
        os.close(self._pidfd)

    # ---- how it is done

    def _reap(self) -> None:
        if self._code is not None:
            return
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        self._code = code if code >= 0 else 128 - code
        self._ended_s = time.monotonic()
        for stream in (STDOUT, STDERR):
            if stream in self._ends:
                self._left[stream] = _readable(self._ends[stream])
        if self._terminal:
            self._left[STDOUT] = 1  # until a read finds that nothing is left
        self._shut(STDIN)

    def _feed(self) -> Iterator[bytes]:
        while self._todo and STDIN in self._ends:
            try:
                size = os.write(self._ends[STDIN], self._todo[:CHUNK_BYTES])
            except BlockingIOError:
                return
            except OSError:  # the command does not read any more
                self._shut(STDIN)
                break
            del self._todo[:size]
            yield credit(STDIN, size, self.channel)
        if STDIN not in self._ends and self._todo:
            yield credit(STDIN, len(self._todo), self.channel)
            self._todo.clear()
        if self._no_more_input and not self._todo and STDIN in self._ends and not self._terminal:
            self._shut(STDIN)

    def _drain(self, stream: int) -> Iterator[bytes]:
        size = min(CHUNK_BYTES, self._credit[stream])
        if self._code is not None and not (self._terminal and stream == STDOUT):
            # Nobody waits for the output of processes that the command left running.
            size = min(size, self._left[stream])
            if size <= 0:
                return
        try:
            data = os.read(self._ends[stream], size)
        except BlockingIOError:
            if self._code is not None and time.monotonic() > self._ended_s + TERMINAL_DRAIN_S:
                self._left[stream] = 0
            return
        except OSError:  # the last process that used the terminal has ended
            data = b""
        if not data:
            self._shut(stream)
            return
        self._credit[stream] -= len(data)
        if self._code is not None and not self._terminal:
            self._left[stream] -= len(data)
        yield encode(Kind.STDOUT if stream == STDOUT else Kind.STDERR, self.channel, data)

    def _signal(self, number: int) -> None:
        if self._code is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # the new process does not lead a group yet
                os.kill(self.pid, number)

    def _shut(self, stream: int) -> None:
        if stream in self._ends:
            descriptor = self._ends.pop(stream)
            self._forget(descriptor)
            os.close(descriptor)

    def _forget(self, descriptor: int) -> None:
        if self._selector is not None and descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)


def _readable(descriptor: int) -> int:
    """How many bytes can be read without waiting."""
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def _resize(terminal: int, size: dict[str, Any]) -> None:
    rows, columns = size.get("rows"), size.get("columns")
    if (
        isinstance(rows, int)
        and isinstance(columns, int)
        and 0 < rows < 65536
        and 0 < columns < 65536
    ):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _become(
    argv: list[str],
    module: str | None,
    env: dict[str, str],
    cwd: str,
    streams: list[int],
    terminal: bool,
) -> NoReturn:
    """Turn the new process into the command; never returns."""
    code = NOT_EXECUTABLE
    try:
        os.setsid()
        if terminal:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, MAX_DESCRIPTORS)
        os.environ.clear()
        os.environ.update(env)
        try:
            os.chdir(cwd)
        except OSError:  # for example a folder in /run, which the guest has of its own
            os.chdir("/")
        if module is not None:
            code = _run_module(module, argv)
        else:
            for number in (signal.SIGPIPE, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvp(argv[0], argv)
    except FileNotFoundError:
        os.write(STDERR, f"ri2n: {argv[0]}: not found in the guest\n".encode())
        code = NOT_FOUND
    except BaseException as error:
        os.write(STDERR, f"ri2n: {argv[0]}: {error}\n".encode())
    finally:
        os._exit(code)


def _run_module(module: str, argv: list[str]) -> int:
    """Call the function `main` of a module, as its command would, and return the exit code."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        lines = number == STDERR or os.isatty(number)
        stream = os.fdopen(
            number, mode, 1 if lines else -1, "utf-8", "surrogateescape", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[:] = ["ri2n", *argv[1:]]
    # A program that starts itself anew uses this.
    sys.orig_argv[:] = [sys.executable, "-m", module, *argv[1:]]
    code: object = 0
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        importlib.import_module(module).main()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = 1
    with suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1
