# SPDX-License-Identifier: Apache-2.0
"""What the demo says of a busy machine, by recorded numbers, and what its rows are made of."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from ri2n_lab.bench.cpus import TICK_S, Moment, parse_moment, used_between
from ri2n_lab.bench.fair import Optimum, goodput_optimum
from ri2n_lab.cli.demo import commands
from ri2n_lab.cli.demo_rate import (
    FACTORS,
    SPARE,
    STAY_SPARE,
    carried_bps,
    factor_for,
    last_factor,
    remember,
    slower,
)
from ri2n_lab.cli.demo_rows import in_order, mean_row, row_of
from ri2n_lab.cluster import state
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.shipped import find_topology

# Two CPUs for ten seconds, in ticks of 10 ms: quiet, and beside programs that never sleep.
BEFORE = "cpu  1133647 630834 678852 241509 3101 0 32686 1340 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"
QUIET = "cpu  1134147 630834 679252 242559 3111 0 32726 1340 0 0\n"
BUSY = "cpu  1134647 631434 679252 241509 3101 0 32686 1340 0 0\n"
STOLEN = "cpu  1134147 630834 679252 242159 3111 0 32726 1740 0 0\n"
PRESSURE = (
    "some avg10=12.00 avg60=11.00 avg300=9.00 total={}\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)


def moments(after: str, waited_us: int | None) -> tuple[Moment, Moment]:
    """Before and after, ten seconds later, in which programs have waited so long for a CPU."""
    texts: list[str | None] = [None, None]
    if waited_us is not None:
        texts = [PRESSURE.format(7_000_000), PRESSURE.format(7_000_000 + waited_us)]
    return parse_moment(5.0, BEFORE, texts[0]), parse_moment(15.0, after, texts[1])


@pytest.mark.parametrize(
    ("after", "waited_us", "idle", "stolen", "waiting", "short"),
    [
        (QUIET, 1_200_000, 0.53, 0.0, 0.12, False),
        (QUIET, None, 0.53, 0.0, None, False),
        (BUSY, 9_900_000, 0.0, 0.0, 0.99, True),
        (BUSY, None, 0.0, 0.0, None, True),
        (STOLEN, 1_200_000, 0.33, 0.2, 0.12, True),
        (QUIET, 8_000_000, 0.53, 0.0, 0.8, True),
    ],
)
def test_cpus_are_short_when_idle_time_is_or_others_take_it_or_programs_wait(
    after: str,
    waited_us: int | None,
    idle: float,
    stolen: float,
    waiting: float | None,
    short: bool,
) -> None:
    used = used_between(*moments(after, waited_us))
    assert used.idle == pytest.approx(idle, abs=0.005)
    assert used.stolen == pytest.approx(stolen, abs=0.005)
    assert used.waiting == (None if waiting is None else pytest.approx(waiting))
    assert used.short == short


def test_idle_cpus_are_counted_in_cpus() -> None:
    first, last = moments(QUIET, None)
    assert used_between(first, last).idle_cpus == pytest.approx(1060 * TICK_S / 10)


def test_counts_that_go_back_are_no_idle_time_below_zero() -> None:
    first, last = moments(QUIET, None)
    used = used_between(last, Moment(**{**vars(first), "at_s": 25.0}))
    assert used.idle == 0 and used.idle_cpus == 0


def test_a_machine_that_is_busy_carries_what_it_has_carried() -> None:
    """Recorded beside two programs that never sleep: half of the links, and nothing idle."""
    assert carried_bps(96e6, 0.5, 0.0) == 96e6
    # Quiet: as much CPU is idle as the lab uses, so twice as much could be carried.
    assert carried_bps(190e6, 0.8, 0.8) == pytest.approx(380e6)
    assert carried_bps(0.0, 0.0, 2.0) == 0


def test_the_factor_is_the_largest_with_something_to_spare() -> None:
    needed = 190e6
    assert factor_for(needed * SPARE, needed) == 1
    assert factor_for(needed * SPARE * 0.99, needed) == 0.5
    assert factor_for(needed * SPARE * 0.15, needed) == 0.1
    assert factor_for(0.0, needed) == FACTORS[-1]
    assert factor_for(1e15, needed) == 1, "the rates of the topology are never exceeded"


def test_links_that_are_slower_already_are_kept_with_less_to_spare() -> None:
    needed = 190e6
    assert factor_for(0.5 * needed * STAY_SPARE, needed, 0.5) == 0.5
    assert factor_for(0.5 * needed * STAY_SPARE, needed) == 0.2
    assert factor_for(0.5 * needed * STAY_SPARE * 0.99, needed, 0.5) == 0.2
    assert factor_for(needed * SPARE, needed, 0.5) == 1, "a machine that is quiet again"
    assert factor_for(needed * STAY_SPARE, needed, 1.0) == 0.5


def test_a_demo_begins_with_the_rate_of_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "ROOT", tmp_path / "labs")
    remember("h", 0.5)
    assert last_factor("h") == 1, "there is no such folder yet, and none is made"
    state.ROOT.mkdir()
    remember("h", 0.5)
    assert (last_factor("h"), last_factor("d")) == (0.5, 1)
    for written in ("", "{}", "[]", "7", '{"h": 7}', '{"h": [0.5]}', "\0", '{"h": null}'):
        (state.ROOT / ".demo-rate").write_text(written)
        assert last_factor("h") == 1


@pytest.mark.parametrize("name", ["fig4/h", "ring_6"])
@pytest.mark.parametrize("factor", FACTORS)
def test_slower_links_have_the_same_shares(name: str, factor: float) -> None:
    topology = find_topology(name)
    changed = slower(topology, factor)
    for host, spec in topology.hosts.items():
        for before, after in zip(spec.nics, changed.hosts[host].nics, strict=True):
            assert after.rate_bps == pytest.approx(before.rate_bps * factor)
    server, *clients = topology.managed_hosts()
    if name == "fig4/h":
        one = goodput_optimum(topology, clients, server)
        other = goodput_optimum(changed, clients, server)
        assert other.total_bps == pytest.approx(one.total_bps * factor)
        for client in clients:
            assert other.fair_bps[client] == pytest.approx(one.fair_bps[client] * factor)


def test_no_strategy_is_always_the_last_one() -> None:
    assert in_order(10.0, turned=False) == list(STRATEGIES)
    assert in_order(10.0, turned=True) == list(reversed(STRATEGIES))
    twice = in_order(20.0, turned=False)
    assert sorted(twice) == sorted(2 * list(STRATEGIES)) and twice == twice[::-1]


def test_a_row_says_when_cpus_were_short_in_any_run() -> None:
    optimum = Optimum(180e6, {"B": 60e6, "C": 120e6})
    good = row_of({"B": 60e6, "C": 90e6}, optimum, *moments(QUIET, None))
    bad = row_of({"B": 30e6, "C": 60e6}, optimum, *moments(BUSY, 9_900_000))
    assert (good["total_of_optimum"], good["worst_share"]) == (0.8333, 0.75)
    assert not good["cpus_short"] and good["cpus"]["waiting"] is None
    assert bad["cpus_short"] and bad["cpus"]["waiting"] == 0.99
    mean = mean_row([good, bad])
    assert mean["clients"] == {"B": 45_000_000, "C": 75_000_000}
    assert mean["total_of_optimum"] == pytest.approx((0.8333 + 0.5) / 2, abs=1e-4)
    assert mean["cpus_short"] and mean["cpus"]["waiting"] is None
    assert mean_row([bad]) == bad


def test_commands_are_typed_in_any_folder_and_with_the_same_rights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # where no ri2n is
    for command in commands("h-1", "B"):
        words = shlex.split(command)
        assert Path(words[0]).is_absolute() and os.access(words[0], os.X_OK)
        assert "h-1" in words
    monkeypatch.setenv("SUDO_USER", "alice")
    assert all(command.startswith("sudo /") for command in commands("h-1", "B"))
    installed = tmp_path / "bin"
    installed.mkdir()
    for name in ("python3", "ri2n"):
        (installed / name).touch(0o755)
    monkeypatch.setenv("PATH", str(installed))
    monkeypatch.setattr("sys.executable", str(installed / "python3"))
    assert commands("h-1", "B")[0] == "sudo ri2n status --lab h-1"
