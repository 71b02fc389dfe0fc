# SPDX-License-Identifier: Apache-2.0
"""The messages that bring a bridge from the rows it has to the rows it shall have.

Their order is such that no frame is lost meanwhile. All bridges finish a phase before any of them
begins the next one. A bridge takes the messages of a connection one by one, in the order in which
they were sent: Open vSwitch does not reorder them. In every state between, a bridge forwards a
frame as it did before, or as it will do at the end. tests/unit/order_model.py sends frames through
each of these states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, reduce
from operator import xor

from ri2n_sdn.pipeline.layout import COOKIE_OURS, LOCAL, TABLE_ORDER, WIRE_PORT, Table
from ri2n_sdn.pipeline.messages import Flow, Goto, Group, ToGroup, Wanted

__all__ = [
    "AddFlow",
    "AddGroup",
    "Change",
    "DeleteFlows",
    "DeleteGroup",
    "Installed",
    "Message",
    "ModifyGroup",
    "Phase",
    "apply",
    "batches",
    "difference",
    "is_full",
    "part",
]

# The ports of the host itself and of its helper.
_FROM_HERE = frozenset({("in_port", LOCAL), ("in_port", WIRE_PORT)})
_TAKEN_FROM_ONE_NIC = (Table.RECEIVE, Table.UNMANAGED)
_RANK = {table: place for place, table in enumerate(TABLE_ORDER)}


class Phase(Enum):
    """The steps of a change, in the order of sending."""

    RECEIVE = "rows that receive are added"
    SEND = "frames that the host itself sends go by the new plan"
    SWEEP = "rows that no frame meets any more are deleted"


@dataclass
class Installed:
    """The rows and groups of ours on a bridge: the tables of flows by cookie, the groups by id."""

    cookies: dict[int, int] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)

    @cached_property
    def digest(self) -> int:
        """The rows as one number, as `ri2n-fast` reports it (docs/wire-format.md).

        Answers to jobs are left out: no frame meets them. Nobody changes `cookies` in place.
        """
        hashes = (key for key, table in self.cookies.items() if table != Table.JOB_ANSWERS)
        return COOKIE_OURS << 48 | reduce(xor, hashes, 0) & (1 << 48) - 1


@dataclass(frozen=True)
class Change:
    """The additions, changes and deletions to send, in the order of the fields and within each.

    New groups come first, and deletions last. `late_flows` are rows by which one NIC makes way for
    another one. `delete_cookies` has the table of each row, as `Installed` does. `delete_groups`
    may be sent later. They must be sent later for as long as the cache of a datapath may lead
    frames to a group whose row was replaced.
    """

    add_groups: Sequence[Group] = ()
    add_flows: Sequence[Flow] = ()
    modify_groups: Sequence[Group] = ()
    late_flows: Sequence[Flow] = ()
    delete_cookies: Mapping[int, int] = field(default_factory=dict)
    delete_groups: Sequence[int] = ()

    def __bool__(self) -> bool:
        return bool(self.add_groups or self.modify_groups or self.rows or self.delete_groups)

    @property
    def rows(self) -> int:
        """The number of rows that the change adds or deletes."""
        return len(self.add_flows) + len(self.late_flows) + len(self.delete_cookies)


@dataclass(frozen=True, slots=True)
class AddGroup:
    """Add a group. Open vSwitch refuses it when there is a group with that id."""

    group: Group


@dataclass(frozen=True, slots=True)
class AddFlow:
    """Add a row. It replaces a row with the same table, priority and match, if there is one."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class ModifyGroup:
    """Change a group. Open vSwitch refuses it when there is no group with that id."""

    group: Group


