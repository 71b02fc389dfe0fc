# SPDX-License-Identifier: Apache-2.0
"""The fast path `ri2n-fast` on the hosts of a lab: find its program, start, stop and ask it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ri2n_lab.cluster.programs import Home, OnHosts, find_built
from ri2n_sdn.errors import NotAvailable

__all__ = ["FastPaths", "find_fast_program"]

BRIDGE = "br-ri2n"
STATUS_WAIT_S = 20.0
POLL_S = 0.05


def find_fast_program() -> Path:
    """The program: what RI2N_FAST names, else beside this Python, else on PATH.

    Raises NotAvailable when there is none.
    """
    return find_built("ri2n-fast")


class FastHome(Home, Protocol):
    """What the fast paths need of their lab."""

    @property
    def has_fast(self) -> bool: ...
    def exec(self, host: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]: ...


class FastPaths(OnHosts):
    """The fast paths of one lab, whichever process started them.

    The output of `ri2n-fast watch` is in fast.log in the host's folder, its socket in ri2n-fast
    there. The programs stay with the devices when it ends.
    """

    WHAT = "fast path"
    STEM = "fast"

    _lab: FastHome

    def __init__(self, lab: FastHome) -> None:
        super().__init__(lab)
        self._has_fast = lab.has_fast

    @property
    def hosts(self) -> list[str]:
        """The hosts that have a fast path; none in a lab without."""
        return self._lab.topology.managed_hosts() if self._has_fast else []

    def start(self, host: str, rights: Sequence[str] = ()) -> subprocess.Popen[Any]:
        """Start `ri2n-fast watch` on a host, and return when it answers.

        With `rights` it has these capabilities alone, as its service has those of its unit.
        Raises NotAvailable when it runs already, when there is no program, or, with the last line
        of its log, when it does not start.
        """
        self._check_idle(host)
        folder = self._folder(host)
        argv = [str(find_fast_program()), "watch", "--bridge", BRIDGE, "--rundir", str(folder)]
        if rights:
            alone = ",".join(["-all", *(f"+{right}" for right in rights)])
            argv = ["setpriv", "--bounding-set", alone, "--no-new-privs", *argv]
        return self._launch(host, [*argv, "--state", str(self._state_dir(host))])

    def unload(self, host: str) -> None:
        """End it on a host, and remove its programs from all devices: frames go by the bridge.

        It is no error where it does not run. Raises CommandFailed when the programs stay.
        """
        folder = self._folder(host)
        argv = [str(find_fast_program()), "unload", "--bridge", BRIDGE, "--rundir", str(folder)]
        self._lab.exec(host, [*argv, "--state", str(self._state_dir(host))])
        self.stop(host)  # it has ended, or is about to

    def await_in_force(self, host: str, timeout_s: float) -> None:
        """Return when the programs carry frames of a host, and its bridge gets no copies of them.

        Raises NotAvailable when the kernel refuses the programs, or when it takes longer.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            says = self.status(host)
            if says["programs"] == "in_force" and says["filter"] != "missing":
                return
            if says["programs"] == "refused":
                why = says["refused"]["text"]
                raise NotAvailable(f"the fast path of {host} is not in force: {why}")
            if time.monotonic() > deadline_s:
                raise NotAvailable(
                    f"the fast path of {host} is not in force after {timeout_s:g} s (programs: "
                    f"{says['programs']}, filter: {says['filter']}): {self._log_end(host)}"
                )
            time.sleep(POLL_S)

    def status(self, host: str) -> dict[str, Any]:
        """What `ri2n-fast status --json` says; NotAvailable when nobody answers."""
        argv = [str(find_fast_program()), "status", "--json", "--state", str(self._state_dir(host))]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=STATUS_WAIT_S, check=False
            )
            status = json.loads(done.stdout) if done.returncode == 0 else None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise NotAvailable(f"the fast path of {host} does not answer: {error}") from None
        if not isinstance(status, dict):
            raise NotAvailable(f"the fast path of {host} does not answer: {done.stderr.strip()}")
        return status

    def _state_dir(self, host: str) -> Path:
        # Where the host scripts look, too, as they are told the database in this folder.
        return self._folder(host) / "ri2n-fast"
