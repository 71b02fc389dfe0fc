# SPDX-License-Identifier: Apache-2.0
"""When a helper is taken to hang: its reports stop, although its switch answers."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from ri2n_sdn.apps import cluster as cluster_module
from ri2n_sdn.apps import problems, striping
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.measured import Reported
from ri2n_sdn.apps.silence import SILENT_S, Silence
from ri2n_sdn.apps.striping import StripingApp
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from tests.problem_texts import problem_texts
from tests.unit.app_turns import Clock, replace_time
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan

NEVER = -math.inf


def test_reports_every_second_are_no_silence() -> None:
    silence = Silence(0.0)
    for second in range(1, 100):
        assert not silence.judge(second, second + SILENT_S)
    assert not silence.silent


def test_a_helper_that_says_nothing_is_silent_and_heard_at_once_when_it_goes_on() -> None:
    silence = Silence(0.0)
    silence.judge(10.0, 10.0)
    assert (
        not silence.judge(10.0, 10.0 + SILENT_S)
        and silence.judge(10.0, 10.1 + SILENT_S)
        and silence.silent
    )
    assert not silence.judge(10.0, 60.0) and silence.silent and silence.last_s == 10.0
    assert silence.judge(70.0, 69.9) and not silence.silent


def test_one_that_never_said_anything_has_its_time_from_when_it_began() -> None:
    silence = Silence(100.0)
    assert not silence.judge(NEVER, 100.0 + SILENT_S) and silence.judge(NEVER, 100.1 + SILENT_S)
    assert silence.last_s == 100.0


def test_a_lost_control_link_silences_nobody() -> None:
    """Nor does a controller that is late and has not read the reports that precede an answer."""
    silence = Silence(0.0)
    silence.judge(10.0, 10.4)
    for _ in range(100):
        assert not silence.judge(10.0, 10.4)


def test_what_could_not_be_heard_counts_for_nothing() -> None:
    silence = Silence(0.0)
    silence.since_s = 50.0
    assert not silence.judge(NEVER, 50.0 + SILENT_S) and silence.judge(NEVER, 50.1 + SILENT_S)


def test_a_silent_helper_is_not_heard_because_it_could_not_be_heard_for_a_while() -> None:
    silence = Silence(0.0)
    silence.judge(10.0, 10.0)
    assert silence.judge(10.0, 10.1 + SILENT_S)
    silence.since_s = 50.0
    assert not silence.judge(10.0, 50.0) and silence.silent
    assert silence.judge(51.0, 50.0) and not silence.silent


def test_one_that_falls_silent_again_and_again_has_to_report_for_longer() -> None:
    silence, now_s, waited = Silence(0.0), 0.0, []
    for _ in range(8):
        silence.judge(now_s, now_s)
        assert silence.judge(now_s, now_s + SILENT_S + 0.1)
        now_s += SILENT_S + 0.5
        began_s = now_s
        while not silence.judge(now_s, now_s):
            now_s += 1.0
        waited.append(now_s - began_s)
    assert waited == [0.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    now_s += 60.0
    for second in range(70):
        silence.judge(now_s + second, now_s + second)
    now_s += 70.0
    assert (
        silence.judge(now_s - 1, now_s + SILENT_S)
        and silence.judge(now_s + 9, now_s + 9)
        and not silence.silent
    )


def test_a_trial_begins_anew_with_every_gap_in_the_reports() -> None:
    silence = Silence(0.0)
    silence.judge(0.0, 0.0)
    assert silence.judge(0.0, 2.6) and silence.judge(3.0, 3.0)
    assert silence.judge(3.0, 5.6), "for the second time: it has to report for two seconds now"
    for now_s in (6.0, 7.0, 10.0, 11.0):
        assert not silence.judge(now_s, now_s), "it said nothing from 7 to 10"
    assert silence.judge(12.0, 12.0) and not silence.silent


# ---- in the controller


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(striping, "_TURN_S", 0.0)
    return replace_time(monkeypatch, striping, cluster_module, problems)


@pytest.fixture
def app(clock: Clock) -> StripingApp:
    made = StripingApp()
    made.cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    for name, member in made.cluster.members.items():
        member.taps = {PLAIN_PORT: True, WIRE_PORT: True}
        made.cluster.measured.reports[name] = Reported(heard_s=clock.now_s)
    plan(made.cluster)
    return made


def pass_time(
    app: StripingApp, clock: Clock, seconds: float, silent: str = "", unanswered: str = ""
) -> None:
    """Time passes; helpers report unless `silent`, and switches answer unless `unanswered`."""
    for _ in range(round(seconds / 0.5)):
        clock.now_s += 0.5
        for name, member in app.cluster.members.items():
            channel = cast(FakeChannel, cast(Any, member.channel))
            if name not in silent:
                app.cluster.measured.reports[name].heard_s = clock.now_s
            if name not in unanswered:
                channel.answered_s = clock.now_s
        app._turn()


def striped(cluster: Cluster) -> bool:
    return cluster.fabric().striped("A", "B")


def test_a_silent_helper_is_named_in_status_and_used_again_when_it_reports(
    app: StripingApp, clock: Clock
) -> None:
    pass_time(app, clock, 5)
    assert striped(app.cluster) and problem_texts(app.cluster) == []
    pass_time(app, clock, 4, silent="A")
    assert not striped(app.cluster) and not app.cluster.fabric().stripes("A", "B")
    assert not app.cluster.fabric().stripes("B", "A")
    problem = "A's helper has reported nothing for 4 s: its traffic goes by flows"
    assert problem_texts(app.cluster) == [problem]
    assert all(member.dirty for member in app.cluster.members.values())
    before = len(cast(FakeChannel, cast(Any, app.cluster.members["A"].channel)).sent_bytes)
    # The controller still sends to it: it may be a helper that has been told nothing yet.
    pass_time(app, clock, 4, silent="A")
    assert len(cast(FakeChannel, cast(Any, app.cluster.members["A"].channel)).sent_bytes) > before
    pass_time(app, clock, 1)
    assert striped(app.cluster) and problem_texts(app.cluster) == []
    texts = [event["text"] for event in app.cluster.events]
    assert texts == [
        "A's helper has stopped reporting: its traffic goes by flows",
        "A's helper reports again",
    ]


def test_no_helper_is_silent_whose_switch_does_not_answer(app: StripingApp, clock: Clock) -> None:
    pass_time(app, clock, 20, silent="A", unanswered="A")
    assert striped(app.cluster)


def test_no_helper_is_silent_before_its_host_has_its_rows(app: StripingApp, clock: Clock) -> None:
    app.cluster.members["A"].accepts_wire = False
    pass_time(app, clock, 20, silent="A")
    app.cluster.members["A"].accepts_wire = True
    pass_time(app, clock, 2, silent="A")
    assert striped(app.cluster)
    pass_time(app, clock, 1, silent="A")
    assert not striped(app.cluster)


def test_no_helper_is_silent_because_the_controller_was_late(
    app: StripingApp, clock: Clock
) -> None:
    pass_time(app, clock, 5)
    for member in app.cluster.members.values():
        clock.now_s += 1.0
        cast(FakeChannel, cast(Any, member.channel)).answered_s = clock.now_s + 5
    clock.now_s += 8.0
    app._turn()
    assert striped(app.cluster)


def test_no_helper_is_silent_before_the_controller_is_in_charge(
    app: StripingApp, clock: Clock
) -> None:
    app.cluster.started = False
    pass_time(app, clock, 20, silent="AB")
    app.cluster.started = True
    pass_time(app, clock, 2, silent="AB")
    assert striped(app.cluster)