@dataclass(frozen=True, slots=True)
class DeleteFlows:
    """Delete all rows with that cookie, in all tables."""

    cookie: int


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group, and with it all rows that lead to it."""

    group_id: int


Message = AddGroup | AddFlow | ModifyGroup | DeleteFlows | DeleteGroup


def difference(wanted: Wanted, installed: Installed) -> Change:
    """The change after which a bridge with `installed` has `wanted`. It is empty if they are equal.

    New rows are added from where frames leave to where they come in, so that no row leads to a
    table that is not filled yet. Rows are deleted in the opposite order. Rows by which one NIC
    makes way for another one are added late, when peers send to that other one. So broadcast may be
    delivered twice for a moment, but is not lost. Rows with the cookies of others stay, since they
    are not ours (`ri2n doctor` names them).
    """
    new_flows = [flow for cookie, flow in wanted.flows.items() if cookie not in installed.cookies]
    # From a new NIC or a new peer no broadcast was taken before, so its rows need not be late.
    new = {
        (name, value)
        for flow in new_flows
        for name, value in flow.match
        if (flow.table, name) in ((Table.CLASSIFY, "in_port"), (Table.NEIGHBOUR, "eth_src"))
    }

    def makes_way(flow: Flow) -> bool:
        """Whether by this row one NIC makes way for another one."""
        if Goto(Table.ENCLOSED_RECEIVES) in flow.actions:
            # The hosts of an isolated job drop what does not carry the job's addresses only when
            # all of them send with these addresses.
            return True
        stands_by = flow.table in _TAKEN_FROM_ONE_NIC and any(
            isinstance(action, ToGroup) for action in flow.actions
        )
        return stands_by and new.isdisjoint(flow.match)

    new_flows.sort(key=lambda flow: (_RANK[flow.table], -flow.priority))
    gone = [
        (table, cookie)
        for cookie, table in installed.cookies.items()
        if cookie >> 48 == COOKIE_OURS and cookie not in wanted.flows
    ]
    gone.sort(key=lambda place: (-_RANK.get(place[0], len(_RANK)), place))
    return Change(
        add_groups=[
            group for number, group in wanted.groups.items() if number not in installed.groups
        ],
        add_flows=[flow for flow in new_flows if not makes_way(flow)],
        late_flows=[flow for flow in new_flows if makes_way(flow)],
        modify_groups=[
            group
            for number, group in wanted.groups.items()
            if number in installed.groups and installed.groups[number] != group
        ],
        delete_cookies={cookie: table for table, cookie in gone},
        delete_groups=sorted(number for number in installed.groups if number not in wanted.groups),
    )


def part(change: Change, phase: Phase) -> Change:
    """The part of a change that belongs to a phase."""
    if phase is Phase.RECEIVE:
        return Change(change.add_groups, [flow for flow in change.add_flows if not _sends(flow)])
    # A path or a helper may have died. Its rows are deleted at once, before all hosts have
    # answered.
    deleted = change.delete_cookies
    urgent = {cookie: table for cookie, table in deleted.items() if table == Table.SEND}
    if phase is Phase.SEND:
        flows = [flow for flow in change.add_flows if _sends(flow)]
        return Change(add_flows=flows, modify_groups=change.modify_groups, delete_cookies=urgent)
    rest = {cookie: table for cookie, table in deleted.items() if table != Table.SEND}
    return Change(
        late_flows=change.late_flows, delete_cookies=rest, delete_groups=change.delete_groups
    )


def batches(change: Change) -> list[list[Message]]:
    """The messages of a change, in the order of sending. A barrier belongs between two lists."""
    by_field: tuple[Iterable[Message], ...] = (
        map(AddGroup, change.add_groups),
        map(AddFlow, change.add_flows),
        map(ModifyGroup, change.modify_groups),
        map(AddFlow, change.late_flows),
        map(DeleteFlows, change.delete_cookies),
        map(DeleteGroup, change.delete_groups),
    )
    return [batch for batch in map(list, by_field) if batch]


def apply(change: Change, installed: Installed) -> Installed:
    """What a bridge holds after `change`, if it held `installed` before.

    Senders keep their books with it, and tests use it as a model.
    """
    cookies, groups = dict(installed.cookies), dict(installed.groups)
    for cookie in change.delete_cookies:
        cookies.pop(cookie, None)
    cookies |= {flow.cookie: flow.table for flow in (*change.add_flows, *change.late_flows)}
    groups |= {group.group_id: group for group in (*change.add_groups, *change.modify_groups)}
    for number in change.delete_groups:
        groups.pop(number, None)
    return Installed(cookies, groups)


def is_full(wanted: Wanted) -> bool:
    """Whether this is the whole plan of a host, and not only the rows that probes need."""
    return any(flow.table == Table.RECEIVE for flow in wanted.flows.values())


def _sends(flow: Flow) -> bool:
    """Whether the row decides on frames that the host itself or its helper sends.

    These rows belong together, so all of them are added in one phase. A row of Table.SEND_COUNT
    replaces another one when a NIC has a new address. A row for the helper replaces another one
    when the number of a helper link has a new path.
    """
    own = not _FROM_HERE.isdisjoint(flow.match) and flow.table == Table.CLASSIFY
    return own or flow.table in (Table.SEND, Table.SEND_COUNT)
