# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench helper`: which labs and loads there are, how rows are compared, and the two ends."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench import helper, helper_ends, helper_plan
from ri2n_lab.bench.cpus import TICK_S, busy_s
from ri2n_lab.bench.fast import lacking, parts
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.helper_loads import percentiles
from ri2n_lab.bench.helper_plan import HelperSettings, Load, beside, blank_row, loads, speed_rows
from ri2n_lab.bench.own_cpu import Process, parse_process, worked_s
from ri2n_lab.bench.stream import topology_of
from ri2n_lab.bench.striped import MODES
from ri2n_lab.bench.unshaped import takes_super_packets
from ri2n_lab.cli import bench_striped
from ri2n_lab.cluster import plan
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import load_topology
from tests.unit.commands import REPOSITORY

Json = dict[str, Any]
NETDEV = "netdev"


def row(place: helper_plan.Place, load: Load, repeat: int, **figures: float) -> Json:
    return {**blank_row(place, load, repeat), **figures}


# ---- what there is


def test_the_command_line_names_what_there_is() -> None:
    assert list(helper_plan.CONTENDERS) == bench_striped.CONTENDERS
    assert list(helper_plan.DATAPATHS) == bench_striped.DATAPATHS


def test_labs_are_of_the_chosen_contenders_and_datapaths() -> None:
    every = HelperSettings().places
    assert every[:2] == [("veth", None), ("mptcp", None)]
    assert {each for each in every if each[0] == "flow_fast"} == {
        ("flow_fast", "netdev"),
        ("flow_fast", "system"),
    }
    assert len(every) == len(set(every))
    some = HelperSettings(what=("veth", "flow", "packet"), datapaths=("netdev-tso",))
    assert some.places == [("veth", None), ("flow", "netdev-tso"), ("packet", "netdev-tso")]


def test_loads_have_names_of_their_own_and_floods_come_last() -> None:
    found = loads(HelperSettings(streams=(1, 8)))
    assert len({load.name for load in found}) == len(found)
    assert [load.kind for load in found][-1] == "packets"
    assert {load.part for load in found} | {helper_plan.MEMORY} == set(helper_plan.PARTS)
    streams = [load.name for load in found if load.kind == "streams"]
    assert streams == ["1 stream", "1 stream each way", "8 streams", "8 streams each way"]
    assert helper_plan.total_seconds(HelperSettings(repeat=2)) > helper_plan.total_seconds(
        HelperSettings(repeat=1)
    )


def test_super_packets_are_for_whom_they_do_not_break() -> None:
    assert not takes_super_packets("ri2n", "netdev", False)
    assert takes_super_packets("ri2n", "netdev", True)
    assert takes_super_packets("ri2n", "netdev", False, fast=True)
    assert takes_super_packets("ri2n", "system", False)
    assert takes_super_packets("none", "netdev", False)


# ---- a cable in the place of a switch


def test_a_cable_joins_the_two_nics_of_a_switch() -> None:
    topology = topology_of("10,10")
    plan.check_direct(topology)
    names_of = {"A": "a", "B": "b", "sw": "s", "mgmt": "m"}
    direct = plan.link_commands(topology, names_of, direct=True)
    cables = [line for line in direct if "mgmt0" not in line]
    assert [re.findall(r"(eth\d) netns (\w)", line) for line in cables] == [
        [("eth0", "a"), ("eth0", "b")],
        [("eth1", "a"), ("eth1", "b")],
    ]
    switched = plan.link_commands(topology, names_of)
    assert len([line for line in switched if " netns s " in line]) == 4
    macs = re.findall(r"address (\S+)", " ".join(cables))
    assert macs == [plan.nic_mac(topology, host, nic) for nic in ("eth0", "eth1") for host in "AB"]


@pytest.mark.parametrize("name", ["one-switch", "fig4/h"])
def test_no_cable_takes_the_place_of_a_switch_with_more_nics(name: str) -> None:
    with pytest.raises(BadInput, match="no cable can take its place"):
        plan.check_direct(load_topology(REPOSITORY / "topologies" / f"{name}.yaml"))


# ---- rows


