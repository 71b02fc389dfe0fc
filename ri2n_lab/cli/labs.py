# SPDX-License-Identifier: Apache-2.0
"""Answers about labs for the product's commands (`ri2n_sdn.cli.labs.Labs`).

They ask for controllers' sockets, for hosts, and for what `ri2n doctor` shows.
"""

from __future__ import annotations

from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM
from socket import socket as Socket

from ri2n_lab.cli.forward import forward, guest_labs_of_mine
from ri2n_lab.cluster import Lab, state
from ri2n_sdn.cli.common import note
from ri2n_sdn.cli.doctor import findings_in
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["examine_guest", "examine_lab", "hosts_of", "lab_socket", "listens", "only_socket"]


def lab_socket(lab: str) -> Path:
    """The socket of the controller of the lab of that name; NotAvailable when there is no such lab.

    For a lab in a guest, this same command runs there, and the process exits as it does.
    """
    forward(lab)
    return Lab.load(lab).controller_socket


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


def hosts_of(socket: Path) -> tuple[dict[str, str], str | None] | None:
    """The addresses and the datapath of the hosts of the lab whose controller has this socket.

    None when the socket belongs to no lab.
    """
    if not (socket.parent / "state.json").is_file():
        return None
    lab = Lab.load(socket.parent.name)
    return {host: lab.address(host) for host in lab.hosts}, lab.datapath


def examine_lab(lab: str, host: str | None) -> list[Finding]:
    """What host-doctor finds on the hosts of a lab, or on one of them.

    Raises BadInput when the lab has no managed host of that name.
    """
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


def listens(path: Path) -> bool:
    """Whether a process listens there. One that was killed leaves the file of its socket."""
    with Socket(AF_UNIX, SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _sockets() -> list[Path]:
    """The sockets of the labs on this machine, not in guests, that have a controller."""
    return sorted(path for path in state.ROOT.glob("*/controller.sock") if listens(path))
