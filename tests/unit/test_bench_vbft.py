# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench vbft`: who sends to whom, what could be had; rows, guests, tables and pages."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ri2n_lab.bench import vbft
from ri2n_lab.bench.cells import vbft_cells
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.patterns import CG_PAIRS, PATTERNS, Bound, bound, pattern_bound, phases
from ri2n_lab.bench.vbft import VbftSettings, labs, rescaled, with_flat
from ri2n_lab.bench.vbft_rows import compared, has_choice, settle_s, vbft_row
from ri2n_lab.cli import bench_vbft
from ri2n_lab.traffic.bulk import BIN_S, PhaseResult, Schedule, run_schedule
from ri2n_lab.traffic.flooding import parse_flooded
from ri2n_sdn.contract.choices import PATH_TABLES
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology
from tests.unit.bench_options import option
from tests.unit.test_bench_report_striped import page_of, written

Json = dict[str, Any]
RATE = 100_000_000
HOSTS = [f"n{number}" for number in range(1, 17)]


def fat_tree(leaves: int, uppers: int, hosts: int = 16) -> Topology:
    """As figure 5 of the VFREC-Net paper: every leaf has one cable to every upper switch."""
    each = hosts // leaves
    switches: Json = {
        f"leaf{leaf}": {
            "links": [
                {"to": f"up{up}", "port": each + up, "rate_bps": RATE}
                for up in range(1, uppers + 1)
            ]
        }
        for leaf in range(1, leaves + 1)
    }
    for up in range(1, uppers + 1):
        links = [
            {"to": f"leaf{leaf}", "port": leaf, "rate_bps": RATE} for leaf in range(1, leaves + 1)
        ]
        switches[f"up{up}"] = {"links": links}
    nics = {
        f"n{number + 1}": {
            "nics": [{"name": "nic0", "switch": f"leaf{number // each + 1}", "rate_bps": RATE}]
        }
        for number in range(hosts)
    }
    name = f"tree-{leaves}" if uppers == 1 else f"vbft-{leaves}-{uppers}"
    return Topology.model_validate({"name": name, "switches": switches, "hosts": nics})


def test_the_command_line_names_what_there_is() -> None:
    assert tuple(bench_vbft.PATTERNS) == PATTERNS
    assert tuple(bench_vbft.TABLES) == vbft.TABLES
    assert set(vbft.TABLES) < set(PATH_TABLES)
    assert tuple(bench_vbft.ENGINES) == vbft.ENGINES


# ---- patterns


def test_bisection_is_from_the_first_half_to_the_second() -> None:
    (pairs,) = phases("bisection", HOSTS)
    assert pairs == [(f"n{i}", f"n{i + 8}") for i in range(1, 9)]


def test_all_to_all_and_shifts_are_the_same_pairs() -> None:
    (at_once,) = phases("alltoall", HOSTS)
    one_by_one = phases("shift", HOSTS)
    assert len(one_by_one) == 15
    assert sorted(at_once) == sorted(pair for pairs in one_by_one for pair in pairs)
    assert len(set(at_once)) == 240 and all(sender != receiver for sender, receiver in at_once)
    for pairs in one_by_one:
        assert (
            sorted(sender for sender, _ in pairs)
            == sorted(HOSTS)
            == sorted(receiver for _, receiver in pairs)
        )


def test_cg_exchanges_both_ways() -> None:
    (pairs,) = phases("cg", HOSTS)
    assert ("n1", "n4") in pairs and ("n4", "n1") in pairs and ("n14", "n11") in pairs
    assert len(pairs) == 2 * len(CG_PAIRS) and {"n5", "n10", "n15", "n16"}.isdisjoint(
        sum(pairs, ())
    )


def test_patterns_need_enough_hosts() -> None:
    with pytest.raises(
        BadInput, match="--pattern cg: needs at least 14 hosts, the topology has 13"
    ):
        phases("cg", HOSTS[:13])
    with pytest.raises(BadInput, match="an even number of hosts, the topology has 5"):
        phases("bisection", HOSTS[:5])
    with pytest.raises(BadInput, match="at least 2"):
        phases("shift", HOSTS[:1])


# ---- what could be had