def test_ratios_are_of_the_same_round_and_load() -> None:
    stream, ping, short = Load("streams"), Load("ping"), Load("connections")
    rows = [
        row(("veth", None), stream, 1, goodput_bps=10e9, cpu_s_per_gbit=0.1),
        row(("veth", None), stream, 2, goodput_bps=20e9, cpu_s_per_gbit=0.2),
        row(("flow", NETDEV), stream, 1, goodput_bps=5e9, cpu_s_per_gbit=0.3),
        row(("flow", NETDEV), stream, 2, goodput_bps=5e9, cpu_s_per_gbit=0.3),
        row(("flow", NETDEV), stream, 3, goodput_bps=5e9),
        row(("veth", None), ping, 1, median_us=50.0),
        row(("flow", NETDEV), ping, 1, median_us=80.0),
        row(("veth", None), short, 1, per_s=1000, cpu_us_each=10),
        row(("flow", NETDEV), short, 1, per_s=800, cpu_us_each=15),
    ]
    found = beside(rows)
    assert [each["of_veth"] for each in found] == [1, 1, 0.5, 0.25, None, None, None, 1, 0.8]
    assert [each["cpu_of_veth"] for each in found] == [1, 1, 3, 1.5, None, None, None, 1, 1.5]
    assert [each["times_veth"] for each in found[5:7]] == [1.0, 1.6]
    assert [each["over_veth_us"] for each in found[4:7]] == [None, 0.0, 30.0]
    lines = {(line["what"], line["load"]): line for line in helper_plan.summarized(rows)}
    assert lines["flow", "1 stream"]["of_veth"] == 0.375
    assert lines["flow", "1 stream"]["of_veth_spread"] == [0.25, 0.5]
    assert lines["flow", "1 stream"]["repeats"] == 3


def test_without_a_veth_there_are_no_ratios() -> None:
    found = beside([row(("flow", NETDEV), Load("streams"), 1, goodput_bps=1e9)])
    assert found[0]["of_veth"] is None and found[0]["goodput_bps"] == 1e9


def test_rows_of_the_speed_program() -> None:
    output = (
        'warming up\n{"what": "in order", "packets_per_s": 6.5e6, "ns": 150}\n{"what": "x", '
        '"packets_per_s": 1}\n'
    )
    rows = speed_rows(output)
    assert [(each["what"], each["packets_per_s"]) for each in rows] == [
        ("in order", 6_500_000),
        ("x", 1),
    ]
    assert helper_plan.summarized(rows)[0]["part"] == helper_plan.MEMORY
    assert set(names(helper_plan.FIGURES)) < set(rows[0])
    with pytest.raises(KeyError):
        speed_rows('{"what": "in order"}')


def test_percentiles() -> None:
    assert percentiles([float(each) for each in range(100, 0, -1)]) == {
        "median_us": 50.5,
        "p99_us": 100.0,
    }
    with pytest.raises(NotAvailable):
        percentiles([])


def test_the_fast_path_carries_when_programs_filter_and_peers_say_so() -> None:
    good: Json = {"programs": "in_force", "filter": "in_force"}
    good["peers"] = {"carried": 2, "striped_tcp": 1}
    assert lacking(good, {"carried": 2, "striped_tcp": 1}) is None
    assert lacking({**good, "filter": "not_needed"}, {"carried": 2}) is None
    assert lacking(good, {"carried": 3}) == "2 of 3 peers carried"
    assert lacking(good, {"carried": 1, "striped": 1}) == "0 of 1 peers striped"
    assert lacking({**good, "filter": "missing"}, {"carried": 1}) == "filter missing"
    assert lacking({**good, "programs": "refused"}, {"carried": 1}) == "programs refused"
    assert lacking({}, {"carried": 1}) == "programs None"


def test_a_mode_says_what_a_lab_has() -> None:
    assert {mode: (parts(mode)["helpers"], parts(mode)["fast"]) for mode in MODES} == {
        "flow": (False, False),
        "flow_fast": (False, True),
        "packet": (True, False),
        "packet_fast": (True, True),
    }


class Restless:
    """An end that measures beside so many foreign CPUs, one after the other."""

    def __init__(self, foreign_cpus: list[float]) -> None:
        self.left = list(foreign_cpus)

    def measure(self, load: Load, seconds: int) -> tuple[Json, Json]:
        used = self.left.pop(0)
        return {"foreign_cpus": used}, {"used": used}


