# SPDX-License-Identifier: Apache-2.0
"""The bytes of rows: os-ken reads in them what the row is, and makes the same bytes of that."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.codec import add_flow, delete_flows
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from ri2n_sdn.jobs.model import Service
from ri2n_sdn.pipeline.jobs import Enclosure, HostJobs
from ri2n_sdn.pipeline.layout import ALL_MULTICAST, ETH_IPV4, ETH_IPV6, Table
from ri2n_sdn.pipeline.messages import (
    Action,
    Distinguish,
    Flow,
    Follow,
    Learn,
    LookBack,
    Note,
    Output,
    OutputRegister,
    TakeClass,
    row,
)
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.pipeline.priorities import Place

XID = 0x01020304
DATAPATH = SimpleNamespace(ofproto=ofp, ofproto_parser=parser)
BEHIND_THE_HEAD = 72
"""The bytes of a message without a match up to its first action."""


def as_os_ken_reads(data: bytes) -> Any:
    """The message that os-ken reads. It makes the same bytes of it again."""
    message = parser.OFPFlowMod.parser(DATAPATH, data[0], data[1], len(data), XID, data)
    again = parser.OFPFlowMod(
        DATAPATH, **{name: getattr(message, name) for name in ("match", "instructions", *NUMBERS)}
    )
    again.set_xid(XID)
    again.serialize()
    assert bytes(again.buf) == data
    return message


NUMBERS = (
    *("cookie", "cookie_mask", "table_id", "command", "idle_timeout", "hard_timeout", "priority"),
    *("buffer_id", "out_port", "out_group", "flags", "importance"),
)


def fabric(hosts: int) -> Fabric:
    def host(number: int) -> Host:
        name = f"h{number}"
        nics = tuple(
            Nic(
                name,
                f"e{port}",
                port,
                f"04:00:00:00:{number:02x}:{port:02x}",
                10**9,
                network=f"n{port}",
            )
            for port in (1, 2)
        )
        return Host(
            name,
            number,
            f"02:00:00:00:00:{number:02x}",
            nics,
            accepts_wire=True,
            helper=True,
            helper_up=True,
            control_port=6653,
        )

    made = {each.name: each for each in map(host, range(1, hosts + 1))}
    return Fabric(made, placement={"h1": (80,), "h2": ()})


def test_os_ken_reads_what_a_row_of_a_plan_says() -> None:
    services = (Service("10.0.0.9", "tcp", 2049), Service("fd77::9", "udp", 53))
    jobs = HostJobs((), Enclosure("j", bytes(32), frozenset({"h1", "h2"}), services), {3: b"{}"})
    for name in ("h1", "h3"):
        plan = plan_host(fabric(4), name, {}, 64, jobs)
        assert len(plan.flows) > 100
        for flow in plan.flows.values():
            if TakeClass() in flow.actions:
                continue  # os-ken 4.2.2 cannot read that action
            read = as_os_ken_reads(add_flow(flow, XID))
            found = (read.xid, read.cookie, read.table_id, read.priority, read.command)
            assert found == (XID, flow.cookie, flow.table, flow.priority, ofp.OFPFC_ADD)
            assert dict(read.match.items()) == dict(flow.match)
            assert (read.out_port, read.out_group) == (ofp.OFPP_ANY, ofp.OFPG_ANY)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            Learn(Table.LEARNED, "reg2", 300, 0x5233 << 48),
            "0010012c0000000a523300000000000000000b000000000000308000080600008000060600000810"
            "00000002000000010404000000000000",
        ),
        (
            Follow(Table.PLACED, ETH_IPV4, 30, 1, 4096, 0x5233 << 48 | 2 << 32),
            "002d001e0000000a523300020000000000000d000001000000001000000000002010080080000a02"
            "00002008000680001401000000308000080600008000060600000020800016040000800018040000"
            "0020800018040000800016040000001080001a02000080001c020000001080001c02000080001a02"
            "0000082000010a040000000102040000",
        ),
        (
            Follow(Table.PLACED, ETH_IPV6, 30, 1, 4096, 0x5233 << 48 | 2 << 32),
            "002d001e0000000a523300020000000000000d00000100000000100000000000201086dd80000a02"
            "00002008000680001401000000308000080600008000060600000080800034100000800036100000"
            "0080800036100000800034100000001080001a02000080001c020000001080001c02000080001a02"
            "0000082000010a040000000102040000",
        ),
        (
            LookBack(Table.PLACED, ETH_IPV4),
            "001b0000800008060030000000000000ffff001800002320001b0000800006060030000000000000"
            "ffff001800002320001c0000800008060030000000000000ffff001800002320001c000080000606"
            "0030000000000000ffff001800002320001b0000800016040020000000000000ffff001800002320"
            "001b0000800018040020000000000000ffff001800002320001c0000800016040020000000000000"
            "ffff001800002320001c0000800018040020000000000000ffff001800002320001b000080001a02"
            "0010000000000000ffff001800002320001b000080001c020010000000000000ffff001800002320"
            "001c000080001a020010000000000000ffff001800002320001c000080001c020010000000000000"
            "ffff001000002320000efff80d000000ffff001800002320001b0000800008060030000000000000"
            "ffff001800002320001b0000800006060030000000000000ffff001800002320001c000080000806"
            "0030000000000000ffff001800002320001c0000800006060030000000000000ffff001800002320"
            "001b0000800016040020000000000000ffff001800002320001b0000800018040020000000000000"
            "ffff001800002320001c0000800016040020000000000000ffff001800002320001c000080001804"
            "0020000000000000ffff001800002320001b000080001a020010000000000000ffff001800002320"
            "001b000080001c020010000000000000ffff001800002320001c000080001a020010000000000000"
            "ffff001800002320001c000080001c020010000000000000",
        ),
        (
            Distinguish(ETH_IPV6),
            "001b0000800034100080000000000000ffff001800002320001c0000800034100080000000000000"
            "ffff001800002320001b0000800036100080000000000000ffff001800002320001c000080003610"
            "0080000000000000ffff001800002320001b000080001a020010000000000000ffff001800002320"
            "001c000080001a020010000000000000ffff001800002320001b000080001c020010000000000000"
            "ffff001800002320001c000080001c020010000000000000",
        ),
        (OutputRegister("reg2"), "000f000f000104040000000000000000"),
        (TakeClass(), "000000008000080600010c0400000000"),
        (Note(b"seven b"), "0008736576656e206200000000000000"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_actions_of_open_vswitchs_own_have_these_bytes(action: Action, expected: str) -> None:
    """Most of them were made by os-ken, which encoded them in earlier versions."""
    data = add_flow(row(Place(0), {}, [action]), XID)
    assert data[BEHIND_THE_HEAD:].hex() == expected


@given(st.integers(0, 2**64 - 1))
def test_a_cookie_says_which_rows_go(cookie: int) -> None:
    read = as_os_ken_reads(delete_flows(cookie, XID))
    assert (read.command, read.table_id, read.match.items()) == (
        ofp.OFPFC_DELETE,
        ofp.OFPTT_ALL,
        [],
    )
    assert (read.cookie, read.cookie_mask) == (cookie, 2**64 - 1)


def test_each_part_of_a_row_is_in_its_bytes() -> None:
    flow = row(
        Place(Table.RECEIVE, 150), {"in_port": 3, "eth_dst": ALL_MULTICAST, "reg1": 5}, [Output(2)]
    )
    others: list[Flow] = [
        replace(flow, table=Table.SEND),
        replace(flow, priority=7),
        replace(flow, match=flow.match[:-1]),
        replace(flow, actions=()),
    ]
    found = [add_flow(each, XID) for each in (flow, *others)]
    assert all(as_os_ken_reads(data) for data in found)
    assert len(set(found)) == 5
