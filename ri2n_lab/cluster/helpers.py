# SPDX-License-Identifier: Apache-2.0
"""The helper `ri2n-reorder` on the hosts of a lab: find its program, start, stop and ask it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ri2n_lab.cluster.namespaces import processes_in
from ri2n_lab.cluster.unix_path import socket_path
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.taps import HELPER_BYTES, PLAIN_TAP, WIRE_TAP
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "Helpers",
    "address_mtu",
    "autonomous_commands",
    "autonomous_options",
    "find_program",
    "host_up_options",
]

PROGRAM = "ri2n-reorder"
NIC_MTU = 1500
QUEUE_S = 0.005  # seconds of frames that may wait in the TAP, as with host-up
FRAME_BYTES = 1518
START_WAIT_S = 20.0
STOP_WAIT_S = 10.0
STATUS_WAIT_S = 5.0


def find_program() -> Path:
    """The helper's program: what RI2N_REORDER names, else beside this Python, else on PATH.

    Raises NotAvailable when there is none.
    """
    named = os.environ.get("RI2N_REORDER")
    if named:
        if not os.access(named, os.X_OK):
            raise NotAvailable(f"RI2N_REORDER={named}: there is no such program")
        return Path(named)
    beside_python = Path(sys.executable).parent / PROGRAM
    if os.access(beside_python, os.X_OK):
        return beside_python
    on_path = shutil.which(PROGRAM)
    if on_path is None:
        raise NotAvailable(
            f"{PROGRAM} is missing: ./dev setup builds it, or name it with RI2N_REORDER"
        )
    return Path(on_path)


# ---- pure: what a topology means in options and commands


def address_mtu() -> int:
    """The MTU in bytes of the address of a host with a helper.

    The helper's header and the packet together must fit in one frame of a NIC.
    """
    return NIC_MTU - HELPER_BYTES


def host_up_options(topology: Topology, host: str) -> list[str]:
    """The options of host-up that only a host with a helper gets.

    The rate is one of them, since veth devices claim to have 10 Gbit/s.
    """
    rate_bps = sum(nic.rate_bps for nic in topology.hosts[host].nics)
    return ["--helper", "--rate-mbps", str(max(1, rate_bps // 1_000_000))]


def autonomous_options(topology: Topology, host: str) -> list[str]:
    """The helper's options for a host without Open vSwitch and controller.

    They name the host's NICs with their rates in bit/s.
    """
    wire = ",".join(f"{nic.name}={nic.rate_bps}" for nic in topology.hosts[host].nics)
    options = ["--autonomous", "--wire", wire, "--plain", PLAIN_TAP, "--persistent"]
    return [*options, "--mtu-wire", str(NIC_MTU)]


def autonomous_commands(topology: Topology, host: str) -> list[str]:
    """`ip` commands that give an autonomous host its addresses.

    The addresses are on a TAP that stays when the helper ends. The NICs have none.
    """
    rate_bps = sum(nic.rate_bps for nic in topology.hosts[host].nics)
    frames = min(1000, max(16, int(rate_bps * QUEUE_S / 8 / FRAME_BYTES)))
    return [
        f"tuntap add dev {PLAIN_TAP} mode tap",
        f"link set {PLAIN_TAP} address 06:00:00:00:{topology.number(host):02x}:01 mtu "
        f"{address_mtu()}",
        f"link set {PLAIN_TAP} txqueuelen {frames} up",
        f"addr add {topology.address(host)}/24 brd + dev {PLAIN_TAP}",
        f"addr add {topology.address6(host)}/64 dev {PLAIN_TAP} nodad",
    ]


class Home(Protocol):
    """What the helpers need of their lab."""

    @property
    def software(self) -> str: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def has_helpers(self) -> bool: ...
    @property
    def run_dir(self) -> Path: ...
    def namespace(self, host: str) -> str: ...
    def popen(self, host: str, argv: Sequence[str], **kwargs: Any) -> subprocess.Popen[Any]: ...


class Helpers:
    """The helpers of one lab, whichever process started them.

    A helper's output is in helper.log in the host's folder.
    """

    def __init__(self, lab: Home, options: Sequence[str] = ()) -> None:
        """`options` are further options, for every helper of the lab at every start."""
        self._lab = lab
        self._options = list(options)

    @property
    def hosts(self) -> list[str]:
        """The hosts that have a helper; none in a lab without helpers."""
        return self._lab.topology.helper_hosts() if self._lab.has_helpers else []

    def start(self, host: str, extra: Sequence[str] = ()) -> subprocess.Popen[Any]:
        """Start the helper of a host, and return when it answers.

        Raises NotAvailable when it runs already, when there is no program, or, with the last line
        of its log, when it does not start.
        """
        folder = self._folder(host)
        if self.pid(host) is not None:
            raise NotAvailable(f"the helper of {host} runs already")
        program = find_program()
        folder.mkdir(exist_ok=True)  # where no Open vSwitch made it
        status = folder / "helper.sock"
        status.unlink(missing_ok=True)
        # The links' shapers count frames as the kernel does, without preamble, checksum and gap.
        argv = [str(program), *self._own_options(host), "--overhead", "0", "--status", str(status)]
        with (folder / "helper.log").open("ab") as log:
            child = self._lab.popen(
                host, [*argv, *self._options, *extra], stdout=log, stderr=subprocess.STDOUT
            )
        (folder / "helper.pid").write_text(f"{child.pid}\n")
        deadline_s = time.monotonic() + START_WAIT_S
        while not self._serves(host):
            if child.poll() is not None or time.monotonic() > deadline_s:
                raise NotAvailable(f"the helper of {host} did not start: {self._log_end(host)}")
            time.sleep(0.01)
        return child

    def stop(self, host: str) -> None:
        """End the helper of a host as an administrator does, by SIGTERM.

        The helper takes leave of its peers. A host whose helper does not run is no error.
        """
        self._end(host, signal.SIGTERM)

    def kill(self, host: str) -> None:
        """End the helper of a host by SIGKILL, so that its peers have to find out.

        A host whose helper does not run is no error.
        """
        self._end(host, signal.SIGKILL)

    def restart(self, host: str, extra: Sequence[str] = ()) -> subprocess.Popen[Any]:
        """Stop the helper of a host if it runs, and start it."""
        self.stop(host)
        return self.start(host, extra)

    def pid(self, host: str) -> int | None:
        """The process of a host's helper; None when it does not run."""
        try:
            pid = int((self._folder(host) / "helper.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if pid in processes_in([self._lab.namespace(host)]) else None

    def status(self, host: str) -> dict[str, Any]:
        """The status that a host's helper reports; NotAvailable when it does not answer."""
        data = b""
        try:
            with (
                socket_path(self._folder(host) / "helper.sock") as path,
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
            ):
                connection.settimeout(STATUS_WAIT_S)
                connection.connect(path)
                while part := connection.recv(1 << 16):
                    data += part
            status = json.loads(data)
        except (OSError, ValueError) as error:
            raise NotAvailable(f"the helper of {host} does not answer: {error}") from None
        if not isinstance(status, dict):
            raise NotAvailable(f"the helper of {host} does not answer with an object")
        return status

    # ---- how it is done

    def _folder(self, host: str) -> Path:
        if host not in self.hosts:
            raise BadInput(
                f"host {host!r} has no helper: those with one are {', '.join(self.hosts) or 'none'}"
            )
        return self._lab.run_dir / host

    def _own_options(self, host: str) -> list[str]:
        if self._lab.software == "autonomous":
            return autonomous_options(self._lab.topology, host)
        # host-up writes the options for the system's service into this file.
        line = (self._folder(host) / "state" / "br-ri2n" / "helper").read_text().strip()
        return ["--plain", PLAIN_TAP, "--wire", WIRE_TAP, *line.partition("=")[2].split()]

    def _serves(self, host: str) -> bool:
        with suppress(NotAvailable):
            self.status(host)
            return True
        return False

    def _end(self, host: str, number: signal.Signals) -> None:
        """Send that signal, and wait until the process has released everything that it held.

        A process that exits leaves its namespaces before it releases its TAPs. To wait until it is
        in no namespace would be too short.
        """
        pid = self.pid(host)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if self.pid(host) == pid:  # so the handle belongs to the helper
                    signal.pidfd_send_signal(handle, number)
                    ended = select.poll()
                    ended.register(handle, select.POLLIN)
                    if not ended.poll(STOP_WAIT_S * 1000):
                        raise NotAvailable(f"the helper of {host} does not end")
            finally:
                os.close(handle)
        (self._folder(host) / "helper.pid").unlink(missing_ok=True)

    def _log_end(self, host: str) -> str:
        log = self._folder(host) / "helper.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return lines[-1] if lines else "it said nothing"
