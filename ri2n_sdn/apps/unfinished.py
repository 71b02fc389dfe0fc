"""What all connections' unfinished replies hold in memory:

bounded for each one and for all together.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

__all__ = ["Unfinished"]

OwnerT = TypeVar("OwnerT")


class Unfinished(Generic[OwnerT]):
    """Bytes by owner.

    When all have too many together, it is the one with most that must go, not who came last.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.total_bytes = 0
        self._lock = threading.Lock()
        self._of: dict[OwnerT, int] = {}

    def add(self, owner: OwnerT, size: int) -> OwnerT | None:
        """`owner` holds so many bytes more; who must give all of its up for that, or None."""
        with self._lock:
            self.total_bytes += size
            self._of[owner] = self._of.get(owner, 0) + size
            return (
                max(self._of, key=lambda each: self._of[each])
                if self.total_bytes > self.most_bytes
                else None
            )

    def release(self, owner: OwnerT, size: int | None = None) -> None:
        """It holds so many bytes less; None: nothing any more."""
        with self._lock:
            held = self._of.get(owner, 0)
            freed = held if size is None else min(size, held)
            self.total_bytes -= freed
            self._of[owner] = held - freed
            if not self._of[owner]:
                del self._of[owner]
