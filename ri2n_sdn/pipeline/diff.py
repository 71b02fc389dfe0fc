"""The messages that lead from what a bridge holds to what it shall hold, in an order that never loses a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ri2n_sdn.pipeline.layout import COOKIE_OURS, TABLE_ORDER
from ri2n_sdn.pipeline.messages import Flow, Group, Wanted

__all__ = ["Change", "Installed", "apply", "difference"]


@dataclass
class Installed:
    """What a bridge holds of ours: the cookies of its flows, and its groups by id."""

    cookies: set[int] = field(default_factory=set)
    groups: dict[int, Group] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """Messages in the order of sending; a barrier belongs between the fields.

    New groups first, then rows from where frames leave to where they come in, then changed groups, then what is no
    longer wanted. `delete_groups` may be left for later, and must be for as long as a datapath's cache may still
    lead frames to a group whose row was replaced.
    """

    add_groups: Sequence[Group]
    add_flows: Sequence[Flow]
    modify_groups: Sequence[Group]
    delete_cookies: Sequence[int]
    delete_groups: Sequence[int]

    def __bool__(self) -> bool:
        return any((self.add_groups, self.add_flows, self.modify_groups, self.delete_cookies, self.delete_groups))


def difference(wanted: Wanted, installed: Installed) -> Change:
    """What to send so that a bridge that holds `installed` holds `wanted`. Empty when they are the same.

    Rows with foreign cookies are left alone: they are not ours (`ri2n doctor` names them).
    """
    rank = {table: place for place, table in enumerate(TABLE_ORDER)}
    new_flows = [flow for cookie, flow in wanted.flows.items() if cookie not in installed.cookies]
    new_flows.sort(key=lambda flow: (rank[flow.table], -flow.priority))
    return Change(
        add_groups=[group for number, group in wanted.groups.items() if number not in installed.groups],
        add_flows=new_flows,
        modify_groups=[
            group
            for number, group in wanted.groups.items()
            if number in installed.groups and installed.groups[number] != group
        ],
        delete_cookies=sorted(
            cookie for cookie in installed.cookies if cookie >> 48 == COOKIE_OURS and cookie not in wanted.flows
        ),
        delete_groups=sorted(number for number in installed.groups if number not in wanted.groups),
    )


def apply(change: Change, installed: Installed) -> Installed:
    """What a bridge holds after `change`: the bookkeeping of a sender, and the model of the tests."""
    replaced = {flow.cookie for flow in change.add_flows}
    groups: Mapping[int, Group] = {
        **installed.groups,
        **{group.group_id: group for group in (*change.add_groups, *change.modify_groups)},
    }
    gone = set(change.delete_groups)
    return Installed(
        cookies=(installed.cookies - set(change.delete_cookies)) | replaced,
        groups={number: group for number, group in groups.items() if number not in gone},
    )
