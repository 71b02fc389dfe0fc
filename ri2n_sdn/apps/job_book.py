# SPDX-License-Identifier: Apache-2.0
"""What is remembered of jobs: orders, reservations, rights, and jobs that have ended.

Everything is kept in the store, where the controller has one. A change that the store has not
acknowledged is not made.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.jobs.earlier import Earlier
from ri2n_sdn.jobs.history import Record, kept
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.moves import Move
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store.rows import Change, JobRow, LanesRow, PolicyRow, Put, Remove, State

__all__ = ["MAX_OF_USER", "MAX_ORDERS", "MAX_POLICIES", "MAX_RESERVATIONS", "JobBook", "Storage"]

MAX_ORDERS, MAX_RESERVATIONS, MAX_OF_USER = 4096, 4096, 512
"""At most so many of each are kept, and so many of each for one user."""

MAX_POLICIES = 1024
"""At most so many policies have a name."""


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
    """Orders, reservations, rights and named policies by id, user or name, and the history.

    Whoever changes it waits for the store, so no lock of the cluster may be held meanwhile. Readers
    get whole new mappings, which nobody changes. `version` grows with every change. `identity` is
    that of the store, a random text that only its owner can read; empty without a store.

    Whoever looks for room for an order or a reservation holds `admission` until it is in the book.
    Otherwise two that cannot both be there would find the same room.
    """

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self.admission = threading.Lock()
        self._kept: dict[str, JobRow] = {}
        self._lanes: dict[str, LanesRow] = {}
        self.orders: Mapping[str, Job] = {}
        self.reservations: Mapping[str, Reservation] = {}
        self.rights: Mapping[str, Right] = {}
        self.policies: Mapping[str, Policy] = {}
        self.moves: Mapping[str, Move] = {}
        self.history: Sequence[Record] = ()
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
            self._kept, self._lanes = dict(state.jobs), dict(state.lanes)
            self.orders = {
                name: row.job for name, row in state.jobs.items() if row.job.source == "order"
            }
            self.reservations, self.rights = dict(state.reservations), dict(state.rights)
            self.moves = dict(state.moves)
            self.policies = {name: row.policy for name, row in state.policies.items()}
            self.history = kept((), state.history)
            self.identity = state.identity
            self.version += 1
        return True

    def of_hosts(self) -> dict[str, Job]:
        """The jobs that hosts had declared when they were last kept, by their keys."""
        with self._lock:
            return {name: row.job for name, row in self._kept.items() if row.job.source == "host"}

    def installed(self) -> dict[str, Job]:
        """The jobs whose paths were installed when they were last kept, by their keys."""
        with self._lock:
            return {name: row.job for name, row in self._kept.items() if row.state == "installed"}

    def earlier(self) -> Earlier:
        """The jobs and reservations that were accepted when they were last kept, and their lanes.

        An order that waits for its hosts is among them; it has no lanes.
        """
        with self._lock:
            jobs = {
                key: row.job
                for key, row in self._kept.items()
                if row.state in ("installed", "waiting")
            }
            holders = [each.as_job() for each in self.reservations.values()]
            jobs.update({job.id: job for job in holders if job.id in self._lanes})
            return Earlier(jobs, {key: row.lanes for key, row in self._lanes.items()})

    def keep(
        self,
        jobs: Mapping[str, tuple[Job, str, str]],
        lanes: Mapping[str, Collection[str] | None] | None = None,
    ) -> None:
        """Keep all jobs as they are now: by key, with their state and the reason for it.

        `lanes` are what jobs and reservations have to themselves, by id (jobs.earlier); None stands
        for what was kept last. Orders of which no host has declared anything yet stay. What has not
        changed is not written.
        """
        with self._lock:
            rows = {
                key: JobRow(replace(job, id=key, within=None), state, why)
                for key, (job, state, why) in jobs.items()
            }
            for key, order in self.orders.items():
                row = rows.setdefault(key, _waiting(order))
                # The order says which hosts it is for, not those that have carried it out so far.
                rows[key] = replace(row, job=replace(row.job, hosts=order.hosts))
            changes: list[Change] = [
                Put(row) for key, row in rows.items() if self._kept.get(key) != row
            ]
            changes += [Remove(row) for key, row in self._kept.items() if key not in rows]
            of_lanes = {
                key: self._lanes.get(key) if texts is None else LanesRow(key, frozenset(texts))
                for key, texts in (lanes or {}).items()
            }
            lane_rows = {key: row for key, row in of_lanes.items() if row is not None}
            changes += [Put(row) for key, row in lane_rows.items() if self._lanes.get(key) != row]
            changes += [Remove(row) for key, row in self._lanes.items() if key not in lane_rows]
            # A move ends with its job.
            over = [key for key in self.moves if key not in rows]
            changes += [Remove(self.moves[key]) for key in over]
            if changes:
                self._write(*changes)
                self._kept, self._lanes = rows, lane_rows
                self.moves = {key: move for key, move in self.moves.items() if key not in over}

    def add_order(self, job: Job) -> None:
        """Begin a job by order. Raises BadInput when there are too many, NotAvailable."""
        with self._lock:
            if job.id not in self.orders and len(self.orders) >= MAX_ORDERS:
                raise refusal("jobs_full", "id", most=MAX_ORDERS)
            _check_share(job, self.orders, "jobs")
            row = _waiting(job)
            self._write(Put(row))
            self._kept[job.id] = row
            self.orders = {**self.orders, job.id: job}
            self.version += 1

    def end(self, *records: Record) -> None:
        """Write down that jobs have ended, and end the orders among them, all or none.

        Raises NotAvailable.
        """
        with self._lock:
            names = {record.id for record in records}
            history = kept(self.history, records)
            stays = set(map(id, history))
            changes: list[Change] = [
                Remove(row) for name in sorted(names) if (row := self._kept.get(name)) is not None
            ]
            changes += [Remove(self._lanes[name]) for name in sorted(names & self._lanes.keys())]
            changes += [Remove(old) for old in self.history if id(old) not in stays]
            changes += [Put(new) for new in records if id(new) in stays]
            self._write(*changes)
            self._kept = {key: row for key, row in self._kept.items() if key not in names}
            self._lanes = {key: row for key, row in self._lanes.items() if key not in names}
            self.orders = {key: order for key, order in self.orders.items() if key not in names}
            self.history = history
            self.version += 1

    def put_move(self, move: Move) -> None:
        """Give a job of hosts another policy. It ends with the job. Raises NotAvailable."""
        with self._lock:
            self._write(Put(move))
            self.moves = {**self.moves, move.id: move}
            self.version += 1

    def remove_move(self, name: str) -> None:
        """Give a job the policy that its hosts declare. Raises BadInput, NotAvailable."""
        with self._lock:
            if name not in self.moves:
                raise refusal("has_declared_policy", job=name)
            self._write(Remove(self.moves[name]))
            self.moves = {key: move for key, move in self.moves.items() if key != name}
            self.version += 1

    def put_reservation(self, reservation: Reservation) -> None:
        """Add or change a reservation. Raises BadInput when there are too many, NotAvailable."""
        with self._lock:
            new = reservation.id not in self.reservations
            if new and len(self.reservations) >= MAX_RESERVATIONS:
                raise refusal("reservations_full", "id", most=MAX_RESERVATIONS)
            _check_share(reservation, self.reservations, "reservations")
            self._write(Put(reservation))
            self.reservations = {**self.reservations, reservation.id: reservation}
            self.version += 1

    def remove_reservation(self, name: str) -> None:
        """Remove a reservation. Raises BadInput when there is none, NotAvailable."""
        with self._lock:
            if name not in self.reservations:
                raise refusal("no_such_reservation", name=name)
            self._write(Remove(self.reservations[name]))
            self.reservations = {
                key: value for key, value in self.reservations.items() if key != name
            }
            self.version += 1

    def put_right(self, right: Right) -> None:
        """Say what a user may ask for. Raises NotAvailable."""
        with self._lock:
            self._write(Put(right))
            self.rights = {**self.rights, right.user: right}
            self.version += 1

    def remove_right(self, user: str) -> None:
        """Take a user's entry away. Raises BadInput when there is none, NotAvailable."""
        with self._lock:
            if user not in self.rights:
                raise refusal("no_such_right", name=user)
            self._write(Remove(self.rights[user]))
            self.rights = {key: value for key, value in self.rights.items() if key != user}
            self.version += 1

    def add_policy(self, name: str, policy: Policy) -> None:
        """Give a policy a name. Raises BadInput when it is taken, NotAvailable."""
        with self._lock:
            if name in self.policies:
                raise refusal("policy_exists", "name", policy=name)
            if len(self.policies) >= MAX_POLICIES:
                raise refusal("policies_full", "name", most=MAX_POLICIES)
            self._write(Put(PolicyRow(name, policy)))
            self.policies = {**self.policies, name: policy}

    def remove_policy(self, name: str) -> None:
        """Remove a named policy. Raises BadInput when there is none, NotAvailable."""
        with self._lock:
            if name not in self.policies:
                raise refusal("no_such_policy", name=name)
            self._write(Remove(PolicyRow(name, self.policies[name])))
            self.policies = {key: value for key, value in self.policies.items() if key != name}

    def _write(self, *changes: Change) -> None:
        if self._storage is not None and changes:
            self._storage.write(*changes)


def _check_share(new: Job | Reservation, kept: Mapping[str, Job | Reservation], what: str) -> None:
    """Raise BadInput when a user has so many already that no room would stay for others."""
    if new.id not in kept and sum(each.user == new.user for each in kept.values()) >= MAX_OF_USER:
        raise refusal("share_full", "id", user=new.user, most=MAX_OF_USER, what=what)


def _waiting(order: Job) -> JobRow:
    """The row of an order that no host has declared yet."""
    return JobRow(replace(order, within=None), "waiting")
