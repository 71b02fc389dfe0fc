"""Unix sockets in folders with long names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["socket_path"]


@contextmanager
def socket_path(path: Path) -> Iterator[str]:
    """`path` for a unix socket, whose path may have 107 bytes only:

    through the open folder when it is longer.
    """
    if len(os.fsencode(path)) <= 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
