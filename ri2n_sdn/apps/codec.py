# SPDX-License-Identifier: Apache-2.0
"""The bytes of OpenFlow messages that os-ken decodes wrongly or handles too slowly.

These are groups, and statistics of groups and rows. os-ken 4.2.2 reads past the end of group
descriptions and buckets, so a reply with more than one group is lost. To build a slot table from
its objects takes 1.5 ms; to pack it here takes 0.1 ms. Layouts are those of the OpenFlow 1.5.1
specification, sections 7.2.3, 7.3.4.3 and 7.3.5. Every reader checks lengths and raises ValueError
on a malformed body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ri2n_sdn.fabric.model import UNTAGGED
from ri2n_sdn.pipeline.messages import (
    Action,
    Bucket,
    CopyField,
    Goto,
    Group,
    Output,
    PushVlan,
    SetField,
    TakeClass,
    ToGroup,
)
from ri2n_sdn.weights.counters import Count

__all__ = [
    "FlowCounters",
    "GroupCounters",
    "action_bytes",
    "group_mod",
    "mac_bytes",
    "packet_out",
    "read_flow_counters",
    "read_group_counters",
    "read_groups",
    "split_entries",
    "tagged",
    "type_lengths",
    "untagged",
]

OFPGC_ADD, OFPGC_MODIFY, OFPGC_DELETE = 0, 1, 2

_VERSION, _PACKET_OUT, _GROUP_MOD = 6, 13, 15
_OXM_IN_PORT, CONTROLLER = 0x80000004, 0xFFFFFFFD
_GROUP_TYPES = {Group.SELECT: 1, Group.FAST_FAILOVER: 3}
_GROUP_NAMES = {number: name for name, number in _GROUP_TYPES.items()}
_BUCKET_ALL = 0xFFFFFFFF
_NX_REGISTERS = {"reg1": 0x00010204, "reg2": 0x00010404}
_NX_REG6 = 0x00010C04
_NX_REGISTER_NAMES = {header: name for name, header in _NX_REGISTERS.items()}
_NICIRA, _NTR = 0x2320, 0x154D
_RESUBMIT_TABLE, _IN_PORT_ANY = 14, 0xFFF8
_OUTPUT, _PUSH_VLAN, _GROUP, _SET_FIELD, _COPY_FIELD, _EXPERIMENTER = 0, 17, 22, 25, 28, 0xFFFF
_OXM_VLAN_VID, _ETH_VLAN = 0x80000C02, 0x8100
_WEIGHT, _WATCH_PORT, _WATCH_GROUP = 0, 1, 2
_MACS = {"eth_dst": 0x80000606, "eth_src": 0x80000806}
_MAC_NAMES = {header: name for name, header in _MACS.items()}
_ANY = 0xFFFFFFFF
_XST_CLASS, _XST_PACKETS, _XST_BYTES = 0x8002, 4, 5

# The property selection_method=dp_hash. Its experimenter type is 1, and the upper half of its
# parameter is the hash algorithm.
_SELECTION = struct.Struct("!HHII4x16sII")
_SELECTION_METHOD = 1


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """A row's table, cookie and counters."""

    table: int
    cookie: int
    count: Count


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """The counters of a group's buckets."""

    group_id: int
    buckets: tuple[Count, ...]


def group_mod(command: int, group: Group, xid: int) -> bytes:
    """A whole OFPT_GROUP_MOD message.

    It always holds all buckets: to insert or remove single ones corrupts Open vSwitch's hash map.
    """
    body = b""
    properties = b""
    if command != OFPGC_DELETE:
        body = b"".join(
            _bucket(number, bucket, group.kind) for number, bucket in enumerate(group.buckets)
        )
        if group.kind == Group.SELECT:
            properties = _SELECTION.pack(
                _EXPERIMENTER,
                _SELECTION.size,
                _NTR,
                _SELECTION_METHOD,
                b"dp_hash",
                group.hash_algorithm,
                0,
            )
    head = struct.pack(
        "!HBxIHxxI", command, _GROUP_TYPES[group.kind], group.group_id, len(body), _BUCKET_ALL
    )
    length = 8 + len(head) + len(body) + len(properties)
    return struct.pack("!BBHI", _VERSION, _GROUP_MOD, length, xid) + head + body + properties


def mac_bytes(text: str) -> bytes:
    """The six bytes of a MAC address."""
    return bytes.fromhex(text.replace(":", ""))


def tagged(frame: bytes, vlan: int) -> bytes:
    """An Ethernet frame with an 802.1Q tag of that VLAN ID, priority 0; unchanged for UNTAGGED."""
    return (
        frame if vlan == UNTAGGED else frame[:12] + struct.pack("!HH", _ETH_VLAN, vlan) + frame[12:]
    )


def untagged(frame: bytes) -> tuple[bytes, int]:
    """(the frame without its outermost 802.1Q tag, the tag's VLAN ID).

    It is (the same frame, UNTAGGED) when the frame has no tag.
    """
    if len(frame) < 16 or frame[12:14] != b"\x81\x00":
        return frame, UNTAGGED
    return frame[:12] + frame[16:], int.from_bytes(frame[14:16], "big") & 0xFFF


