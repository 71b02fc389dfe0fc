# SPDX-License-Identifier: Apache-2.0
"""Benches of the helper: what is read off a lab, how a run is judged, which labs and guests run."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_lab.bench import failover, sampled, stream
from ri2n_lab.bench.awake import cpus_awake
from ri2n_lab.bench.cells import demand_cells, failover_cells, fig4_cells, stream_cells
from ri2n_lab.bench.demand import DemandSettings, Samples, held_from, judge
from ri2n_lab.bench.failover import FailoverSettings
from ri2n_lab.bench.fig4 import Fig4Settings
from ri2n_lab.bench.helper_faults import DOWN_S, HELPER_FAULTS, traffic_again_ms
from ri2n_lab.bench.meters import netstat_value, parse_drops, parse_pings, round_trips_row
from ri2n_lab.bench.sampled import BIN_S, receive
from ri2n_lab.bench.stream import StreamSettings, parse_links, sum_bps, topology_of, udp_rate
from ri2n_lab.bench.striped import (
    MODES,
    Autonomous,
    contender,
    links_between,
    usable_links,
    with_plain,
)
from ri2n_lab.cli import bench as command
from ri2n_lab.cli import bench_striped
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology, load_topology
from tests.unit.bench_options import option

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
MAC = "02:00:00:00:00:01"
Json = dict[str, Any]


@pytest.fixture
def f() -> Topology:
    return load_topology(TOPOLOGIES / "fig4" / "f.yaml")


# ---- names that the command line repeats


def test_the_command_line_names_what_there_is() -> None:
    assert tuple(command.MODES) == MODES
    assert tuple(bench_striped.PROTOCOLS) == stream.PROTOCOLS
    assert tuple(bench_striped.CONGESTION_CONTROLS) == stream.CONGESTION_CONTROLS


# ---- what is read off a lab


def test_drops_are_those_of_root_queues() -> None:
    assert (
        parse_drops(
            '[{"kind":"tbf","root":true,"drops":7},{"kind":"pfifo","parent":"1:1","drops":7}]'
        )
        == 7
    )
    assert parse_drops('[{"kind":"noqueue","root":true}]') == 0


def test_a_counter_of_the_kernel() -> None:
    text = "TcpExt: A TCPOFOQueue B\nTcpExt: 1 42 3\nIpExt: TCPOFOQueue\nIpExt: 9\n"
    assert netstat_value(text, "TcpExt", "TCPOFOQueue") == 42
    assert netstat_value(text, "TcpExt", "Absent") == 0


def test_round_trips() -> None:
    output = (
        "64 bytes from 10.77.0.1: icmp_seq=1 ttl=64 time=0.25 ms\nx\n64 bytes: icmp_seq=2 "
        "ttl=64 time=12 ms\n"
    )
    assert parse_pings(output) == [0.25, 12.0]
    row = round_trips_row([0.2, 0.3, 0.4], [float(value) for value in range(1, 101)])
    assert row == {"ping_idle_ms": 0.3, "ping_load_ms": 50.5, "ping_load_p99_ms": 100.0}


def test_links_in_use_are_those_of_a_striped_peer(f: Topology) -> None:
    links = [{"usable": True}, {"usable": False}, {"usable": True}]
    assert usable_links({"peers": [{"mac": MAC, "striped": True, "links": links}]}, MAC) == 2
    assert usable_links({"peers": [{"mac": MAC, "striped": False, "links": links}]}, MAC) == 0
    assert usable_links({"peers": []}, MAC) == 0 == usable_links({}, None)
    assert [links_between(f, one, "A") for one in "BCD"] == [1, 2, 2]
    one_switch = load_topology(TOPOLOGIES / "one-switch.yaml")
    first, second = list(one_switch.hosts)[:2]
    assert links_between(one_switch, first, second) == 4


def test_a_plain_host_has_no_helper(f: Topology) -> None:
    plain = with_plain(f, ["B"])
    assert (plain.helper_hosts(), f.helper_hosts()) == (["A", "C", "D"], ["A", "B", "C", "D"])
    assert plain.managed_hosts() == f.managed_hosts()
    with pytest.raises(BadInput, match="--plain: Z is none of A, B, C, D"):
        with_plain(f, ["Z"])
    alone = contender("autonomous_ri2n_plus")
    assert isinstance(alone, Autonomous) and alone.options == ["--strategy", "ri2n_plus"]
    assert "B has none" in (alone.why_not(plain, "A", ["B", "C"]) or "")
    assert alone.why_not(f, "A", ["B", "C"]) is None
    assert contender("lcb").name == "lcb"


# ---- a helper that dies


def test_traffic_is_there_again_after_the_last_gap_before_the_helper_is() -> None:
    gaps = [
        {"start_s": 7.0, "end_s": 7.5, "ms": 500.0},  # before
        {"start_s": 9.99, "end_s": 10.04, "ms": 50.0},
        {"start_s": 10.06, "end_s": 10.09, "ms": 30.0},
        {"start_s": 10.1 + DOWN_S, "end_s": 10.2 + DOWN_S, "ms": 100.0},  # as it comes back
    ]
    assert traffic_again_ms(gaps, 10.0, 500.0) == 90.0
    assert traffic_again_ms(gaps[:1], 10.0, 7.0) == 7.0


def test_faults_of_helpers_are_of_packet_mode_alone() -> None:
    assert not set(HELPER_FAULTS) & set(failover.FAULTS)
    assert failover.packets_per_s("packet") == 10 * failover.packets_per_s("flow") == 10_000


# ---- one stream


def test_links_as_options() -> None:
    assert parse_links("100, 50") == (100, 50)
    for text in ("", "100,", "100,0", "100,-1", "1e3", "100001", "٣"):
        with pytest.raises(BadInput, match="must be rates"):
            parse_links(text)
    with pytest.raises(BadInput, match="at most 8"):
        parse_links(",".join(["1"] * 9))


def test_the_lab_of_a_stream_and_its_load() -> None:
    topology = topology_of("100,100,10")
    assert [nic.rate_bps for nic in topology.hosts["B"].nics] == [
        100_000_000,
        100_000_000,
        10_000_000,
    ]
    assert len({nic.switch for nic in topology.hosts["A"].nics}) == 3
    assert sum_bps("100,50") == pytest.approx(150e6 * 1448 / 1514)
    on_the_wire_bps = udp_rate("100,100") * (stream.UDP_BYTES + 8 + 20 + 14 + 22) * 8
    assert 0.88 * 200e6 < on_the_wire_bps < 0.92 * 200e6


def test_udp_has_no_congestion_control() -> None:
    settings = StreamSettings(
        ("100,100",), ["max_min"], protos=("tcp", "udp"), ccs=("cubic", "bbr")
    )
    assert settings.streams == [("tcp", "cubic"), ("tcp", "bbr"), ("udp", None)]


# ---- a change of demand


def test_what_does_not_hold_does_not_count() -> None:
    always = [True] * 6
    enough = [False, True, False, True, True, True]
    assert held_from(enough, enough, 0, 5, 3) == 3
    assert held_from(enough, enough, 0, 5, 4) is None
    assert held_from(enough, enough, 4, 5, 2) == 4
    assert held_from(enough, always, 0, 5, 3) == 1
    assert held_from(always, enough, 0, 5, 2) == 3
    assert held_from([], [], 0, -1, 1) is None


def samples(freed_ms: int, fair_ms: int) -> Samples:
    """B's 50 of 200 Mbit/s go to C `freed_ms` after B stopped at 2.0 s.

    B has them again `fair_ms` after 4.0 s.
    """
    rates: dict[str, list[float]] = {"B": [], "C": []}
    for index in range(700):
        time_ms = index * 10
        sends = time_ms < 2000 or time_ms >= 4000
        settled = time_ms < 2000 or time_ms >= 4000 + fair_ms
        rates["B"].append((50e6 if settled else 10e6) if sends else 0.0)
        rates["C"].append(200e6 if 2000 + freed_ms <= time_ms < 4000 + fair_ms else 150e6)
    return Samples(0.01, 100.0, rates, {"B": [100.0, 104.0], "C": [100.0]})


def test_a_change_of_demand_is_judged_from_when_it_happened() -> None:
    fair = {"B": 50e6, "C": 150e6}
    row = judge(samples(40, 90), "B", 200e6, fair, 2.0)
    # judged by the mean of 50 ms, so a little may be missing at their beginning
    assert (row["others_have_it_ms"], row["all_fair_ms"]) == (30, 90)
    assert (row["others_after_stop"], row["worst_after_start"], row["paused_s"]) == (1.0, 1.0, 2.0)
    never = judge(samples(5000, 5000), "B", 200e6, fair, 2.0)
    assert (never["others_have_it_ms"], never["all_fair_ms"]) == (None, None)
    assert (never["others_after_stop"], never["worst_after_start"]) == (0.75, 0.2)


def test_a_segment_sent_again_changes_no_share() -> None:
    """It holds up what is behind it for 10 ms, and then all comes at once."""
    fair = {"B": 50e6, "C": 150e6}
    steady = samples(40, 90)
    for index in (450, 480):
        rates = list(steady.rates_bps["C"])
        rates[index : index + 2] = [0.0, 300e6]
        steady = Samples(
            steady.bin_s, steady.start_s, {**steady.rates_bps, "C": rates}, steady.accepted_s
        )
    assert judge(steady, "B", 200e6, fair, 2.0)["all_fair_ms"] == 90


def test_the_receiver_counts_in_bins_of_its_clock(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(sampled, "time", SimpleNamespace(monotonic=lambda: now_s))
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    found: Json = {}
    thread = threading.Thread(target=lambda: found.update(receive([port], 1.0)))
    thread.start()
    deadline_s = time.monotonic() + 120
    for length in (100_000, 50_000):  # one after the other
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline_s
        with connection:
            connection.sendall(bytes(length))
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b"", "it has read all"
        now_s += 0.503
    thread.join()
    entry = found["clients"][str(port)]
    counted = {number: count for number, count in enumerate(entry["bytes"]) if count}
    assert counted == {0: 100_000, int(0.503 / BIN_S): 50_000} and entry["accepted_s"] == [
        100.0,
        100.503,
    ]
    assert (found["bin_s"], found["start_s"]) == (BIN_S, 100.0)
    read = Samples.of(found, {port: "B"})
    assert sum(read.rates_bps["B"]) * BIN_S == pytest.approx(150_000 * 8)
    assert capsys.readouterr().out == "listening\n"


# ---- CPUs that are kept awake


def test_cpus_are_kept_awake_while_the_file_is_open_and_only_where_there_is_one(
    tmp_path: Path,
) -> None:
    device = tmp_path / "cpu_dma_latency"

    def is_open() -> bool:
        found = set()
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the one of this very listing is gone
                found.add(entry.readlink())
        return device in found

    with cpus_awake(device) as awake:
        assert not awake
    device.write_bytes(b"")
    with cpus_awake(device) as awake:
        assert awake and device.read_bytes() == bytes(4)
        assert is_open()
    assert not is_open()


# ---- guests


def test_cells_of_packet_mode(f: Topology) -> None:
    files = {"f": Path("/x/f.yaml")}
    settings = Fig4Settings(
        [f],
        ["max_min"],
        "packet",
        streams=(1,),
        repeat=1,
        peers=("mptcp",),
        autonomous=("max_min",),
        plain=("B",),
    )
    cells = fig4_cells(settings, files, seed=1)
    who = [
        (option(cell, "strategies"), option(cell, "autonomous"), option(cell, "peers"))
        for cell in cells
    ]
    assert who == [("max_min", None, None), ("none", "max_min", None), ("none", None, "mptcp")]
    assert {(option(cell, "mode"), option(cell, "plain")) for cell in cells} == {("packet", "B")}
    assert not any("--ping" in cell.arguments for cell in cells)
    pinged = fig4_cells(Fig4Settings([f], ["max_min"], repeat=1, ping=True), files, seed=1)
    assert ["--ping" in cell.arguments for cell in pinged] == [True]
    faults = FailoverSettings(
        f, ["helper_killed"], ["max_min"], "packet", 1, ("lcb",), ("ri2n_plus",)
    )
    found = [option(cell, "autonomous") for cell in failover_cells(faults, files, seed=1)]
    assert found == [None, "ri2n_plus", None]


def test_cells_of_streams_and_demand(f: Topology) -> None:
    settings = StreamSettings(
        ("100,100", "100,50"), ["max_min"], ("tcp", "udp"), repeat=2, peers=("lcb",)
    )
    cells = stream_cells(settings, seed=3)
    seen = [
        (option(cell, "links"), option(cell, "strategies"), option(cell, "peers"), cell.seed)
        for cell in cells
    ]
    assert seen == [
        (links, strategies, peers, seed)
        for links in ("100,100", "100,50")
        for strategies, peers in (("max_min", None), ("none", "lcb"))
        for seed in (3, 4)
    ]
    assert all(option(cell, "proto") == "tcp,udp" and cell.planned_s > 0 for cell in cells)
    demand = DemandSettings(f, ["max_min"], stops="C", pause_s=7, autonomous=("max_min",))
    cells = demand_cells(demand, {"f": Path("/x/f.yaml")}, seed=1)
    assert [option(cell, "strategies") for cell in cells] == ["max_min", "none"]
    assert all(
        (option(cell, "stops"), option(cell, "pause-seconds")) == ("C", "7") for cell in cells
    )
