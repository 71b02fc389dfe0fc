# SPDX-License-Identifier: Apache-2.0
"""A Rust program of ours on the hosts of a lab: find it, start it, stop it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ri2n_lab.cluster.namespaces import processes_in
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = ["Home", "OnHosts", "find_built"]

START_WAIT_S = 20.0
STOP_WAIT_S = 10.0


def find_built(name: str) -> Path:
    """A program that `./dev setup` builds: what its variable names, else beside this Python, else
    on PATH.

    The variable of `ri2n-reorder` is RI2N_REORDER. Raises NotAvailable when there is none.
    """
    variable = name.upper().replace("-", "_")
    named = os.environ.get(variable)
    if named:
        if not os.access(named, os.X_OK):
            raise NotAvailable(f"{variable}={named}: there is no such program")
        return Path(named)
    beside_python = Path(sys.executable).parent / name
    if os.access(beside_python, os.X_OK):
        return beside_python
    on_path = shutil.which(name)
    if on_path is None:
        raise NotAvailable(f"{name} is missing: ./dev setup builds it, or name it with {variable}")
    return Path(on_path)


class Home(Protocol):
    """What such a program needs of its lab."""

    @property
    def software(self) -> str: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def run_dir(self) -> Path: ...
    def namespace(self, host: str) -> str: ...
    def popen(self, host: str, argv: Sequence[str], **kwargs: Any) -> subprocess.Popen[Any]: ...


class OnHosts:
    """One program on the hosts of a lab, whichever process of the lab started it.

    `WHAT` is its name for people, and `STEM` that of its files in a host's folder: its process in
    STEM.pid, its output in STEM.log.
    """

    WHAT = ""
    STEM = ""

    def __init__(self, lab: Home) -> None:
        self._lab = lab

    @property
    def hosts(self) -> list[str]:
        """The hosts on which it belongs."""
        raise NotImplementedError

    def status(self, host: str) -> dict[str, Any]:
        """What it says of itself on a host; NotAvailable when it does not answer."""
        raise NotImplementedError

    def stop(self, host: str) -> None:
        """End it on a host as an administrator does, by SIGTERM.

        It is no error where it does not run.
        """
        self._end(host, signal.SIGTERM)

    def kill(self, host: str) -> None:
        """End it on a host by SIGKILL, so that others have to find out.

        It is no error where it does not run.
        """
        self._end(host, signal.SIGKILL)

    def pid(self, host: str) -> int | None:
        """Its process on a host; None where it does not run."""
        try:
            pid = int((self._folder(host) / f"{self.STEM}.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if pid in processes_in([self._lab.namespace(host)]) else None

    # ---- how it is done

    def _folder(self, host: str) -> Path:
        if host not in self.hosts:
            raise BadInput(
                f"host {host!r} has no {self.WHAT}: those with one are "
                f"{', '.join(self.hosts) or 'none'}"
            )
        return self._lab.run_dir / host

    def _check_idle(self, host: str) -> None:
        if self.pid(host) is not None:
            raise NotAvailable(f"the {self.WHAT} of {host} runs already")

    def _launch(self, host: str, argv: Sequence[str]) -> subprocess.Popen[Any]:
        """Start it, and return when it answers.

        Raises NotAvailable, with the last line of its log, when it does not.
        """
        folder = self._folder(host)
        with (folder / f"{self.STEM}.log").open("ab") as log:
            child = self._lab.popen(host, argv, stdout=log, stderr=subprocess.STDOUT)
        (folder / f"{self.STEM}.pid").write_text(f"{child.pid}\n")
        deadline_s = time.monotonic() + START_WAIT_S
        while not self._serves(host):
            if child.poll() is not None or time.monotonic() > deadline_s:
                raise NotAvailable(
                    f"the {self.WHAT} of {host} did not start: {self._log_end(host)}"
                )
            time.sleep(0.01)
        return child

    def _serves(self, host: str) -> bool:
        with suppress(NotAvailable):
            self.status(host)
            return True
        return False

    def _end(self, host: str, number: signal.Signals) -> None:
        """Send that signal, and wait until the process has released everything that it held.

        A process that exits leaves its namespaces before it releases its devices. To wait until it
        is in no namespace would be too short.
        """
        pid = self.pid(host)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if self.pid(host) == pid:  # so the handle belongs to it
                    signal.pidfd_send_signal(handle, number)
                    ended = select.poll()
                    ended.register(handle, select.POLLIN)
                    if not ended.poll(STOP_WAIT_S * 1000):
                        raise NotAvailable(f"the {self.WHAT} of {host} does not end")
            finally:
                os.close(handle)
        (self._folder(host) / f"{self.STEM}.pid").unlink(missing_ok=True)

    def _log_end(self, host: str) -> str:
        log = self._folder(host) / f"{self.STEM}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return lines[-1] if lines else "it said nothing"
