# SPDX-License-Identifier: Apache-2.0
"""The agent in a guest: it runs commands for the keeper, over the guest's serial line.

`python -m ri2n_lab.guests.agent [--virtual] [--preload MODULE]` runs as long as the guest does.
Modules are imported once. A command that is a module runs in a copy of this process, so that it
starts at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import selectors
import tty
from collections import deque
from pathlib import Path
from typing import Any

from ri2n_lab.guests.child import Child
from ri2n_lab.guests.guest import SHARE
from ri2n_lab.guests.link import Frame, Kind, Parser, encode, json_frame
from ri2n_sdn.errors import Ri2nError

__all__ = ["Agent", "main"]

LINE = Path("/dev/ttyS0")
BACKLOG_BYTES = 256 << 10
"""The output of commands is not read while more than this waits for the line."""

MAX_COMMANDS = 64


class Agent:
    """Serves one serial line until the line ends: `Agent(fd, ...).serve()`."""

    def __init__(self, line: int, *, virtual: bool = False, share: Path = SHARE) -> None:
        """Take over the descriptor `line`, which reads and writes.

        `share` is the folder in which the keeper puts files. With `virtual`, the agent spins, and
        does not sleep, whenever the host must act next: the clock moves only while everything in
        the guest sleeps, and would run far ahead while the guest waits for the host.
        """
        self._line, self._share, self._virtual = line, share, virtual
        self._parser = Parser()
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._children: dict[int, Child] = {}
        self._selector = selectors.DefaultSelector()
        os.set_blocking(line, False)
        self._selector.register(line, selectors.EVENT_READ)

    def serve(self) -> None:
        """Run commands until the line ends."""
        self._send(encode(Kind.HELLO))
        while True:
            if not self._flush():
                return
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._backlog else 0)
            self._selector.modify(self._line, events)
            roomy = self._backlog_bytes < BACKLOG_BYTES
            for child in self._children.values():
                child.watch(self._selector, roomy)
            patience_s = self._patience_s()
            if patience_s == 0:
                os.sched_yield()
            for key, _ in self._selector.select(patience_s):
                if key.fd == self._line and not self._read_line():
                    return
            for channel, child in list(self._children.items()):
                for data in child.work(roomy):
                    self._send(data)
                if child.ended:
                    child.close()
                    del self._children[channel]
                    self._send(json_frame(Kind.EXIT, {**child.result(), "labs": _labs()}, channel))

    def _patience_s(self) -> float | None:
        """How many seconds `select` may wait: 0 to spin, None for no limit."""
        if self._virtual and (
            self._backlog or all(child.blocked for child in self._children.values())
        ):
            return 0.0
        patience_s = [child.patience_s() for child in self._children.values()]
        return min((value for value in patience_s if value is not None), default=None)

    def _read_line(self) -> bool:
        """Read the line once and handle the frames; False when the line has ended."""
        try:
            data = os.read(self._line, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._send(encode(Kind.ACK, 0, str(len(data)).encode()))
        self._take(self._parser.feed(data))
        return True

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.kind is Kind.FILE:
                self._take_file(frame)
                continue
            try:
                self._handle(frame)
            except (Ri2nError, OSError, ValueError, TypeError) as error:
                self._send(encode(Kind.ERROR, frame.channel, str(error).encode()))

    def _take_file(self, frame: Frame) -> None:
        # Long frames come as a file: the line carries some hundred kilobytes a second, the folder
        # a hundred megabytes.
        path = self._share / f"in-{frame.number()}"
        data = path.read_bytes()
        path.unlink()
        self._take([inner for inner in Parser().feed(data) if inner.kind is not Kind.FILE])

    def _handle(self, frame: Frame) -> None:
        if frame.kind is Kind.PING:
            self._send(encode(Kind.PONG, 0, frame.payload))
        elif frame.kind is Kind.RUN:
            if frame.channel in self._children or len(self._children) >= MAX_COMMANDS:
                raise Ri2nError(f"more than {MAX_COMMANDS} commands at once in one guest")
            self._children[frame.channel] = Child(frame.channel, frame.json())
        elif (child := self._children.get(frame.channel)) is not None:
            child.handle(frame)

    def _send(self, data: bytes) -> None:
        self._backlog.append(data)
        self._backlog_bytes += len(data)

    def _flush(self) -> bool:
        """Write as much as the line takes; False when the line has ended."""
        while self._backlog:
            try:
                written = os.write(self._line, self._backlog[0][: 1 << 14])
            except BlockingIOError:
                return True
            except OSError:
                return False
            self._backlog_bytes -= written
            if written == len(self._backlog[0]):
                self._backlog.popleft()
            else:
                self._backlog[0] = self._backlog[0][written:]
        return True


def _labs() -> list[dict[str, Any]]:
    """What `ri2n lab ls` on the host shows of the labs in this guest, without asking the guest."""
    from ri2n_lab.cluster.state import all_states, run_dir

    return [
        {
            **{
                "name": lab.name,
                "phase": lab.phase,
                "datapath": lab.datapath,
                "faults": lab.faults,
            },
            "helpers": lab.helpers,
            "fast": lab.fast,
            "controller": (run_dir(lab.name) / "controller.sock").exists(),
        }
        for lab in all_states()
    ]


def main() -> None:
    """Serve the guest's serial line; the head of the file has the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--preload", action="append", default=[])
    arguments = parser.parse_args()
    for name in arguments.preload:
        importlib.import_module(name)
    line = os.open(LINE, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    tty.setraw(line)
    Agent(line, virtual=arguments.virtual).serve()


if __name__ == "__main__":
    main()