def test_the_calmest_try_counts_and_a_calm_one_is_the_last() -> None:
    def chosen(tries: int, *foreign_cpus: float) -> tuple[float, int]:
        end = Restless(list(foreign_cpus))
        row, raw = helper._calmest(end, Load("ping"), HelperSettings(tries=tries))  # type: ignore[arg-type]
        assert raw["used"] == row["foreign_cpus"]
        return row["foreign_cpus"], len(end.left)

    assert chosen(1, 1.9, 0.1) == (1.9, 1)
    assert chosen(3, 1.9, 0.5, 0.7) == (0.5, 0)
    assert chosen(3, 1.9, 0.1, 0.0) == (0.1, 1)


# ---- whose CPU seconds


def test_the_machine_s_work_is_all_but_idling() -> None:
    assert busy_s("cpu  100 10 200 9999 999 30 40 77 0 0\ncpu0 1 1\n") == pytest.approx(
        380 * TICK_S
    )


def stat(pid: int, parent: int, *ticks: int, began: int = 5) -> str:
    before = f"{pid} (a ) b) S {parent} 1 1 0 -1 0 0 0 0 0"
    return f"{before} {' '.join(map(str, ticks))} 20 0 1 0 {began} 0 0"


def processes(*stats: str) -> dict[int, Process]:
    parsed = {int(text.split()[0]): parse_process(text) for text in stats}
    return {pid: process for pid, process in parsed.items() if process is not None}


def test_threads_of_the_kernel_are_no_programs() -> None:
    assert processes(stat(2, 0, 9, 9, 9, 9), stat(77, 2, 9, 9, 9, 9)) == {}
    first = processes(stat(1, 0, 1, 2, 3, 4))[1]
    assert (first.parent, first.began) == (0, 5)
    assert (first.own_s, first.children_s) == pytest.approx((3 * TICK_S, 7 * TICK_S))


def test_the_work_of_those_that_ended_is_found_at_their_parents() -> None:
    before = processes(
        stat(10, 1, 5, 5, 100, 0),
        stat(11, 10, 50, 0, 20, 0),  # ends, and before it
        stat(12, 11, 30, 0, 0, 0),  # its child
        stat(13, 1, 7, 0, 0, 0),
        stat(14, 10, 400, 0, 0, 0, began=6),  # ends, and another has its number then
    )
    after = processes(
        stat(10, 1, 6, 6, 100 + 53 + 20 + 32 + 401, 0),
        stat(13, 1, 9, 0, 0, 0),
        stat(14, 1, 3, 1, 2, 0, began=9),
    )
    # 2 of process 10; 3 + 2 + 1 of those that ended; 2 of process 13; 6 of the new process 14.
    assert worked_s(before, after) == pytest.approx(16 * TICK_S)
    assert worked_s(before, before) == 0.0


def test_work_that_nobody_has_waited_for_is_lost_and_takes_nobody_else_s_away() -> None:
    first = stat(1, 0, 0, 0, 0, 0)
    before = processes(
        first, stat(10, 1, 0, 0, 0, 0), stat(11, 10, 900, 0, 0, 0), stat(13, 1, 0, 0, 0, 0)
    )
    after = processes(stat(1, 0, 0, 0, 950, 0), stat(10, 1, 0, 0, 0, 0), stat(13, 1, 8, 0, 0, 0))
    assert worked_s(before, after) == pytest.approx(8 * TICK_S)


def test_the_kernel_says_it_in_this_form() -> None:
    def me() -> dict[int, Process]:
        return processes(Path(f"/proc/{os.getpid()}/stat").read_text())

    before = me()
    spin = "import os\nwhile sum(os.times()[:2]) < 0.1: pass\n"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert worked_s(before, me()) >= 0.1


# ---- the two ends


@pytest.fixture
def address() -> tuple[str, int]:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=helper_ends.answer, args=(listener,), daemon=True).start()
    found: tuple[str, int] = listener.getsockname()
    return found


def test_requests_are_timed_over_one_connection_after_the_other(
    address: tuple[str, int],
) -> None:
    for _ in range(2):
        times_us = helper_ends.requests(address, 0.2, 0.0)
        assert times_us and min(times_us) > 0


def test_short_connections_are_counted(address: tuple[str, int]) -> None:
    count, seconds = helper_ends.connections(address, 0.2)
    assert count > 0 and seconds >= 0.2
    assert helper_ends.requests(address, 0.05, 0.0)


def test_a_client_that_breaks_off_does_not_end_the_server(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(helper_ends.STAY)
    assert helper_ends.connections(address, 0.05)[0] > 0
