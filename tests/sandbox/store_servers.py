# SPDX-License-Identifier: Apache-2.0
"""ovsdb-servers for the tests of the store, which end with the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ri2n_sdn.store.link import SCHEMA
from tests.waiting import wait_until

__all__ = ["Server", "common_server", "is_gone", "transact"]

_START = ["-vsyslog:off", "-vconsole:off"]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that waits for its parent to notice it has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


class Server:
    """An ovsdb-server on a file, with a unix socket beside it and perhaps further options."""

    def __init__(self, database: Path, *options: str) -> None:
        self.database, self.options = database, options
        self.socket = database.with_suffix(".sock")
        self.target = f"unix:{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = f"--log-file={self.database.with_suffix('.log')}"
        control = f"--unixctl={self.database.with_suffix('.ctl')}"
        argv = ["ovsdb-server", str(self.database), f"--remote=p{self.target}", control, log]
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen([*argv, *_START, *self.options], stderr=subprocess.DEVNULL)
        wait_until(self.socket.exists, f"{self.database}: ovsdb-server does not start")

    def listen(self, remote: str) -> None:
        """Have it listen at another remote, too; its control socket comes after its own one."""
        argv = ["ovs-appctl", "-t", str(self.database.with_suffix(".ctl"))]
        argv += ["ovsdb-server/add-remote", remote]

        def listens() -> bool:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            return done.returncode == 0 or "already" in done.stderr

        wait_until(listens, f"{self.database}: cannot listen at {remote}")

    def kill(self) -> None:
        """End it by SIGKILL; to do it twice is no error."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def common_server(folder: Path, *options: str) -> Iterator[Server]:
    """A running server of a store that several controllers may use."""
    database = folder / "common.db"
    subprocess.run(["ovsdb-tool", "create", str(database), str(SCHEMA)], check=True)
    server = Server(database, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def transact(target: str, operations: str) -> str:
    """Run operations, as JSON without the database's name, as another program would."""
    argv = ["ovsdb-client", "--timeout=60", "transact", target, f'["ri2n",{operations}]']
    env = {**os.environ, "OVS_RUNDIR": "/nonexistent"}
    with contextlib.suppress(subprocess.CalledProcessError):
        return subprocess.run(
            argv, check=True, capture_output=True, text=True, env=env
        ).stdout.strip()
    return ""