@pytest.mark.parametrize(
    ("leaves", "uppers", "share"),
    [(2, 1, 1 / 8), (4, 1, 2 / 8), (2, 2, 2 / 8), (2, 4, 4 / 8), (4, 2, 4 / 8), (4, 4, 1.0)],
)
def test_bisection_is_bounded_by_the_cables_of_the_sending_half(
    leaves: int, uppers: int, share: float
) -> None:
    topology = fat_tree(leaves, uppers)
    flat = pattern_bound(with_flat([topology])[0], "bisection")
    found = pattern_bound(topology, "bisection")
    assert [flat.total_bps, flat.each_bps] == pytest.approx([8 * RATE, RATE])
    assert [found.total_bps, found.each_bps] == pytest.approx([share * 8 * RATE, share * RATE])


def test_a_large_total_may_starve_pairs_and_equal_rates_may_not() -> None:
    found = pattern_bound(fat_tree(2, 1), "alltoall")
    assert found.total_bps == pytest.approx(16 * RATE)  # each leaf's hosts among themselves
    assert found.each_bps == pytest.approx(RATE / 64)  # 8 x 8 pairs over one cable


def test_hosts_pass_nothing_on() -> None:
    """Two switches whose only connection is a host with a NIC on each."""
    ends = {
        name: [{"name": "e0", "switch": switch, "rate_bps": RATE}]
        for name, switch in (("A", "s0"), ("B", "s1"))
    }
    both = [{"name": f"e{i}", "switch": f"s{i}", "rate_bps": RATE} for i in range(2)]
    hosts = {name: {"nics": nics} for name, nics in {**ends, "M": both}.items()}
    topology = Topology.model_validate(
        {"name": "apart", "switches": {"s0": {}, "s1": {}}, "hosts": hosts}
    )
    assert bound(topology, [("A", "B")]).total_bps == 0
    assert bound(topology, [("A", "M"), ("B", "M")]).total_bps == pytest.approx(2 * RATE)


def test_shift_is_the_mean_of_its_phases() -> None:
    topology = fat_tree(
        2, 1, hosts=4
    )  # shift by 1 and by 3: one pair each way over the cable, by 2: two
    assert pattern_bound(topology, "shift").total_bps == pytest.approx((4 + 2 + 4) / 3 * RATE)


# ---- topologies


def test_flat_has_the_same_hosts() -> None:
    topology = fat_tree(4, 2)
    flat, same = with_flat([topology])
    assert same is topology and flat.name == "flat" and flat.managed_hosts() == HOSTS
    assert len(flat.switches) == 1 and not list(flat.graph.cables())
    assert with_flat([topology, flat]) == [flat, topology]
    with pytest.raises(BadInput, match="topology tree-2: its hosts are others than those of flat"):
        with_flat([topology, fat_tree(2, 1, hosts=8)])


def test_queues_hold_the_same_time_at_other_rates() -> None:
    topology = rescaled(fat_tree(2, 2), 20_000_000)
    assert {nic.rate_bps for host in topology.hosts.values() for nic in host.nics} == {20_000_000}
    assert {cable.rate_bps for cable in topology.graph.cables()} == {20_000_000}
    assert {nic.queue_frames for host in topology.hosts.values() for nic in host.nics} == {200}
    assert {switch.port_buffer_bytes for switch in topology.switches.values()} == {30_280}, (
        "20 frames at least"
    )
    assert {switch.port_buffer_bytes for switch in rescaled(topology, 10**9).switches.values()} == {
        30_280
    }


def test_path_tables_differ_only_where_there_are_circles() -> None:
    assert [
        has_choice(each)
        for each in (fat_tree(2, 1), fat_tree(2, 2), with_flat([fat_tree(2, 2)])[0])
    ] == [*(False, True, False)]
    settings = VbftSettings(
        with_flat([fat_tree(4, 1), fat_tree(2, 2)]), tables=("cyclic", "spread")
    )
    assert [(topology.name, table) for topology, table, _ in labs(settings)] == [
        *(("flat", None), ("tree-4", None), ("vbft-2-2", "cyclic"), ("vbft-2-2", "spread"))
    ]


# ---- rows


