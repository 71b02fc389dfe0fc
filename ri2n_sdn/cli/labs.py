# SPDX-License-Identifier: Apache-2.0
"""Which controller a command asks, and what commands ask the package of labs.

Labs are a package of their own that uses this one. It names a module in the entry point `labs` of
the group `ri2n_sdn.labs`. That module has the functions of `Labs`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.client import DEFAULT_SOCKET, jobs_socket_of
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["Labs", "controller_socket", "installed_labs", "jobs_socket", "labs"]


class Labs(Protocol):
    """The functions of the package of labs.

    For a lab in a guest, the same command is run in the guest, and this process exits.
    """

    def lab_socket(self, lab: str) -> Path:
        """The socket of a lab's controller. Raises NotAvailable when there is no such lab."""

    def only_socket(self) -> Path | None:
        """The socket of the only lab on this machine that has a controller; None without a lab.

        Raises NotAvailable when there are several such labs.
        """

    def hosts_of(self, socket: Path) -> tuple[dict[str, str], str | None] | None:
        """(address of each host, datapath) of the lab whose controller has this socket.

        None when the socket belongs to no lab.
        """

    def examine_lab(self, lab: str, host: str | None) -> list[Finding]:
        """What `host-doctor` finds on the hosts of a lab, or on one of them.

        Raises BadInput for an unknown host.
        """

    def examine_guest(self, kernel: str) -> list[Finding]:
        """Findings on whether this machine can run labs in guests with that kernel.

        Raises BadInput for an unknown kernel.
        """


def labs(option: str) -> Labs:
    """The package of labs, for an option that needs it.

    Raises NotAvailable when it is not installed.
    """
    installed = installed_labs()
    if installed is None:
        raise NotAvailable(f"{option}: labs are not installed here: pip install ri2n-lab")
    return installed


def controller_socket(given: Path | None, lab: str | None) -> Path:
    """The socket of the controller that a command asks.

    It is the `given` one or that of the lab. Without both it is the default one, or that of the
    only lab. Raises BadInput when a socket and a lab are given, and NotAvailable when no controller
    runs.
    """
    if lab is not None:
        if given is not None:
            raise BadInput("give --socket or --lab, not both")
        return labs("--lab").lab_socket(lab)
    if given is not None:
        return given
    if DEFAULT_SOCKET.exists():
        return DEFAULT_SOCKET
    installed = installed_labs()
    socket = None if installed is None else installed.only_socket()
    if socket is None:
        raise NotAvailable(
            f"no controller is running ({DEFAULT_SOCKET}, no lab); start one with `ri2n controller`"
        )
    return socket


def jobs_socket(given: Path | None, lab: str | None) -> Path:
    """The socket to ask about jobs: the controller's own one, or for users that for all.

    Raises as `controller_socket`.
    """
    socket = controller_socket(given, lab)
    if os.geteuid() == 0 or os.access(socket, os.R_OK | os.W_OK):
        return socket
    return jobs_socket_of(socket)


def installed_labs() -> Labs | None:
    """The package of labs; None when it is not installed."""
    # The import takes longer than most commands, which know their socket.
    from importlib.metadata import entry_points

    package: Labs
    for point in entry_points(group="ri2n_sdn.labs", name="labs"):
        package = point.load()
        return package
    return None
