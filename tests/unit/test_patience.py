# SPDX-License-Identifier: Apache-2.0
"""Waiting for many hosts: a mute host delays no other, and none is lost on a slow machine."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from ri2n_sdn.apps import patience
from ri2n_sdn.apps.patience import await_most


class Clock:
    """Virtual time, in which each future is done at its time.

    It takes the place of `time` and `threading.Condition`.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Future[Any]]] = []

    def monotonic(self) -> float:
        return self.now_s

    def future(self, done_s: float | None) -> Future[Any]:
        made: Future[Any] = Future()
        if done_s is not None:
            self.due.append((done_s, made))
        return made

    def pass_(self, timeout_s: float) -> None:
        until_s = self.now_s + timeout_s
        next_s = min([until_s, *(when_s for when_s, _ in self.due)])
        self.now_s = next_s
        for when_s, future in [each for each in self.due if each[0] <= next_s]:
            self.due.remove((when_s, future))
            future.set_result([])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    class Condition:
        def __init__(self) -> None:
            self._lock = threading.RLock()

        def __enter__(self) -> None:
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

        def notify(self) -> None:
            pass

        def wait(self, timeout_s: float) -> None:
            clock.pass_(timeout_s)

    class Threading:
        pass

    Threading.Condition = Condition  # type: ignore[attr-defined]
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(patience, "threading", Threading)
    return clock


def asked(clock: Clock, **done_s: float | None) -> list[tuple[str, list[Future[Any]]]]:
    return [(name, [clock.future(when_s)]) for name, when_s in done_s.items()]


def test_all_that_answer_are_waited_for_and_no_longer(clock: Clock) -> None:
    assert await_most(asked(clock, A=0.001, B=0.002, C=0.003), 5.0) == {"A", "B", "C"}
    assert clock.now_s == 0.003


def test_a_mute_host_costs_a_quarter_of_a_second(clock: Clock) -> None:
    assert await_most(asked(clock, A=0.001, B=0.002, mute=None), 5.0) == {"A", "B"}
    assert clock.now_s == pytest.approx(0.25)


def test_a_mute_host_costs_the_only_other_one_no_more(clock: Clock) -> None:
    assert await_most(asked(clock, A=0.001, mute=None), 5.0) == {"A"}
    assert clock.now_s == pytest.approx(0.25)


def test_a_mute_host_alone_is_not_waited_for_while_many_others_have_work(clock: Clock) -> None:
    assert await_most(asked(clock, mute=None), 5.0, bystanders=4) == set()
    assert clock.now_s == 0.5
    assert await_most(asked(clock, late=0.9), 5.0, bystanders=1) == {"late"}
    assert await_most(asked(clock, A=3.0, B=3.0, C=3.5), 5.0, bystanders=2) == {"A", "B", "C"}, (
        "most are late"
    )


def test_where_all_are_slow_nobody_is_lost(clock: Clock) -> None:
    assert await_most(asked(clock, A=0.8, B=1.0, C=2.9), 5.0) == {"A", "B", "C"}


def test_no_wait_is_longer_than_its_limit(clock: Clock) -> None:
    assert await_most(asked(clock, A=3.0, B=3.0, C=None), 5.0) == {"A", "B"}
    assert clock.now_s == 5.0
    assert await_most(asked(clock, mute=None, too=None), 1.0) == set()
    assert clock.now_s == 6.0


def test_a_host_is_done_when_all_that_it_was_asked_is(clock: Clock) -> None:
    several = [
        ("A", [clock.future(0.001), clock.future(0.1)]),
        ("B", [clock.future(0.001), clock.future(None)]),
    ]
    several.append(("nothing", []))
    assert await_most(several, 5.0) == {"A", "nothing"}


def test_nobody_is_waited_for_when_nobody_is_asked(clock: Clock) -> None:
    assert await_most([], 5.0) == set() and clock.now_s == 0.0


def test_answers_come_from_other_threads() -> None:
    futures: list[tuple[int, list[Future[Any]]]] = [(number, [Future()]) for number in range(50)]

    def answer() -> None:
        for _, (future,) in futures:
            future.set_result([])

    thread = threading.Thread(target=answer)
    thread.start()
    assert await_most(futures, 600.0) == set(range(50))
    thread.join()
