# SPDX-License-Identifier: Apache-2.0
"""Bytes on the OpenFlow connection and on the wire.

They are compared with those of os-ken's encoder, are encoded and decoded again, and the decoders
get garbage.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.layout import IN_PORT, PLAIN_PORT, path_register
from ri2n_sdn.pipeline.messages import (
    Bucket,
    CopyField,
    Goto,
    Group,
    Output,
    PushVlan,
    SetField,
    ToGroup,
)
from ri2n_sdn.pipeline.slot_tables import slot_group
from ri2n_sdn.weights.counters import Count

MAC = "04:00:00:00:01:01"


def described(group: Group) -> bytes:
    """The group as an OFPMP_GROUP_DESC entry, from the bytes of its OFPT_GROUP_MOD."""
    message = codec.group_mod(codec.OFPGC_ADD, group, 1)
    _, kind, number, buckets_length = struct.unpack_from("!HBxIH", message, 8)
    rest = message[24:]
    return struct.pack("!HBxIH6x", 16 + len(rest), kind, number, buckets_length) + rest


def test_a_slot_table_is_encoded_as_os_ken_does() -> None:
    slots = [(1 + i % 3, 1 + i % 2, 0) for i in range(64)]
    group = slot_group(0x10000001, slots)
    method = struct.pack("!I16sQ", 0, b"dp_hash", 0)
    reference = parser.OFPGroupMod(
        _Datapath(),
        ofp.OFPGC_ADD,
        ofp.OFPGT_SELECT,
        group.group_id,
        ofp.OFPG_BUCKET_ALL,
        [
            parser.OFPBucket(
                bucket_id=i,
                actions=[
                    parser.OFPActionSetField(reg1=path_register(*slot)),
                    parser.NXActionResubmitTable(table_id=30),
                ],
                properties=[
                    parser.OFPGroupBucketPropWeight(type_=ofp.OFPGBPT_WEIGHT, weight=100),
                    parser.OFPGroupBucketPropWatch(type_=ofp.OFPGBPT_WATCH_PORT, watch=slot[0]),
                ],
            )
            for i, slot in enumerate(slots)
        ],
        [
            parser.OFPGroupPropExperimenter(
                type_=ofp.OFPGPT_EXPERIMENTER,
                experimenter=0x154D,
                exp_type=1,
                data=list(struct.unpack(f"!{len(method) // 4}I", method)),
            )
        ],
    )
    reference.set_xid(7)
    reference.serialize()
    assert codec.group_mod(codec.OFPGC_ADD, group, 7) == bytes(reference.buf)


def striping_group(number: int) -> Group:
    """The fast-failover group of a striped pair, with all kinds of actions that it may hold."""
    back = (CopyField("eth_src", "eth_dst"), SetField("eth_src", MAC), Output(IN_PORT))
    buckets = (
        Bucket(PLAIN_PORT, (Output(PLAIN_PORT),)),
        Bucket(1, back),
        Bucket(None, (ToGroup(0x10000001),), watch_group=0x10000001),
    )
    return Group(number, Group.FAST_FAILOVER, buckets)


def test_the_groups_of_striped_pairs_are_encoded_as_os_ken_does() -> None:
    def watch(kind: int, what: int) -> list[parser.OFPGroupBucketPropWatch]:
        return [parser.OFPGroupBucketPropWatch(type_=kind, watch=what)]

    back = [
        parser.OFPActionCopyField(
            48, 0, 0, [parser.OFPOxmId("eth_src"), parser.OFPOxmId("eth_dst")]
        ),
        parser.OFPActionSetField(eth_src=MAC),
        parser.OFPActionOutput(ofp.OFPP_IN_PORT, 0xFFFF),
    ]
    actions = [
        [parser.OFPActionOutput(PLAIN_PORT, 0xFFFF)],
        back,
        [parser.OFPActionGroup(0x10000001)],
    ]
    watched = [
        watch(ofp.OFPGBPT_WATCH_PORT, PLAIN_PORT),
        watch(ofp.OFPGBPT_WATCH_PORT, 1),
        watch(ofp.OFPGBPT_WATCH_GROUP, 0x10000001),
    ]
    reference = parser.OFPGroupMod(
        _Datapath(),
        ofp.OFPGC_ADD,
        ofp.OFPGT_FF,
        0x50000007,
        ofp.OFPG_BUCKET_ALL,
        [
            parser.OFPBucket(bucket_id=i, actions=what, properties=why)
            for i, (what, why) in enumerate(zip(actions, watched, strict=True))
        ],
    )
    reference.set_xid(7)
    reference.serialize()
    assert codec.group_mod(codec.OFPGC_ADD, striping_group(0x50000007), 7) == bytes(reference.buf)


def test_a_packet_out_is_encoded_as_os_ken_does() -> None:
    reference = parser.OFPPacketOut(
        _Datapath(),
        ofp.OFP_NO_BUFFER,
        parser.OFPMatch(in_port=ofp.OFPP_CONTROLLER),
        [parser.OFPActionOutput(3, 0xFFFF)],
        b"x" * 60,
    )
    reference.set_xid(9)
    reference.serialize()
    assert codec.packet_out(3, b"x" * 60, 9) == bytes(reference.buf)


@pytest.mark.parametrize("control", [102, 0xE066, 0x1066], ids=["", "priority 7", "may be dropped"])
def test_a_tags_priority_is_no_part_of_its_vlan(control: int) -> None:
    """Switches may set the priority."""
    plain = bytes.fromhex("ffffffffffff") + codec.mac_bytes(MAC) + b"\x88\xb5probe"
    came = plain[:12] + struct.pack("!HH", 0x8100, control) + plain[12:]
    assert codec.untagged(came) == (plain, 102)


@given(
    st.integers(0, 0xFFFFFFFF),
    st.lists(
        st.tuples(st.integers(1, 1023), st.integers(1, 1023), st.integers(0, 4094)),
        min_size=1,
        max_size=64,
    ),
    st.lists(st.tuples(st.integers(1, 0xFFFF), st.booleans()), min_size=1, max_size=5),
)
def test_groups_come_back_as_they_were(
    number: int, slots: list[PathKey], ports: list[tuple[int, bool]]
) -> None:
    """There are several groups in one reply, which os-ken's own decoder loses."""
    failover = Group(
        number ^ 1,
        Group.FAST_FAILOVER,
        (
            *(Bucket(port, (Output(port),) if sends else ()) for port, sends in ports),
            *(
                Bucket(own, (PushVlan(), SetField("vlan_vid", 4096 + vlan), Output(own)))
                for own, _, vlan in slots
            ),
            Bucket(1, (Goto(5),)),
        ),
    )
    groups = [slot_group(number, slots), slot_group(number ^ 2, slots, hash_algorithm=1), failover]
    groups.append(striping_group(number ^ 3))
    assert codec.read_groups(b"".join(described(group) for group in groups)) == groups


