# SPDX-License-Identifier: Apache-2.0
"""Controllers and web processes as forks of one process that has imported all they need.

So no start waits for imports.

That process is the fork server of `multiprocessing`. Each fork runs `main()` of the command line in
a process of its own, with its own arguments, output and exit code. `test_start.py` starts
interpreters, as a user does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Forked", "fork"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["ri2n_sdn.cli.every", "ri2n_sdn.apps.launcher", "ri2n_sdn.web.app", __name__]
)


class Forked:
    """A running fork, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, before: str, argv: Sequence[str], log: Path) -> None:
        self._process = _CONTEXT.Process(
            target=_run, args=(before, list(argv), str(log)), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(before: str, argv: Sequence[str], log: Path) -> Forked:
    """Run `ri2n ARGV` after the Python code `before`; its output is appended to `log`."""
    return Forked(before, argv, log)


def _run(before: str, argv: list[str], log: str) -> None:
    """Run the command in the fork.

    `before` changes modules that are imported already, so it must set names where they are used.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number, descriptor in enumerate((nothing, written, written)):
        os.dup2(descriptor, number)
    sys.stdin = open(0)  # noqa: SIM115 - multiprocessing has given it another
    from ri2n_sdn.cli.main import main

    exec(before, {"__name__": "__main__"})
    sys.argv = ["ri2n", *argv]
    main()
