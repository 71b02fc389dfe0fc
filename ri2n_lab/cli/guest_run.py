# SPDX-License-Identifier: Apache-2.0
"""`ri2n lab run --kernel KERNEL -- COMMAND`: run one command in a guest of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ri2n_sdn.cli.common import note, terminate_as_interrupt
from ri2n_sdn.errors import BadInput

__all__ = ["run"]

POLL_S = 0.1


def run(
    command: Annotated[list[str], typer.Argument(help="Command and arguments, after --.")],
    kernel: Annotated[
        str, typer.Option(help="uml: user-mode Linux, in real time; virtual: in virtual time.")
    ],
    writable: Annotated[
        Path | None,
        typer.Option(
            help="A folder that the command may change; nothing else that it writes stays."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=1, help="Decides all random numbers in virtual time.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="The guest is ended after so many minutes.")
    ] = 60.0,
    memory_mb: Annotated[int, typer.Option(min=256, help="Memory of the guest in MiB.")] = 3072,
) -> int:
    """Run a command as root in a guest: with this machine's files, on another kernel.

    Its output and its exit code are those of this command.
    """
    from ri2n_lab.guests.guest import Guest
    from ri2n_lab.guests.kernels import find_kernel

    if writable is not None and not writable.is_dir():
        raise BadInput(f"--writable {writable}: is not a folder")
    terminate_as_interrupt()
    image = find_kernel(kernel)
    folder = None if writable is None else writable.resolve()
    with (
        Guest(
            image, command, limit_s=minutes * 60, seed=seed, memory_mb=memory_mb, writable=folder
        ) as guest,
        (guest.share / "stdout").open("rb") as out,
        (guest.share / "stderr").open("rb") as err,
    ):
        while (result := guest.poll()) is None:
            _pass_on(out.read(), err.read())
            time.sleep(POLL_S)
        _pass_on(out.read(), err.read())
    clock = "virtual" if image.virtual else "of the guest's"
    note(f"{result.guest_s:.1f} s {clock}, {result.real_s:.1f} s real")
    return result.returncode


def _pass_on(out: bytes, err: bytes) -> None:
    for stream, data in ((sys.stdout, out), (sys.stderr, err)):
        if data:
            stream.buffer.write(data)
            stream.buffer.flush()
