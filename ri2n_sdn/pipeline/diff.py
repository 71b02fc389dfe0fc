"""The messages that lead from what bridges hold to what they shall hold, in an order that never
loses a frame.

All bridges take each phase before any of them takes the next one. A bridge takes the messages one
by one, as they come: Open vSwitch does not reorder those of a connection. Every state on the way
forwards what it did before or what it will do after (tests/unit/order_model.py sends frames through
each of them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ri2n_sdn.pipeline.layout import COOKIE_OURS, LOCAL, TABLE_ORDER, WIRE_PORT, Table
from ri2n_sdn.pipeline.messages import Flow, Group, ToGroup, Wanted

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

_FROM_HERE = frozenset({("in_port", LOCAL), ("in_port", WIRE_PORT)})
_TAKEN_FROM_ONE_NIC = (Table.RECEIVE, Table.UNMANAGED)
_RANK = {table: place for place, table in enumerate(TABLE_ORDER)}


class Phase(Enum):
    """The steps of a change, in the order of sending."""

    RECEIVE = "what receives is added"
    SEND = "what the host itself sends goes by the new plan"
    SWEEP = "what nobody sends to any more is taken away"


@dataclass
class Installed:
    """What a bridge holds of ours: the tables of its flows by cookie, and its groups by id."""

    cookies: dict[int, int] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """What to send, in the order of the fields and within each: new groups first, what is no longer
    wanted last.

    `late_flows` are rows by which a NIC makes way for another one. `delete_groups` may be left for
    later, and must be for as long as a datapath's cache may still lead frames to a group whose row
    was replaced. `delete_cookies` has the tables, as `Installed` does.
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
        """How many rows it adds or deletes."""
        return len(self.add_flows) + len(self.late_flows) + len(self.delete_cookies)


@dataclass(frozen=True, slots=True)
class AddGroup:
    """Refused by Open vSwitch when there is such a group."""

    group: Group


@dataclass(frozen=True, slots=True)
class AddFlow:
    """Replaces the row in its place, if there is one."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class ModifyGroup:
    """Refused when there is no such group."""

    group: Group


@dataclass(frozen=True, slots=True)
class DeleteFlows:
    """All rows with that cookie, in any table."""

    cookie: int


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """And all rows that lead to it."""

    group_id: int


Message = AddGroup | AddFlow | ModifyGroup | DeleteFlows | DeleteGroup


def difference(wanted: Wanted, installed: Installed) -> Change:
    """What to send so that a bridge that holds `installed` holds `wanted`. Empty when they are the
    same.

    New rows come from where frames leave to where they come in, so that no row leads to where
    nothing is yet. What is deleted goes the other way. Rows by which a NIC makes way for another
    one wait until peers send to that one: broadcast may come twice for a moment, and is not lost.
    Rows with foreign cookies are left alone: they are not ours (`ri2n doctor` names them).
    """
    new_flows = [flow for cookie, flow in wanted.flows.items() if cookie not in installed.cookies]
    # Of a NIC or a peer that is new, nothing was taken before.
    new = {
        (name, value)
        for flow in new_flows
        for name, value in flow.match
        if (flow.table, name) in ((Table.CLASSIFY, "in_port"), (Table.NEIGHBOUR, "eth_src"))
    }

    def makes_way(flow: Flow) -> bool:
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
    """What of a change belongs to a phase."""
    if phase is Phase.RECEIVE:
        return Change(change.add_groups, [flow for flow in change.add_flows if not _sends(flow)])
    # A path or a helper that died is left at once, not only when all hosts have answered.
    urgent = {
        cookie: table for cookie, table in change.delete_cookies.items() if table == Table.SEND
    }
    if phase is Phase.SEND:
        flows = [flow for flow in change.add_flows if _sends(flow)]
        return Change(add_flows=flows, modify_groups=change.modify_groups, delete_cookies=urgent)
    rest = {
        cookie: table for cookie, table in change.delete_cookies.items() if cookie not in urgent
    }
    return Change(
        late_flows=change.late_flows, delete_cookies=rest, delete_groups=change.delete_groups
    )


def batches(change: Change) -> list[list[Message]]:
    """The messages of a change in the order of sending; a barrier belongs between the lists."""
    found: tuple[Iterable[Message], ...] = (
        map(AddGroup, change.add_groups),
        map(AddFlow, change.add_flows),
        map(ModifyGroup, change.modify_groups),
        map(AddFlow, change.late_flows),
        map(DeleteFlows, change.delete_cookies),
        map(DeleteGroup, change.delete_groups),
    )
    return [batch for batch in map(list, found) if batch]


def apply(change: Change, installed: Installed) -> Installed:
    """What a bridge holds after `change`: the bookkeeping of a sender, and the model of the
    tests.
    """
    groups = {
        **installed.groups,
        **{group.group_id: group for group in (*change.add_groups, *change.modify_groups)},
    }
    gone = set(change.delete_groups)
    cookies = {
        cookie: table
        for cookie, table in installed.cookies.items()
        if cookie not in change.delete_cookies
    }
    return Installed(
        cookies=cookies
        | {flow.cookie: flow.table for flow in (*change.add_flows, *change.late_flows)},
        groups={number: group for number, group in groups.items() if number not in gone},
    )


def is_full(wanted: Wanted) -> bool:
    """It is a host's whole plan, and not only what probes need."""
    return any(flow.table == Table.RECEIVE for flow in wanted.flows.values())


def _sends(flow: Flow) -> bool:
    """The row decides on frames of the host itself or of its helper: without all of these, none of
    these.

    Those of Table.SEND_COUNT replace others when a NIC has a new address, the helper's when a
    link's number has a new path.
    """
    own = not _FROM_HERE.isdisjoint(flow.match) and flow.table == Table.CLASSIFY
    return own or flow.table in (Table.SEND, Table.SEND_COUNT)
