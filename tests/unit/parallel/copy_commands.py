# SPDX-License-Identifier: Apache-2.0
"""`ri2n serve` and `ri2n cp` as tests run them, whole or up to half of a copy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from ri2n_parallel.cli import main
from ri2n_parallel.copy import blocks
from tests.unit.parallel.relay import SWALLOW, Relay
from tests.unit.parallel.worlds import PATIENCE_S

__all__ = [
    "BLOCK",
    "COMMAND",
    "ENVIRONMENT",
    "HALF_WAY",
    "MAKES_ONE",
    "REPOSITORY",
    "Done",
    "Served",
    "cp",
    "good",
    "half_way",
    "has_blocks",
    "here",
    "many_blocks",
    "one_line",
    "part_of",
    "run",
    "same",
    "serve",
    "start",
]

REPOSITORY = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "200",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": str(REPOSITORY),
}
# Ctrl-C is heard: whoever runs the tests in the background of a script ignores it, and children
# inherit that.
ALONE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from ri2n_parallel.cli.main import main
main()
"""
COMMAND = [sys.executable, "-c", ALONE]
BLOCK = blocks.BLOCK_BYTES
MAKES_ONE = "a token that it makes"


Done: TypeAlias = "subprocess.CompletedProcess[str]"


def run(*argv: str, **kwargs: Any) -> Done:
    pipe = subprocess.PIPE
    return subprocess.run(
        argv,
        env=ENVIRONMENT,
        stdout=pipe,
        stderr=pipe,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        **kwargs,
    )


def here(*argv: str) -> Done:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(argv)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # which `serve` raises
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def cp(*arguments: str | Path) -> Done:
    return here("cp", *map(str, arguments))


def good(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def one_line(done: Done) -> str:
    assert done.returncode == 2 and done.stdout == "", done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ri2n-parallel: "), done.stderr
    return lines[0]


class Served:
    """A server in a process of its own.

    It has no token unless options name one; with MAKES_ONE it makes one.
    """

    def __init__(self, directory: Path, *options: str | Path, **kwargs: Any) -> None:
        argv = [*COMMAND, "serve", str(directory), "--listen", "127.0.0.1:0"]
        argv += [str(each) for each in options if each != MAKES_ONE]
        argv += (
            []
            if {MAKES_ONE, "--token-file", "--no-token"} & {*map(str, options)}
            else ["--no-token"]
        )
        pipe = subprocess.PIPE
        self.process: subprocess.Popen[str] = subprocess.Popen(
            argv, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True, **kwargs
        )
        assert self.process.stderr is not None
        ready, _, _ = select.select([self.process.stderr], [], [], PATIENCE_S)
        self.line = self.process.stderr.readline() if ready else ""
        found = re.search(r"serving .* on 127\.0\.0\.1:([0-9]+)", self.line)
        assert found, self.line or self.process.poll()
        self.port = int(found[1])

    def at(self, name: str, relay: Relay | None = None) -> str:
        address, port = relay.at(HALF_WAY) if relay else ("127.0.0.1", self.port)
        return f"{address}:{port}:{name}"

    def says(self) -> str:
        """The next line on its stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self, with_signal: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Its exit code and what it printed."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextlib.contextmanager
def serve(directory: Path, *options: str | Path, **kwargs: Any) -> Iterator[Served]:
    directory.mkdir(exist_ok=True)
    served = Served(directory, *options, **kwargs)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate(timeout=PATIENCE_S)


def many_blocks(path: Path, count: int, seed: bytes = b"") -> Path:
    """A file whose blocks all differ; it is mostly holes, so that it is made at once."""
    with path.open("wb") as file:
        for index in range(count):
            file.seek(index * BLOCK)
            file.write(b"%s block %d" % (seed, index))
        file.truncate(count * BLOCK - 5)
    return path


def same(one: Path, other: Path) -> bool:
    return subprocess.run(["cmp", "-s", one, other], check=False).returncode == 0


def part_of(directory: Path, name: str) -> Path:
    return directory / f".{name}.ri2n-part"


def has_blocks(part: Path, count: int) -> Callable[[], bool]:
    def look() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return part.stat().st_size >= count * BLOCK
        return False

    return look


HALF_WAY = "127.0.2.1"
"""Where a copy goes that must not be complete: a relay that keeps what comes after half of it."""


@contextlib.contextmanager
def half_way(server: Served, count: int) -> Iterator[Relay]:
    """What goes over HALF_WAY stops there after half of `count` blocks."""
    with Relay(server.port, {HALF_WAY: "127.0.0.1"}) as relay:
        relay.after(count // 2 * BLOCK, SWALLOW, HALF_WAY)
        yield relay


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Run `ri2n cp` as a process."""
    return subprocess.Popen(
        [*COMMAND, "cp", *map(str, arguments)], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
