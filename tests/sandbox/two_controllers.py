# SPDX-License-Identifier: Apache-2.0
"""Two controllers of the same hosts in a sandbox, each with a port and a socket of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ri2n_lab.cluster.sandbox import ANSWER_S, Process, Sandbox, reserve_port
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

__all__ = ["Controller", "connect", "two"]


class Controller:
    """One of several controllers of a sandbox; `options` say where its memory is."""

    def __init__(self, sandbox: Sandbox, name: str, port: int, options: Sequence[str]) -> None:
        self.sandbox, self.name, self.port, self.options = sandbox, name, port, list(options)
        self.socket = sandbox.folder / f"{name}.sock"
        self.log_file = sandbox.folder / f"{name}.log"
        self.process: Process | None = None

    def start(self, before: str = "", config: str | None = None, spawn: Any = None) -> None:
        path = self.sandbox.folder / f"{self.name}.yaml"
        path.write_text(self.sandbox.declared() if config is None else config)
        argv = ["controller", "--listen", f"127.0.0.1:{self.port}", "--socket", str(self.socket)]
        argv += ["--config", str(path), "--strategy", "round_robin", *self.options]
        self.process = (spawn or self.sandbox.spawn)(before, argv, self.log_file)
        wait_until(lambda: self.status(), self.log)

    def status(self) -> dict[str, Any]:
        """Its status; empty while it does not answer."""
        try:
            return call(self.socket, "status", timeout_s=ANSWER_S, pairs=False)
        except NotAvailable:
            return {}

    def problems(self) -> list[str]:
        status = self.status()
        return problem_texts(status) if status else []

    def in_charge(self) -> bool:
        """Whether it is in charge of all hosts, and all rows are as it wants them."""
        status = self.status()
        return (
            bool(status)
            and status["in_charge"]
            and status["settled"]
            and self.hosts() == set(self.sandbox.hosts)
        )

    def stands_by(self) -> bool:
        status = self.status()
        return bool(status) and not status["in_charge"]

    def hosts(self) -> set[str]:
        return {host["name"] for host in self.status().get("hosts", ()) if host["connected"]}

    def has_all_hosts(self) -> bool:
        return self.hosts() == set(self.sandbox.hosts)

    def is_well(self) -> bool:
        """Whether it says that nothing is wrong."""
        status = self.status()
        return bool(status) and not status["problems"]

    def says(self, start: str, end: str = "") -> bool:
        """Whether it names a problem with these words in it, the last ones at its end."""
        return any(start in text and text.endswith(end) for text in self.problems())

    def is_master_of(self, host: str) -> bool:
        """Whether the host's switch takes it for its master."""
        ovs = self.sandbox.ovs
        own = ovs.vsctl("get", "bridge", host, "controller").strip("[]\n").split(",")
        for record in own:
            target = ovs.vsctl("get", "controller", record.strip(), "target")
            if target.strip().strip('"').endswith(f":{self.port}"):
                return ovs.vsctl("get", "controller", record.strip(), "role").strip() == "master"
        return False

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(LONG_S)
            self.process = None

    def until(self, condition: Callable[[], object], what: str) -> float:
        """Wait for a condition; return how many seconds that took."""
        began_s = time.monotonic()
        wait_until(condition, lambda: f"{self.name}: {what}: {self.status()}\n{self.log()}")
        return time.monotonic() - began_s


@contextmanager
def two(
    sandbox: Sandbox, options: Callable[[str, Path], Sequence[str]]
) -> Iterator[tuple[Controller, Controller]]:
    """Two controllers that are not started yet; `connect` tells the hosts of both."""
    reserved, port = reserve_port()
    made = tuple(
        Controller(sandbox, name, at, options(name, sandbox.folder))
        for name, at in (("first", sandbox.port), ("second", port))
    )
    try:
        yield made[0], made[1]
        assert not any("Traceback" in each.log() for each in made)
    finally:
        for each in made:
            each.kill()
        reserved.close()


def connect(sandbox: Sandbox, *controllers: Controller) -> None:
    """Tell all hosts of these controllers, which are tried at once."""
    for name in sandbox.hosts:
        targets = [f"tcp:127.0.0.1:{each.port}" for each in controllers]
        words = ["--", "set-controller", name, *targets]
        sandbox.ovs.vsctl(*words[1:])
        for record in (
            sandbox.ovs.vsctl("get", "bridge", name, "controller").strip("[]\n").split(",")
        ):
            sandbox.ovs.vsctl(
                *("set", "controller", record.strip(), "max_backoff=1000"),
                *("inactivity_probe=60000", "connection_mode=out-of-band"),
                *("controller_rate_limit=1000", "controller_burst_limit=1000"),
            )
