# SPDX-License-Identifier: Apache-2.0
"""How rows are columns of OVSDB, table by table, and back.

Columns have the fields' types. A tuple is a map from the place to the value, because the sets of
OVSDB have no order. None is an empty set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ri2n_sdn.store.rows import (
    ClusterRow,
    HistoryRow,
    HostRow,
    JobRow,
    LanesRow,
    LinksRow,
    MoveRow,
    NetworkRow,
    PolicyRow,
    ReservationRow,
    RightRow,
    Row,
    Rules,
    TokenRow,
)

__all__ = ["NO_DSCP", "TABLES", "Table", "table_of"]

NO_DSCP = -1
"""The key of a job's default table of paths, in place of a DSCP."""

RowT = TypeVar("RowT", bound=Row)
Columns = Mapping[str, Any]
"""Values of columns as `ovs.db.idl` gives and takes them, by name."""


def _same(value: Any) -> Any:
    return value


def _ordered(values: tuple[str, ...]) -> dict[int, str]:
    return dict(enumerate(values))


def _in_order(values: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(values[place] for place in sorted(values))


def _optional(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _or_none(values: list[Any]) -> Any:
    return values[0] if values else None


_TEXT = _NUMBER = _MAP = (_same, _same)
_TUPLE = (_ordered, _in_order)
_OPTIONAL = (_optional, _or_none)
_SET = (sorted, frozenset)
_Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _rules_columns(rules: Rules) -> dict[str, Any]:
    return {
        "kind": rules.kind,
        "tables": {
            NO_DSCP if dscp is None else dscp: " ".join(paths) for dscp, paths in rules.tables
        },
        "services": _ordered(
            tuple(f"{address}/{proto}/{port}" for address, proto, port in rules.services)
        ),
        "min_rate_bps": _optional(rules.min_rate_bps),
        "max_rate_bps": _optional(rules.max_rate_bps),
    }


def _rules(columns: Columns) -> Rules:
    services = [text.split("/") for text in _in_order(columns["services"])]
    return Rules(
        columns["kind"],
        tuple(
            (None if dscp == NO_DSCP else dscp, tuple(names.split()))
            for dscp, names in sorted(columns["tables"].items())
        ),
        tuple((address, proto, int(port)) for address, proto, port in services),
        _or_none(columns["min_rate_bps"]),
        _or_none(columns["max_rate_bps"]),
    )


_RULES_COLUMNS = tuple(_rules_columns(Rules()))


@dataclass(frozen=True)
class Table(Generic[RowT]):
    """One table: its rows' class, their key, and how each field is a column of the same name.

    The field `rules` is five columns. A table without a key has a row per `Put`.
    """

    name: str
    row: type[RowT]
    key: tuple[str, ...]
    fields: Mapping[str, _Codec]

    @property
    def has_rules(self) -> bool:
        """Whether its rows have the field `rules`."""
        return any(each.name == "rules" for each in dataclasses.fields(self.row))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are read and written."""
        return (*self.fields, *(_RULES_COLUMNS if self.has_rules else ()))

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """The values that distinguish a row from the others of its table."""
        return tuple(getattr(row, name) for name in self.key)

    def to_columns(self, row: Row) -> dict[str, Any]:
        """The columns of a row."""
        columns = {name: encode(getattr(row, name)) for name, (encode, _) in self.fields.items()}
        return {**columns, **_rules_columns(row.rules)} if isinstance(row, _WITH_RULES) else columns

    def from_columns(self, columns: Columns) -> RowT:
        """The row of these columns. Raises ValueError when another program wrote nonsense."""
        try:
            values: dict[str, Any] = {
                name: decode(columns[name]) for name, (_, decode) in self.fields.items()
            }
            if self.has_rules:
                values["rules"] = _rules(columns)
            return self.row(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a row of {self.name} cannot be read: {error!r}") from None


_WITH_RULES = (JobRow, MoveRow, ReservationRow, PolicyRow, HistoryRow)
_JOB: dict[str, _Codec] = {"id": _TEXT, "user": _TEXT, "uid": _NUMBER, "hosts": _TUPLE}

TABLES: tuple[Table[Any], ...] = (
    Table(
        "Cluster",
        ClusterRow,
        (),
        {"epoch": _NUMBER, "name": _TEXT, "active": _TEXT, "run": _TEXT, "since_s": _NUMBER},
    ),
    Table(
        "Host",
        HostRow,
        ("name",),
        {
            **{"name": _TEXT, "datapath_id": _TEXT, "mac": _TEXT},
            **{"nic_names": _MAP, "nic_macs": _MAP, "away_since_s": _OPTIONAL},
            **{"nic_speeds_bps": _MAP, "nic_faults": _MAP},
            **{"accepts_wire": _NUMBER, "helper": _TEXT},
        },
    ),
    Table("Network", NetworkRow, ("name",), {"name": _TEXT, "nics": _SET}),
    Table("Links", LinksRow, ("low", "high"), {"low": _TEXT, "high": _TEXT, "numbers": _MAP}),
    Table(
        "Job",
        JobRow,
        ("id",),
        {
            **_JOB,
            **{"begin_s": _NUMBER, "end_s": _OPTIONAL},
            **{"source": _TEXT, "state": _TEXT, "why": _TEXT},
        },
    ),
    Table(
        "Move",
        MoveRow,
        ("id",),
        {"id": _TEXT, "uid": _NUMBER, "by": _TEXT, "moved_s": _NUMBER},
    ),
    Table("Lanes", LanesRow, ("id",), {"id": _TEXT, "lanes": _SET}),
    Table(
        "Reservation",
        ReservationRow,
        ("id",),
        {
            **{"id": _TEXT, "user": _TEXT, "hosts": _TUPLE},
            **{"begin_s": _NUMBER, "end_s": _NUMBER, "rate_bps": _OPTIONAL},
        },
    ),
    Table("Policy", PolicyRow, ("name",), {"name": _TEXT}),
    Table(
        "Right",
        RightRow,
        ("user",),
        {
            **{"user": _TEXT, "policies": _SET, "max_rate_bps": _OPTIONAL},
            **{"max_hosts": _OPTIONAL, "reserve": _NUMBER},
        },
    ),
    Table(
        "History",
        HistoryRow,
        ("id", "begin_s", "end_s"),
        {**_JOB, "begin_s": _NUMBER, "end_s": _NUMBER, "why": _TEXT},
    ),
    Table(
        "Token",
        TokenRow,
        ("name",),
        {
            **{"name": _TEXT, "hash": _TEXT, "role": _TEXT, "user": _OPTIONAL},
            **{"created_s": _NUMBER, "expires_s": _OPTIONAL},
        },
    ),
)
"""All tables of the schema that hold rows of `rows.py`."""


def table_of(row: Row) -> Table[Any]:
    """The table to which a row belongs."""
    return next(table for table in TABLES if isinstance(row, table.row))
