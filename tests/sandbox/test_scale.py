# SPDX-License-Identifier: Apache-2.0
"""32 hosts with two NICs each settle.

All pairs get tables of their own, and each table can be changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

import pytest

from ri2n_lab.bench import cycle
from ri2n_lab.bench.cycle import Cycles
from tests.waiting import LONG_S, wait_until

from .frames import Capture, await_problems, udp

HOSTS = 32
PAIRS = HOSTS * (HOSTS - 1)
# As everywhere, this is a limit against hanging: the tests are much work for a busy machine.
pytestmark = pytest.mark.timeout(1200)
# The cost of a round is counted in function calls, on which other processes have no influence.
# However late frames and answers are, a pair that became active stays active.
COUNTED = """
import functools, pathlib, sys, time, types
import ri2n_sdn.apps.cluster as _apps_cluster
import ri2n_sdn.apps.telemetry as _telemetry
_telemetry._ANSWER_S = 60.0
_apps_cluster.LoopSettings = functools.partial(
    _apps_cluster.LoopSettings, active_bps=1000.0, inactive_after_s=3600.0)
_calls, _counting = 0, pathlib.Path({turn!r}).with_name("counting")
def _count(frame, event, argument):
    global _calls
    _calls += event in ("call", "c_call")
def _spent():
    sys.setprofile(_count if _counting.exists() else None)  # of this thread
    return _calls
_telemetry.time = types.SimpleNamespace(
    monotonic=time.monotonic, time=time.time, thread_time=_spent)
"""


@pytest.fixture(scope="module")
def begun() -> Iterator[tuple[Cycles, float]]:
    """A settled cluster, and the calls of a round with 124 active pairs.

    From then on, the number of pairs only grows.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cycle, "WATCH", cycle.WATCH + COUNTED)
        with Cycles(HOSTS) as made:
            yield made, calls(made, 124)


@pytest.fixture
def cycles(begun: tuple[Cycles, float]) -> Cycles:
    return begun[0]


def calls(cycles: Cycles, pairs: int) -> float:
    """The number of function calls in a round with so many active pairs."""
    flag = cycles.sandbox.folder / "counting"
    flag.touch()
    found = float(median(each["cpu_s"] for each in cycles.steady(pairs, 0.0)))
    flag.unlink()
    return found


def tables(cycles: Cycles) -> dict[tuple[str, str], str]:
    """The installed slot tables, by host and group."""
    found = {}
    for host in cycles.sandbox.hosts:
        for row in cycles.sandbox.ovs.ofctl("dump-groups", host).splitlines():
            if "type=select" in row:
                group = re.search(r"group_id=(\d+)", row)
                assert group, row
                found[host, group[1]] = row
    return found


def test_all_hosts_settle_on_two_networks(cycles: Cycles) -> None:
    status = cycles.sandbox.ask("status")
    assert len([host for host in status["hosts"] if host["connected"]]) == HOSTS
    assert sorted(len(network["nics"]) for network in status["networks"]) == [HOSTS, HOSTS]
    assert len(status["pairs"]) == PAIRS
    await_problems(cycles.sandbox)


def test_a_round_costs_no_more_than_its_pairs(begun: tuple[Cycles, float]) -> None:
    """The cost is linear or less: there are eight times as many pairs.

    Times are not tested; `ri2n bench cycle` measures them.
    """
    cycles, few = begun
    every = calls(cycles, PAIRS)
    assert 10_000 < every < 8 * few, (few, every)


def test_every_table_of_all_pairs_is_changed_in_a_round(cycles: Cycles) -> None:
    cycles.steady(PAIRS, 0.0)
    # On an idle machine this happens in one round; on a busy one, some hosts get their change
    # later.
    wait_until(
        lambda: len(tables(cycles)) >= PAIRS, "not every pair has a table of its own", 5 * LONG_S
    )
    before = tables(cycles)
    changed: set[tuple[str, str]] = set()
    seen = len(cycles.rounds())
    cycles.turn()

    def every_table_changes() -> bool:
        nonlocal seen
        rounds = cycles.rounds()[seen:]
        # Frames of some pairs were late, so these pairs were not turned.
        if any(each["active_pairs"] < PAIRS for each in rounds):
            seen += len(rounds)
            cycles.turn()
        now = tables(cycles)
        changed.update(
            place for place, table in before.items() if now.get(place) not in (None, table)
        )
        return len(changed) >= PAIRS

    wait_until(every_table_changes, lambda: f"{len(changed)} of {PAIRS} tables change")

    def active() -> int:
        return sum(pair["active"] for pair in cycles.sandbox.ask("status")["pairs"])

    wait_until(lambda: active() == PAIRS, lambda: f"{active()} of {PAIRS} pairs are active")
    status = cycles.sandbox.wait_settled()
    assert all(path["alive"] for pair in status["pairs"] for path in pair["paths"])
    # A probe that is read late does not make a link dead, however busy the controller is.
    assert not [
        entry for entry in cycles.sandbox.ask("events")["events"] if "nothing" in entry["text"]
    ]
    assert "Traceback" not in cycles.sandbox.log()


def test_frames_of_all_hosts_arrive_while_all_that_goes_on(cycles: Cycles) -> None:
    sandbox = cycles.sandbox
    capture = Capture(sandbox)
    names = list(sandbox.hosts)
    wanted: dict[str, list[str]] = {}
    for index, source in enumerate(names):
        target = names[(index + 7) % HOSTS]
        frames = [udp(sandbox.mac(source), sandbox.mac(target), (port, 77)) for port in range(16)]
        sandbox.receive(source, *frames)
        wanted[target] = frames
    capture.expect(wanted)
