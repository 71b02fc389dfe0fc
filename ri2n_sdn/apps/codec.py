# SPDX-License-Identifier: Apache-2.0
"""The bytes of OpenFlow messages: rows, groups and frames to switches, and what switches report.

os-ken takes 70 us to encode a row; this module takes a tenth of that, and 100 hosts have 140,000
rows. os-ken 4.2.2 also reads past the end of group descriptions and buckets, so a reply with more
than one group is lost. Layouts are those of the OpenFlow 1.5.1 specification, 7.2.3, 7.2.6, 7.3.4
and 7.3.5, and of Open vSwitch's ofp-actions.c. Every reader checks lengths and raises ValueError on
a malformed body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from ri2n_sdn.fabric.model import UNTAGGED
from ri2n_sdn.pipeline.layout import COOKIE_MASK, COOKIE_OURS, ETH_IPV6
from ri2n_sdn.pipeline.messages import (
    Action,
    Bucket,
    CopyField,
    Distinguish,
    Flow,
    Follow,
    Goto,
    Group,
    Learn,
    LookBack,
    MatchValue,
    Note,
    Output,
    OutputRegister,
    PopVlan,
    PushVlan,
    SetField,
    TakeClass,
    ToController,
    ToGroup,
)
from ri2n_sdn.pipeline.priorities import LEARNED, Placed
from ri2n_sdn.weights.counters import Count

__all__ = [
    "CONTROLLER",
    "DESCRIPTION",
    "GROUPS",
    "GROUP_COUNTERS",
    "HEADERS",
    "OFPGC_ADD",
    "OFPGC_DELETE",
    "OFPGC_MODIFY",
    "PORT_COUNTERS",
    "Entry",
    "FlowCounters",
    "GroupCounters",
    "Question",
    "action_bytes",
    "add_flow",
    "delete_flows",
    "fin_timeout",
    "flow_mod",
    "flows",
    "group_mod",
    "mac_bytes",
    "message",
    "packet_out",
    "padded",
    "read_entries",
    "read_fields",
    "read_flow_counters",
    "read_group_counters",
    "read_groups",
    "split_entries",
    "tagged",
    "type_lengths",
    "untagged",
]

OFPGC_ADD, OFPGC_MODIFY, OFPGC_DELETE = 0, 1, 2
CONTROLLER = 0xFFFFFFFD

_VERSION, _PACKET_OUT, _FLOW_MOD, _GROUP_MOD = 6, 13, 14, 15
_ADD, _DELETE = 0, 3
# The OpenFlow header, then the fields of an OFPT_FLOW_MOD up to its match.
_FLOW_MOD_HEAD = struct.Struct("!BBHIQQBBHHHIIIHH")
_NO_BUFFER = _ANY = 0xFFFFFFFF
_ALL_TABLES, _ALL_GROUPS, _DEFAULT_PRIORITY = 0xFF, 0xFFFFFFFC, 0x8000
_APPLY_ACTIONS = 4
_OUTPUT, _PUSH_VLAN, _POP_VLAN, _GROUP, _SET_FIELD, _COPY_FIELD = 0, 17, 18, 22, 25, 28
_WHOLE_FRAME = 0xFFFF
# Actions of Open vSwitch's own (Nicira's).
_EXPERIMENTER, _NICIRA = 0xFFFF, 0x2320
_NOTE, _RESUBMIT_TABLE, _OUTPUT_REG, _LEARN, _FIN_TIMEOUT = 8, 14, 15, 16, 19
_STACK_PUSH, _STACK_POP, _LEARN2 = 27, 28, 45
_IN_PORT_ANY = 0xFFF8
_ETH_VLAN, _TCP = 0x8100, 6
_GROUP_TYPES = {Group.SELECT: 1, Group.FAST_FAILOVER: 3}
_GROUP_NAMES = {number: name for name, number in _GROUP_TYPES.items()}
_WEIGHT, _WATCH_PORT, _WATCH_GROUP = 0, 1, 2
# The property selection_method=dp_hash. Its experimenter type is 1, and the upper half of its
# parameter is the hash algorithm.
_NTR, _SELECTION_METHOD = 0x154D, 1
_SELECTION = struct.Struct("!HHII4x16sII")
# The headers of fields of frames and of registers. The last byte is the size in bytes.
HEADERS = {
    "in_port": 0x80000004,
    "eth_dst": 0x80000606,
    "eth_src": 0x80000806,
    "eth_type": 0x80000A02,
    "vlan_vid": 0x80000C02,
    "vlan_pcp": 0x80000E01,
    "ip_dscp": 0x80001001,
    "ip_proto": 0x80001401,
    "ipv4_src": 0x80001604,
    "ipv4_dst": 0x80001804,
    "tcp_src": 0x80001A02,
    "tcp_dst": 0x80001C02,
    "udp_src": 0x80001E02,
    "udp_dst": 0x80002002,
    "icmpv4_type": 0x80002601,
    "icmpv4_code": 0x80002801,
    "ipv6_src": 0x80003410,
    "ipv6_dst": 0x80003610,
    "icmpv6_type": 0x80003A01,
    "tcp_flags": 0x80005402,
    "in_port_nxm": 0x00000002,
    **{f"reg{number}": 0x00010004 | number << 9 for number in range(8)},
}
_BASIC, _STATISTICS, _PACKETS, _BYTES = 0x8000, 0x8002, 4, 5
# Called for each row of every host, in each round of the counters.
_LENGTH_AT, _FIELD_AT = struct.Struct("!H").unpack_from, struct.Struct("!HBB").unpack_from
_ROW_AT = struct.Struct("!4xBxH8xQ2xH").unpack_from


class Question(NamedTuple):
    """What a multipart request asks for: its kind, which the reply has as well, and its body."""

    kind: int
    body: bytes = b""


DESCRIPTION = Question(0)
PORT_COUNTERS = Question(4, struct.pack("!I4x", _ANY))
GROUP_COUNTERS = Question(6, struct.pack("!I4x", _ALL_GROUPS))
GROUPS = Question(7, struct.pack("!I4x", _ALL_GROUPS))


class FlowCounters(NamedTuple):
    """A row's table, cookie and counters."""

    table: int
    cookie: int
    counted: Count


