# SPDX-License-Identifier: Apache-2.0
"""Which labs belong to a living process, and the removal of those that belong to nobody.

A process that makes a lab holds a lock on a file in the lab's folder. The kernel releases that lock
when the process ends, however it ends. A lab that was made to stay (`Lab.keep`) needs no process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ri2n_lab.cluster import state

__all__ = ["hold", "is_held", "is_unowned"]

FILE = "owner.lock"


def hold(folder: Path) -> int:
    """Take the lock of a lab's folder for this process, and return the lock's descriptor.

    No program that this process starts inherits the descriptor. Callers write the lab's state file
    afterwards, so nobody looks for the owner of a lab before the lab has one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_held(folder: Path) -> bool:
    """Whether a living process holds the lock of a lab's folder."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_unowned(lab: state.LabState) -> bool:
    """Whether a lab belongs to nobody: it was not made to stay, and its process has ended.

    A lab that stays belongs to nobody, too, once its removal has begun and was broken off. A caller
    who then removes it takes the lab's working lock first, which a removal that goes on holds.
    """
    return (not lab.stays or lab.phase == "removing") and not is_held(state.run_dir(lab.name))
