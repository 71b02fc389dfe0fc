# SPDX-License-Identifier: Apache-2.0
"""How much memory the unfinished replies of all connections hold together, with a limit."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

__all__ = ["Unfinished"]

OwnerT = TypeVar("OwnerT")


class Unfinished(Generic[OwnerT]):
    """The bytes that each owner holds.

    When all together hold more than `max_bytes`, the owner with most bytes must give up its own,
    not the one that asked last. Threads may share an object.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.total_bytes = 0
        self._lock = threading.Lock()
        self._bytes_of: dict[OwnerT, int] = {}

    def add(self, owner: OwnerT, size: int) -> OwnerT | None:
        """Count `size` bytes more for `owner`. Returns the owner that must give up all, or None."""
        with self._lock:
            self.total_bytes += size
            self._bytes_of[owner] = self._bytes_of.get(owner, 0) + size
            return (
                max(self._bytes_of, key=lambda key: self._bytes_of[key])
                if self.total_bytes > self.max_bytes
                else None
            )

    def release(self, owner: OwnerT, size: int | None = None) -> None:
        """Count `size` bytes less for `owner`; None stands for all that it holds."""
        with self._lock:
            held = self._bytes_of.get(owner, 0)
            freed = held if size is None else min(size, held)
            self.total_bytes -= freed
            self._bytes_of[owner] = held - freed
            if not self._bytes_of[owner]:
                del self._bytes_of[owner]