class GroupCounters(NamedTuple):
    """The counters of a group's buckets."""

    group_id: int
    buckets: tuple[Count, ...]


# ---- Fields and actions


def mac_bytes(text: str) -> bytes:
    """The six bytes of a MAC address."""
    return bytes.fromhex(text.replace(":", ""))


def padded(length: int) -> int:
    """The length of an item with its padding to a multiple of 8 bytes."""
    return (length + 7) // 8 * 8


@lru_cache(maxsize=4096)
def _field(name: str, value: MatchValue) -> bytes:
    """The bytes of a field of a match or of an action that sets it, with the mask if it has one."""
    header, size = HEADERS[name], HEADERS[name] & 0xFF
    parts = value if isinstance(value, tuple) else (value,)
    if len(parts) > 1:
        header += 0x100 + size
    return header.to_bytes(4, "big") + b"".join(
        part.to_bytes(size, "big")
        if isinstance(part, int)
        else mac_bytes(part)
        if size == 6
        else ip_address(part).packed
        for part in parts
    )


@lru_cache(maxsize=4096)
def action_bytes(action: Action, max_len: int = 0) -> bytes:
    """The bytes of one action.

    The controller gets `max_len` bytes of a frame that an Output sends to it.
    """
    match action:
        case Output(port):
            return _action(_OUTPUT, struct.pack("!IH", port, max_len))
        case ToController():
            return _action(_OUTPUT, struct.pack("!IH", CONTROLLER, _WHOLE_FRAME))
        case ToGroup(number):
            return _action(_GROUP, struct.pack("!I", number))
        case SetField(name, value):
            return _action(_SET_FIELD, _field(name, value))
        case CopyField(source, target):
            return _copy(48, source, target)
        case TakeClass():
            return _copy(8, "eth_src", "reg6")
        case PushVlan():
            return _action(_PUSH_VLAN, struct.pack("!H", _ETH_VLAN))
        case PopVlan():
            return _action(_POP_VLAN, b"")
        case Goto(table):
            return _nicira(_RESUBMIT_TABLE, struct.pack("!HB", _IN_PORT_ANY, table))
        case OutputRegister(register):
            # The bits 0 to 15 of the register.
            return _nicira(_OUTPUT_REG, struct.pack("!HIH", 15, HEADERS[register], 0))
        case Note(data):
            return _nicira(_NOTE, data)
        case Learn():
            specs = _spec("eth_src", "eth_dst") + _spec("in_port_nxm", action.register, load=True)
            return _learn(_LEARN, action, LEARNED.priority, 0, specs)
        case Follow(eth_type=eth_type):
            specs = _spec(eth_type, "eth_type") + _spec(_TCP, "ip_proto")
            specs += _spec("eth_src", "eth_dst")
            specs += b"".join(_spec(a, b) + _spec(b, a) for a, b in _ends(eth_type))
            specs += _spec("reg5", "reg1", load=True)
            limit = struct.pack("!IHH", action.limit, 0, 0)
            priority = Placed.FOLLOWED.priority
            return _learn(_LEARN2, action, priority, action.fin_timeout_s, limit + specs)
        case LookBack(table, eth_type):
            # Nothing is sent between the two swaps, so no frame is changed.
            swap = b"".join(map(_stack, (("eth_src", "eth_dst"), *_ends(eth_type))))
            return swap + action_bytes(Goto(table)) + swap
        case Distinguish(eth_type):
            # What a datapath caches depends on all fields that are read.
            return b"".join(_stack((name,)) for pair in _ends(eth_type) for name in pair)


