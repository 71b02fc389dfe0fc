# SPDX-License-Identifier: Apache-2.0
"""The rates of the last minutes: of each NIC, in memory of a fixed size. Pure: time is given."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ri2n_sdn.contract.documents import Documents

__all__ = ["EVERY_S", "KEPT_S", "MAX_NICS", "History", "Series"]

EVERY_S = 2.0
"""Samples are at least so far apart."""

KEPT_S = 900.0
"""Samples are kept for so long."""

MAX_NICS = 16_384
"""NICs beyond this number have no history."""

_SAMPLES = int(KEPT_S / EVERY_S)
_FIRST_ROWS = 64


class Series(NamedTuple):
    """Unix times, and what was sent and received then, in bit/s; None where that is not known."""

    time_s: list[float]
    tx_bps: list[float | None]
    rx_bps: list[float | None]


class History:
    """Samples of the rates of all NICs.

    Each NIC has a row of a table, and each sample a column, which wrap round. All rows share the
    times. With the most NICs the table has 59 MB, and with 1,000 hosts of two NICs 7 MB.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._times = np.full(_SAMPLES, np.nan)
        self._rates = np.full((_FIRST_ROWS, _SAMPLES, 2), np.nan, dtype=np.float32)
        self._free: list[int] = list(range(_FIRST_ROWS))
        self._count = 0

    def add(self, time_s: float, state: Documents) -> bool:
        """Take a sample of a state's `rates`, and return whether it was time for one.

        When the clock was set back, what there was before is forgotten.
        """
        last_s = self._times[(self._count - 1) % _SAMPLES] if self._count else -np.inf
        if time_s < last_s:
            self.__init__()  # type: ignore[misc]
        elif time_s - last_s < EVERY_S:
            return False
        column = self._count % _SAMPLES
        self._count += 1
        self._times[column] = time_s
        self._rates[:, column] = np.nan
        known = {
            (host, nic): rate
            for host, nics in state.get("rates", {}).items()
            for nic, rate in nics.items()
        }
        self._find_rows(known)
        placed = [key for key in known if key in self._rows]
        if placed:
            self._rates[[self._rows[key] for key in placed], column] = [
                known[key] for key in placed
            ]
        return True

    def series(self, host: str, nic: str) -> Series:
        """The samples of a NIC, oldest first, from the first one that is known."""
        row = self._rows.get((host, nic))
        return self._series([] if row is None else [row])

    def host(self, host: str) -> Series:
        """The sums of all NICs of a host."""
        return self._series([row for (name, _), row in self._rows.items() if name == host])

    def total(self) -> Series:
        """The sums of all NICs."""
        return self._series(list(self._rows.values()))

    def _series(self, rows: list[int]) -> Series:
        begin = max(0, self._count - _SAMPLES)
        columns = np.arange(begin, self._count) % _SAMPLES
        table = self._rates[np.array(rows, dtype=np.intp)]
        rates = table[:, columns].astype(np.float64)
        known: NDArray[np.bool_] = np.logical_or.reduce(~np.isnan(rates[:, :, 0]), axis=0)
        first = int(np.argmax(known)) if known.any() else len(columns)
        sums = np.nansum(rates, axis=0)
        tx_bps, rx_bps = (
            [sum_bps if there else None for sum_bps, there in zip(side, known, strict=True)][first:]
            for side in (sums[:, 0].tolist(), sums[:, 1].tolist())
        )
        return Series(self._times[columns[first:]].tolist(), tx_bps, rx_bps)

    def _find_rows(self, keys: Collection[tuple[str, str]]) -> None:
        """Give each NIC a row that has none yet, as long as there are any."""
        new = [key for key in keys if key not in self._rows]
        if len(new) > len(self._free):
            self._forget(keys)
        while len(new) > len(self._free) and len(self._rates) < MAX_NICS:
            self._grow()
        for key in new[: len(self._free)]:
            row = self._free.pop()
            self._rates[row] = np.nan
            self._rows[key] = row

    def _forget(self, keep: Collection[tuple[str, str]]) -> None:
        """Give the rows back of NICs that have no sample any more, but not those of `keep`."""
        empty = np.logical_and.reduce(np.isnan(self._rates[:, :, 0]), axis=1)
        gone = [key for key, row in self._rows.items() if empty[row] and key not in keep]
        self._free.extend(self._rows.pop(key) for key in gone)

    def _grow(self) -> None:
        old = len(self._rates)
        new = min(2 * old, MAX_NICS)
        added = np.full((new - old, _SAMPLES, 2), np.nan, dtype=np.float32)
        self._rates = np.concatenate((self._rates, added))
        self._free.extend(range(old, new))
