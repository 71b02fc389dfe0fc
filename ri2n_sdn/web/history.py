# SPDX-License-Identifier: Apache-2.0
"""The rates of the last minutes: of each NIC, in memory of a fixed size. Pure: time is given."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ri2n_sdn.contract.documents import Documents

__all__ = ["EVERY_S", "KEPT_S", "MAX_HOSTS", "MAX_NICS", "History", "Series"]

EVERY_S = 2.0
"""Samples are at least so far apart."""

KEPT_S = 900.0
"""Samples are kept for so long."""

MAX_NICS, MAX_HOSTS = 16_384, 4_096
"""NICs beyond this number have no history, nor has what is fair for further hosts."""

_SAMPLES = int(KEPT_S / EVERY_S)
_FIRST_ROWS = 64

Key = TypeVar("Key", bound=Hashable)
Values = NDArray[np.float64]


class Series(NamedTuple):
    """Unix times, and what was sent and received then, in bit/s; None where that is not known."""

    time_s: list[float]
    tx_bps: list[float | None]
    rx_bps: list[float | None]


class History:
    """Samples of the rates of all NICs, and of what was fair for the hosts that send.

    Each NIC and each host has a row of a table, and each sample a column, which wrap round. All
    rows share the times. With the most NICs the tables have 66 MB, and with 1,000 hosts of two
    NICs 9 MB.
    """

    def __init__(self) -> None:
        self._times = np.full(_SAMPLES, np.nan)
        self._rates = _Table[tuple[str, str]](2, MAX_NICS)
        self._fair = _Table[str](1, MAX_HOSTS)
        self._count = 0

    def add(self, time_s: float, state: Documents) -> bool:
        """Take a sample of a state's `rates` and `fair`; return whether it was time for one.

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
        self._rates.put(
            column,
            {
                (host, nic): rate
                for host, nics in state.get("rates", {}).items()
                for nic, rate in nics.items()
            },
        )
        fair = state.get("fair", {})
        self._fair.put(column, {host: (entry["fair_bps"],) for host, entry in fair.items()})
        return True

    def series(self, host: str, nic: str) -> Series:
        """The samples of a NIC, oldest first, from the first one that is known."""
        return self._series([(host, nic)])

    def host(self, host: str) -> Series:
        """The sums of all NICs of a host."""
        return self._series([key for key in self._rates if key[0] == host])

    def total(self) -> Series:
        """The sums of all NICs."""
        return self._series(list(self._rates))

    def fair(self, host: str) -> tuple[list[float], list[float | None]]:
        """Unix times, and what was fair for a host then; None where no link limited it."""
        columns = self._columns()
        values = self._fair.get([host], columns)[0][0]
        return self._times[columns].tolist(), [
            None if np.isnan(value) else float(value) for value in values
        ]

    def _columns(self) -> NDArray[np.intp]:
        """The columns of all samples, the oldest first."""
        return np.arange(max(0, self._count - _SAMPLES), self._count) % _SAMPLES

    def _series(self, keys: Collection[tuple[str, str]]) -> Series:
        columns = self._columns()
        (tx, rx), known = self._rates.get(keys, columns)
        first = int(np.argmax(known)) if known.any() else len(columns)
        tx_bps, rx_bps = (
            [sum_bps if there else None for sum_bps, there in zip(side, known, strict=True)][first:]
            for side in (tx.tolist(), rx.tolist())
        )
        return Series(self._times[columns[first:]].tolist(), tx_bps, rx_bps)


class _Table(Generic[Key]):
    """Rows of samples by key, in memory of a fixed size."""

    def __init__(self, values: int, most: int) -> None:
        self._rows: dict[Key, int] = {}
        self._most = most
        self._table = np.full((_FIRST_ROWS, _SAMPLES, values), np.nan, dtype=np.float32)
        self._free: list[int] = list(range(_FIRST_ROWS))

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    def put(self, column: int, known: Mapping[Key, Sequence[float]]) -> None:
        """Fill a column. Keys beyond the most rows are left out."""
        self._table[:, column] = np.nan
        self._find_rows(known.keys())
        placed = [key for key in known if key in self._rows]
        if placed:
            self._table[[self._rows[key] for key in placed], column] = [
                known[key] for key in placed
            ]

    def get(
        self, keys: Collection[Key], columns: NDArray[np.intp]
    ) -> tuple[list[Values], NDArray[np.bool_]]:
        """The sums of the rows of these keys, NaN for one that is not known, and where any is."""
        rows = np.array([self._rows[key] for key in keys if key in self._rows], dtype=np.intp)
        found = self._table[rows][:, columns].astype(np.float64)
        known: NDArray[np.bool_] = np.logical_or.reduce(~np.isnan(found[:, :, 0]), axis=0)
        sums = np.where(known[:, None], np.nansum(found, axis=0), np.nan)
        return [sums[:, value] for value in range(sums.shape[1])], known

    def _find_rows(self, keys: Collection[Key]) -> None:
        """Give each key a row that has none yet, as long as there are any."""
        new = [key for key in keys if key not in self._rows]
        if len(new) > len(self._free):
            self._forget(keys)
        while len(new) > len(self._free) and len(self._table) < self._most:
            self._grow()
        for key in new[: len(self._free)]:
            row = self._free.pop()
            self._table[row] = np.nan
            self._rows[key] = row

    def _forget(self, keep: Collection[Key]) -> None:
        """Give the rows back of keys that have no sample any more, but not those of `keep`."""
        empty = np.logical_and.reduce(np.isnan(self._table[:, :, 0]), axis=1)
        gone = [key for key, row in self._rows.items() if empty[row] and key not in keep]
        self._free.extend(self._rows.pop(key) for key in gone)

    def _grow(self) -> None:
        old, _, values = self._table.shape
        new = min(2 * old, self._most)
        added = np.full((new - old, _SAMPLES, values), np.nan, dtype=np.float32)
        self._table = np.concatenate((self._table, added))
        self._free.extend(range(old, new))
