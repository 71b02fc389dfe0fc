# SPDX-License-Identifier: Apache-2.0
"""Rows that are encoded without os-ken have exactly the bytes that os-ken makes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ri2n_sdn.apps.flow_codec import flow_mod
from ri2n_sdn.apps.flow_messages import add_flow
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from ri2n_sdn.pipeline.layout import ALL_MULTICAST, Table
from ri2n_sdn.pipeline.messages import Flow, Goto, Learn, Output, PopVlan, SetField, row
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.pipeline.priorities import Place

XID = 0x01020304
DATAPATH = SimpleNamespace(ofproto=ofp, ofproto_parser=parser)


def by_os_ken(flow: Flow) -> bytes:
    message = add_flow(DATAPATH, flow)
    message.set_xid(XID)
    message.serialize()
    return bytes(message.buf)


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
        )

    return Fabric({made.name: made for made in map(host, range(1, hosts + 1))})


def test_rows_of_a_plan_are_the_bytes_of_os_ken_and_those_of_pairs_need_it_not() -> None:
    plans = {count: plan_host(fabric(count), "h1", {}, 64) for count in (2, 12)}
    unknown = {}
    for count, plan in plans.items():
        made = {cookie: flow_mod(flow, XID) for cookie, flow in plan.flows.items()}
        for cookie, data in made.items():
            assert data in (None, by_os_ken(plan.flows[cookie])), plan.flows[cookie]
        unknown[count] = sum(data is None for data in made.values())
    assert unknown[2] == unknown[12] < 12, "what there is for each pair is encoded here"
    assert len(plans[12].flows) > 100


@pytest.mark.parametrize(
    "flow",
    [
        row(
            Place(Table.CLASSIFY, 110),
            {"in_port": 1, "vlan_vid": 0x1065},
            [PopVlan(), Goto(Table.RECEIVE)],
        ),
        row(Place(Table.SEND, 220), {"eth_type": 0x0800, "ip_proto": 6, "tcp_src": 6653}, []),
        row(Place(Table.LEARN, 100), {}, [Learn(Table.LEARNED, "reg2", 300, 1)]),
        row(Place(Table.SEND, 100), {"reg5": 1}, []),
        row(Place(Table.SEND, 100), {}, [SetField("reg4", 1)]),
    ],
)
def test_what_is_not_known_is_left_to_os_ken(flow: Flow) -> None:
    assert flow_mod(flow, XID) is None
    assert by_os_ken(flow)


def test_each_part_of_a_row_is_in_its_bytes() -> None:
    flow = row(
        Place(Table.RECEIVE, 150), {"in_port": 3, "eth_dst": ALL_MULTICAST, "reg1": 5}, [Output(2)]
    )
    others = [
        replace(flow, table=Table.SEND),
        replace(flow, priority=7),
        replace(flow, match=flow.match[:-1]),
        replace(flow, actions=()),
    ]
    found = [flow_mod(each, XID) for each in (flow, *others)]
    assert found == [by_os_ken(each) for each in (flow, *others)]
    assert len(set(found)) == 5