def fin_timeout(idle_timeout_s: int) -> bytes:
    """The action by which a row ends this long after its last packet, once a FIN or RST was one."""
    return _nicira(_FIN_TIMEOUT, struct.pack("!HH", idle_timeout_s, 0))


def _action(kind: int, body: bytes) -> bytes:
    length = padded(4 + len(body))
    return struct.pack("!HH", kind, length) + body.ljust(length - 4, b"\0")


def _nicira(subtype: int, body: bytes) -> bytes:
    return _action(_EXPERIMENTER, struct.pack("!IH", _NICIRA, subtype) + body)


def _copy(bits: int, source: str, target: str) -> bytes:
    """Copy the lowest bits of a field."""
    head = struct.pack("!HHH2x", bits, 0, 0)
    return _action(_COPY_FIELD, head + struct.pack("!II", HEADERS[source], HEADERS[target]))


def _stack(names: Sequence[str]) -> bytes:
    """Push the fields onto the stack, then pop as many into the same fields: two are swapped."""
    return b"".join(
        _nicira(subtype, struct.pack("!HIH", 0, HEADERS[name], 8 * (HEADERS[name] & 0xFF)))
        for subtype in (_STACK_PUSH, _STACK_POP)
        for name in names
    )


def _ends(eth_type: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """The fields that name both ends of a TCP connection, as (source, destination)."""
    version = "ipv6" if eth_type == ETH_IPV6 else "ipv4"
    return (f"{version}_src", f"{version}_dst"), ("tcp_src", "tcp_dst")


def _learn(
    subtype: int, action: Learn | Follow, priority: int, fin_timeout_s: int, rest: bytes
) -> bytes:
    head = struct.pack(
        "!HHHQHBxHH",
        *(action.idle_timeout_s, 0, priority, action.cookie, 0, action.table, fin_timeout_s, 0),
    )
    return _nicira(subtype, head + rest)


def _spec(source: str | int, target: str, *, load: bool = False) -> bytes:
    """What a learned row matches: a frame whose field `target` has this value.

    That is a number, or what the field `source` of the frame that teaches the row is. With `load`,
    the row does not match the value but puts it into the register `target`.
    """
    if isinstance(source, int):
        bits, value = 8 * (HEADERS[target] & 0xFF), struct.pack("!H", source)
    else:
        bits, value = 8 * (HEADERS[source] & 0xFF), struct.pack("!IH", HEADERS[source], 0)
    head = struct.pack("!H", isinstance(source, int) << 13 | load << 11 | bits)
    return head + value + struct.pack("!IH", HEADERS[target], 0)


# The fields that a bucket may set, by their headers, and its actions that are always the same.
_BUCKET_FIELDS = {
    HEADERS[name].to_bytes(4, "big"): name
    for name in ("reg1", "reg2", "eth_src", "eth_dst", "vlan_vid")
}
_FIXED_ACTIONS = {
    action_bytes(action): action
    for action in (PushVlan(), CopyField("eth_src", "eth_dst"), CopyField("eth_dst", "eth_src"))
}


# ---- Messages


def message(kind: int, body: bytes, xid: int) -> bytes:
    """A whole message of this kind (OFPT_...)."""
    return struct.pack("!BBHI", _VERSION, kind, 8 + len(body), xid) + body


def flows(
    table: int = _ALL_TABLES,
    cookie: int = COOKIE_OURS << 48,
    mask: int = COOKIE_MASK,
    match: Mapping[str, MatchValue] | None = None,
) -> Question:
    """Asks for the rows of one table, or of all, with this cookie under `mask`.

    These are by default all rows of this controller. With `match`, they are rows for such frames.
    """
    head = struct.pack("!B3xII4xQQ", table, _ANY, _ANY, cookie, mask)
    return Question(1, head + _match((match or {}).items()))


def _match(match: Iterable[tuple[str, MatchValue]]) -> bytes:
    # Fields are in the order of their numbers: a field comes after the fields that it requires.
    fields = b"".join(sorted(_field(name, value) for name, value in match))
    length = 4 + len(fields)
    return struct.pack("!HH", 1, length) + fields + bytes(-length % 8)


def flow_mod(
    command: int,
    place: tuple[int, int],
    match: Iterable[tuple[str, MatchValue]],
    actions: bytes,
    xid: int,
    *,
    cookie: int = 0,
    cookie_mask: int = 0,
    idle_timeout_s: int = 0,
) -> bytes:
    """A whole OFPT_FLOW_MOD message about the row of `place` (table, priority) with this match."""
    body = _match(match)
    if actions:
        body += struct.pack("!HH4x", _APPLY_ACTIONS, 8 + len(actions)) + actions
    table, priority = place
    head = _FLOW_MOD_HEAD.pack(
        *(_VERSION, _FLOW_MOD, _FLOW_MOD_HEAD.size + len(body), xid, cookie, cookie_mask),
        *(table, command, idle_timeout_s, 0, priority, _NO_BUFFER, _ANY, _ANY, 0, 0),
    )
    return head + body


def add_flow(flow: Flow, xid: int) -> bytes:
    """The message that adds `flow`, or replaces the row in its place and keeps its counters."""
    actions = b"".join(map(action_bytes, flow.actions))
    return flow_mod(_ADD, (flow.table, flow.priority), flow.match, actions, xid, cookie=flow.cookie)


def delete_flows(cookie: int, xid: int) -> bytes:
    """The message that deletes all rows with that cookie, in every table."""
    place = (_ALL_TABLES, _DEFAULT_PRIORITY)
    return flow_mod(_DELETE, place, (), b"", xid, cookie=cookie, cookie_mask=2**64 - 1)


def group_mod(command: int, group: Group, xid: int) -> bytes:
    """A whole OFPT_GROUP_MOD message.

    It always holds all buckets: to insert or remove single ones corrupts Open vSwitch's hash map.
    Raises TypeError for a bucket with an action that `read_groups` does not know.
    """
    body = properties = b""
    if command != OFPGC_DELETE:
        numbered = enumerate(group.buckets)
        body = b"".join(_bucket(number, bucket, group.kind) for number, bucket in numbered)
        if group.kind == Group.SELECT:
            dp_hash = (_NTR, _SELECTION_METHOD, b"dp_hash", group.hash_algorithm, 0)
            properties = _SELECTION.pack(_EXPERIMENTER, _SELECTION.size, *dp_hash)
    head = struct.pack(
        "!HBxIHxxI", command, _GROUP_TYPES[group.kind], group.group_id, len(body), _ANY
    )
    return message(_GROUP_MOD, head + body + properties, xid)


def _bucket(number: int, bucket: Bucket, kind: str) -> bytes:
    actions = b"".join(map(_bucket_action, bucket.actions))
    properties = struct.pack("!HHHxx", _WEIGHT, 8, 100) if kind == Group.SELECT else b""
    for what, watched in ((_WATCH_PORT, bucket.watch_port), (_WATCH_GROUP, bucket.watch_group)):
        if watched is not None:
            properties += struct.pack("!HHI", what, 8, watched)
    length = 8 + len(actions) + len(properties)
    return struct.pack("!HHI", length, len(actions), number) + actions + properties


@lru_cache(maxsize=4096)
def _bucket_action(action: Action) -> bytes:
    raw = action_bytes(action, _WHOLE_FRAME)
    if _read_actions(raw) != (action,):
        raise TypeError(f"no bucket may hold {action}")
    return raw


def packet_out(port: int, frame: bytes, xid: int) -> bytes:
    """A whole OFPT_PACKET_OUT message that sends `frame` out of `port`."""
    action = action_bytes(Output(port), _WHOLE_FRAME)
    head = struct.pack("!IHxx", _NO_BUFFER, len(action)) + _match([("in_port", CONTROLLER)])
    return message(_PACKET_OUT, head + action + frame, xid)


def tagged(frame: bytes, vlan: int) -> bytes:
    """An Ethernet frame with an 802.1Q tag of that VLAN ID, priority 0; unchanged for UNTAGGED."""
    tag = b"" if vlan == UNTAGGED else struct.pack("!HH", _ETH_VLAN, vlan)
    return frame[:12] + tag + frame[12:]


def untagged(frame: bytes) -> tuple[bytes, int]:
    """(the frame without its outermost 802.1Q tag, the tag's VLAN ID; UNTAGGED without one)."""
    if len(frame) < 16 or frame[12:14] != b"\x81\x00":
        return frame, UNTAGGED
    return frame[:12] + frame[16:], int.from_bytes(frame[14:16], "big") & 0xFFF


# ---- Replies


class Entry(NamedTuple):
    """A row in an OFPMP_FLOW_DESC reply. What has a variable length is bytes."""

    table: int
    priority: int
    cookie: int
    match: bytes
    statistics: bytes
    instructions: bytes

    def actions(self) -> Iterator[tuple[int, bytes]]:
        """(type, bytes) of each action that the row applies. Raises ValueError."""
        for kind, instruction in type_lengths(self.instructions):
            if kind == _APPLY_ACTIONS:
                yield from type_lengths(instruction[8:])


def read_entries(body: bytes) -> Iterator[Entry]:
    """The rows in an OFPMP_FLOW_DESC reply."""
    for entry in split_entries(body, 32):
        table, priority, cookie, match_length = _ROW_AT(entry)
        begin = 24 + padded(match_length)
        if match_length < 4 or begin + 4 > len(entry):
            raise ValueError("flow description: match is longer than its entry")
        (length,) = _LENGTH_AT(entry, begin + 2)
        if length < 4 or begin + length > len(entry):
            raise ValueError("flow description: statistics are longer than their entry")
        match, statistics = entry[28 : 24 + match_length], entry[begin + 4 : begin + length]
        yield Entry(table, priority, cookie, match, statistics, entry[begin + padded(length) :])


def read_fields(raw: bytes, field_class: int = _BASIC) -> dict[int, bytes]:
    """The bytes of all fields (or statistics) of one class, by their number.

    A masked field has its mask behind its value. Raises ValueError for a field that is cut off.
    """
    fields, offset, end = {}, 0, len(raw)
    while offset < end:
        if offset + 4 > end:
            raise ValueError("a field is cut off")
        found_class, number, size = _FIELD_AT(raw, offset)
        begin, offset = offset + 4, offset + 4 + size
        if offset > end:
            raise ValueError("a field is longer than its list")
        if found_class == field_class:
            fields[number >> 1] = raw[begin:offset]
    return fields


def read_flow_counters(body: bytes) -> list[FlowCounters]:
    """The rows in an OFPMP_FLOW_DESC reply, without matches and instructions."""
    result = []
    for entry in read_entries(body):
        statistics = read_fields(entry.statistics, _STATISTICS)
        packets = int.from_bytes(statistics.get(_PACKETS, b"")[:8], "big")
        octets = int.from_bytes(statistics.get(_BYTES, b"")[:8], "big")
        result.append(FlowCounters(entry.table, entry.cookie, Count(packets, octets)))
    return result


def read_group_counters(body: bytes) -> list[GroupCounters]:
    """The groups in an OFPMP_GROUP reply, with their buckets' counters."""
    result = []
    for entry in split_entries(body, 40):
        (number,) = struct.unpack_from("!I", entry, 4)
        rest = entry[40 : 40 + (len(entry) - 40) // 16 * 16]
        counts = tuple(map(Count._make, struct.iter_unpack("!QQ", rest)))
        result.append(GroupCounters(number, counts))
    return result


def read_groups(body: bytes) -> list[Group]:
    """The groups in an OFPMP_GROUP_DESC reply.

    A bucket with an action that this controller never sends gets no actions, so that it differs
    from any wanted bucket.
    """
    return [_read_group(entry) for entry in split_entries(body, 16)]


def _read_group(entry: bytes) -> Group:
    kind, number, buckets_length = struct.unpack_from("!BxIH", entry, 2)
    if 16 + buckets_length > len(entry):
        raise ValueError("group description: buckets are longer than their entry")
    buckets = []
    for raw in split_entries(entry[16 : 16 + buckets_length], 8):
        (actions_length,) = struct.unpack_from("!H", raw, 2)
        if 8 + actions_length > len(raw):
            raise ValueError("group description: actions are longer than their bucket")
        watched: dict[int, int | None] = {}
        for prop_type, prop in type_lengths(raw[8 + actions_length :]):
            if prop_type in (_WATCH_PORT, _WATCH_GROUP) and len(prop) >= 8:
                (what,) = struct.unpack_from("!I", prop, 4)
                watched[prop_type] = None if what == _ANY else what
        actions = _read_actions(raw[8 : 8 + actions_length])
        buckets.append(Bucket(watched.get(_WATCH_PORT), actions, watched.get(_WATCH_GROUP)))
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
    if raw in _FIXED_ACTIONS:
        return _FIXED_ACTIONS[raw]
    if kind == _OUTPUT and len(raw) == 16:
        return Output(struct.unpack_from("!I", raw, 4)[0])
    if kind == _GROUP and len(raw) == 8:
        return ToGroup(struct.unpack_from("!I", raw, 4)[0])
    if kind == _SET_FIELD and len(raw) == 16 and raw[4:8] in _BUCKET_FIELDS:
        name = _BUCKET_FIELDS[raw[4:8]]
        value = raw[8 : 8 + raw[7]]
        return SetField(name, value.hex(":") if len(value) == 6 else int.from_bytes(value, "big"))
    if kind == _EXPERIMENTER and len(raw) == 16:
        vendor, subtype, _, table = struct.unpack_from("!IHHB", raw, 4)
        if (vendor, subtype) == (_NICIRA, _RESUBMIT_TABLE):
            return Goto(table)
    return None


def split_entries(body: bytes, min_bytes: int, length_at: int = 0) -> Iterator[bytes]:
    """Split a list of entries, each of which has its own length in 16 bits at `length_at`.

    Raises ValueError for an entry of less than `min_bytes`, or one that is cut off.
    """
    offset = 0
    while offset < len(body):
        if offset + min_bytes > len(body):
            raise ValueError("an entry is cut off")
        (length,) = _LENGTH_AT(body, offset + length_at)
        if length < min_bytes or offset + length > len(body):
            raise ValueError(f"an entry of {length} bytes")
        yield body[offset : offset + length]
        offset += length


def type_lengths(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, bytes) of each item of a list.

    Items begin with a 16-bit type and a 16-bit length, and are padded to 8 bytes. Raises ValueError
    for an item that is longer than the list.
    """
    offset = 0
    while offset < len(raw):
        if offset + 4 > len(raw):
            raise ValueError("an item is cut off")
        kind, length = struct.unpack_from("!HH", raw, offset)
        if length < 4 or offset + length > len(raw):
            raise ValueError(f"an item of {length} bytes")
        yield kind, raw[offset : offset + length]
        offset += padded(length)
