# SPDX-License-Identifier: Apache-2.0
"""The log: one event is one line, whatever is in it; repetitions are limited and counted."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ri2n_sdn import logs
from ri2n_sdn.logs import MAX_BURST, MAX_OF_PLACE, MAX_TEMPLATES, MAX_TEXT, LogLines, log_lines
from tests.waiting import wait_until


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Log:
    """A logger with a handler of its own, which writes to a text."""

    def __init__(self, style: str) -> None:
        self.clock, self.stream = Clock(), io.StringIO()
        self.handler = LogLines(style, self.stream, self.clock)
        self.logger = logging.Logger("ri2n.test")
        self.logger.addHandler(self.handler)

    def lines(self) -> list[str]:
        return self.stream.getvalue().split("\n")[:-1]

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture(params=["text", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    made = Log(request.param)
    yield made
    made.handler.close()


def text_log() -> Log:
    return Log("text")


HOSTILE = "A\n2026-01-01 00:00:00,000 INFO    ri2n: all is well\r\x1b[2J\u2028\x85\x00\u202e\ud800"


def test_no_character_of_a_message_begins_a_line(log: Log) -> None:
    log.logger.warning("%s refused: %s", HOSTILE, HOSTILE)
    log.logger.warning(HOSTILE)
    text = log.stream.getvalue()
    assert text.count("\n") == 2 and text.encode()
    assert all(each.isprintable() for each in log.lines())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(text=st.text(max_size=200))
def test_any_text_is_one_line_that_says_it(text: str) -> None:
    json_log = Log("json")
    json_log.logger.info("seen: %s", text)
    (line,) = json_log.lines()
    document = json.loads(line)
    assert document["template"] == "seen: %s" and document["message"].isprintable()
    if text.isprintable():
        assert document["message"] == f"seen: {text}"
    plain = text_log()
    plain.logger.info("seen: %s", text)
    assert plain.stream.getvalue().count("\n") == 1 == len(plain.stream.getvalue().splitlines())


def test_a_document_has_when_how_bad_where_and_what() -> None:
    log = Log("json")
    log.logger.warning("%s: %d rows", "A", 3, extra={"fields": {"host": "A\n"}})
    (document,) = log.documents()
    where = document.pop("where")
    assert where.startswith("test_logs.py:")
    assert document.pop("time").endswith("Z")
    assert document == {
        **{"level": "warning", "logger": "ri2n.test", "message": "A: 3 rows"},
        **{"template": "%s: %d rows", "host": "A\\n"},
    }


def test_a_line_of_text_is_as_those_of_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    log = text_log()
    stream = io.StringIO()
    plain = logging.StreamHandler(stream)
    plain.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    log.logger.addHandler(plain)
    log.logger.info("listening on %s:%d", "127.0.0.1", 6653)
    assert stream.getvalue()[:19] == log.stream.getvalue()[:19]
    assert stream.getvalue()[23:] == log.stream.getvalue()[23:]


def test_the_lines_of_a_trace_look_like_no_event(log: Log) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.logger.exception("it failed")
    if log.lines()[0].startswith("{"):
        (document,) = log.documents()
        assert document["message"] == "it failed"
        assert any("ValueError: A" in line for line in document["trace"])
    else:
        first, *rest = log.lines()
        assert first.endswith("ERROR   ri2n.test: it failed")
        assert rest and all(line.startswith("    | ") for line in rest)
        assert "Traceback" in rest[0]
        assert all(line.isprintable() for line in log.lines())


def deep(count: int) -> None:
    if count:
        deep(count - 1)
    raise ValueError("x" * 10 * MAX_TEXT)


def test_a_line_is_bounded(log: Log) -> None:
    log.logger.info("%s", "x" * 10 * MAX_TEXT)
    assert len(log.lines()[-1]) < MAX_TEXT + 500
    assert f"({9 * MAX_TEXT} characters more)" in log.lines()[-1]
    try:
        deep(60)
    except ValueError:
        log.logger.exception("deep")
    assert len(log.stream.getvalue()) < 6 * MAX_TEXT


def test_arguments_that_do_not_fit_hide_no_event(log: Log) -> None:
    log.logger.info("%d of %d", "one")
    assert "%d of %d" in log.lines()[0] and "one" in log.lines()[0]


def test_each_template_has_a_limit_of_its_own(log: Log) -> None:
    for number in range(MAX_BURST + 50):
        log.logger.info("frame %d dropped", number)
    for number in range(3):
        log.logger.info("something else: %d", number)
    assert len(log.lines()) == MAX_BURST + 3


def test_each_kind_of_event_has_a_limit_of_its_own(log: Log) -> None:
    """Events of all kinds come from one place, and those of one kind may come from several."""
    for number in range(MAX_BURST + 50):
        for kind in ("host_away", "host_back"):
            log.logger.info("%s", f"{kind} {number}", extra={"kind": kind})
    assert len(log.lines()) == 2 * MAX_BURST
    log.logger.info("%s", "from another place", extra={"kind": "host_away"})
    assert len(log.lines()) == 2 * MAX_BURST
    log.logger.info("%s", "of another kind", extra={"kind": "host_retired"})
    assert len(log.lines()) == 2 * MAX_BURST + 1


def say(log: Log, number: int) -> None:
    log.logger.info("frame %d dropped", number)


def test_what_was_left_out_is_told_when_the_template_may_speak_again(log: Log) -> None:
    for number in range(MAX_BURST + 50):
        say(log, number)
    assert len(log.lines()) == MAX_BURST
    log.clock.now_s += 1.0
    say(log, 7777)
    told, new = log.lines()[MAX_BURST:]
    assert f"50 more like this: frame {MAX_BURST} dropped" in told and "frame 7777" in new
    if told.startswith("{"):
        assert json.loads(told)["left_out"] == 50 and json.loads(told)["level"] == "info"


def test_what_was_left_out_is_told_at_the_end(log: Log) -> None:
    for number in range(MAX_BURST + 3):
        say(log, number)
    log.handler.close()
    assert "3 more like this" in log.lines()[-1] and len(log.lines()) == MAX_BURST + 1
    log.handler.close()
    assert len(log.lines()) == MAX_BURST + 1


def test_what_was_left_out_is_told_though_nobody_says_more(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "TELL_S", 0.01)
    for number in range(MAX_BURST + 3):
        say(log, number)
    wait_until(lambda: "more like this" in log.lines()[-1], log.lines)
    counts = [line for line in log.lines() if "more like this" in line]
    assert len(log.lines()) == MAX_BURST + len(counts)


def test_templates_without_end_take_bounded_memory(log: Log) -> None:
    """Each from another place in the code."""
    for number in range(3 * MAX_TEMPLATES):
        log.logger.handle(logging.LogRecord("x", logging.INFO, "file", number, "it", None, None))
    assert len(log.handler._budgets) == len(log.handler._of_place) == MAX_TEMPLATES
    assert len(log.lines()) == 3 * MAX_TEMPLATES


def test_texts_without_end_of_one_place_are_few_lines(log: Log) -> None:
    """As of a library that puts what a peer has sent into its templates."""
    for number in range(3 * MAX_TEMPLATES):
        log.logger.info(f"not found: {number}")
    log.logger.info("another place")
    assert len(log.handler._budgets) == MAX_OF_PLACE + 2
    assert len(log.lines()) == MAX_OF_PLACE + MAX_BURST + 1
    log.handler.close()
    left = 3 * MAX_TEMPLATES - MAX_OF_PLACE - MAX_BURST
    assert f"{left} more like this: not found: " in log.lines()[-1]


def test_a_stream_that_cannot_be_written_raises_nothing() -> None:
    log = text_log()
    log.stream.close()
    log.logger.info("lost")
    log.handler.close()


def test_many_threads_write_whole_lines(log: Log) -> None:
    def run() -> None:
        for number in range(40):
            say(log, number)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.handler.tell()
    shown = [line for line in log.lines() if "more like this" not in line]
    assert len(shown) == MAX_BURST
    assert "120 more like this" in "".join(log.lines())


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["ri2n.x debug", "ri2n.x error", "uvicorn error"]),
        ("error", ["ri2n.x error", "uvicorn error"]),
    ],
)
def test_other_packages_say_no_more_than_they_may(
    level: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, before = logging.getLogger("ri2n"), logging.getLogger("ri2n").level
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with log_lines(level, "json", others="warning"):
        for name in ("ri2n.x", "uvicorn"):
            logging.getLogger(name).debug("cookie: 1")
            logging.getLogger(name).error("broken")
    assert ours.level == before
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [f"{each['logger']} {each['level']}" for each in said] == shown


def test_a_thread_that_fails_is_a_line_and_afterwards_all_is_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, threading.excepthook)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with log_lines("info", "json"):
        thread = threading.Thread(target=lambda: 1 // 0, name="worker")
        thread.start()
        thread.join()
        logging.getLogger("ri2n.x").debug("not shown")
    assert (list(root.handlers), root.level, threading.excepthook) == before
    (document,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert document["message"] == "the thread worker has failed"
    assert "ZeroDivisionError" in document["trace"][-1]