def results(*rates: int, window_s: float = 2.0, **more: Any) -> list[PhaseResult]:
    """One phase in which n1 sends to n2, n3, ... so many bytes/s."""
    received = {
        ("n1", f"n{number}"): int(rate * window_s) for number, rate in enumerate(rates, start=2)
    }
    return [PhaseResult(window_s, received, **more)]


def row(
    topology: str, *rates: int, total_bps: float = 8e6, table: str | None = None, **more: Any
) -> Json:
    key = {
        "topology": topology,
        "pattern": "bisection",
        "table": table,
        "mode": "flow",
        "engine": "tcp",
        "streams": 1,
    }
    found = vbft_row(
        results(*rates),
        Bound(total_bps, 4e5),
        collective=False,
        warmup_s=1.0,
        smooth_s=1.0,
        hbspan_s=0.5,
    )
    return {**key, "repeat": 1, **found, "flooded": 0, "switch_drops": 0, **more}


def test_a_row_sums_what_receivers_got() -> None:
    found = row("flat", 40, 60)
    assert (found["bytes_per_s"], found["hosts"]) == (100, {"n2": 40, "n3": 60})
    assert (found["bound_bytes_per_s"], found["fair_bytes_per_s"], found["of_flat"]) == (
        1_000_000,
        50_000,
        None,
    )
    together = vbft_row(
        results(40, 60),
        Bound(800.0, 40.0),
        collective=True,
        warmup_s=1.0,
        smooth_s=1.0,
        hbspan_s=0.5,
    )
    assert together["bound_bytes_per_s"] == 10  # two pairs


def test_phases_are_means_and_retransmits_a_sum() -> None:
    two = [*results(40, 60, retransmits=3), *results(20, 20, retransmits=4)]
    found = vbft_row(
        two, Bound(800.0, 40.0), collective=False, warmup_s=1.0, smooth_s=1.0, hbspan_s=0.5
    )
    assert (found["bytes_per_s"], found["hosts"], found["retransmits"]) == (
        70,
        {"n2": 30, "n3": 40},
        7,
    )
    assert (found["worst_pair_bytes_per_s"], found["pair_bytes_per_s"]) == (20, 35)
    assert row("flat", 1)["retransmits"] is None


def test_shares_are_of_flat_in_the_same_pattern_and_mode() -> None:
    rows = [row("flat", 90, 110), row("flat", 100, 100), row("tree-2", 10, 40, total_bps=1e6)]
    rows.append(row("tree-2", 10, 40, mode="packet"))
    found = compared(rows)
    assert found[0]["of_flat"] == 1.0 and found[0]["worst_of_flat"] == 0.9
    shares = [found[2][f"{name}_of_flat"] for name in ("worst", "worst_pair", "bound", "fair")]
    assert (found[2]["of_flat"], shares) == (0.25, [0.1, 0.1, 0.125, 1.0])
    assert found[3]["of_flat"] is None and compared(found) == found


def test_a_rate_has_settled_when_it_stays() -> None:
    second = round(1 / BIN_S)
    slow, fast = [10] * second, [20] * second

    def settled(*parts: list[int], smooth_s: float = 1.0) -> float | None:
        bins = [count for part in parts for count in part]
        return settle_s(PhaseResult(len(parts) - 1.0, {}, bins=[*bins, *[0] * 5]), 1.0, smooth_s)

    assert settled(fast, fast, fast) == 0
    after = settled(slow, slow, slow, fast, fast, fast, fast, fast, fast)
    assert after is not None and 2.0 < after <= 3.0
    finer = settled(slow, slow, slow, fast, fast, fast, fast, fast, fast, smooth_s=0.25)
    assert finer is not None and after < finer <= 3.0
    assert settled(fast, fast, fast, fast, slow) is None
    assert settle_s(PhaseResult(2.0, {}), 1.0, 1.0) is None


# ---- guests


