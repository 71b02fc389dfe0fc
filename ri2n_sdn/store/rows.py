# SPDX-License-Identifier: Apache-2.0
"""The rows of the store as plain values, and `State`, a snapshot of all of them.

Moves, reservations, rights and records of jobs are rows as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ri2n_sdn.jobs.history import Record
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.moves import Move
from ri2n_sdn.jobs.rights import Right

__all__ = [
    "Change",
    "ClusterRow",
    "HostRow",
    "JobRow",
    "LanesRow",
    "LinksRow",
    "NetworkRow",
    "PolicyRow",
    "Put",
    "Remove",
    "Row",
    "State",
    "TokenRow",
]


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """The single row about the cluster itself. Only the store writes it.

    `epoch` grows with every controller that takes over. `active` is the name of the one that did it
    last, `run` the number of its process's run, and `since_s` when it took over (Unix time).
    """

    epoch: int = 0
    name: str = ""
    active: str = ""
    run: str = ""
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostRow:
    """A managed host and its NICs.

    `datapath_id` has 16 hexadecimal digits. What is of NICs is by OpenFlow port; `nic_faults` has
    what does not work of those that do not: some of the words link, tx and rx. `away_since_s` is
    when it disconnected (Unix time); None while it is connected. `accepts_wire`: its receiving
    tables were installed. `helper` is "on" when it has TAPs and a helper that reports, "off" when
    it has TAPs alone, and else empty.
    """

    name: str
    datapath_id: str
    mac: str
    nic_names: Mapping[int, str] = field(default_factory=dict)
    nic_macs: Mapping[int, str] = field(default_factory=dict)
    away_since_s: float | None = None
    nic_speeds_bps: Mapping[int, int] = field(default_factory=dict)
    nic_faults: Mapping[int, str] = field(default_factory=dict)
    accepts_wire: bool = False
    helper: str = ""


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """A network that probes have found. `nics` are its NICs, each as `HOST:PORT`."""

    name: str
    nics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LinksRow:
    """The numbers of a pair's helper links, where they differ from the canonical ones.

    `low` and `high` are the two hosts in the order of their names. `numbers` has the number of each
    path, which is written as `PORT/PORT/VLAN`.
    """

    low: str
    high: str
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job that has not ended. `state` and `why` are what the controller has decided about it.

    The job is `within` none: the reservations say that anew.
    """

    job: Job
    state: str = ""
    why: str = ""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id


@dataclass(frozen=True, slots=True)
class LanesRow:
    """The lanes that a job has to itself, each as `NETWORK/VLAN`; VLAN 0 is the untagged one.

    `id` is that of the job, or `@ID` of a reservation. A job without lanes of its own has no row. A
    reservation that has begun has one.
    """

    id: str
    lanes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy with a name, which jobs may ask for."""

    name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token of the web process: the SHA-256 `hash` of its text in hexadecimal digits.

    `role` is one of contract.choices.ROLES. `user` None: it is for no user in particular.
    `expires_s` None: it does not end by itself.
    """

    name: str
    hash: str
    role: str
    user: str | None = None
    created_s: float = 0.0
    expires_s: float | None = None


Row: TypeAlias = (
    ClusterRow
    | HostRow
    | NetworkRow
    | LinksRow
    | JobRow
    | Move
    | LanesRow
    | Reservation
    | PolicyRow
    | Right
    | Record
    | TokenRow
)


@dataclass(frozen=True)
class Put:
    """Write a row: in place of the one with the same key, or as a new one."""

    row: Row


@dataclass(frozen=True)
class Remove:
    """Delete the row with the same key as `row`; that there is none is no error."""

    row: Row


Change: TypeAlias = Put | Remove


@dataclass(frozen=True)
class State:
    """All rows at one moment.

    Hosts, networks, policies and tokens are by name, jobs, moves, lanes and reservations by id,
    rights by user, links by pair of hosts. `history` is in the order of its rows' ends. `cluster`
    is None in an empty store. `identity` is the UUID of the cluster's row: two controllers with one
    store have the same.
    """

    cluster: ClusterRow | None = None
    identity: str = ""
    hosts: Mapping[str, HostRow] = field(default_factory=dict)
    networks: Mapping[str, NetworkRow] = field(default_factory=dict)
    links: Mapping[tuple[str, str], LinksRow] = field(default_factory=dict)
    jobs: Mapping[str, JobRow] = field(default_factory=dict)
    moves: Mapping[str, Move] = field(default_factory=dict)
    lanes: Mapping[str, LanesRow] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    policies: Mapping[str, PolicyRow] = field(default_factory=dict)
    rights: Mapping[str, Right] = field(default_factory=dict)
    history: tuple[Record, ...] = ()
    tokens: Mapping[str, TokenRow] = field(default_factory=dict)
