# SPDX-License-Identifier: Apache-2.0
"""Which controller a command asks, and what commands ask the package of labs.

Labs are a package of their own that uses this one. It names a module in the entry point `labs` of
the group `ri2n_sdn.labs`. That module has the functions of `Labs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

import typer

from ri2n_sdn.cli.common import JsonOption
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.client import DEFAULT_SOCKET, jobs_socket_of
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["Asked", "Labs", "Where", "installed_labs", "labs"]

Value = TypeVar("Value")


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


@dataclass(frozen=True)
class Where:
    """Which controller a command asks."""

    socket: Annotated[
        Path | None,
        typer.Option(
            envvar="RI2N_SOCKET",
            help="The controller's unix socket; default /run/ri2n-controller/controller.sock or "
            "the one running lab's.",
        ),
    ] = None
    lab: Annotated[
        str | None, typer.Option(envvar="RI2N_LAB", help="The controller of this lab.")
    ] = None

    @property
    def path(self) -> Path:
        """The controller's socket: the given one, the lab's, the default one or the only lab's.

        What is typed counts, and not what a variable of the environment says. Of two variables,
        that of the lab counts. Raises BadInput when a socket and a lab are typed, and NotAvailable
        when no controller runs.
        """
        types_socket = self.socket not in (None, _from_environment("RI2N_SOCKET", Path))
        types_lab = self.lab not in (None, _from_environment("RI2N_LAB", str))
        if types_socket and types_lab:
            raise BadInput("give --socket or --lab, not both")
        if self.lab is not None and not types_socket:
            return labs("--lab").lab_socket(self.lab)
        if self.socket is not None:
            return self.socket
        if _may_be_there(DEFAULT_SOCKET):
            return DEFAULT_SOCKET
        installed = installed_labs()
        found = None if installed is None else installed.only_socket()
        if found is None:
            raise NotAvailable(
                f"no controller is running ({DEFAULT_SOCKET}, no lab); start one with `ri2n "
                "controller`"
            )
        return found

    @property
    def jobs(self) -> Path:
        """The socket to ask about jobs: the controller's own one, or for users that for all.

        Raises as `path`.
        """
        own = self.path
        usable = os.geteuid() == 0 or os.access(own, os.R_OK | os.W_OK)
        return own if usable else jobs_socket_of(own)


@dataclass(frozen=True)
class Asked(Where):
    """Which controller a command asks, and how it prints the answer."""

    as_json: JsonOption = False


def _may_be_there(path: Path) -> bool:
    """Whether a file is there, or is in a folder that this user may not look into.

    To call it says which of both, and who may.
    """
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _from_environment(name: str, kind: Callable[[str], Value]) -> Value | None:
    """The value of a variable of the environment, None without one."""
    text = os.environ.get(name)
    return None if text is None else kind(text)


def installed_labs() -> Labs | None:
    """The package of labs; None when it is not installed."""
    # The import takes longer than most commands, which know their socket.
    from importlib.metadata import entry_points

    package: Labs
    for point in entry_points(group="ri2n_sdn.labs", name="labs"):
        package = point.load()
        return package
    return None
