# SPDX-License-Identifier: Apache-2.0
"""The connection to the servers of a store, by the IDL of the `ovs` package, and rows as values.

Everything here belongs to one thread: the IDL is not made for several.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.history import Record
from ri2n_sdn.store.files import SCHEMA
from ri2n_sdn.store.idl import Datum, DbSchema, Error, Idl, SchemaHelper, Stream, Transaction
from ri2n_sdn.store.rows import Change, ClusterRow, Put, Row, State
from ri2n_sdn.store.tables import TABLES, Table, table_of, to_columns

__all__ = [
    "MAX_HISTORY",
    "SCHEMA",
    "Encoded",
    "Link",
    "RowKey",
    "TlsFiles",
    "check_targets",
    "encode",
]

MAX_HISTORY = 10_000
"""The most rows of history that are kept; the oldest go first."""

_LOG = logging.getLogger("ri2n.store")
_TARGET = re.compile(r"unix:(/[^,]+)|(tcp|ssl):(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})\Z")
# A lost connection is tried again after this time, first and at most. After the leader of a RAFT
# cluster has died, two clients find the next one within some turns of each other, since each tries
# the servers in an order of its own. So this bounds by how much one of them is first.
_MIN_BACKOFF_MS, _MAX_BACKOFF_MS = 100, 200
# A server that says nothing for this time is asked for a sign of life, and left after as long
# again.
_PROBE_MS = 2000
# A server that takes connections and has not sent the rows after this time has other tables.
_ODD_S = 5.0


@dataclass(frozen=True)
class TlsFiles:
    """PEM files for `ssl:` targets: private key, own certificate and the CA of the servers."""

    key: Path
    certificate: Path
    authority: Path


def check_targets(text: str) -> tuple[str, ...]:
    """The targets of a list with commas. Raises BadInput when one cannot be a target."""
    targets = tuple(text.split(","))
    for target in targets:
        match = _TARGET.match(target)
        if match is None or (match[4] is not None and not 0 < int(match[4]) < 65536):
            raise BadInput(
                f"--store: {target!r} is not unix:PATH, tcp:ADDRESS:PORT or ssl:ADDRESS:PORT"
            )
    return targets


RowKey = tuple[str, tuple[Any, ...]]
"""A row's table, and the values that distinguish it there."""


@dataclass(frozen=True)
class Encoded:
    """A row, and its columns as JSON; no columns when it is to be deleted."""

    row: Row
    columns: dict[str, Any] | None

    @property
    def key(self) -> RowKey:
        """The row's table, and the values that distinguish it there."""
        table = table_of(self.row)
        return table.name, table.key_of(self.row)


class _Idl(Idl):  # type: ignore[misc]
    """An IDL that notes which rows have changed."""

    def __init__(self, remote: str, helper: Any) -> None:
        self.noted: set[tuple[str, UUID]] = set()
        super().__init__(remote, helper, probe_interval=_PROBE_MS, leader_only=True)
        fsm = self._session.reconnect
        fsm.min_backoff, fsm.max_backoff = _MIN_BACKOFF_MS, _MAX_BACKOFF_MS
        # The package asks no server on a unix socket; such a server may hang, too.
        fsm.set_probe_interval(_PROBE_MS)

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        self.noted.add((row._table.name, row.uuid))


