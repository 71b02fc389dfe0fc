# SPDX-License-Identifier: Apache-2.0
"""Jobs, policies and reservations as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ri2n_sdn.contract.choices import Kind, Source

__all__ = [
    "RESERVED",
    "Job",
    "PathTable",
    "Policy",
    "Reservation",
    "Service",
]

RESERVED = "@"
"""What the id of a reservation's job begins with (Reservation.as_job). No other id does."""


@dataclass(frozen=True, slots=True)
class PathTable:
    """The paths of a job's packets that have one DSCP.

    `dscp` None is the job's default table, for packets with a DSCP that has no table of its own.
    `paths` are names of paths (jobs.lanes). No names mean all paths.
    """

    dscp: int | None
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Service:
    """A service outside an isolated job that its hosts may use.

    `address` is an IPv4 or IPv6 address, `proto` is "tcp" or "udp".
    """

    address: str
    proto: str
    port: int


@dataclass(frozen=True, slots=True)
class Policy:
    """What a job's packets may use, and how much of it.

    `kind` is one of KINDS:

    * `shared`: the common paths, which all jobs without paths of their own share.
    * `paths`: only the paths that the tables name.
    * `exclusive`: lanes of the job's own between its hosts (jobs.assign).
    * `isolated`: the hosts belong to the job alone. They talk to each other and to `services`.

    `min_rate_bps` is the rate that each host of the job can send to the others whatever other jobs
    do. `max_rate_bps` is the rate that none of its hosts exceeds. Both count bits on the wire.
    """

    kind: Kind = "shared"
    tables: tuple[PathTable, ...] = ()
    services: tuple[Service, ...] = ()
    min_rate_bps: int | None = None
    max_rate_bps: int | None = None

    def names(self, dscp: int | None) -> tuple[str, ...]:
        """The names of the paths for packets with a DSCP; none when all paths are allowed.

        A DSCP without a table of its own, and None, have the default table.
        """
        tables = {table.dscp: table.paths for table in self.tables}
        return tables.get(dscp, tables.get(None, ()))

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of all tables, each once, in order."""
        return tuple(sorted({name for table in self.tables for name in table.paths}))

    @property
    def wants_lanes(self) -> bool:
        """Whether the job needs lanes of its own."""
        return self.kind == "exclusive" or self.min_rate_bps is not None

    @property
    def asks_for_more(self) -> bool:
        """Whether the job asks for more than the common paths."""
        return self.kind != "shared" or self.wants_lanes

    def canonical(self) -> Policy:
        """The same policy with its tables, names and services in order, and each once.

        Two hosts that declare one policy may write it differently.
        """
        tables = {table.dscp: tuple(sorted(set(table.paths))) for table in self.tables}
        if tables.get(None) == ():
            del tables[None]
        order = sorted(tables, key=lambda dscp: -1 if dscp is None else dscp)
        return replace(
            self,
            tables=tuple(PathTable(dscp, tables[dscp]) for dscp in order),
            services=tuple(sorted(set(self.services))),
        )


@dataclass(frozen=True, slots=True)
class Job:
    """A user's work on some hosts, from a start to an end.

    Times are seconds since 1970. `end_s` None: the job ends when its job manager says so. `within`
    is the id of the job that has the paths which this one uses now, that of a reservation
    (jobs.reservations). Hosts do not declare it.
    """

    id: str
    user: str
    uid: int
    hosts: tuple[str, ...]
    policy: Policy
    begin_s: float
    end_s: float | None = None
    source: Source = "host"
    within: str | None = None

    @property
    def title(self) -> str:
        """What messages call it: `job ID (USER)`, or `reservation ID (USER)`."""
        if self.id.startswith(RESERVED):
            return f"reservation {self.id.removeprefix(RESERVED)} ({self.user})"
        return f"job {self.id} ({self.user})"

    def as_job(self) -> Job:
        """The job itself, so that callers need not ask whether it is one or a reservation."""
        return self


@dataclass(frozen=True, slots=True)
class Reservation:
    """Paths that a user's jobs have on some hosts from `begin_s` to `end_s`.

    `rate_bps` is the rate that each of the hosts gets, in place of the policy's `min_rate_bps`.
    """

    id: str
    user: str
    hosts: tuple[str, ...]
    begin_s: float
    end_s: float
    rate_bps: int | None = None
    policy: Policy = field(default_factory=lambda: Policy("exclusive"))

    @property
    def whole_policy(self) -> Policy:
        """The policy, with `rate_bps` as its `min_rate_bps`."""
        if self.rate_bps is None:
            return self.policy
        return replace(self.policy, min_rate_bps=self.rate_bps)

    def as_job(self) -> Job:
        """A job that has the reservation's paths, whether or not one of the user's jobs runs."""
        return Job(
            f"{RESERVED}{self.id}",
            self.user,
            0,
            self.hosts,
            self.whole_policy,
            self.begin_s,
            self.end_s,
            "order",
        )
