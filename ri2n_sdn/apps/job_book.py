"""What is remembered of jobs: orders, reservations, rights, and jobs that have ended.

Everything is kept in the store, where the controller has one. A change that the store has not
acknowledged is not made.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.history import Record
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Reservation, Service
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store.rows import (
    Change,
    HistoryRow,
    JobRow,
    Put,
    Remove,
    ReservationRow,
    RightRow,
    Rules,
    State,
)

__all__ = ["MAX_HISTORY", "MAX_ORDERS", "MAX_RESERVATIONS", "JobBook", "Storage"]

MAX_ORDERS, MAX_RESERVATIONS, MAX_HISTORY = 4096, 4096, 10_000
"""At most so many of each are kept. The oldest records of ended jobs make way for new ones."""


class Storage(Protocol):
    """Where changes are kept: `ri2n_sdn.store.Store`."""

    def write(self, *changes: Change) -> None:
        """Make all of these changes or none. Raises NotAvailable when that is not certain."""
        ...

    def state(self) -> State:
        """All rows as they were last read."""
        ...

    @property
    def active(self) -> bool:
        """Whether changes are accepted, and the rows were read."""
        ...


class JobBook:
    """Orders, reservations and rights by id or user, and the history.

    Whoever changes it waits for the store, so no lock of the cluster may be held meanwhile. Readers
    get whole new mappings, which nobody changes. `version` grows with every change. `identity` is
    that of the store, a random text that only its owner can read; empty without a store.
    """

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._kept: dict[str, JobRow] = {}
        self.orders: Mapping[str, Job] = {}
        self.reservations: Mapping[str, Reservation] = {}
        self.rights: Mapping[str, Right] = {}
        self.history: deque[Record] = deque(maxlen=MAX_HISTORY)
        self.version = 0
        self.identity = ""

    def load(self) -> bool:
        """Take over what the store holds, and return whether that could be done."""
        if self._storage is None:
            return True
        if not self._storage.active:
            return False
        state = self._storage.state()
        with self._lock:
            self._kept = dict(state.jobs)
            jobs = {row.id: _job(row) for row in state.jobs.values()}
            self.orders = {name: job for name, job in jobs.items() if job.source == "order"}
            self.reservations = {row.id: _reservation(row) for row in state.reservations.values()}
            self.rights = {row.user: _right(row) for row in state.rights.values()}
            self.history = deque(map(_record, state.history), maxlen=MAX_HISTORY)
            self.identity = state.identity
            self.version += 1
        return True

    def of_hosts(self) -> dict[str, Job]:
        """The jobs that hosts had declared when they were last kept, by their keys."""
        with self._lock:
            return {name: _job(row) for name, row in self._kept.items() if row.source == "host"}

    def installed(self) -> dict[str, Job]:
        """The jobs whose paths were installed when they were last kept, by their keys."""
        with self._lock:
            return {name: _job(row) for name, row in self._kept.items() if row.state == "installed"}

    def keep(self, jobs: Mapping[str, tuple[Job, str, str]]) -> None:
        """Keep all jobs as they are now: by key, with their state and the reason for it.

        Orders of which no host has declared anything yet stay. What has not changed is not written.
        """
        with self._lock:
            rows = {
                key: _job_row(replace(job, id=key), state, why)
                for key, (job, state, why) in jobs.items()
            }
            for key, order in self.orders.items():
                rows.setdefault(key, _job_row(order, "waiting", ""))
                # The order says which hosts it is for, not those that have carried it out so far.
                rows[key] = replace(rows[key], hosts=order.hosts)
            changes: list[Change] = [
                Put(row) for key, row in rows.items() if self._kept.get(key) != row
            ]
            changes += [Remove(row) for key, row in self._kept.items() if key not in rows]
            if changes:
                self._write(*changes)
                self._kept = rows

    def add_order(self, job: Job) -> None:
        """Begin a job by order. Raises BadInput when there are too many, NotAvailable."""
        with self._lock:
            if job.id not in self.orders and len(self.orders) >= MAX_ORDERS:
                raise BadInput(f"id: there are {MAX_ORDERS} jobs already, no more are accepted")
            row = _job_row(job, "waiting", "")
            self._write(Put(row))
            self._kept[job.id] = row
            self.orders = {**self.orders, job.id: job}
            self.version += 1

    def end(self, record: Record, job: Job) -> None:
        """Write down that a job has ended, and end its order if it was one."""
        with self._lock:
            kept = self._kept.get(job.id)
            gone: list[Change] = [Remove(kept)] if kept is not None else []
            dropped: list[Change] = []
            if len(self.history) == MAX_HISTORY:
                dropped = [Remove(_history_row(self.history[0]))]
            self._write(*gone, *dropped, Put(_history_row(record)))
            self._kept.pop(job.id, None)
            self.history.append(record)
            self.orders = {key: order for key, order in self.orders.items() if key != job.id}
            self.version += 1

    def put_reservation(self, reservation: Reservation) -> None:
        """Add or change a reservation. Raises BadInput when there are too many, NotAvailable."""
        with self._lock:
            new = reservation.id not in self.reservations
            if new and len(self.reservations) >= MAX_RESERVATIONS:
                raise BadInput(f"id: there are {MAX_RESERVATIONS} reservations already")
            self._write(Put(_reservation_row(reservation)))
            self.reservations = {**self.reservations, reservation.id: reservation}
            self.version += 1

    def remove_reservation(self, name: str) -> None:
        """Remove a reservation. Raises BadInput when there is none, NotAvailable."""
        with self._lock:
            if name not in self.reservations:
                raise BadInput(f"{name}: no such reservation")
            self._write(Remove(_reservation_row(self.reservations[name])))
            self.reservations = {
                key: value for key, value in self.reservations.items() if key != name
            }
            self.version += 1

    def put_right(self, right: Right) -> None:
        """Say what a user may ask for. Raises NotAvailable."""
        with self._lock:
            self._write(Put(_right_row(right)))
            self.rights = {**self.rights, right.user: right}
            self.version += 1

    def remove_right(self, user: str) -> None:
        """Take a user's entry away. Raises BadInput when there is none, NotAvailable."""
        with self._lock:
            if user not in self.rights:
                raise BadInput(f"{user}: has no entry")
            self._write(Remove(_right_row(self.rights[user])))
            self.rights = {key: value for key, value in self.rights.items() if key != user}
            self.version += 1

    def _write(self, *changes: Change) -> None:
        if self._storage is not None and changes:
            self._storage.write(*changes)


