# SPDX-License-Identifier: Apache-2.0
"""Run real MPI programs in a lab, by Open MPI, with one rank on each host.

Data goes over the fabric, everything else over the control network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ri2n_lab.cluster.namespaces import processes_in
from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["MpiRun", "check_mpi"]

# Debian's mpi4py is for Debian's Python, not for that of a virtual environment.
PYTHON = "/usr/bin/python3"
AGENT = Path(__file__).with_name("mpi-agent")
FABRIC, CONTROL = "10.77.0.0/24", "10.255.0.0/24"
EAGER_BYTES = 4 << 20
TERM_WAIT_S = 3.0
KILL_WAIT_S = 5.0
RUN = "RI2N_MPI_RUN"


def check_mpi() -> None:
    """Raise NotAvailable, with what to install, unless Open MPI and mpi4py are there."""
    if shutil.which("mpirun") is None:
        raise NotAvailable("mpirun is missing: apt install openmpi-bin")
    done = subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True, check=False)
    if done.returncode != 0:
        raise NotAvailable(f"mpi4py for {PYTHON} is missing: apt install python3-mpi4py")


class MpiRun:
    """A running MPI program; `output` waits for its end, `stop` ends it early.

    Rank r runs on the r-th host.
    """

    def __init__(
        self,
        lab: Lab,
        hosts: Sequence[str],
        program: Path,
        arguments: Sequence[str] = (),
        *,
        uid: int | None = None,
    ) -> None:
        """Start the Python `program` on `hosts` of a lab.

        All must be managed, since other hosts are not on the control network. With `uid` the ranks,
        and so all their packets, are that user's. Raises NotAvailable without Open MPI or mpi4py.
        """
        check_mpi()
        self._lab, self._id = lab, uuid.uuid4().hex
        # The folder for MPI's sessions is in the lab's folder, which is removed with the lab. So a
        # session that is killed leaves nothing in /tmp.
        self._folder = lab.run_dir / f"mpi-{self._id[:8]}"
        self._folder.mkdir()
        # The ranks' user makes folders of its own there.
        self._folder.chmod(0o1777)
        hostfile = self._folder / "hosts"
        hostfile.write_text("".join(f"{host} slots=1\n" for host in hosts))
        self._errors = self._folder / "stderr"
        settings = {
            "plm": "rsh",
            "plm_rsh_agent": str(AGENT),
            "plm_rsh_no_tree_spawn": "1",
            "orte_tmpdir_base": str(self._folder),
            "oob_tcp_if_include": CONTROL,
            "btl": "tcp,self",
            "pml": "ob1",
            "btl_tcp_if_include": FABRIC,
            # Without this, ranks that wait would spin on the few CPUs that all hosts share.
            "mpi_yield_when_idle": "1",
            # A longer message waits for the receiver's answer, which queues behind the data of the
            # other direction. Then two-way traffic would get half of what the links can carry.
            "btl_tcp_eager_limit": str(EAGER_BYTES),
            "btl_tcp_rndv_eager_limit": str(EAGER_BYTES),
            "btl_tcp_max_send_size": str(EAGER_BYTES),
        }
        # A user may not be able to read the folder in which the program is.
        program = Path(shutil.copy(program, self._folder))
        argv = ["mpirun", "--allow-run-as-root", "-np", str(len(hosts))]
        argv += ["--hostfile", str(hostfile)]
        argv += ["--map-by", "node", "--bind-to", "none"]
        argv += [word for name, value in settings.items() for word in ("--mca", name, value)]
        argv += [PYTHON, str(program), *arguments]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "OMPI_"))
        }
        environment |= {
            RUN: self._id,
            "RI2N_MPI_NAMESPACE": lab.namespace(hosts[0]).removesuffix(hosts[0]),
        }
        environment["TMPDIR"] = str(self._folder)
        if uid is not None:
            environment |= {"RI2N_MPI_UID": str(uid), "HOME": str(self._folder)}
        with self._errors.open("wb") as errors:
            self._process = lab.popen(
                "mgmt",
                argv,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._folder,
                text=True,
            )

    def output(self, timeout_s: float) -> str:
        """Wait for the end, and return what the ranks printed.

        Raises NotAvailable when the program fails or takes longer than `timeout_s`.
        """
        try:
            output, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            words = self._last_words()
            self.stop()
            raise NotAvailable(
                f"the MPI program did not end within {timeout_s:g} s: {words}"
            ) from None
        words = self._last_words()
        self.stop()
        if self._process.returncode:
            raise NotAvailable(
                f"the MPI program failed with status {self._process.returncode}: {words}"
            )
        return str(output)

    def stop(self) -> None:
        """End all processes of the program and remove its folder; to call it twice is no error."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=TERM_WAIT_S)
        # Its daemons have left the process group, and stay when mpirun is killed.
        started_s = time.monotonic()
        while any(pids := self._pids()):
            running, ending = pids
            if time.monotonic() - started_s > KILL_WAIT_S:
                raise NotAvailable(f"processes {running + ending} of the MPI program do not end")
            if time.monotonic() - started_s > TERM_WAIT_S / 3:
                for pid in running:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        if self._process.poll() is None:
            self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _pids(self) -> tuple[list[int], list[int]]:
        """The pids of this run's processes, and those of processes that are just ending.

        All of the lab's namespaces are searched, and a process is known by its environment. A
        process that ends loses its environment before its namespace, so it may or may not belong to
        this run.
        """
        mark = f"{RUN}={self._id}".encode()
        names = [self._lab.namespace(host) for host in ("mgmt", *self._lab.hosts)]
        running, ending = [], []
        for pid in processes_in(names):
            try:
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    running.append(pid)
            except ProcessLookupError:
                ending.append(pid)
            except OSError:  # it has ended
                continue
        return running, ending

    def _last_words(self) -> str:
        lines = (
            self._errors.read_text(errors="replace").split("\n") if self._errors.exists() else []
        )
        words = [" ".join(line.split()) for line in lines if line.strip() and "setpgid" not in line]
        return " | ".join(words[-4:])[-400:] or "no message"
