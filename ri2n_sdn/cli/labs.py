"""Which controller a command asks; where labs are installed, the controller and the hosts of a lab,
too.

Labs are a package of their own that uses this one. It names a module in the entry point `labs` of
the group `ri2n_sdn.labs`; what the commands here ask of that module is `Labs`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.client import DEFAULT_SOCKET
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["Labs", "controller_socket", "hosts_of_lab", "labs"]


class Labs(Protocol):
    """What the package of labs answers.

    For a lab in a guest, the very same command runs there, and this one exits.
    """

    def lab_socket(self, lab: str) -> Path:
        """The controller's socket of the lab of that name; NotAvailable when there is none."""

    def only_socket(self) -> Path | None:
        """That of the only lab here that has a controller.

        None when there is no such lab, NotAvailable for several.
        """

    def hosts_of(self, socket: Path) -> tuple[dict[str, str], str | None] | None:
        """Addresses and datapath of the hosts of the lab whose controller has this socket; None:

        it is no lab's.
        """

    def examine_lab(self, lab: str, host: str | None) -> list[Finding]:
        """What host-doctor says on the hosts of a lab, or on one of them.

        BadInput for a host that there is not.
        """

    def examine_guest(self, kernel: str) -> list[Finding]:
        """Whether labs in guests with that kernel run on this machine.

        BadInput for a kernel that there is not.
        """


def labs(option: str) -> Labs:
    """The package of labs, for an option that needs it; NotAvailable where it is not installed."""
    found = _installed()
    if found is None:
        raise NotAvailable(f"{option}: labs are not installed here: pip install ri2n-lab")
    return found


def controller_socket(given: Path | None, lab: str | None) -> Path:
    """The socket of the controller to ask: the one given, a lab's, the default one, or that of the
    only lab.

    BadInput for both a socket and a lab, NotAvailable where no controller runs.
    """
    if lab is not None:
        if given is not None:
            raise BadInput("give --socket or --lab, not both")
        return labs("--lab").lab_socket(lab)
    if given is not None:
        return given
    if DEFAULT_SOCKET.exists():
        return DEFAULT_SOCKET
    installed = _installed()
    found = None if installed is None else installed.only_socket()
    if found is None:
        raise NotAvailable(
            f"no controller is running ({DEFAULT_SOCKET}, no lab); start one with `ri2n controller`"
        )
    return found


def hosts_of_lab(socket: Path) -> tuple[dict[str, str], str | None] | None:
    """Addresses and datapath of the hosts of the lab whose controller has this socket; None:

    it is no lab's.
    """
    installed = _installed()
    return None if installed is None else installed.hosts_of(socket)


def _installed() -> Labs | None:
    found: Labs
    for point in entry_points(group="ri2n_sdn.labs", name="labs"):
        found = point.load()
        return found
    return None
