# SPDX-License-Identifier: Apache-2.0
"""Bytes of the OFPT_FLOW_MOD messages for the kinds of rows that each pair of hosts has.

These are nearly all rows: 100 hosts have 140,000. os-ken takes 70 us to encode one; this module
takes a tenth of that. os-ken encodes the rows that this module does not know
(apps.flow_messages.add_flow); both make the same bytes. Layouts are those of the OpenFlow 1.5.1
specification, section 7.3.4.2.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ri2n_sdn.apps.codec import action_bytes, mac_bytes
from ri2n_sdn.pipeline.messages import (
    Action,
    Flow,
    Goto,
    MatchValue,
    Output,
    PushVlan,
    SetField,
    TakeClass,
    ToGroup,
)

__all__ = ["flow_mod"]

# The OpenFlow header, then the message's fields up to the match.
_HEAD = struct.Struct("!BBHIQQBBHHHIIIHH")
_VERSION, _FLOW_MOD, _ADD, _NO_BUFFER, _ANY = 6, 14, 0, 0xFFFFFFFF, 0xFFFFFFFF
_APPLY_ACTIONS = 4
# The headers of an exact and of a masked match.
_MACS = {"eth_dst": (0x80000606, 0x8000070C), "eth_src": (0x80000806, 0x8000090C)}
_NUMBERS = {
    "in_port": struct.Struct("!II"),
    "eth_type": struct.Struct("!IH"),
    "ip_proto": struct.Struct("!IB"),
    "icmpv6_type": struct.Struct("!IB"),
    **dict.fromkeys(("reg1", "reg2", "reg4", "reg6", "reg7"), struct.Struct("!II")),
}
_HEADERS = {
    **{
        "in_port": 0x80000004,
        "eth_type": 0x80000A02,
        "ip_proto": 0x80001401,
        "icmpv6_type": 0x80003A01,
    },
    **{"reg1": 0x00010204, "reg2": 0x00010404, "reg4": 0x00010804},
    **{"reg6": 0x00010C04, "reg7": 0x00010E04},
}


def flow_mod(flow: Flow, xid: int) -> bytes | None:
    """A whole message that adds `flow` or replaces the row in its place.

    None when this module does not know a field or an action of it, so that os-ken must encode it.
    """
    try:
        # Fields are in the order of their numbers: a field comes after the fields that it requires.
        match = b"".join(sorted(_field(name, value) for name, value in flow.match))
        actions = b"".join(_action(action) for action in flow.actions)
    except KeyError:
        return None
    length = 4 + len(match)
    match = struct.pack("!HH", 1, length) + match + bytes(-length % 8)
    if actions:
        actions = struct.pack("!HH4x", _APPLY_ACTIONS, 8 + len(actions)) + actions
    head = _HEAD.pack(
        *(_VERSION, _FLOW_MOD, _HEAD.size + len(match) + len(actions), xid),
        *(flow.cookie, 0, flow.table, _ADD, 0, 0, flow.priority, _NO_BUFFER, _ANY, _ANY, 0, 0),
    )
    return head + match + actions


@lru_cache(maxsize=4096)
def _field(name: str, value: MatchValue) -> bytes:
    """The bytes of one field of a match. Raises KeyError for an unknown field."""
    if name in _MACS:
        exact, masked = _MACS[name]
        if isinstance(value, tuple):
            return struct.pack("!I6s6s", masked, mac_bytes(str(value[0])), mac_bytes(str(value[1])))
        return struct.pack("!I6s", exact, mac_bytes(str(value)))
    if not isinstance(value, int):
        raise KeyError(name)
    return _NUMBERS[name].pack(_HEADERS[name], value)


@lru_cache(maxsize=4096)
def _action(action: Action) -> bytes:
    """The bytes of one action. Raises KeyError for an unknown action."""
    if isinstance(action, Output):
        return struct.pack("!HHIH6x", 0, 16, action.port, 0)
    if isinstance(action, SetField):
        if action.name not in (*_MACS, "reg1", "reg2"):
            raise KeyError(action.name)
    elif not isinstance(action, Goto | ToGroup | PushVlan | TakeClass):
        raise KeyError(type(action).__name__)
    return action_bytes(action)
