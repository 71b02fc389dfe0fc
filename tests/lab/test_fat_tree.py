# SPDX-License-Identifier: Apache-2.0
"""Real switches with VLANs between real hosts.

All hosts talk, nothing is flooded, and dead switches are left and found again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.flooding import flooded_frames
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from tests.problem_texts import problem_texts

from .conftest import EXACT, WAYS, WaitUntil, controlled, on_way, replace_controller
from .fat_trees import ports_by_vlan, until_sent, vbft
from .packets import (
    all_reach_each_other,
    all_talk_tcp,
    broadcasts_arrive_once,
    flawless,
    flawless_streams,
    reaches,
)

pytestmark = pytest.mark.virtual

TREES = 2


@pytest.fixture(scope="module", params=WAYS)
def shared(request: pytest.FixtureRequest) -> Iterator[Lab]:
    tree = vbft(2, TREES, 2, plain=True, table="spread")
    with controlled(tree, fast=on_way(request)) as lab:
        yield lab


@pytest.fixture
def lab(shared: Lab, wait_until: WaitUntil) -> Iterator[Lab]:
    whole(shared, wait_until)
    yield shared
    shared.restore_all()
    whole(shared, wait_until)


def status(lab: Lab) -> dict[str, Any]:
    return call(lab.controller_socket, "status")


def paths(lab: Lab, source: str, target: str) -> list[dict[str, Any]]:
    """A pair's paths as the controller knows them."""
    pairs = status(lab)["pairs"]
    found: list[dict[str, Any]] = next(
        p["paths"] for p in pairs if (p["src"], p["dst"]) == (source, target)
    )
    return found


def whole(lab: Lab, wait_until: WaitUntil) -> None:
    """Wait until every path of every pair is alive, and every NIC was announced in every VLAN."""
    nics = len(lab.topology.managed_hosts())

    def good() -> bool:
        now = status(lab)
        alive = all(path["alive"] for pair in now["pairs"] for path in pair["paths"])
        return (
            bool(now["settled"])
            and alive
            and now["counters"].get("announcements_sent", 0) >= nics * TREES
        )

    wait_until(good, lambda: str(status(lab))[:3000], timeout_s=20)


def test_everybody_talks_with_everybody(lab: Lab) -> None:
    all_reach_each_other(lab)
    all_talk_tcp(lab)


def test_broadcasts_arrive_once(lab: Lab) -> None:
    broadcasts_arrive_once(lab)


def test_pairs_on_different_switches_have_all_vlans(lab: Lab) -> None:
    assert [path["vlan"] for path in paths(lab, "n1", "n2")] == [None]
    assert [path["vlan"] for path in paths(lab, "n1", "n4")] == [None, 102]


def test_no_unicast_frame_is_flooded_in_any_vlan(lab: Lab) -> None:
    before = flooded_frames(lab)
    flawless_streams(lab, permutations(lab.topology.managed_hosts(), 2), flows=32)
    assert flooded_frames(lab) == before


def test_what_a_switch_forgot_is_flooded_and_counted(lab: Lab, wait_until: WaitUntil) -> None:
    """Without this test, a count of 0 above would prove nothing.

    Probes and announcements teach the switches again.
    """
    before = sum(flooded_frames(lab).values())

    def flooded() -> bool:
        for switch in lab.topology.switches:
            lab.appctl("sw", "fdb/flush", switch)
        reaches(lab, "n1", "n3")
        return sum(flooded_frames(lab).values()) > before

    wait_until(flooded, "nothing is flooded, or nobody counts it")


@pytest.mark.parametrize(
    "fault",
    [{"kind": "switch_down", "switch": "up2"}, {"kind": "cable", "switch": "up2", "port": 2}],
    ids=str,
)
def test_a_dead_tree_is_left_within_a_second_and_used_again(
    lab: Lab, fault: dict[str, Any], wait_until: WaitUntil
) -> None:
    seconds = 3 if EXACT else 6
    by_vlan = ports_by_vlan(lab, "n1", "n3", wait_until)
    # The flows take turns: one of the tree that dies, one of the other.
    ports = [by_vlan[vlan][turn] for turn in range(16) for vlan in (102, None)]
    stream = Stream(lab, "n1", "n3", seconds=seconds, source_ports=ports)
    other = Stream(lab, "n1", "n2", pps=500, seconds=seconds, port=5700)
    until_sent(lab, "n1", 1000, wait_until)
    lab.fault(**fault)
    got, near = stream.result(), other.result()
    assert got.received and not got.duplicates, got
    # README.md promises 0.6 s. A flow's packets are 32 ms apart, and half of the flows go by this
    # tree.
    if EXACT:
        assert [flow["lost"] > 0 for flow in got.flows] == [True, False] * 16, got
        assert got.longest_flow_gap_ms <= 700 and got.lost <= 350, got
        assert not got.lost_after(got.end_s - 0.5), got
    flawless(near, "hosts on one switch need no other")
    wait_until(
        lambda: [path["alive"] for path in paths(lab, "n1", "n3")] == [True, False],
        "it is not noticed",
    )
    reaches(lab, "n1", "n3")
    lab.restore_all()
    whole(lab, wait_until)
    # An active pair has its slots moved in the next round, after the path has come to life.
    wait_until(
        lambda: all(path["slots"] for path in paths(lab, "n1", "n3")), "it is not used again"
    )
    flawless(Stream(lab, "n1", "n3", seconds=0.5, flows=32).result())