def packet_out(port: int, frame: bytes, xid: int) -> bytes:
    """A whole OFPT_PACKET_OUT message that sends `frame` out of `port`."""
    match = struct.pack("!HHII4x", 1, 12, _OXM_IN_PORT, CONTROLLER)
    action = action_bytes(Output(port))
    length = 8 + 8 + len(match) + len(action) + len(frame)
    head = struct.pack("!BBHIIHxx", _VERSION, _PACKET_OUT, length, xid, _ANY, len(action))
    return head + match + action + frame


def read_groups(body: bytes) -> list[Group]:
    """The groups in an OFPMP_GROUP_DESC reply.

    A bucket with an action that this controller never sends gets no actions, so that it differs
    from any wanted bucket.
    """
    return [_read_group(entry) for entry in split_entries(body, 16)]


def read_group_counters(body: bytes) -> list[GroupCounters]:
    """The groups in an OFPMP_GROUP reply, with their buckets' counters."""
    result = []
    for entry in split_entries(body, 40):
        (number,) = struct.unpack_from("!I", entry, 4)
        rest = entry[40 : 40 + (len(entry) - 40) // 16 * 16]
        result.append(
            GroupCounters(number, tuple(map(Count._make, struct.iter_unpack("!QQ", rest))))
        )
    return result


def read_flow_counters(body: bytes) -> list[FlowCounters]:
    """The rows in an OFPMP_FLOW_DESC reply, without matches and instructions."""
    result = []
    for entry in split_entries(body, 32):
        table = entry[4]
        cookie, match_length = struct.unpack_from("!Q2xH", entry, 16)
        offset = 24 + _padded(match_length)
        if offset + 4 > len(entry):
            raise ValueError("flow description: match is longer than its entry")
        (stats_length,) = struct.unpack_from("!2xH", entry, offset)
        end = offset + stats_length
        if stats_length < 4 or end > len(entry):
            raise ValueError("flow description: statistics are longer than their entry")
        packets = bytes_ = 0
        position = offset + 4
        while position + 4 <= end:
            oxs_class, field, size = struct.unpack_from("!HBB", entry, position)
            if position + 4 + size > end:
                raise ValueError("flow description: a statistic is longer than its list")
            if oxs_class == _XST_CLASS and size == 8:
                (value,) = struct.unpack_from("!Q", entry, position + 4)
                if field >> 1 == _XST_PACKETS:
                    packets = value
                elif field >> 1 == _XST_BYTES:
                    bytes_ = value
            position += 4 + size
        result.append(FlowCounters(table, cookie, Count(packets, bytes_)))
    return result


def _padded(length: int) -> int:
    return (length + 7) // 8 * 8


def split_entries(body: bytes, min_bytes: int) -> Iterator[bytes]:
    """Split a multipart body at the 16-bit lengths that its entries begin with.

    Raises ValueError for an entry of less than `min_bytes`, or one that is cut off.
    """
    offset = 0
    while offset < len(body):
        if offset + min_bytes > len(body):
            raise ValueError("multipart reply: truncated entry")
        (length,) = struct.unpack_from("!H", body, offset)
        if length < min_bytes or offset + length > len(body):
            raise ValueError(f"multipart reply: entry of {length} bytes")
        yield body[offset : offset + length]
        offset += length


def _bucket(number: int, bucket: Bucket, kind: str) -> bytes:
    actions = b"".join(action_bytes(action) for action in bucket.actions)
    properties = struct.pack("!HHHxx", _WEIGHT, 8, 100) if kind == Group.SELECT else b""
    if bucket.watch_port is not None:
        properties += struct.pack("!HHI", _WATCH_PORT, 8, bucket.watch_port)
    if bucket.watch_group is not None:
        properties += struct.pack("!HHI", _WATCH_GROUP, 8, bucket.watch_group)
    return (
        struct.pack("!HHI", 8 + len(actions) + len(properties), len(actions), number)
        + actions
        + properties
    )


def action_bytes(action: Action) -> bytes:
    """The bytes of one action of a bucket or a message. Raises TypeError for other actions."""
    if isinstance(action, Output):
        return struct.pack("!HHIH6x", _OUTPUT, 16, action.port, 0xFFFF)
    if isinstance(action, ToGroup):
        return struct.pack("!HHI", _GROUP, 8, action.group_id)
    if isinstance(action, SetField) and action.name in _MACS:
        mac = bytes.fromhex(str(action.value).replace(":", ""))
        return struct.pack("!HHI6s2x", _SET_FIELD, 16, _MACS[action.name], mac)
    if isinstance(action, CopyField):
        return struct.pack(
            "!HHHHH2xII4x", _COPY_FIELD, 24, 48, 0, 0, _MACS[action.source], _MACS[action.target]
        )
    if isinstance(action, TakeClass):
        fields = (_MACS["eth_src"], _NX_REG6)
        return struct.pack("!HHHHH2xII4x", _COPY_FIELD, 24, 8, 0, 0, *fields)
    if (
        isinstance(action, SetField)
        and action.name in _NX_REGISTERS
        and isinstance(action.value, int)
    ):
        return struct.pack("!HHII4x", _SET_FIELD, 16, _NX_REGISTERS[action.name], action.value)
    if isinstance(action, SetField) and action.name == "vlan_vid" and isinstance(action.value, int):
        return struct.pack("!HHIH6x", _SET_FIELD, 16, _OXM_VLAN_VID, action.value)
    if isinstance(action, PushVlan):
        return struct.pack("!HHH2x", _PUSH_VLAN, 8, _ETH_VLAN)
    if isinstance(action, Goto):
        return struct.pack(
            "!HHIHHB3x", _EXPERIMENTER, 16, _NICIRA, _RESUBMIT_TABLE, _IN_PORT_ANY, action.table
        )
    raise TypeError(f"no bucket may hold {action}")


def _read_group(entry: bytes) -> Group:
    kind, number, buckets_length = struct.unpack_from("!BxIH", entry, 2)
    if 16 + buckets_length > len(entry):
        raise ValueError("group description: buckets are longer than their entry")
    buckets = []
    for raw in split_entries(entry[16 : 16 + buckets_length], 8):
        (actions_length,) = struct.unpack_from("!H", raw, 2)
        if 8 + actions_length > len(raw):
            raise ValueError("group description: actions are longer than their bucket")
        watch_port = watch_group = None
        for prop_type, prop in type_lengths(raw[8 + actions_length :]):
            if prop_type == _WATCH_PORT and len(prop) >= 8:
                (port,) = struct.unpack_from("!I", prop, 4)
                watch_port = None if port == _ANY else port
            elif prop_type == _WATCH_GROUP and len(prop) >= 8:
                (watched,) = struct.unpack_from("!I", prop, 4)
                watch_group = None if watched == _ANY else watched
        buckets.append(Bucket(watch_port, _read_actions(raw[8 : 8 + actions_length]), watch_group))
    algorithm = 0
    for prop_type, prop in type_lengths(entry[16 + buckets_length :]):
        if prop_type == _EXPERIMENTER and len(prop) >= _SELECTION.size:
            _, _, vendor, kind_of_property, _, algorithm_read, _ = _SELECTION.unpack_from(prop)
            if (vendor, kind_of_property) == (_NTR, _SELECTION_METHOD):
                algorithm = algorithm_read
    return Group(number, _GROUP_NAMES.get(kind, str(kind)), tuple(buckets), algorithm)


def _read_actions(raw: bytes) -> tuple[Action, ...]:
    actions = [_read_action(kind, action) for kind, action in type_lengths(raw)]
    readable = tuple(action for action in actions if action is not None)
    return readable if len(readable) == len(actions) else ()


def _read_action(kind: int, raw: bytes) -> Action | None:
    """One action of a bucket; None when this controller never sends it."""
    if kind == _OUTPUT and len(raw) == 16:
        return Output(struct.unpack_from("!I", raw, 4)[0])
    if kind == _GROUP and len(raw) == 8:
        return ToGroup(struct.unpack_from("!I", raw, 4)[0])
    if kind == _SET_FIELD and len(raw) == 16:
        header, value = struct.unpack_from("!II", raw, 4)
        if header in _NX_REGISTER_NAMES:
            return SetField(_NX_REGISTER_NAMES[header], value)
        if header in _MAC_NAMES:
            return SetField(_MAC_NAMES[header], raw[8:14].hex(":"))
        if header == _OXM_VLAN_VID:
            return SetField("vlan_vid", value >> 16)
    if kind == _PUSH_VLAN and len(raw) == 8 and struct.unpack_from("!H", raw, 4)[0] == _ETH_VLAN:
        return PushVlan()
    if kind == _COPY_FIELD and len(raw) == 24:
        bits, from_bit, to_bit, source, target = struct.unpack_from("!HHH2xII", raw, 4)
        if (bits, from_bit, to_bit) == (48, 0, 0) and source in _MAC_NAMES and target in _MAC_NAMES:
            return CopyField(_MAC_NAMES[source], _MAC_NAMES[target])
    if kind == _EXPERIMENTER and len(raw) == 16:
        vendor, subtype, _, table = struct.unpack_from("!IHHB", raw, 4)
        if (vendor, subtype) == (_NICIRA, _RESUBMIT_TABLE):
            return Goto(table)
    return None


def type_lengths(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, bytes) of each item of a list.

    Items begin with a 16-bit type and a 16-bit length, and are padded to 8 bytes.
    """
    offset = 0
    while offset + 4 <= len(raw):
        kind, length = struct.unpack_from("!HH", raw, offset)
        if length < 4 or offset + length > len(raw):
            raise ValueError(f"item of {length} bytes in a list of {len(raw)}")
        yield kind, raw[offset : offset + length]
        offset += _padded(length)
