"""Pure: over which link the next chunk goes, and how long it is.

The paper splits every call's bytes evenly (Paradise, section 3.2.4), user-level RI2N takes whatever
`select` says is writable. Both end a transfer when the slowest link does. Here a chunk goes where
it will have arrived first, and chunks get shorter towards the end, so that all links end together,
whatever their rates.
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

SHORTEST_S = 1e-4  # of a link's time: shorter chunks cost more of ours than they gain
SEGMENT_BYTES = (
    1416  # of payload: with a frame's header and TCP's timestamps it fills an MTU of 1500
)
UNKNOWN_RATE = 1.25e7  # bytes/s, of a link that has not sent enough to tell
FIRST_BYTES = 14_000  # which TCP sends at once on a new connection
SETUP_TRIPS = 4  # round trips from the greeting until links carry data


class LinkLoad:
    """What the choice needs of a link:

    bytes that wait on it, its rate in bytes/s, and whether it takes more now.
    """

    __slots__ = ("backlog_bytes", "rate", "writable")

    def __init__(self, backlog_bytes: float, rate: float, writable: bool) -> None:
        self.backlog_bytes, self.rate, self.writable = backlog_bytes, rate, writable


def chunk_bytes(remaining: int, links: int, rate: float, most: int) -> int:
    """How much of `remaining` goes next, on one of `links` links of about `rate` bytes/s each.

    Half of an even share, as long as that is worth a chunk of its own: early chunks are long, the
    last ones short.
    """
    if links == 1 or remaining <= SEGMENT_BYTES:
        return min(remaining, most)
    least = max(SEGMENT_BYTES, int(rate * SHORTEST_S))
    size = max(least, remaining // (2 * links))
    if size >= most:
        return min(remaining, most)
    size -= size % SEGMENT_BYTES
    return min(remaining, size or SEGMENT_BYTES)


def early_bytes(count: int, links: int, round_trip_s: float, most: int) -> int:
    """How many of the first `count` bytes go over the control connection while `links` links are
    being connected.

    All that TCP would send at once. Of longer data it takes what it can carry until the others are
    there, so that the first link does not queue behind it. A link alone has nothing to wait for and
    goes the same way.
    """
    if count <= FIRST_BYTES or links == 1:
        return min(count, most)
    return min(count, most, max(2 * SEGMENT_BYTES, int(SETUP_TRIPS * round_trip_s * UNKNOWN_RATE)))


def pick(links: Sequence[LinkLoad], size: int, remaining: int) -> int | None:
    """The link that `size` of `remaining` bytes go over now; None: it is better to wait for one
    that is busy.

    The one where they arrive first. When that takes no more just now, the next best that does,
    unless everything that is left would sooner have gone over the better ones together.
    """
    best_s = float("inf")
    open_, open_s = -1, float("inf")
    for place, link in enumerate(links):
        done_s = (link.backlog_bytes + size) / link.rate
        if done_s < best_s:
            best_s = done_s
        if link.writable and done_s < open_s:
            open_, open_s = place, done_s
    if open_ < 0 or open_s <= best_s:
        return open_ if open_ >= 0 else None
    backlog_bytes, rate = 0.0, 0.0
    for link in links:
        if (link.backlog_bytes + size) / link.rate < open_s:
            backlog_bytes += link.backlog_bytes
            rate += link.rate
    return open_ if open_s <= (backlog_bytes + remaining) / rate else None
