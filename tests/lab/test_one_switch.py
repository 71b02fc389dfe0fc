"""Several NICs of every host on one switch: the commonest cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ri2n_sdn.cli.client import call
from ri2n_sdn.errors import BadInput
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.traffic import Stream
from tests.lab.conftest import controlled
from tests.lab.packets import broadcasts_arrive_once


@pytest.fixture(scope="module")
def one_switch() -> Iterator[Lab]:
    with controlled("one-switch") as lab:
        yield lab


def test_a_broadcast_arrives_once_at_every_host(one_switch: Lab) -> None:
    broadcasts_arrive_once(one_switch)


def test_udp_flows_spread_over_slots_and_over_both_nics_of_one_switch(one_switch: Lab, stream_pps: float) -> None:
    """64 UDP flows of several Mbit/s make the pair active: its own group counts them per slot."""
    seconds, size = (4, 500) if stream_pps >= 1000 else (10, 1400)
    got = Stream(one_switch, "B", "A", pps=2 * stream_pps, seconds=seconds, flows=64, size=size).result()
    assert (got.lost, got.duplicates) == (0, 0)
    status = call(one_switch.controller_socket, "status")
    pair = next(pair for pair in status["pairs"] if (pair["src"], pair["dst"]) == ("B", "A"))
    assert pair["active"] and sum(path["slots"] for path in pair["paths"]) == 64
    stats = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-group-stats", "br-ri2n", f"group_id={pair['group']}")
    used = sum(int(count) > 0 for count in re.findall(r"bucket\d+:packet_count=(\d+)", stats))
    assert used > 30, stats
    flows = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-flows", "br-ri2n", "table=30")
    nics = {port for n, port in re.findall(r"n_packets=(\d+).*output:(\d+)", flows) if int(n) > got.sent / 16}
    assert nics == {"1", "2"}, flows


def test_explain_says_what_is_installed(one_switch: Lab) -> None:
    told = call(one_switch.controller_socket, "explain", src="B", dst="A")
    assert told["kind"] == "managed" and len(told["slots"]) == 64
    rows = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-flows", "br-ri2n", "table=10")
    mac = next(host["mac"] for host in call(one_switch.controller_socket, "status")["hosts"] if host["name"] == "A")
    group = re.search(rf"priority=100,[^ ]*dl_dst={mac} actions=group:(\d+)", rows)
    assert group is not None, rows
    buckets = one_switch.ofctl("B", "-O", "OpenFlow15", "dump-groups", "br-ri2n", group[1])
    ports = [int(value, 16) for value in re.findall(r"set_field:(0x[0-9a-f]+)->reg1", buckets)]
    names = [[f"eth{(value >> 22) - 1}", f"eth{(value >> 12 & 0x3FF) - 1}", None] for value in ports]
    assert names == told["slots"]


def test_a_strategy_can_be_changed_while_it_runs(one_switch: Lab) -> None:
    for name in ("ri2n_plus", "round_robin", "ri2n_plus_plus", "max_min"):
        call(one_switch.controller_socket, "strategy", name=name)
        assert call(one_switch.controller_socket, "status")["strategy"] == name
    with pytest.raises(BadInput, match="best"):
        call(one_switch.controller_socket, "strategy", name="best")
