# SPDX-License-Identifier: Apache-2.0
"""The helper `ri2n-reorder` on the hosts of a lab: find its program, start, stop and ask it."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ri2n_lab.cluster.programs import Home, OnHosts, find_built
from ri2n_lab.cluster.unix_path import socket_path
from ri2n_sdn.errors import NotAvailable
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

NIC_MTU = 1500
QUEUE_S = 0.005  # seconds of frames that may wait in the TAP, as with host-up
FRAME_BYTES = 1518
STATUS_WAIT_S = 5.0


def find_program() -> Path:
    """The helper's program: what RI2N_REORDER names, else beside this Python, else on PATH.

    Raises NotAvailable when there is none.
    """
    return find_built("ri2n-reorder")


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


class HelperHome(Home, Protocol):
    """What the helpers need of their lab."""

    @property
    def has_helpers(self) -> bool: ...


class Helpers(OnHosts):
    """The helpers of one lab, whichever process started them.

    A helper's output is in helper.log in the host's folder.
    """

    WHAT = "helper"
    STEM = "helper"

    def __init__(self, lab: HelperHome, options: Sequence[str] = ()) -> None:
        """`options` are further options, for every helper of the lab at every start."""
        super().__init__(lab)
        self._has_helpers = lab.has_helpers
        self._options = list(options)

    @property
    def hosts(self) -> list[str]:
        """The hosts that have a helper; none in a lab without helpers."""
        return self._lab.topology.helper_hosts() if self._has_helpers else []

    def start(self, host: str, extra: Sequence[str] = ()) -> subprocess.Popen[Any]:
        """Start the helper of a host, and return when it answers.

        Raises NotAvailable when it runs already, when there is no program, or, with the last line
        of its log, when it does not start.
        """
        self._check_idle(host)
        folder = self._folder(host)
        program = find_program()
        folder.mkdir(exist_ok=True)  # where no Open vSwitch made it
        status = folder / "helper.sock"
        status.unlink(missing_ok=True)
        # The links' shapers count frames as the kernel does, without preamble, checksum and gap.
        argv = [str(program), *self._own_options(host), "--overhead", "0", "--status", str(status)]
        return self._launch(host, [*argv, *self._options, *extra])

    def restart(self, host: str, extra: Sequence[str] = ()) -> subprocess.Popen[Any]:
        """Stop the helper of a host if it runs, and start it."""
        self.stop(host)
        return self.start(host, extra)

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

    def _own_options(self, host: str) -> list[str]:
        if self._lab.software == "autonomous":
            return autonomous_options(self._lab.topology, host)
        # host-up writes the options for the system's service into this file.
        line = (self._folder(host) / "state" / "br-ri2n" / "helper").read_text().strip()
        return ["--plain", PLAIN_TAP, "--wire", WIRE_TAP, *line.partition("=")[2].split()]
