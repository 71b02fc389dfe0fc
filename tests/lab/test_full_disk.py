# SPDX-License-Identifier: Apache-2.0
"""`ri2n serve` on a disk that becomes full in the middle of a copy.

It prints one line for that client, and the disk has room again.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.parallel.copy_commands import (
    BLOCK,
    HALF_WAY,
    Served,
    cp,
    good,
    half_way,
    serve,
    start,
)
from tests.unit.parallel.relay import PASS, SWALLOW

from .conftest import WaitUntil

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
DISK, WHOLE = 64 << 20, 40 << 20
assert WHOLE > 4 * BLOCK


def small_disk(folder: Path) -> None:
    """In the child that becomes the server: make `folder` a disk of its own.

    Only the child sees the disk, which ends with it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={DISK}".encode()
    done = (
        libc.unshare(CLONE_NEWNS),
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None),
        libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options),
    )
    if any(done):
        raise OSError(ctypes.get_errno(), f"no disk of its own: {done}")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "served"
    with serve(folder, preexec_fn=lambda: small_disk(folder)) as running:
        yield running


def on_disk(served: Served, *argv: str) -> str:
    """What a command prints where the server's disk is."""
    inside = ["nsenter", "-t", str(served.process.pid), "-m", *argv]
    return subprocess.run(inside, capture_output=True, text=True, check=False).stdout


def test_a_disk_that_fills_up_costs_that_copy_one_line(
    served: Served, tmp_path: Path, wait_until: WaitUntil
) -> None:
    folder, source = tmp_path / "served", tmp_path / "source"
    source.write_bytes(random.Random(17).randbytes(WHOLE))
    with half_way(served, WHOLE // BLOCK) as relay:
        client = start(source, served.at("whole", relay))
        try:
            wait_until(
                lambda: relay.modes[HALF_WAY] == SWALLOW, lambda: f"nothing comes: {client.poll()}"
            )
            fill = f"head -c {DISK} /dev/zero >{folder}/filler; stat -c %s {folder}/filler"
            assert DISK - WHOLE < int(on_disk(served, "sh", "-c", fill)) < DISK, (
                "the rest of the disk"
            )
            relay.set(PASS, HALF_WAY)
            _, said = client.communicate(timeout=600)
        finally:
            client.kill()
            client.communicate()
    assert client.returncode == 2 and said.count("\n") == 1 and "space" in said.lower(), said
    assert served.process.poll() is None
    wait_until(
        lambda: on_disk(served, "ls", "-A", str(folder)).split() == ["filler"],
        "what came stays on the disk",
    )
    on_disk(served, "rm", f"{folder}/filler")
    good(cp(source, served.at("whole"), "--json"))
    cp(served.at("whole"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
