# SPDX-License-Identifier: Apache-2.0
"""The messages that add, delete and read rows of the pipeline, as objects of os-ken.

Nearly all rows are encoded by `apps.flow_codec` instead, which is much faster. This module encodes
the others.
"""

from __future__ import annotations

import struct
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.pipeline import messages as plain
from ri2n_sdn.pipeline.layout import COOKIE_MASK, COOKIE_OURS, ETH_IPV6
from ri2n_sdn.pipeline.priorities import LEARNED, Placed

__all__ = ["add_flow", "delete_flows", "flow_request"]

# Bytes of a learn action's body before its specifications.
_LEARN_HEAD_BYTES = 22


def add_flow(datapath: Any, flow: plain.Flow) -> Any:
    """An OFPFlowMod that adds `flow`, or replaces the row in its place and keeps its counters."""
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        table_id=flow.table,
        command=ofp.OFPFC_ADD,
        priority=flow.priority,
        match=parser.OFPMatch(**dict(flow.match)),
        instructions=[
            parser.OFPInstructionActions(
                ofp.OFPIT_APPLY_ACTIONS,
                [encoded for action in flow.actions for encoded in _actions(action)],
            )
        ]
        if flow.actions
        else [],
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def delete_flows(datapath: Any, cookie: int, mask: int = 0xFFFFFFFFFFFFFFFF) -> Any:
    """An OFPFlowMod that deletes all rows whose cookie equals `cookie` under `mask`.

    It does so in every table.
    """
    return parser.OFPFlowMod(
        datapath,
        cookie=cookie,
        cookie_mask=mask,
        table_id=ofp.OFPTT_ALL,
        command=ofp.OFPFC_DELETE,
        match=parser.OFPMatch(),
        instructions=[],
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def flow_request(channel: Channel, table: int = ofp.OFPTT_ALL) -> Any:
    """A request for the counters of this controller's rows in one table, or in all."""
    return parser.OFPFlowDescStatsRequest(
        channel.datapath,
        0,
        table,
        ofp.OFPP_ANY,
        ofp.OFPG_ANY,
        COOKIE_OURS << 48,
        COOKIE_MASK,
        parser.OFPMatch(),
    )


class _LimitedLearn(parser.NXActionLearn):
    """The action `learn(limit=N, ...)`, which os-ken does not have.

    It is Nicira's action 45: the action 16, which os-ken has, with four more fields.
    """

    _subtype = 45
    limit = 0

    def serialize_body(self) -> bytearray:
        data = bytearray(super().serialize_body())
        data[_LEARN_HEAD_BYTES:_LEARN_HEAD_BYTES] = struct.pack("!IHH", self.limit, 0, 0)
        return data


def _follow(action: plain.Follow) -> Any:
    """A learn action: the answers of this TCP connection go by the path that reg5 holds."""
    version = "ipv6" if action.eth_type == ETH_IPV6 else "ipv4"
    bits = 128 if version == "ipv6" else 32

    def same(source: str, target: str, n_bits: int) -> Any:
        return parser.NXFlowSpecMatch(src=(source, 0), dst=(target, 0), n_bits=n_bits)

    learn = _LimitedLearn(
        table_id=action.table,
        idle_timeout=action.idle_timeout_s,
        fin_idle_timeout=action.fin_timeout_s,
        priority=Placed.FOLLOWED.priority,
        cookie=action.cookie,
        specs=[
            parser.NXFlowSpecMatch(src=action.eth_type, dst=("eth_type", 0), n_bits=16),
            parser.NXFlowSpecMatch(src=6, dst=("ip_proto", 0), n_bits=8),
            same("eth_src", "eth_dst", 48),
            same(f"{version}_src", f"{version}_dst", bits),
            same(f"{version}_dst", f"{version}_src", bits),
            same("tcp_src", "tcp_dst", 16),
            same("tcp_dst", "tcp_src", 16),
            parser.NXFlowSpecLoad(src=("reg5", 0), dst=("reg1", 0), n_bits=32),
        ],
    )
    learn.limit = action.limit
    return learn


def _look_back(action: plain.LookBack) -> list[Any]:
    """Swap source and destination, look into a table, and swap them back.

    Nothing is sent in between, so no frame is changed.
    """
    version, bits = ("ipv6", 128) if action.eth_type == ETH_IPV6 else ("ipv4", 32)
    swap = []
    for kind, n_bits in (("eth", 48), (version, bits), ("tcp", 16)):
        source, target = f"{kind}_src", f"{kind}_dst"
        swap += [
            parser.NXActionStackPush(field=name, start=0, end=n_bits) for name in (source, target)
        ]
        swap += [
            parser.NXActionStackPop(field=name, start=0, end=n_bits) for name in (source, target)
        ]
    return [*swap, parser.NXActionResubmitTable(table_id=action.table), *swap]


def _distinguish(action: plain.Distinguish) -> list[Any]:
    """Read addresses and ports of both ends and write them back unchanged.

    What a datapath caches depends on all fields that are read, so its entry then is for this
    connection alone.
    """
    version, bits = ("ipv6", 128) if action.eth_type == ETH_IPV6 else ("ipv4", 32)
    ends = [(f"{version}_src", bits), (f"{version}_dst", bits), ("tcp_src", 16), ("tcp_dst", 16)]
    push_and_pop = (parser.NXActionStackPush, parser.NXActionStackPop)
    return [
        stack(field=field, start=0, end=n_bits) for field, n_bits in ends for stack in push_and_pop
    ]


def _actions(action: plain.Action) -> list[Any]:
    """The os-ken actions of one action of a row."""
    if isinstance(action, plain.LookBack):
        return _look_back(action)
    return _distinguish(action) if isinstance(action, plain.Distinguish) else [_action(action)]


def _action(action: plain.Action) -> Any:
    if isinstance(action, plain.Output):
        return parser.OFPActionOutput(action.port, 0)
    if isinstance(action, plain.ToController):
        return parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
    if isinstance(action, plain.SetField):
        return parser.OFPActionSetField(**{action.name: action.value})
    if isinstance(action, plain.PushVlan):
        return parser.OFPActionPushVlan(0x8100)
    if isinstance(action, plain.PopVlan):
        return parser.OFPActionPopVlan()
    if isinstance(action, plain.Goto):
        return parser.NXActionResubmitTable(table_id=action.table)
    if isinstance(action, plain.ToGroup):
        return parser.OFPActionGroup(action.group_id)
    if isinstance(action, plain.TakeClass):
        fields = [parser.OFPOxmId("eth_src"), parser.OFPOxmId("reg6")]
        return parser.OFPActionCopyField(n_bits=8, oxm_ids=fields)
    if isinstance(action, plain.Note):
        return parser.NXActionNote(note=list(action.data))
    if isinstance(action, plain.OutputRegister):
        return parser.NXActionOutputReg(ofs_nbits=15, src=action.register, max_len=0)
    if isinstance(action, (plain.CopyField, plain.LookBack, plain.Distinguish)):
        raise TypeError(f"only buckets may hold {action}")
    if isinstance(action, plain.Follow):
        return _follow(action)
    return parser.NXActionLearn(
        table_id=action.table,
        idle_timeout=action.idle_timeout_s,
        priority=LEARNED.priority,
        cookie=action.cookie,
        specs=[
            parser.NXFlowSpecMatch(src=("eth_src", 0), dst=("eth_dst", 0), n_bits=48),
            parser.NXFlowSpecLoad(src=("in_port_nxm", 0), dst=(action.register, 0), n_bits=16),
        ],
    )
