# SPDX-License-Identifier: Apache-2.0
"""Run a command in a guest with this process's own input, output, terminal and signals."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ri2n_lab.guests.labs import Connection
from ri2n_lab.guests.link import CHUNK_BYTES, WINDOW_BYTES, Frame, Kind, credit, encode, json_frame

__all__ = ["Ended", "relay", "request"]

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
NOT_PASSED = ("RI2N_LAB_ROOT", "RI2N_SOCKET", "SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND")


@dataclass(frozen=True)
class Ended:
    """How a command in a guest ended.

    `code` is its exit code, 128 + n after signal n; `guest_s` are the seconds that it ran by the
    guest's clock.
    """

    code: int
    guest_s: float


def request(argv: Sequence[str], *, module: str | None = None) -> dict[str, Any]:
    """The request to run `argv` in the guest, with this process's folder and environment.

    With `module`, the command is the function `main` of that module, called with these arguments in
    a copy of the agent.
    """
    env = {name: value for name, value in os.environ.items() if name not in NOT_PASSED}
    return {
        "argv": list(argv),
        "module": module,
        "env": env | {"RI2N_LAB_ROOT": "/run/ri2n-lab"},
        "cwd": str(Path.cwd()),
    }


def relay(
    connection: Connection,
    run: dict[str, Any],
    *,
    stdin: bool = True,
    stdout: Callable[[bytes], object] | None = None,
) -> Ended:
    """Run `run` (see `request`) in the guest, and return when it has ended.

    Its output goes to this process's stdout and stderr, or its standard output to the function
    `stdout`. With `stdin`, its input is this process's. When input and output are a terminal, the
    command gets a terminal, too. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed to it. Raises
    NotAvailable when the guest ends first.
    """
    terminal = stdin and stdout is None and os.isatty(0) and os.isatty(1) and _in_foreground()
    if terminal:
        run = {**run, "tty": True, "stderr_apart": not os.isatty(2), **_size()}
    with _raw(terminal), _signals(terminal) as signals:
        connection.send(json_frame(Kind.RUN, run))
        return _Relay(connection, stdout, signals, stdin and _usable_stdin()).run()


class _Relay:
    def __init__(
        self,
        connection: Connection,
        stdout: Callable[[bytes], object] | None,
        signals: socket.socket,
        stdin: bool,
    ) -> None:
        self._connection, self._signals, self._stdin = connection, signals, stdin
        self._stdout = stdout or _to_stdout
        self._credit = WINDOW_BYTES
        self._ended: Ended | None = None

    def run(self) -> Ended:
        if not self._stdin:
            self._connection.send(encode(Kind.STDIN))
        with selectors.PollSelector() as selector:  # unlike epoll, it takes files, too
            selector.register(self._connection.socket, selectors.EVENT_READ)
            selector.register(self._signals, selectors.EVENT_READ)
            watched = False
            while self._ended is None:
                if watched != (self._stdin and self._credit > 0):
                    watched = not watched
                    if watched:
                        selector.register(0, selectors.EVENT_READ)
                    else:
                        selector.unregister(0)
                ready = {key.fd for key, _ in selector.select()}
                if self._signals.fileno() in ready:
                    self._pass_signals()
                if self._connection.socket.fileno() in ready:
                    for frame in self._connection.read():
                        self._take(frame)
                if 0 in ready and watched and self._ended is None:
                    self._read_stdin()
        return self._ended

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.STDOUT:
            self._stdout(frame.payload)
            self._connection.send(credit(1, len(frame.payload)))
        elif frame.kind is Kind.STDERR:
            _write(2, frame.payload)
            self._connection.send(credit(2, len(frame.payload)))
        elif frame.kind is Kind.CREDIT:
            self._credit += frame.credit()[1]
        elif frame.kind is Kind.EXIT:
            document = frame.json()
            self._ended = Ended(int(document["code"]), float(document["guest_s"]))

    def _read_stdin(self) -> None:
        try:
            data = os.read(0, min(CHUNK_BYTES, self._credit))
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone, or belongs to another process group
            data = b""
        self._credit -= len(data)
        self._stdin = bool(data)
        self._connection.send(encode(Kind.STDIN, 0, data))

    def _pass_signals(self) -> None:
        for number in self._signals.recv(64):
            if number == signal.SIGWINCH:
                self._connection.send(json_frame(Kind.WINDOW, _size()))
            else:
                self._connection.send(encode(Kind.SIGNAL, 0, str(number).encode()))


def _to_stdout(data: bytes) -> None:
    _write(1, data)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def _signals(terminal: bool) -> Iterator[socket.socket]:
    """A socket on which each signal comes as one byte, its number; signals do nothing else."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    numbers = [*PASSED_ON, *([signal.SIGWINCH] if terminal else [])]
    # A signal that is ignored stays ignored, as under nohup.
    before = {
        number: signal.getsignal(number)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    for number in before:
        signal.signal(number, lambda *_: None)
    try:
        yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        ours.close()
        theirs.close()


@contextmanager
def _raw(terminal: bool) -> Iterator[None]:
    """Let the terminal pass on every key: the terminal in the guest interprets them."""
    if not terminal:
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _size() -> dict[str, int]:
    """The rows and columns of the terminal; empty without one."""
    with suppress(OSError):
        columns, rows = os.get_terminal_size(1)
        return {"rows": rows, "columns": columns}
    return {}


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _usable_stdin() -> bool:
    """Whether stdin is open, and is no terminal that would stop this process when it reads."""
    return sys.stdin is not None and (not os.isatty(0) or _in_foreground())
