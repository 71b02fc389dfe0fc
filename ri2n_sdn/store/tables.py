# SPDX-License-Identifier: Apache-2.0
"""How rows are columns of OVSDB, table by table, and back.

Columns have the names and the types of fields. A job or a policy in a row is the columns of its own
fields. A tuple is a map from the place to the value, because the sets of OVSDB have no order. None
is an empty set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from ri2n_sdn.contract.choices import Kind
from ri2n_sdn.jobs.history import Record
from ri2n_sdn.jobs.model import PathTable, Reservation, Service
from ri2n_sdn.jobs.moves import Move
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store import rows
from ri2n_sdn.store.rows import Row

__all__ = ["TABLES", "Table", "table_of", "to_columns"]

_NO_DSCP = -1
"""The key of a job's default table of paths, in place of a DSCP."""

_NOT_KEPT = frozenset({"within"})

Columns = Mapping[str, Any]
"""Values of columns as `ovs.db.idl` gives and takes them, by name."""

_Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _ordered(values: tuple[str, ...]) -> dict[int, str]:
    return dict(enumerate(values))


def _in_order(values: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(values[place] for place in sorted(values))


def _tables_column(tables: tuple[PathTable, ...]) -> dict[int, str]:
    return {
        _NO_DSCP if table.dscp is None else table.dscp: " ".join(table.paths) for table in tables
    }


def _tables(column: Mapping[int, str]) -> tuple[PathTable, ...]:
    return tuple(
        PathTable(None if dscp == _NO_DSCP else dscp, tuple(names.split()))
        for dscp, names in sorted(column.items())
    )


def _services_column(services: tuple[Service, ...]) -> dict[int, str]:
    return _ordered(tuple(f"{each.address}/{each.proto}/{each.port}" for each in services))


def _services(column: Mapping[int, str]) -> tuple[Service, ...]:
    parts = [text.split("/") for text in _in_order(column)]
    return tuple(Service(address, proto, int(port)) for address, proto, port in parts)


_PLAIN: _Codec = (lambda value: value, lambda value: value)
_OPTIONAL: _Codec = (
    lambda value: [] if value is None else [value],
    lambda values: values[0] if values else None,
)
_CODECS: Mapping[Any, _Codec] = {
    frozenset[str]: (sorted, frozenset),
    frozenset[Kind]: (sorted, frozenset),
    tuple[str, ...]: (_ordered, _in_order),
    tuple[PathTable, ...]: (_tables_column, _tables),
    tuple[Service, ...]: (_services_column, _services),
}


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    """The fields of a class that are kept: each one's codec, or its class if it has fields."""
    hints = get_type_hints(kind)
    kept = {each.name: hints[each.name] for each in fields(kind) if each.name not in _NOT_KEPT}
    return {name: hint if is_dataclass(hint) else _codec(hint) for name, hint in kept.items()}


def _codec(hint: Any) -> _Codec:
    if get_origin(hint) in (frozenset, tuple):
        return _CODECS[hint]
    return _OPTIONAL if type(None) in get_args(hint) else _PLAIN


def _names(kind: Any) -> Iterator[str]:
    for name, each in _fields(kind).items():
        if isinstance(each, tuple):
            yield name
        else:
            yield from _names(each)


def to_columns(value: Any) -> dict[str, Any]:
    """The columns of a row."""
    kind: Any = type(value)
    columns: dict[str, Any] = {}
    for name, each in _fields(kind).items():
        if isinstance(each, tuple):
            columns[name] = each[0](getattr(value, name))
        else:
            columns |= to_columns(getattr(value, name))
    return columns


def _from_columns(kind: Any, columns: Columns) -> Any:
    values = {
        name: each[1](columns[name]) if isinstance(each, tuple) else _from_columns(each, columns)
        for name, each in _fields(kind).items()
    }
    return kind(**values)


@dataclass(frozen=True)
class Table:
    """One table: its rows' class, their key, and the part of `State` that has its rows by key.

    A table without a key has a row per `Put`.
    """

    name: str
    row: type[Row]
    key: tuple[str, ...] = ()
    part: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are read and written."""
        return tuple(_names(self.row))

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """The values that distinguish a row from the others of its table."""
        return tuple(getattr(row, name) for name in self.key)

    def from_columns(self, columns: Columns) -> Row:
        """The row of these columns. Raises ValueError when another program wrote nonsense."""
        try:
            row: Row = _from_columns(self.row, columns)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a row of {self.name} cannot be read: {error!r}") from None
        return row


TABLES: tuple[Table, ...] = (
    Table("Cluster", rows.ClusterRow),
    Table("Host", rows.HostRow, ("name",), "hosts"),
    Table("Network", rows.NetworkRow, ("name",), "networks"),
    Table("Links", rows.LinksRow, ("low", "high"), "links"),
    Table("Job", rows.JobRow, ("id",), "jobs"),
    Table("Move", Move, ("id",), "moves"),
    Table("Lanes", rows.LanesRow, ("id",), "lanes"),
    Table("Reservation", Reservation, ("id",), "reservations"),
    Table("Policy", rows.PolicyRow, ("name",), "policies"),
    Table("Right", Right, ("user",), "rights"),
    Table("History", Record, ("id", "begin_s", "end_s")),
    Table("Token", rows.TokenRow, ("name",), "tokens"),
)
"""All tables of the schema that hold rows of `rows.py`."""


def table_of(row: Row) -> Table:
    """The table to which a row belongs."""
    return next(table for table in TABLES if isinstance(row, table.row))