def test_a_guest_for_each_lab_and_repeat() -> None:
    topologies = [rescaled(each, 20_000_000) for each in with_flat([fat_tree(2, 2)])]
    settings = VbftSettings(
        topologies, ("cg",), ("cyclic", "adaptive"), ("flow", "packet"), seconds=4, repeat=2
    )
    files = {each.name: Path(f"/x/{each.name}.yaml") for each in topologies}
    cells = vbft_cells(settings, files, seed=3)
    seen = {
        (
            option(c, "topologies"),
            option(c, "tables"),
            option(c, "mode"),
        )
        for c in cells
    }
    assert len(cells) == 2 * len(seen) == 12
    assert ("/x/vbft-2-2.yaml", "adaptive", "packet") in seen
    assert ("/x/flat.yaml", "cyclic,adaptive", "flow") in seen
    for cell in cells:
        assert cell.arguments[:2] == ("vbft", "--no-flat") and cell.planned_s > 0
        assert [option(cell, name) for name in ("link-mbps", "pattern", "seconds", "repeat")] == [
            *("20", "cg", "4", "1")
        ]
        assert cell.overlay == {"repeat": cell.seed - 2}


# ---- traffic and meters


@pytest.mark.parametrize("datagram_bps", [0, 1_000_000])
def test_both_ends_count_the_same_window(datagram_bps: int) -> None:
    """Two hosts on one machine: each sends to the other, one after the other.

    UDP never more than it was told.
    """
    addresses = ["127.0.0.1", "127.0.0.2"]
    listeners = [socket.create_server((addresses[0], 0))]
    port = listeners[0].getsockname()[1]
    listeners.append(socket.create_server((addresses[1], port)))
    to = [[[1], []], [[], [0]]]
    found: list[list[Json]] = [[], []]
    start_s = time.monotonic() + 0.05

    def work(me: int) -> None:
        schedule = Schedule(
            *(me, addresses, to[me]),
            warmup_s=0.1,
            window_s=1.0,
            congestion="reno",
            port=port,
            datagram_bps=datagram_bps,
        )
        found[me] = run_schedule(schedule, listeners[me], start_s)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()
    assert found[0][0]["received"][1] == 0 < found[0][1]["received"][1]
    assert found[1][1]["received"][0] == 0 < found[1][0]["received"][0]
    assert sum(found[1][0]["bins"]) > found[1][0]["received"][0]  # before and after the window too
    assert sum(found[0][0]["bins"]) == 0
    if datagram_bps:
        assert (
            sum(found[1][0]["bins"]) * 8 <= datagram_bps * 1.3
        )  # all of 0.1 + 1.0 + 0.2 s, headers not counted


def test_flooded_are_the_frames_for_others() -> None:
    text = """OFPST_FLOW reply (OF1.5) (xid=0x6):
 cookie=0x1, table=1, n_packets=5, idle_age=8, priority=186,dl_dst=04:00:00:00:09:01 actions=drop
 cookie=0x2, table=1, n_packets=7, idle_age=8, priority=185,dl_src=04:00:00:00:0a:01 actions=drop
 cookie=0x3, table=1, n_packets=99, priority=85,dl_src=06:00:00:00:0a:01 actions=resubmit(,2)
 cookie=0x4, table=1, n_packets=99, n_bytes=9, priority=200,dl_src=06:00:00:00:09:01 actions=drop
"""
    helpers = (
        " cookie=0x5, duration=8.3s, table=1, n_packets=3, n_bytes=9, "
        "priority=196,dl_type=0x88b6 actions=drop\n"
    )
    assert parse_flooded(text) == 12 and parse_flooded(text + helpers) == 15
    assert parse_flooded("OFPST_FLOW reply (OF1.5) (xid=0x6):\n") == 0


# ---- what people see


def measured() -> list[Json]:
    rows = [row("flat", 100, 100), row("tree-2", 10, 15, total_bps=1e6)]
    rows += [
        row("vbft-2-2", 20, rate, table="adaptive", settle_hbspan=2.5, repeat=n)
        for n, rate in ((1, 30), (2, 20))
    ]
    return compared(rows)


def test_a_row_without_its_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rows\[0\]\.pattern"):
        page_of(written(tmp_path / "vbft.json", "vbft", [{"topology": "flat"}]))


def test_the_table_for_people() -> None:
    report = Report("vbft", None, {})
    report.replace(measured(), [], vbft.summarized(measured()))
    output = io.StringIO()
    Console(file=output, width=200).print(bench_vbft.vbft_table(report))
    lines = [line for line in output.getvalue().splitlines() if "vbft-2-2" in line]
    assert len(lines) == 1 and "adaptive" in lines[0] and "0.225 (0.200..0.250)" in lines[0]
    assert json.dumps(report.document["summary"])  # everything in it can be written
