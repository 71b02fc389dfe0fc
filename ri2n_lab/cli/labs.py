# SPDX-License-Identifier: Apache-2.0
"""Answers about labs for the product's commands (`ri2n_sdn.cli.labs.Labs`).

They ask for controllers' sockets, and for what `ri2n doctor` shows.
"""

from __future__ import annotations

from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM
from socket import socket as Socket

from ri2n_lab.cli.forward import forward, guest_labs_of_mine
from ri2n_lab.cluster import state
from ri2n_sdn.cli.common import note
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["examine_guest", "examine_lab", "lab_socket", "listens", "only_socket"]


def lab_socket(lab: str) -> Path:
    """The socket of the controller of the lab of that name; NotAvailable when there is no such lab.

    For a lab in a guest, this same command runs there, and the process exits as it does.
    """
    forward(lab)
    state.read_state(lab)  # raises NotAvailable when there is none
    return state.controller_socket(lab)


def only_socket() -> Path | None:
    """The socket of the only lab on this machine that has a controller; None when there is none.

    Raises NotAvailable when there are several. For a lab in a guest, it does as `lab_socket`.
    """
    sockets = _sockets()
    guests = [guest for guest in guest_labs_of_mine() if guest.alive]
    if len(sockets) + len(guests) > 1:
        names = ", ".join(
            [*(path.parent.name for path in sockets), *(guest.name for guest in guests)]
        )
        raise NotAvailable(f"several labs run a controller; choose one with --lab: {names}")
    if guests:
        forward(guests[0].name)
    if not sockets:
        return None
    note(f"ri2n: using the controller of lab {sockets[0].parent.name}")
    return sockets[0]


def examine_lab(lab: str, host: str | None) -> list[Finding]:
    """What host-doctor finds on the hosts of a lab, or on one of them.

    Raises BadInput when the lab has no managed host of that name.
    """
    from ri2n_lab.cluster import Lab
    from ri2n_sdn.cli.doctor import findings_in

    forward(lab)
    loaded = Lab.load(lab)
    names = loaded.topology.managed_hosts()
    if host is not None and host not in names:
        raise BadInput(
            f"--host {host}: lab {lab} has no managed host of that name: {', '.join(names)}"
        )
    findings = []
    for name in [host] if host else names:
        done = loaded.host_script(name, "host-doctor", "--json", check=False)
        findings += findings_in(name, done.stdout, done.stderr)
    return findings


def examine_guest(kernel: str) -> list[Finding]:
    """Whether this machine can run labs in guests with that kernel.

    Raises BadInput when there is no such kernel.
    """
    from ri2n_lab.cli import guest_doctor

    return guest_doctor.examine_guest(kernel)


def _sockets() -> list[Path]:
    """The sockets of the labs on this machine, not in guests, that have a controller.

    Raises NotAvailable when this user may not look.
    """
    try:
        names = sorted(folder.name for folder in state.ROOT.iterdir())
    except PermissionError:
        raise refusal("controller_for_root", path=str(state.ROOT)) from None
    except OSError:
        return []
    return [path for path in map(state.controller_socket, names) if listens(path)]


def listens(path: Path) -> bool:
    """Whether a process listens there, or this user may not ask: a question there says so.

    One that was killed leaves the file of its socket.
    """
    with Socket(AF_UNIX, SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except PermissionError:
            return True
        except OSError:
            return False
    return True