def test_the_base_tree_may_die_too(lab: Lab, wait_until: WaitUntil) -> None:
    """Broadcast and ARP then go by the other tree."""
    lab.fault("switch_down", switch="up1")
    wait_until(lambda: not paths(lab, "n1", "n3")[0]["alive"], "the dead tree is not noticed")
    wait_until(
        lambda: any("up1" in text for text in problem_texts(status(lab))),
        lambda: str(problem_texts(status(lab))),
    )
    wait_until(lambda: status(lab)["settled"], "not settled")
    lab.exec("n1", ["ip", "neigh", "flush", "all"])
    lab.exec("n3", ["ip", "neigh", "flush", "all"])
    flawless(Stream(lab, "n1", "n3", seconds=0.5, flows=32).result())
    reaches(lab, "n3", "n1")


RI2N = [sys.executable, "-m", "ri2n_sdn.cli.main"]


def used(lab: Lab, source: str, target: str) -> set[int | None]:
    """The VLANs of a pair's paths that have slots."""
    return {path["vlan"] for path in paths(lab, source, target) if path["slots"]}


def test_a_program_gets_a_table_for_as_long_as_it_runs(
    lab: Lab, wait_until: WaitUntil, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("sender,receiver,vlan\nn1,n3,102\nn3,n1,101\n")
    stream = Stream(lab, "n1", "n3", seconds=4 if EXACT else 20, flows=32)
    wait_until(lambda: used(lab, "n1", "n3") == {None, 102}, "the pair is not active")
    socket = ["--socket", str(lab.controller_socket)]
    command = [*RI2N, "vlan", "use", str(table), "--owner", "job 7", *socket, "--", "sleep", "600"]
    job = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until(lambda: used(lab, "n1", "n3") == {102}, lambda: str(paths(lab, "n1", "n3")))
    finally:
        os.killpg(job.pid, signal.SIGKILL)  # the controller sees that the job's connection ends
        job.wait()
    wait_until(lambda: used(lab, "n1", "n3") == {None, 102}, lambda: str(paths(lab, "n1", "n3")))
    flawless(stream.result())
    table.write_text("sender,receiver,vlan\nn1,n3,999\n")
    answer = subprocess.run(
        [*RI2N, "vlan", "use", str(table), *socket], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2 and "n1 n3: there is no VLAN 999" in answer.stderr
    assert answer.stderr.count("\n") == 1


def check(lab: Lab) -> tuple[int, list[str]]:
    """Exit code and lines of `ri2n vlan check`."""
    argv = [*RI2N, "vlan", "check", "--socket", str(lab.controller_socket)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout.splitlines()


def test_check_finds_nothing_where_all_is_well(lab: Lab) -> None:
    code, lines = check(lab)
    assert code == 0 and lines[0].startswith("all is as declared"), lines


@pytest.mark.parametrize(
    ("port", "setting", "undo", "said"),
    [
        ("leaf2-1", "trunks=101", "trunks=101,102", "leaf2 port 1 (n3:nic0): VLAN 102 is missing"),
        # With two leaves, one way leads through up2. Nobody can distinguish its cables from each
        # other, or from the switch.
        ("leaf1-22", "trunks=101", "trunks=102", "up2: nothing gets through it"),
    ],
)
def test_check_names_what_is_wrong(lab: Lab, port: str, setting: str, undo: str, said: str) -> None:
    lab.vsctl("sw", "set", "Port", port, setting)
    try:
        # Flows that the switch has cached go by the old setting for a moment.
        lab.appctl("sw", "revalidator/wait")
        code, lines = check(lab)
    finally:
        lab.vsctl("sw", "set", "Port", port, undo)
    assert code == 1 and len(lines) == 1 and said in lines[0], lines


def test_a_host_that_no_file_names_and_one_that_was_replaced(
    lab: Lab, wait_until: WaitUntil
) -> None:
    """n4 is new, n3 comes back with other MAC addresses.

    No file on any other host names either of them.
    """
    config = yaml.safe_load(lab.cluster_file.read_text())
    del config["hosts"]["n4"]
    file = lab.run_dir / "without-n4.yaml"
    file.write_text(yaml.safe_dump(config))
    replace_controller(lab, file)
    try:
        whole(lab, wait_until)
        before = sum(flooded_frames(lab).values())
        assert [path["vlan"] for path in paths(lab, "n1", "n4")] == [None]
        flawless_streams(lab, (("n1", "n4"), ("n4", "n1")))
        assert sum(flooded_frames(lab).values()) == before
    finally:
        replace_controller(lab)
    whole(lab, wait_until)
    old = next(host["mac"] for host in status(lab)["hosts"] if host["name"] == "n3")
    lab.host_script("n3", "host-down")
    lab.exec("n3", ["ip", "link", "set", "nic0", "address", "04:00:00:00:7f:01"])
    lab.host_script("n3", "host-up", *lab.host_up_arguments("n3"))
    wait_until(
        lambda: all(h["mac"] != old for h in status(lab)["hosts"]), "the new host is not seen"
    )
    whole(lab, wait_until)
    lab.exec("n1", ["ip", "neigh", "flush", "all"])
    flawless_streams(lab, (("n1", "n3"), ("n3", "n1")), flows=32)


def test_a_killed_controller_loses_nothing(lab: Lab, wait_until: WaitUntil) -> None:
    stream = Stream(lab, "n2", "n4", seconds=4 if EXACT else 6, flows=32)
    until_sent(lab, "n2", 200, wait_until)
    replace_controller(lab)
    done_s = time.monotonic()
    got = stream.result()
    flawless(got)
    assert not EXACT or done_s < got.end_s, f"the stream ended before the change: {done_s}, {got}"
    reaches(lab, "n2", "n4")
