# SPDX-License-Identifier: Apache-2.0
"""Benches on busy CPUs: programs that spin, priorities, shares of one link, helpers' counts."""

from __future__ import annotations

import configparser
import io
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench import priorities
from ri2n_lab.bench.cells import stream_cells
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.cycle import troubles
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.helper_counts import FIGURES, WAKES_BOUND, counted, frames, wakes_per_frame
from ri2n_lab.bench.one_link import ONE_LINK, OneLink, with_shares
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.bench.spinners import Spinners, cpu_seconds
from ri2n_lab.bench.stream import BESIDE_S, StreamSettings, summarized, topology_of, total_seconds
from ri2n_lab.bench.stream import FIGURES as STREAM_FIGURES
from ri2n_lab.cli import bench_striped
from ri2n_lab.cli.bench_tables import stream_table
from ri2n_sdn.errors import BadInput

ROOT = Path(__file__).parents[2]
LONG_S = 120.0
Json = dict[str, Any]


def unit(name: str) -> dict[str, str]:
    """The [Service] section of a unit; of keys that come twice the last one."""
    text = (ROOT / "ovs-host-scripts" / name).read_text()
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return dict(parser["Service"])


# ---- programs that spin


def test_every_cpu_has_a_program_of_its_own_and_none_is_left() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with Spinners() as spinners:
        pids = spinners.pids
        assert [os.sched_getaffinity(pid) for pid in pids] == [{cpu} for cpu in cpus]
        assert len({os.getsid(pid) for pid in pids} - {os.getsid(0)}) == len(cpus)
        began_s, deadline_s = spinners.cpu_s(), time.monotonic() + LONG_S
        while spinners.cpu_s() < began_s + 0.1:
            assert time.monotonic() < deadline_s, "they do not spin"
            time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_they_end_when_what_is_measured_fails() -> None:
    pids: list[int] = []
    with pytest.raises(RuntimeError), Spinners([min(os.sched_getaffinity(0))]) as spinners:
        pids += spinners.pids
        raise RuntimeError
    assert len(pids) == 1 and not Path(f"/proc/{pids[0]}").exists()


def test_they_end_with_a_bench_that_is_killed() -> None:
    code = "import time\nfrom ri2n_lab.bench.spinners import Spinners\n"
    code += "with Spinners() as s:\n    print(*s.pids, flush=True)\n    time.sleep(600)\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stdout is not None
        pids = bench.stdout.readline().split()
        assert pids
        bench.kill()
    deadline_s = time.monotonic() + LONG_S

    def lives(pid: str) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    while any(map(lives, pids)):
        assert time.monotonic() < deadline_s, "they spin for ever"
        time.sleep(0.01)


def test_cpu_time_is_user_s_and_system_s_whatever_the_name() -> None:
    stat = "42 (a) 1 2 (b) R 1 1 1 0 -1 0 9 9 9 9 150 50 7 7 20 0 1 0 99 0 0"
    assert cpu_seconds(stat) == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))


# ---- priorities


