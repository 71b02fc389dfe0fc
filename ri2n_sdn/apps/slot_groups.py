# SPDX-License-Identifier: Apache-2.0
"""Slot tables of pairs: which one is in force, and how a changed one reaches its group."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member
from ri2n_sdn.apps.patience import RETRY_S
from ri2n_sdn.fabric.model import Fabric, PairKey, PathKey
from ri2n_sdn.pipeline.messages import Wanted
from ri2n_sdn.pipeline.plan import pair_group_id
from ri2n_sdn.pipeline.slot_tables import slot_group, table_changes, table_in_force
from ri2n_sdn.weights.loop import PairDecision

__all__ = ["send_slots", "slots_in_force"]


def send_slots(cluster: Cluster, decisions: dict[PairKey, PairDecision]) -> list[Future[bytes]]:
    """Send the slot tables that changed, and return barriers to wait for (cluster.lock is held).

    A pair that has a group of its own gets that group modified. A pair that becomes active has no
    group yet: its sender is marked dirty, so that the trunk app plans it. Pairs that are no longer
    active go back to a shared group.
    """
    changes = table_changes(
        cluster.pair_slots,
        {pair: (decision.slots, decision.moved) for pair, decision in decisions.items()},
    )
    changed = {
        (sender, receiver): decisions[sender, receiver].moved
        for sender, receivers in changes.receivers.items()
        for receiver in receivers
    }
    cluster.measured.tallies.tables_changed(cluster.pair_slots, changes.tables, changed)
    cluster.pair_slots = changes.tables
    cluster.counters.add("slots_moved", changes.moved)
    fabric = cluster.fabric()
    barriers: list[Future[bytes]] = []
    for sender in dict.fromkeys([*changes.receivers, *sorted(changes.to_plan)]):
        member = cluster.members.get(sender)
        if member is None or member.channel is None:
            continue
        receivers = changes.receivers.get(sender, [])
        if sender in changes.to_plan or not _holds_groups(member, receivers):
            member.dirty = True
            cluster.wake.trunk.set()
            continue
        with cluster.contain_fault("slot_tables_not_sent", member):
            barriers.append(_send_tables(cluster, fabric, member, member.channel, receivers))
            continue
        member.installed, member.dirty, member.retry_s = None, True, time.monotonic() + RETRY_S
    return barriers


def _holds_groups(member: Member, receivers: Sequence[str]) -> bool:
    """Whether a host has a group in use for each receiver, and no thread is about to change it."""
    if member.busy or member.dirty or member.installed is None or member.wanted is None:
        return False
    # A switch may still hold a group that no row uses any more.
    used = member.installed.groups.keys() & member.wanted.groups.keys()
    return all(pair_group_id(receiver) in used for receiver in receivers)


def _send_tables(
    cluster: Cluster, fabric: Fabric, member: Member, channel: Channel, receivers: list[str]
) -> Future[bytes]:
    """Modify a host's groups for these receivers where they differ, and return a barrier."""
    assert member.wanted is not None and member.installed is not None
    groups = dict(member.wanted.groups)
    messages: list[bytes] = []
    for receiver in receivers:
        own_table = cluster.pair_slots[member.name, receiver]
        paths = fabric.common_paths(member.name, receiver)
        slots = table_in_force(paths, own_table, cluster.config.slots)
        group = slot_group(pair_group_id(receiver), slots, member.hash_algorithm)
        if member.installed.groups[group.group_id] == group:
            continue
        groups[group.group_id] = member.installed.groups[group.group_id] = group
        messages.append(codec.group_mod(codec.OFPGC_MODIFY, group, channel.next_xid()))
    channel.send_bytes(b"".join(messages))
    cluster.counters.add("group_mods", len(messages))
    member.wanted = Wanted(member.wanted.flows, groups)
    return channel.barrier()


def slots_in_force(cluster: Cluster, sender: str, receiver: str) -> tuple[PathKey, ...]:
    """The slot table that a pair uses now, its own or the shared one (cluster.lock is held).

    One path for each slot.
    """
    paths = cluster.fabric().common_paths(sender, receiver)
    return table_in_force(paths, cluster.pair_slots.get((sender, receiver)), cluster.config.slots)
