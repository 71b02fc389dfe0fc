# SPDX-License-Identifier: Apache-2.0
"""What README.md tells a newcomer to do, and a terminal in which a test does it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

__all__ = ["Guide", "Step", "Terminal"]

BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |^\S|\Z)", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"\*\*([^*]+)\*\*|\*([^*\n]+)\*")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROWS, COLUMNS = 40, 100
END_S = 60.0
POLL_S = 0.05


def commands_of(text: str) -> list[str]:
    """The commands in the blocks of code, without comments."""
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    return [words for line in lines if (words := line.split("#")[0].strip())]


@dataclass(frozen=True)
class Step:
    """One step of the numbered list: what its words name, and its commands."""

    number: int
    words: str
    names: tuple[str, ...]
    commands: tuple[str, ...]

    def name(self, wanted: str) -> str:
        """The name of a page, a field or a button; fails when the step does not give it."""
        assert wanted in self.names, f"README.md, step {self.number}: {wanted} is not in {self}"
        return wanted

    def says(self, word: str) -> None:
        """Fail when the step does not have the word."""
        assert re.search(rf"\b{word}\b", self.words), f"README.md, step {self.number}: no {word}"

    def command(self, wanted: str) -> str:
        """The command with these words; fails when the step does not give it."""
        return _only(self.commands, wanted)


class Guide:
    """The part of a README up to its second heading."""

    def __init__(self, readme: Path) -> None:
        """Read it."""
        self._text = readme.read_text(encoding="utf-8").partition("\n## ")[0]
        self.commands = tuple(commands_of(self._text))

    def command(self, wanted: str) -> str:
        """The command with these words; fails when there is none, or are several."""
        return _only(self.commands, wanted)

    def steps(self) -> list[Step]:
        """The steps of the numbered list, in order."""
        return [
            Step(
                int(number),
                " ".join(BLOCK.sub("", words).split()),
                tuple(" ".join((one or other).split()) for one, other in NAMED.findall(words)),
                tuple(commands_of(words)),
            )
            for number, words in ITEM.findall(self._text)
        ]

    def says(self, words: str) -> None:
        """Fail when these words are not there."""
        assert words in " ".join(self._text.split()), f"README.md does not say: {words}"


def _only(commands: tuple[str, ...], wanted: str) -> str:
    found = [command for command in commands if wanted in command]
    assert len(found) == 1, f"README.md: {wanted!r} is in {found} of {commands}"
    return found[0]


class Terminal:
    """A command in a terminal of its own, as a person has it; a context manager.

    At the end the command is ended, if it has not ended.
    """

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Start it."""
        self._raw = b""
        self._master, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        # A test may have been started in the background, where SIGINT is ignored.
        argv = ["setsid", "--ctty", "env", "--default-signal=INT", "bash", "-c", command]
        try:
            self._process = subprocess.Popen(
                argv, cwd=folder, env=environment, stdin=other, stdout=other, stderr=other
            )
        finally:
            os.close(other)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
                try:
                    self._process.wait(END_S)
                except subprocess.TimeoutExpired:
                    continue
        self._reader.join(END_S)
        os.close(self._master)

    @property
    def text(self) -> str:
        """What is on the terminal, with all that has scrolled away."""
        said = ESCAPE.sub("", self._raw.decode(errors="replace"))
        return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in said.split("\n"))

    def until(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait until a line is as wanted. Fails when the command ends, or after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            over = self._process.poll() is not None
            found = re.search(pattern, self.text, re.MULTILINE)
            if found is not None:
                return found
            assert not over, f"it has ended without {pattern}:\n{self.text}"
            assert time.monotonic() < deadline_s, f"no {pattern} in time:\n{self.text}"
            time.sleep(POLL_S)

    def type(self, text: str) -> None:
        """Type a text; a line ends with its Enter."""
        os.write(self._master, text.encode())

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C: the terminal interrupts what is in its foreground."""
        os.write(self._master, b"\x03")

    def wait(self, timeout_s: float) -> int:
        """Wait until the command has ended, and no process of its group is left; its exit code."""
        code = self._process.wait(timeout_s)
        self._reader.join(timeout_s)
        assert not self._reader.is_alive(), f"a process still has the terminal:\n{self.text}"
        return code

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._master, 65536)
            except OSError:  # all that had the terminal have ended
                return
            if not read:
                return
            self._raw += read
