# SPDX-License-Identifier: Apache-2.0
"""Reach Unix sockets whose paths are longer than the kernel allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["socket_path"]


@contextmanager
def socket_path(path: Path) -> Iterator[str]:
    """A path of at most 107 bytes, the kernel's limit, for the Unix socket at `path`.

    A longer `path` is reached through its folder, which stays open as long as the context.
    """
    if len(os.fsencode(path)) <= 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
