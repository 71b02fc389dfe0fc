"""Commands for a lab in a guest:

the same `ri2n` command runs inside, and what it says and how it ends is passed on.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from ri2n_sdn.cli.common import note
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.guests.labs import Connection, GuestLab
    from ri2n_lab.guests.relay import Ended

__all__ = ["MODULE", "find_guest", "forward", "guest_labs_of_mine", "run_inside"]

MODULE = "ri2n_sdn.cli.main"


def forward(lab: str | None, *, time_it: bool = False) -> None:
    """Run this very command in the guest of the lab that it is for, and exit as it does; return if
    that is no guest.

    `lab` is its name; None means the only one this user has. BadInput when that does not say which.
    """
    guest = find_guest(lab)
    if guest is None:
        return
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
    from ri2n_lab.guests.labs import connect

    with connect(guest) as connection:
        raise typer.Exit(
            run_inside(connection, sys.argv[1:], guest.kernel if time_it else None).code
        )


def find_guest(lab: str | None) -> GuestLab | None:
    """The lab in a guest that `lab` means, see `forward`.

    None when it means one on the host, or none at all.
    """
    from ri2n_lab.guests.labs import find_guest_lab

    if lab is not None:
        return find_guest_lab(lab)
    guests = guest_labs_of_mine()
    if not guests:
        return None
    from ri2n_lab.cluster import Lab

    names = [*(found.name for found in Lab.all_mine()), *(guest.name for guest in guests)]
    if len(names) > 1:
        raise BadInput(f"which lab? There are {', '.join(sorted(names))}: name one with --lab")
    return guests[0]


def guest_labs_of_mine() -> list[GuestLab]:
    """The labs in guests that this user made, also those whose keeper is gone."""
    from ri2n_lab.cluster import state
    from ri2n_lab.guests.labs import all_guest_labs

    return [guest for guest in all_guest_labs() if guest.owner == state.owner()]


def run_inside(
    connection: Connection, argv: list[str], kernel: str | None = None, **kwargs: Any
) -> Ended:
    """Run `ri2n ARGV` in the guest; keywords are those of `relay`.

    With `kernel`, say at the end how long it took.
    """
    from ri2n_lab.guests.relay import relay, request

    started_s = time.monotonic()
    ended = relay(connection, request(["ri2n", *argv], module=MODULE), **kwargs)
    if kernel is not None:
        kind = "virtual" if kernel == "virtual" else "guest"
        note(f"{ended.guest_s:.2f} {kind} s, {time.monotonic() - started_s:.2f} real s")
    return ended
