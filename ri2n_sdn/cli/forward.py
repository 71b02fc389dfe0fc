"""Commands for a lab in a guest: the same `ri2n` command runs inside, and what it says and how it ends is passed on."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ri2n_sdn.cli.client import DEFAULT_SOCKET, find_socket, lab_sockets
from ri2n_sdn.cli.common import note
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.lab.guest_labs import Connection, GuestLab
    from ri2n_sdn.lab.guest_relay import Ended

__all__ = ["MODULE", "controller_socket", "find_guest", "forward", "guest_labs_of_mine", "run_inside"]

MODULE = "ri2n_sdn.cli.main"


def forward(lab: str | None, *, time_it: bool = False) -> None:
    """Run this very command in the guest of the lab that it is for, and exit as it does; return if that is no guest.

    `lab` is its name; None means the only one this user has. BadInput when that does not say which.
    """
    guest = find_guest(lab)
    if guest is None:
        return
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
    from ri2n_sdn.lab.guest_labs import connect

    with connect(guest) as connection:
        raise typer.Exit(run_inside(connection, sys.argv[1:], guest.kernel if time_it else None).code)


def controller_socket(given: Path | None, lab: str | None) -> Path:
    """The socket of the controller to ask, see `find_socket`; for one in a guest, run this command there instead.

    `lab` names a lab and `given` a socket: BadInput for both.
    """
    if lab is not None:
        if given is not None:
            raise BadInput("give --socket or --lab, not both")
        forward(lab)
        from ri2n_sdn.lab import Lab

        return Lab.load(lab).controller_socket
    if given is None and not DEFAULT_SOCKET.exists():
        guests = [guest for guest in guest_labs_of_mine() if guest.alive]
        here = lab_sockets() if guests else []
        if len(here) + len(guests) > 1:
            names = ", ".join([*(path.parent.name for path in here), *(guest.name for guest in guests)])
            raise NotAvailable(f"several labs run a controller; choose one with --lab: {names}")
        if guests:
            forward(guests[0].name)
    return find_socket(given)


def find_guest(lab: str | None) -> GuestLab | None:
    """The lab in a guest that `lab` means, see `forward`; None when it means one on the host, or none at all."""
    from ri2n_sdn.lab.guest_labs import find_guest_lab

    if lab is not None:
        return find_guest_lab(lab)
    guests = guest_labs_of_mine()
    if not guests:
        return None
    from ri2n_sdn.lab import Lab

    names = [*(found.name for found in Lab.all_mine()), *(guest.name for guest in guests)]
    if len(names) > 1:
        raise BadInput(f"which lab? There are {', '.join(sorted(names))}: name one with --lab")
    return guests[0]


def guest_labs_of_mine() -> list[GuestLab]:
    """The labs in guests that this user made, also those whose keeper is gone."""
    from ri2n_sdn.lab import state
    from ri2n_sdn.lab.guest_labs import all_guest_labs

    return [guest for guest in all_guest_labs() if guest.owner == state.owner()]


def run_inside(connection: Connection, argv: list[str], kernel: str | None = None, **kwargs: Any) -> Ended:
    """Run `ri2n ARGV` in the guest; keywords are those of `relay`. With `kernel`, say at the end how long it took."""
    from ri2n_sdn.lab.guest_relay import relay, request

    started_s = time.monotonic()
    ended = relay(connection, request(["ri2n", *argv], module=MODULE), **kwargs)
    if kernel is not None:
        kind = "virtual" if kernel == "virtual" else "guest"
        note(f"{ended.guest_s:.2f} {kind} s, {time.monotonic() - started_s:.2f} real s")
    return ended
