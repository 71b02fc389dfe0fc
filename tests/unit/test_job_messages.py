# SPDX-License-Identifier: Apache-2.0
"""Messages for a host's scripts: which ones its bridge holds, and which ones the scripts deleted.

The trunk app sends the messages, while the jobs app reads which ones are still there. Whatever the
order of the two, the controller knows each message that the bridge holds. A message that it does
not know stays there after its job has ended.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from ri2n_sdn.apps import jobs as jobs_module
from ri2n_sdn.apps.codec import Question
from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.pipeline.layout import Table
from tests.unit.fake_hosts import plan
from tests.unit.test_jobs_turn import Host, app_of, declared, entry, nudge, turn


@pytest.fixture(autouse=True)
def _nobody_waits_for_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_FIRST_READ_S", 0.0)
    monkeypatch.setattr(jobs_module, "_READ_S", 0.0)


class Bridge(Host):
    """A host whose bridge keeps the messages that it is sent, by their priorities.

    It answers a request by what it holds when it is asked, also when the answer is late.
    `before_row` is called before a row is sent.
    """

    def __init__(self, *declarations: Declaration) -> None:
        super().__init__(*declarations)
        self.rows: dict[int, int] = {}
        self.before_row: Callable[[], None] = lambda: None
        self.held: list[tuple[Future[bytes], bytes]] = []

    def request(self, question: Question | None) -> Future[bytes]:
        if not self.late:
            return super().request(question)
        self.held.append((Future(), self._reply(question)))
        return self.held[-1][0]

    def answer_all(self) -> None:
        while self.held:
            future, reply = self.held.pop()
            future.set_result(reply)

    def _reply(self, question: Question | None) -> bytes:
        if question is None:  # a barrier
            return b""
        self.messages = b"".join(map(entry, self.rows.values()))
        return super()._reply(question)

    def send_bytes(self, data: bytes) -> None:
        if data[1] != ofp.OFPT_FLOW_MOD:
            return
        cookie, table, command, priority = struct.unpack_from("!Q8xBB4xH", data, 8)
        if command != ofp.OFPFC_ADD:
            self.rows = {place: held for place, held in self.rows.items() if held != cookie}
        elif table == Table.JOB_ANSWERS:
            self.before_row()
            self.rows[priority] = cookie


class Site:
    """Host A, whose jobs have these classes. Its rows without jobs are there already."""

    def __init__(self, *numbers: int) -> None:
        self.bridge = Bridge(*(declared("A", f"j{number}", number) for number in numbers))
        self.app = app_of(A=self.bridge)
        self.cluster, self.member = self.app.cluster, self.app.cluster.members["A"]
        self.trunk = TrunkApp()
        self.trunk.cluster = self.cluster
        # An audit would find what is wrong, and the tests are about what is right at once.
        self.trunk._due_for_audit = lambda now_s: []  # type: ignore[method-assign]
        wiring: Any = self.cluster.wiring
        wiring.knows = lambda nic: True
        plan(self.cluster)

    def read(self) -> None:
        """The jobs app asks the host, and takes in what has been answered."""
        self.app._read_declarations([(self.member, self.bridge)])  # type: ignore[list-item]

    def read_late(self) -> None:
        """The jobs app asks the host, which answers when it is told to."""
        self.bridge.late = True
        self.read()
        self.bridge.late = False

    def take_late(self) -> None:
        """The answers to what was asked before come in."""
        self.bridge.answer_all()
        self.app._read_declarations([])

    def decide(self) -> None:
        """The jobs app has a turn, in which it asks the host."""
        nudge(self.app, "A")
        turn(self.app)

    def install(self) -> None:
        """The trunk app has a turn."""
        self.cluster.wake.trunk.set()
        self.trunk._turn()

    def settle(self) -> None:
        for _ in range(3):
            self.decide()
            self.install()
        assert not self.member.dirty

    def tell(self, notes: dict[int, bytes]) -> None:
        """Have the host hold these messages, as decisions on other hosts' jobs might."""
        self.app._replace({"A": replace(self.cluster.jobs.rules("A"), notes=notes)})
        self.install()

    def known(self) -> set[int]:
        """The cookies of the messages that the bridge holds for all that the controller knows."""
        assert self.member.installed is not None
        tables = self.member.installed.cookies
        return {cookie for cookie, table in tables.items() if table == Table.JOB_ANSWERS}


@pytest.mark.parametrize("late", [False, True])
def test_a_message_on_its_way_to_a_host_is_not_taken_for_deleted(late: bool) -> None:
    """The host is asked just before the message reaches it, and the job ends at once."""
    site = Site(1)
    site.decide()
    site.bridge.before_row = site.read_late if late else site.read
    site.install()
    site.bridge.before_row = lambda: None
    site.take_late()
    assert site.known() == set(site.bridge.rows.values()) != set()
    site.bridge.declared = ()
    site.decide()
    site.install()
    assert not site.bridge.rows and not site.known()


def test_a_message_that_was_sent_again_is_there_whatever_a_late_answer_says() -> None:
    site = Site(1, 2)
    site.settle()
    notes = dict(site.cluster.jobs.rules("A").notes)
    assert len(site.bridge.rows) == len(notes) == 2
    site.bridge.rows.clear()  # the scripts have deleted both
    site.read_late()
    site.tell({2: notes[2]})
    site.tell(notes)
    again = site.bridge.rows[1]
    site.take_late()
    assert site.known() == {again} == set(site.bridge.rows.values())
    assert site.member.dirty, "the other one is sent again"
    site.install()
    assert site.known() == set(site.bridge.rows.values()) and len(site.bridge.rows) == 2


@pytest.mark.parametrize("seed", range(12))
def test_no_message_is_left_in_a_bridge_whatever_happens_at_the_same_time(seed: int) -> None:
    """Decisions, readings, late answers and the scripts' deletions come in any order."""
    site, chance = Site(), random.Random(seed)

    def read() -> None:
        if not site.bridge.held:
            chance.choice((site.read, site.read_late))()

    def take() -> None:
        if chance.random() < 0.5:
            site.take_late()

    def overlap() -> None:
        chance.choice((read, take, lambda: None))()

    site.bridge.before_row = overlap
    for _ in range(30):
        texts = {number: chance.choice((b"waiting", b"installed")) for number in range(1, 4)}
        site.tell({number: text for number, text in texts.items() if chance.random() < 0.6})
        if site.bridge.rows and chance.random() < 0.4:
            del site.bridge.rows[chance.choice(list(site.bridge.rows))]
        overlap()
        assert set(site.bridge.rows.values()) <= site.known()
    site.take_late()
    site.bridge.before_row = lambda: None
    site.tell({})
    assert not site.bridge.rows