def test_actions_that_are_not_ours_make_a_group_differ() -> None:
    mine = Group(5, Group.FAST_FAILOVER, (Bucket(1, (Output(1),)),))
    drop_vlan = struct.pack("!HH4x", 18, 8)
    entry = described(mine)
    body = entry[16:]
    actions_end = 8 + 16
    strange = (
        body[:2] + struct.pack("!H", 24) + body[4:actions_end] + drop_vlan + body[actions_end:]
    )
    strange = struct.pack("!H", len(strange)) + strange[2:]
    head = struct.pack("!HBxIH6x", 16 + len(strange), 3, 5, len(strange))
    assert codec.read_groups(entry) == [mine]
    assert codec.read_groups(head + strange) != [mine]


def flow_entry(table: int, cookie: int, packets: int, octets: int, match: bytes = b"") -> bytes:
    """An OFPMP_FLOW_DESC entry with an instruction list behind its statistics."""
    match_length = 4 + len(match)
    encoded = struct.pack("!HH", 1, match_length) + match + bytes(-match_length % 8)
    fields = b"".join(
        struct.pack("!HBBQ", 0x8002, field << 1, 8, value)
        for field, value in ((0, 1), (4, packets), (5, octets))
    )
    stats = struct.pack("!2xH", 4 + len(fields)) + fields
    stats += bytes(-len(stats) % 8)
    instructions = struct.pack("!HH4x", 4, 8)
    length = 24 + len(encoded) + len(stats) + len(instructions)
    head = struct.pack("!HxxBxHHHHHQ", length, table, 100, 0, 0, 0, 0, cookie)
    return head + encoded + stats + instructions


@given(
    st.lists(
        st.tuples(st.integers(0, 254), *[st.integers(0, 2**64 - 1)] * 3, st.binary(max_size=60)),
        max_size=5,
    )
)
def test_flow_counters_come_back(rows: list[tuple[int, int, int, int, bytes]]) -> None:
    body = b"".join(flow_entry(*row) for row in rows)
    assert codec.read_flow_counters(body) == [
        codec.FlowCounters(*row[:2], Count(*row[2:4])) for row in rows
    ]


def test_group_counters_come_back() -> None:
    buckets = (Count(1, 100), Count(2, 2**40))
    raw = b"".join(struct.pack("!QQ", *bucket) for bucket in buckets)
    entry = struct.pack("!HxxII4xQQII", 40 + len(raw), 77, 1, 3, 300, 5, 0) + raw
    assert codec.read_group_counters(entry * 2) == [codec.GroupCounters(77, buckets)] * 2


@given(st.binary(max_size=300))
@example(described(slot_group(1, [(1, 1, 0)] * 3))[:-9])
@example(flow_entry(3, 1, 1, 1)[:40])
@example(struct.pack("!HH", 0, 0) * 8)
def test_garbage_is_refused_and_nothing_worse(data: bytes) -> None:
    for read in (codec.read_groups, codec.read_group_counters, codec.read_flow_counters):
        try:
            read(data)
        except ValueError:
            continue


@given(st.data())
def test_damaged_replies_are_refused_or_read(data: st.DataObject) -> None:
    body = bytearray(
        described(slot_group(1, [(1, 1, 0), (2, 2, 0)])) + flow_entry(3, 1, 2, 3, b"abcd")
    )
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    test_garbage_is_refused_and_nothing_worse.hypothesis.inner_test(bytes(body))  # type: ignore[attr-defined]


def test_unknown_register_or_action_in_a_bucket_is_a_bug_of_ours() -> None:
    with pytest.raises(TypeError):
        codec.group_mod(
            0, Group(1, Group.SELECT, (Bucket(1, (SetField("ipv4_src", "10.0.0.1"),)),)), 1
        )


class _Datapath:
    """What os-ken's messages need of a connection to be serialised."""

    ofproto = ofp
    ofproto_parser = parser