class Link:
    """The rows of the servers, and transactions on them."""

    def __init__(self, targets: Iterable[str], tls: TlsFiles | None = None) -> None:
        if tls is not None:
            Stream.ssl_set_private_key_file(str(tls.key))
            Stream.ssl_set_certificate_file(str(tls.certificate))
            Stream.ssl_set_ca_cert_file(str(tls.authority))
        helper = SchemaHelper(str(SCHEMA))
        for table in TABLES:
            helper.register_columns(table.name, list(table.columns))
        self._idl = _Idl(",".join(targets), helper)
        self._rows: dict[str, dict[UUID, Row]] = {table.name: {} for table in TABLES}
        self._uuids: dict[str, dict[tuple[Any, ...], UUID]] = {table.name: {} for table in TABLES}
        self._odd: set[str] = set()
        self._change_seqno = 0
        self._connected_s: float | None = None
        self.state = State()

    # ---- the connection

    @property
    def ready(self) -> bool:
        """Whether there is a connection, and all rows have been read by it."""
        return bool(self._idl._session.is_connected()) and self._idl.state == Idl.IDL_S_MONITORING

    @property
    def has_lock(self) -> bool:
        """Whether the server has said by this connection that the lock is ours."""
        return self.ready and bool(self._idl.has_lock)

    @property
    def lacks_lock(self) -> bool:
        """Whether the server has said by this connection that another one has the lock."""
        return self.ready and bool(self._idl.is_lock_contended)

    @property
    def has_odd_server(self) -> bool:
        """Whether a server takes connections, and does not have the tables of this version."""
        return self._connected_s is not None and time.monotonic() - self._connected_s > _ODD_S

    def ask_for_lock(self, name: str | None) -> None:
        """Ask for the lock of this name as long as there is a connection; None asks for none."""
        if self._idl.lock_name != name:
            self._idl.set_lock(name)

    def run(self) -> bool:
        """Read what has arrived, and return whether `state` is another one now."""
        self._idl.run()
        if self.ready or not self._idl._session.is_connected():
            self._connected_s = None
        elif self._connected_s is None:
            self._connected_s = time.monotonic()
        if not self.ready or self._idl.change_seqno == self._change_seqno:
            return False
        self._change_seqno = self._idl.change_seqno
        return self._refresh()

    def wait(self, poller: Any) -> None:
        """Have `poller` wake when `run` has something to do."""
        self._idl.wait(poller)

    def close(self) -> None:
        """End the connection, and with it the lock."""
        self._idl.close()

    # ---- rows as values

    def _refresh(self) -> bool:
        noted, self._idl.noted = self._idl.noted, set()
        changed = set()
        for table in TABLES:
            known = self._rows[table.name]
            there = self._idl.tables[table.name].rows
            # After a new connection the IDL may hold other rows without a note of each.
            other = {uuid for name, uuid in noted if name == table.name}
            other |= known.keys() ^ set(there.keys())
            for uuid in other:
                row = self._read(table, there[uuid]) if uuid in there else None
                if row is None:
                    known.pop(uuid, None)
                else:
                    known[uuid] = row
            if other:
                changed.add(table.name)
                self._uuids[table.name] = {table.key_of(row): uuid for uuid, row in known.items()}
        if changed:
            self.state = self._updated(changed)
        return bool(changed)

    def _updated(self, changed: set[str]) -> State:
        values: dict[str, Any] = {}
        for table in TABLES:
            if table.part and table.name in changed:
                rows = self._rows[table.name]
                values[table.part] = {
                    (key if len(key) > 1 else key[0]): rows[uuid]
                    for key, uuid in sorted(self._uuids[table.name].items())
                }
        if "History" in changed:
            ended = [row for row in self._rows["History"].values() if isinstance(row, Record)]
            values["history"] = tuple(sorted(ended, key=lambda row: (row.end_s, row.id)))
        if "Cluster" in changed:
            found = next(iter(self._rows["Cluster"].items()), None)
            values["cluster"] = found[1] if found is not None else None
            values["identity"] = str(found[0]) if found is not None else ""
        return replace(self.state, **values)

    def _read(self, table: Table, row: Any) -> Row | None:
        try:
            return table.from_columns({name: getattr(row, name) for name in table.columns})
        except ValueError as error:
            if str(error) not in self._odd:
                self._odd = {*list(self._odd)[-99:], str(error)}
                _LOG.warning("%s", error)
            return None

    # ---- transactions

    def begin(self, changes: Iterable[Encoded], epoch: int) -> Any:
        """A transaction with these changes; None when there is nothing to change.

        It fails when somebody has taken over since `epoch`. It is durable: a server acknowledges
        it when it is on the disk.
        """
        operations = self._operations(changes)
        if not operations:
            return None
        in_history = [each["op"] for each in operations if each["table"] == "History"]
        new = in_history.count("insert") - in_history.count("delete")
        # When new rows of history make them too many, the oldest ones are deleted.
        history = self.state.history
        old = history[: max(0, len(history) + new - MAX_HISTORY)] if new else ()
        make_room = self._operations(Encoded(row, None) for row in old)
        return self._send([_wait([{"epoch": epoch}]), *operations, *make_room])

    def begin_claim(self, cluster: ClusterRow) -> Any:
        """A transaction that writes the cluster's row, unless somebody else has just done so."""
        now = self.state.cluster
        fence = _wait([] if now is None else [{"epoch": now.epoch}])
        return self._send([fence, *self._operations([encode(Put(cluster))])])

    def _send(self, operations: list[Any]) -> Any:
        txn = Transaction(self._idl)
        for operation in [*operations, {"op": "commit", "durable": True}]:
            txn.add_op(operation)
        txn.commit()
        return txn

    def _operations(self, changes: Iterable[Encoded]) -> list[dict[str, Any]]:
        """What the server must do for changes of different rows; nothing for those made already."""
        found = map(self._operation, changes)
        return [operation for operation in found if operation is not None]

    def _operation(self, change: Encoded) -> dict[str, Any] | None:
        table, values = change.key
        uuid = self._uuids[table].get(values)
        if uuid is None:
            if change.columns is None:
                return None
            return {"op": "insert", "table": table, "row": change.columns}
        where = [["_uuid", "==", ["uuid", str(uuid)]]]
        if change.columns is None:
            return {"op": "delete", "table": table, "where": where}
        if self._rows[table].get(uuid) == change.row:
            return None
        return {"op": "update", "table": table, "where": where, "row": change.columns}


def encode(change: Change) -> Encoded:
    """A change as JSON for a server. Raises BadInput when a field has a value of another type."""
    table = table_of(change.row)
    if not isinstance(change, Put):
        return Encoded(change.row, None)
    types = _types()[table.name].columns
    columns = {}
    for name, value in to_columns(change.row).items():
        try:
            # Values are atoms already, never rows of the IDL.
            columns[name] = Datum.from_python(types[name].type, value, lambda atom: atom).to_json()
        except (Error, TypeError, ValueError):
            raise refusal(
                "row_not_storable", table=table.name, column=name, value=repr(value)
            ) from None
    return Encoded(change.row, columns)


@cache
def _types() -> Mapping[str, Any]:
    schema = DbSchema.from_json(json.loads(SCHEMA.read_text(encoding="utf-8")))
    tables: Mapping[str, Any] = schema.tables
    return tables


def _wait(rows: list[dict[str, int]]) -> dict[str, Any]:
    """Fail unless the table of the cluster has these rows alone."""
    of_cluster = {"table": "Cluster", "where": [], "columns": ["epoch"]}
    return {"op": "wait", **of_cluster, "until": "==", "rows": rows, "timeout": 0}