def test_priorities_are_those_of_the_units() -> None:
    helper = unit("ri2n-reorder.service")
    words = helper["ExecStart"].split()
    assert all(word in words for word in priorities.HELPER_OPTIONS)
    assert {"--realtime", "--watchdog-ms"} <= set(priorities.HELPER_OPTIONS)
    assert words[words.index("--watchdog-ms") + 1] == priorities.HELPER_OPTIONS[1]
    assert int(helper["Nice"]) == priorities.HELPER_NICE
    switch = unit("ovs-vswitchd-realtime.conf")
    assert f"--all-tasks --rr --pid {priorities.OVS_REAL_TIME} " in switch["ExecStartPost"]
    assert switch["ExecReload"] == switch["ExecStartPost"]
    assert int(unit("ri2n-controller.service")["Nice"]) == priorities.CONTROLLER_NICE


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
def test_ovs_vswitchd_runs_without_its_priority_where_that_is_refused(
    allowed: bool, tmp_path: Path
) -> None:
    """Run the unit's command as systemd does: one with a dash before it may fail."""
    command = unit("ovs-vswitchd-realtime.conf")["ExecStartPost"]
    assert command.startswith("-")
    words = [word.replace("$$", "$") for word in shlex.split(command[1:])]
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        if allowed and not priorities.take_real_time(child.pid, 99):
            pytest.skip("needs root, and a kernel that grants real-time priority")
        (tmp_path / "ovs-vswitchd.pid").write_text(f"{child.pid}\n")
        if not allowed and os.geteuid() == 0:
            words = ["setpriv", "--bounding-set", "-sys_nice", *words]
        done = subprocess.run(
            words,
            env={**os.environ, "OVS_RUNDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=LONG_S,
        )
        if allowed:
            assert (done.returncode, done.stderr) == (0, "")
            assert priorities.priority(child.pid) == f"SCHED_RR {priorities.OVS_REAL_TIME}"
        else:
            assert done.returncode != 0 and len(done.stderr.splitlines()) == 1
            assert priorities.priority(child.pid).startswith("SCHED_OTHER")
    finally:
        child.kill()
        child.communicate()


def test_a_priority_is_told_as_it_is_found() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert priorities.priority(child.pid) == f"SCHED_OTHER, nice {os.nice(0)}"
        assert priorities.renice(child.pid, 7)
        assert priorities.priority(child.pid) == "SCHED_OTHER, nice 7"
        if priorities.take_real_time(child.pid, 1):  # root alone may
            assert priorities.priority(child.pid) == "SCHED_RR 1"
    finally:
        child.kill()
        child.communicate()
    assert not priorities.renice(child.pid, 7)


# ---- shares


def stream_row(strategy: str, bps: float | None, links: str = "100,50", cc: str = "cubic") -> Json:
    key = {
        "links_mbps": links,
        "strategy": strategy,
        "peer": False,
        "mode": None,
        "proto": "tcp",
        "cc": cc,
    }
    return {**key, "repeat": 1, **dict.fromkeys(names(STREAM_FIGURES)), "goodput_bps": bps}


def test_shares_are_of_plain_tcp_in_the_same_run_times_the_links() -> None:
    rows = [stream_row(ONE_LINK, 80e6), stream_row(ONE_LINK, 100e6), stream_row("max_min", 108e6)]
    rows += [stream_row("max_min", 108e6, cc="bbr"), stream_row("max_min", 150e6, "100,100")]
    rows.append(missing_row(stream_row("lcb", None), "no bonding", names(STREAM_FIGURES)))
    shares = [
        row["of_links"] for row in with_shares(rows, {"100,50": (100, 50), "100,100": (100, 100)})
    ]
    # 90 Mbit/s is the middle, and the links are one and a half of the first
    assert shares == [round(80 / 135, 4), round(100 / 135, 4), 0.8, None, None, None]
    assert [line["of_links"] for line in summarized(rows)][1] == 0.8


def test_one_link_is_the_first_of_every_host_and_its_switch() -> None:
    topology = topology_of("100,50,10")
    alone = OneLink().topology(topology)
    assert [[nic.name for nic in host.nics] for host in alone.hosts.values()] == [
        ["eth0"],
        ["eth0"],
    ]
    assert list(alone.switches) == ["s0"] and len(topology.switches) == 3
    assert OneLink().why_not(topology, "A", ["B"]) is None


# ---- what was counted


def status(wakes: int, of_frames: int, **counters: int) -> Json:
    """A helper's status, as `status.rs` makes it."""
    return {"wakes_per_frame": wakes / max(1, of_frames), "counters": {"wakes": wakes, **counters}}


def test_wakes_are_those_for_the_frames_of_the_measurement() -> None:
    before, after = status(1_000, 200, link_deaths=3), status(1_600, 600, link_deaths=5)
    assert [frames(before), frames(after)] == pytest.approx([200, 600])
    assert wakes_per_frame(before, after) == 1.5
    assert counted(before, after, "link_deaths") == 2
    assert wakes_per_frame(before, before) is None
    assert wakes_per_frame(status(0, 0), status(30, 20)) == 1.5
    through, beside = ({"peers": [{"beside": each}]} for each in (False, True))
    assert wakes_per_frame(before | through, after | through) == 1.5
    assert wakes_per_frame(before | through, after | beside) is None, "most frames pass beside it"


def table_text(rows: list[Json], *, busy: bool) -> str:
    from rich.console import Console

    report = Report("stream", None, {"busy": busy})
    for row in rows:
        report.add(row, {}, summarized([*report.rows, row]))
    console = Console(width=240, record=True, file=io.StringIO())
    console.print(stream_table(report))
    return console.export_text()


def test_the_table_tells_wakes_and_on_busy_cpus_deaths() -> None:
    figures = {
        "wakes_per_frame_sender": 0.5,
        "wakes_per_frame_receiver": 1.25,
        "link_deaths": 17,
        "of_sum": 0.9,
    }
    row = {**stream_row("max_min", 108e6), **figures}
    calm = table_text([row], busy=False)
    assert "0.50 / 1.25" in calm and "over" not in calm and "17" not in calm
    awake = {**row, "wakes_per_frame_sender": WAKES_BOUND + 0.1}
    busy = table_text([stream_row(ONE_LINK, 90e6) | {"of_sum": 0.6}, awake], busy=True)
    assert "2.10 / 1.25, over 2" in busy and "17" in busy and "0.8" in busy
    assert set(FIGURES) <= set(STREAM_FIGURES)


def test_troubles_of_a_controller() -> None:
    assert troubles({}) == {"connections_dropped": 0, "handler_errors": 0, "nic_deaths": 0}
    counters = {
        "hosts_disconnected": 1,
        "connections_overdue": 2,
        "connections_turned_away": 4,
        "hosts_refused": 8,
    }
    counters |= {
        "handler_errors_A.b": 16,
        "loop_errors_trunk": 32,
        "host_faults": 64,
        "nic_deaths": 5,
    }
    counters |= {"connections_placed": 1000, "flow_mods": 1000}
    assert troubles(counters) == {"connections_dropped": 15, "handler_errors": 112, "nic_deaths": 5}


# ---- runs


def test_busy_guests_hold_all_that_is_compared() -> None:
    settings = StreamSettings(
        ("100,100",), ["max_min"], repeat=2, peers=("lcb", "mptcp"), busy=True
    )
    cells = stream_cells(settings, seed=1)
    assert len(cells) == 2
    words = cells[0].arguments
    assert "--busy" in words and words[words.index("--peers") + 1] == "lcb,mptcp"
    assert words[words.index("--strategies") + 1] == "max_min"
    calm = stream_cells(StreamSettings(("100,100",), ["max_min"], peers=("lcb",)), seed=1)
    assert len(calm) == 2 and not any("--busy" in cell.arguments for cell in calm)


def test_what_is_beside_the_helpers_is_short() -> None:
    one = StreamSettings(("100,100",), ["max_min"], seconds=600, busy=True)
    with_peer = StreamSettings(("100,100",), ["max_min"], seconds=600, peers=("mptcp",), busy=True)
    assert total_seconds(one) < 600 + BESIDE_S + 60
    assert total_seconds(with_peer) - total_seconds(one) < BESIDE_S + 30


def test_virtual_time_does_not_spin() -> None:
    with pytest.raises(BadInput, match="--busy: programs that spin stop virtual time"):
        bench_striped.stream(busy=True, kernel="virtual")