def _rules(policy: Policy) -> Rules:
    return Rules(
        policy.kind,
        tuple((table.dscp, table.paths) for table in policy.tables),
        tuple((service.address, service.proto, service.port) for service in policy.services),
        policy.min_rate_bps,
        policy.max_rate_bps,
    )


def _policy(rules: Rules) -> Policy:
    return Policy(
        rules.kind,
        tuple(PathTable(dscp, paths) for dscp, paths in rules.tables),
        tuple(Service(*service) for service in rules.services),
        rules.min_rate_bps,
        rules.max_rate_bps,
    )


def _job_row(job: Job, state: str, why: str) -> JobRow:
    return JobRow(
        job.id,
        job.user,
        job.uid,
        job.hosts,
        _rules(job.policy),
        job.begin_s,
        job.end_s,
        job.source,
        state,
        why,
    )


def _job(row: JobRow) -> Job:
    return Job(
        row.id,
        row.user,
        row.uid,
        row.hosts,
        _policy(row.rules),
        row.begin_s,
        row.end_s,
        row.source,
    )


def _reservation_row(kept: Reservation) -> ReservationRow:
    return ReservationRow(
        kept.id,
        kept.user,
        kept.hosts,
        kept.begin_s,
        kept.end_s,
        kept.rate_bps,
        _rules(kept.policy),
    )


def _reservation(row: ReservationRow) -> Reservation:
    return Reservation(
        row.id, row.user, row.hosts, row.begin_s, row.end_s, row.rate_bps, _policy(row.rules)
    )


def _right_row(right: Right) -> RightRow:
    return RightRow(right.user, right.policies, right.max_rate_bps, right.max_hosts, right.reserve)


def _right(row: RightRow) -> Right:
    return Right(row.user, row.policies, row.max_rate_bps, row.max_hosts, row.reserve)


def _history_row(record: Record) -> HistoryRow:
    return HistoryRow(
        record.id,
        record.user,
        record.uid,
        record.hosts,
        _rules(record.policy),
        record.begin_s,
        record.end_s,
        record.why,
    )


def _record(row: HistoryRow) -> Record:
    return Record(
        row.id,
        row.user,
        row.uid,
        row.hosts,
        _policy(row.rules),
        row.begin_s,
        row.end_s,
        row.why,
    )
