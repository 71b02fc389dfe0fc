# SPDX-License-Identifier: Apache-2.0
"""What waits for one slow reader: a queue with a limit, and no back-pressure on the writer."""

from __future__ import annotations

from collections import deque

__all__ = ["BoundedQueue"]


class BoundedQueue:
    """Lines in the order of their arrival, at most so many lines and bytes.

    A reader that lags behind the limit is cut off by the caller: a stream with a gap would be
    wrong, and nobody waits for a reader. The caller locks where several threads use one.
    """

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self._max_lines, self._max_bytes = max_lines, max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, line: bytes) -> bool:
        """Append a line, and return whether there was room for it."""
        if len(self._lines) >= self._max_lines or self._bytes + len(line) > self._max_bytes:
            return False
        self._lines.append(line)
        self._bytes += len(line)
        return True

    def take(self) -> bytes:
        """Remove the oldest line. Raises IndexError when there is none."""
        line = self._lines.popleft()
        self._bytes -= len(line)
        return line

    def take_all(self) -> bytes:
        """Remove all lines, joined."""
        lines = b"".join(self._lines)
        self.clear()
        return lines

    def clear(self) -> None:
        """Drop all lines."""
        self._lines.clear()
        self._bytes = 0
