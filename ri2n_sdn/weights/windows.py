# SPDX-License-Identifier: Apache-2.0
"""What a host's NICs and its rows of pairs carried, in one window of time, so that they agree.

Rates for people are made here; the weight loop has averages of its own. The window is the same for
all figures of a host. It is pure: the caller gives the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ri2n_sdn.fabric.model import PairKey, PathKey

__all__ = ["WINDOW_S", "FairWindow", "HostRates", "Reading", "Row", "Window"]

WINDOW_S = 2.0
"""Rates are over this time at least, once there are readings for it."""

# Open vSwitch refreshes the counters of rows about every 0.5 s, so readings show them so old.
_REFRESH_S = 0.5
# Rows whose counters have not changed for this time are silent.
_NO_NEWS_S = 0.75

Row: TypeAlias = tuple[str, PathKey]
"""A row of a host: the other host, and the path."""


class Reading(NamedTuple):
    """The bytes that one host has counted, cumulative: by port (sent, received), and by row.

    A row that has counted nothing may be left out.
    """

    nics: Mapping[int, tuple[int, int]]
    sent: Mapping[Row, int]
    received: Mapping[Row, int]


class HostRates(NamedTuple):
    """What one host sends and receives, in bit/s: by port (sent, received), and by row.

    Rows that carry nothing are left out. What the rows of a NIC carry together is at most what the
    NIC does.
    """

    nics: dict[int, tuple[float, float]]
    sent: dict[Row, float]
    received: dict[Row, float]


class _Mark(NamedTuple):
    """A reading at which a window may begin or end.

    The counters of its rows are those of a moment up to `unsure_s` earlier.
    """

    time_s: float
    unsure_s: float
    reading: Reading


class Window:
    """The newest readings of one host, in bounded memory, and the rates that follow from them.

    The counters of NICs are as of now, but Open vSwitch refreshes those of rows twice a second: of
    two readings with 0.25 s between them, one may show no traffic and the other one twice as much.
    A window therefore begins and ends with readings that show something new, which are nearly as of
    now, or when rows have been silent for long enough. What is left of the difference is corrected
    with the counters of the NIC, see `_fitted`.
    """

    def __init__(self) -> None:
        self.read_s: float | None = None
        """When the newest reading was taken; None before the first."""
        self._last = Reading({}, {}, {})
        self._marks: deque[_Mark] = deque()

    def take(self, now_s: float, reading: Reading) -> None:
        """Take in a reading of all counters of the host."""
        last, before_s = self._last, self.read_s
        self.read_s, self._last = now_s, reading
        if before_s is None or any(
            count < old
            for port, counts in reading.nics.items()
            for count, old in zip(counts, last.nics.get(port, (0, 0)), strict=True)
        ):
            # A NIC that counts from 0 again says nothing about the time before.
            self._marks.clear()
            self._marks.append(_Mark(now_s, _REFRESH_S, reading))
            return
        silent = reading[1:] == last[1:]
        if silent and now_s - self._marks[-1].time_s < _NO_NEWS_S:
            return
        unsure_s = 0.0 if silent else min(now_s - before_s, _REFRESH_S)
        self._marks.append(_Mark(now_s, unsure_s, reading))
        while len(self._marks) > 2 and self._marks[1].time_s <= now_s - WINDOW_S:
            self._marks.popleft()

    def rates(self) -> HostRates | None:
        """The rates of the newest window; None while there are not two readings."""
        if len(self._marks) < 2:
            return None
        first, last = self._marks[0], self._marks[-1]
        elapsed_s = last.time_s - first.time_s
        if elapsed_s <= 0.0:
            return None
        nics = {
            port: (_bps(sent - start[0], elapsed_s), _bps(received - start[1], elapsed_s))
            for port, (sent, received) in last.reading.nics.items()
            if (start := first.reading.nics.get(port)) is not None
            # Another device may have come at the same port meanwhile.
            and sent >= start[0]
            and received >= start[1]
        }
        slack = max(first.unsure_s, last.unsure_s) / elapsed_s
        sent, received = (
            _fitted(
                {
                    row: _bps(count - before.get(row, 0), elapsed_s)
                    for row, count in after.items()
                    if count > before.get(row, 0)
                },
                {port: rates[side] for port, rates in nics.items()},
                side,
                slack,
            )
            for side, before, after in (
                (0, first.reading.sent, last.reading.sent),
                (1, first.reading.received, last.reading.received),
            )
        )
        return HostRates(nics, sent, received)


class FairWindow:
    """What was fair for pairs over the time that their rates are about.

    A rate is over `WINDOW_S`. When a link dies, what is fair falls at once, and a host that had its
    part of three links would show three times what one link gives. So both are means over the same
    time.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, Mapping[PairKey, float]]] = deque()

    def take(self, now_s: float, fair_bps: Mapping[PairKey, float]) -> dict[PairKey, float]:
        """Take in what is fair by the newest sample; returns the means, for the same pairs.

        A pair that was limited by no link for a part of the time has the mean of the rest.
        """
        marks = self._marks
        marks.append((now_s, fair_bps))
        while len(marks) > 2 and marks[1][0] <= now_s - WINDOW_S:
            marks.popleft()
        sums = dict.fromkeys(fair_bps, (0.0, 0.0))
        for (before_s, _), (time_s, values) in pairwise(marks):
            # A sample is about the time since the one before.
            took_s = time_s - before_s
            for pair, rate_bps in values.items():
                if pair in sums:
                    weight_s, sum_bps = sums[pair]
                    sums[pair] = (weight_s + took_s, sum_bps + took_s * rate_bps)
        return {
            pair: sum_bps / weight_s if weight_s > 0.0 else fair_bps[pair]
            for pair, (weight_s, sum_bps) in sums.items()
        }


def _bps(octets: int, elapsed_s: float) -> float:
    return octets * 8 / elapsed_s


def _fitted(
    rows: Mapping[Row, float], nics: Mapping[int, float], side: int, slack: float
) -> dict[Row, float]:
    """The rates of rows, such that they fit those of their NICs, whose counters are as of now.

    `side` is the place of the NIC's port in the key of a path: 0 for sent, 1 for received.

    Rows of a NIC that carry more than the NIC, together, show what it has not sent: their counters
    are newer than at the window's begin, or the device has dropped the rest. They are cut back to
    what the NIC carries, in the ratio of their rates. Where they carry less, by a part that the age
    of their counters explains (`slack`), they are raised to it in the same way. Where they carry
    even less, the NIC also carries what belongs to no row, such as traffic of unmanaged hosts, and
    they stay as they are.
    """
    of_nic: dict[int, float] = dict.fromkeys(nics, 0.0)
    for (_, path), rate_bps in rows.items():
        if path[side] in of_nic:
            of_nic[path[side]] += rate_bps
    factors = {
        port: nics[port] / total_bps
        for port, total_bps in of_nic.items()
        if total_bps > 0.0 and total_bps >= nics[port] * (1.0 - slack)
    }
    return {row: rate_bps * factors.get(row[1][side], 1.0) for row, rate_bps in rows.items()}
