# SPDX-License-Identifier: Apache-2.0
"""Pure: over which link the next chunk goes, and how long it is.

Paradise splits the bytes of every call evenly (section 3.2.4). User-level RI2N takes any link that
`select` says is writable. In both a transfer ends when the slowest link ends. Here a chunk goes
over the link on which it arrives first, and chunks get shorter towards the end of a transfer, so
that links of different rates end together.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "FIRST_BYTES",
    "SEGMENT_BYTES",
    "UNKNOWN_RATE",
    "LinkLoad",
    "chunk_bytes",
    "early_bytes",
    "pick",
]

SHORTEST_S = 1e-4
"""The shortest chunk takes a link this long: a shorter one costs more computing than it gains."""
SEGMENT_BYTES = 1416
"""Payload that fills an MTU of 1500 bytes, with the header of a frame and TCP's timestamps."""
UNKNOWN_RATE = 1.25e7
"""The rate, in bytes/s, of a link that has not sent enough to measure it (100 Mbit/s)."""
FIRST_BYTES = 14_000
"""What TCP sends at once on a new connection."""
SETUP_TRIPS = 4
"""Round trips from the greeting until links carry data."""


class LinkLoad:
    """What is known of a link when one is chosen.

    `backlog_bytes` wait on it, `rate` is in bytes/s, `writable` says whether it takes more now.
    """

    __slots__ = ("backlog_bytes", "rate", "writable")

    def __init__(self, backlog_bytes: float, rate: float, writable: bool) -> None:
        self.backlog_bytes, self.rate, self.writable = backlog_bytes, rate, writable


def chunk_bytes(remaining: int, links: int, rate: float, max_bytes: int) -> int:
    """How many of the `remaining` bytes are in the next chunk, at most `max_bytes`.

    `links` is the number of links, `rate` about what each of them carries in bytes/s. A chunk has
    half of an even share, unless that is too short to be worth a chunk of its own. So the first
    chunks of a transfer are long and the last ones short.
    """
    if links == 1 or remaining <= SEGMENT_BYTES:
        return min(remaining, max_bytes)
    least = max(SEGMENT_BYTES, int(rate * SHORTEST_S))
    size = max(least, remaining // (2 * links))
    if size >= max_bytes:
        return min(remaining, max_bytes)
    size -= size % SEGMENT_BYTES
    return min(remaining, size or SEGMENT_BYTES)


def early_bytes(count: int, links: int, round_trip_s: float, max_bytes: int) -> int:
    """How many of the first `count` bytes go over the control connection, at most `max_bytes`.

    Meanwhile `links` links are being connected. The control connection takes all that TCP sends at
    once. If the data is longer, it takes what it can carry until the links are connected, so that
    the first link does not have to wait behind it. With one link there is nothing to wait for, and
    all of the data goes this way.
    """
    if count <= FIRST_BYTES or links == 1:
        return min(count, max_bytes)
    return min(
        count, max_bytes, max(2 * SEGMENT_BYTES, int(SETUP_TRIPS * round_trip_s * UNKNOWN_RATE))
    )


def pick(links: Sequence[LinkLoad], size: int, remaining: int) -> int | None:
    """The place of the link that the next `size` of `remaining` bytes go over now.

    That is the link on which they arrive first. If it takes no more at the moment, it is the best
    one that does, unless the better links together would carry all `remaining` bytes in less time.
    Then, or if no link takes more, it is None: the caller has to wait for a busy link.
    """
    best_s = float("inf")
    writable, writable_s = -1, float("inf")
    for place, link in enumerate(links):
        done_s = (link.backlog_bytes + size) / link.rate
        if done_s < best_s:
            best_s = done_s
        if link.writable and done_s < writable_s:
            writable, writable_s = place, done_s
    if writable < 0 or writable_s <= best_s:
        return writable if writable >= 0 else None
    backlog_bytes, rate = 0.0, 0.0
    for link in links:
        if (link.backlog_bytes + size) / link.rate < writable_s:
            backlog_bytes += link.backlog_bytes
            rate += link.rate
    return writable if writable_s <= (backlog_bytes + remaining) / rate else None
