# SPDX-License-Identifier: Apache-2.0
"""Run commands for a lab in a guest: the same `ri2n` command runs inside the guest.

Its output and its exit code are passed on.
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
    """Run this same command in the guest of its lab, and exit as it does.

    Returns when the lab is not in a guest. `lab` is the lab's name; None means the only lab of this
    user. With `time_it`, the time that the command took is printed. Raises BadInput when the user
    has several labs and none is named, NotAvailable without root.
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
    """The lab in a guest that `lab` names (see `forward`).

    None when that lab is on the host, or when there is none.
    """
    from ri2n_lab.guests.labs import find_guest_lab

    if lab is not None:
        return find_guest_lab(lab)
    guests = guest_labs_of_mine()
    if not guests:
        return None
    from ri2n_lab.cluster import Lab

    names = [*(own.name for own in Lab.all_mine()), *(guest.name for guest in guests)]
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
    """Run `ri2n ARGV` in the guest; the keywords are those of `relay`.

    With `kernel`, the name of the guest's kernel, a note says at the end how long it took.
    """
    from ri2n_lab.guests.relay import relay, request

    started_s = time.monotonic()
    ended = relay(connection, request(["ri2n", *argv], module=MODULE), **kwargs)
    if kernel is not None:
        kind = "virtual" if kernel == "virtual" else "guest"
        note(f"{ended.guest_s:.2f} {kind} s, {time.monotonic() - started_s:.2f} real s")
    return ended
