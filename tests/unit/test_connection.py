# SPDX-License-Identifier: Apache-2.0
"""What a host says about itself when it connects, and when it counts as disconnected."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ri2n_sdn.apps import connection
from ri2n_sdn.apps.channel import Channel, Close
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.connection import ConnectionApp, _datapath
from ri2n_sdn.apps.openflow import DEAD_DISPATCHER, handler_errors, ofp
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from tests.unit.app_turns import Clock, replace_time

# The transaction ID of an open request.
REQUESTED = 77


@pytest.mark.parametrize(
    ("serial", "found"),
    [
        ("netdev/1", ("netdev", 0)),  # its symmetric hash leaves UDP ports out
        ("system/0", ("system", 0)),
        ("system/1", ("system", 1)),
        ("system/1\0\0\0", ("system", 1)),
        ("system/", ("system", 0)),
        ("None", ("", 0)),
        ("", ("", 0)),
        ("system/x", ("system", 0)),
    ],
)
def test_the_serial_number_tells_the_datapath(serial: str, found: tuple[str, int]) -> None:
    assert _datapath(serial) == found


class Line:
    """A channel that keeps a record of what is done with it.

    Its host answers a barrier after `answers_after_s`.
    """

    address = "192.0.2.1"

    def __init__(self, now_s: float, answers_after_s: float | None = None) -> None:
        self.heard_s = now_s
        self.datapath = SimpleNamespace(heard_s=now_s)
        self.closed = False
        self.echoes = 0
        self.reasons: list[Close] = []
        self.answers_after_s = answers_after_s
        self.mute_for_s = 0.0

    def send(self, kind: int, body: bytes) -> None:
        self.echoes += kind == ofp.OFPT_ECHO_REQUEST

    def mute_s(self, now_s: float) -> float:
        return self.mute_for_s

    def admitted(self) -> None:
        pass

    def close(self, why: Close, **args: object) -> None:
        self.closed = True
        self.reasons.append(why)

    def barrier(self) -> Future[bytes]:
        after_s = self.answers_after_s

        class Answer(Future[bytes]):
            waited_s = 0.0

            def result(self, timeout: float | None = None) -> bytes:
                self.waited_s += timeout or 0.0
                if after_s is None or self.waited_s < after_s:
                    raise FutureTimeoutError
                return b""

        return Answer()

    def failed(self, xid: int, reason: str) -> bool:
        return xid == REQUESTED


def member(name: str, line: Line, dpid: int = 1, ports: tuple[int, ...] = ()) -> Member:
    of_host = {
        number: Port(number, f"e{number}", f"04:00:00:00:{dpid:02x}:{number:02x}", True, 0)
        for number in ports
    }
    return Member(name, dpid, f"02:00:00:00:00:{dpid:02x}", "3.1.0", of_host, cast(Channel, line))


def switch_event(line: Line, **message: Any) -> Any:
    """An os-ken event with a message of a switch."""
    return SimpleNamespace(
        msg=SimpleNamespace(datapath=SimpleNamespace(ri2n_channel=line), **message)
    )


def texts(app: ConnectionApp) -> list[str]:
    return [event["text"] for event in app.cluster.events]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return replace_time(monkeypatch, connection)


@pytest.fixture(autouse=True)
def _no_wait_for_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PROOF_S", 0.05)


@pytest.fixture
def app(clock: Clock, tmp_path: Path) -> ConnectionApp:
    made = ConnectionApp()
    made.cluster = Cluster(ClusterConfig(), "max_min", tmp_path / "socket")
    made.cluster.wake.stop.set()  # no waiting between ticks
    return made


@pytest.mark.parametrize("where", ["handled", "read"])
def test_a_host_that_says_nothing_for_five_seconds_is_given_up(
    app: ConnectionApp, clock: Clock, where: str
) -> None:
    quiet, lively = Line(clock.now_s), Line(clock.now_s)
    app.cluster.members = {"A": member("A", quiet), "B": member("B", lively, 2)}
    for tick in range(1, 11):
        clock.now_s += 0.5
        lively.heard_s, lively.datapath.heard_s = (
            (clock.now_s, 0.0) if where == "handled" else (0.0, clock.now_s)
        )
        app._turn()
        assert quiet.echoes == tick and not quiet.closed
    clock.now_s += 0.5
    app._turn()
    assert quiet.reasons == [Close.SILENT] and quiet.echoes == 10
    assert not lively.closed and lively.echoes == 11


def test_a_controller_that_was_held_up_takes_no_host_for_silent(
    app: ConnectionApp, clock: Clock
) -> None:
    line = Line(clock.now_s)
    app.cluster.members = {"A": member("A", line)}
    clock.now_s += 60.0  # the machine slept; what the host said meanwhile is not read yet
    for _ in range(10):
        app._turn()
        assert not line.closed
        clock.now_s += 0.5
    clock.now_s += 0.5
    app._turn()
    assert line.closed  # there was time to read what it sent


@pytest.mark.parametrize(("answers_after_s", "stays"), [(0.0, True), (4.0, True), (None, False)])
def test_who_lives_keeps_its_place(
    app: ConnectionApp, clock: Clock, answers_after_s: float | None, stays: bool
) -> None:
    """A late host stays; one that does not answer is replaced by its new connection."""
    old, new = Line(clock.now_s, answers_after_s), Line(clock.now_s)
    first, second = member("A", old), member("A", new, 2)
    app.cluster.members = {"A": first}
    app._contest(second, first)
    assert app.cluster.members["A"] is (first if stays else second)
    assert (old.closed, new.closed) == (not stays, stays)
    assert any("refused" in text and "the same name" in text for text in texts(app)) == stays


def test_who_is_heard_keeps_its_place_though_its_answer_is_late(
    app: ConnectionApp, clock: Clock
) -> None:
    """The reading thread has received something, and the answer waits behind other messages."""
    old, new = Line(clock.now_s), Line(clock.now_s)
    first, second = member("A", old), member("A", new, 2)
    app.cluster.members = {"A": first}
    old.datapath.heard_s = clock.now_s + 0.1
    app._contest(second, first)
    assert app.cluster.members["A"] is first and new.closed


def port_status(
    line: Line, number: int, *, reason: int = ofp.OFPPR_MODIFY, state: int = 0, config: int = 0
) -> Any:
    described = SimpleNamespace(
        port_no=number,
        name=f"e{number}".encode(),
        hw_addr=f"04:00:00:00:01:{number:02x}",
        state=state,
        config=config,
        properties=[],
    )
    return switch_event(line, desc=described, reason=reason)


@pytest.mark.parametrize("how", [{"state": ofp.OFPPS_LINK_DOWN}, {"config": ofp.OFPPC_PORT_DOWN}])
def test_a_nic_that_loses_its_carrier_or_gets_it_again_is_noticed(
    app: ConnectionApp, clock: Clock, how: dict[str, int]
) -> None:
    line = Line(clock.now_s)
    host = member("A", line, ports=(1, 2))
    host.reports_probes, host.dirty = True, False
    app.cluster.members = {"A": host}
    for number in (1, 2):
        app.cluster.wiring.set_nic(("A", number), True, clock.now_s)
    app.port_changed(port_status(line, 2))  # as it was
    assert not host.dirty and texts(app) == []
    app.port_changed(port_status(line, 2, **how))
    assert texts(app) == ["A: e2 is down"] and host.dirty
    assert [nic.up for nic in app.cluster.fabric().hosts["A"].nics] == [True, False]
    host.dirty = False
    app.port_changed(port_status(line, 2))
    assert texts(app)[1:] == ["A: e2 is up"] and host.dirty
    app.port_changed(port_status(line, 2, reason=ofp.OFPPR_DELETE))
    assert texts(app)[2:] == ["A: e2 was removed"] and set(host.ports) == {1}
    assert not app.cluster.wiring.knows(("A", 2))


def test_nics_that_went_while_a_host_was_away_are_forgotten(
    app: ConnectionApp, clock: Clock
) -> None:
    app.cluster.members = {"A": member("A", Line(clock.now_s), ports=(1, 2))}
    app.cluster.members["A"].accepts_wire = True
    app.cluster.members["A"].addresses = ("10.77.0.1",)
    for number in (1, 2):
        app.cluster.wiring.set_nic(("A", number), True, clock.now_s)
    app._admit(member("A", Line(clock.now_s), ports=(1,)))
    assert [app.cluster.wiring.knows(("A", number)) for number in (1, 2)] == [True, False]
    found = app.cluster.members["A"]
    assert found.accepts_wire and found.addresses  # it is the same bridge, with the same rows
    app._admit(member("A", Line(clock.now_s), dpid=2, ports=(1,)))
    found = app.cluster.members["A"]
    assert not found.accepts_wire and not found.addresses


def test_a_helper_that_hangs_still_does_when_its_host_connects_again_and_another_one_does_not(
    app: ConnectionApp, clock: Clock
) -> None:
    def host(line: Line) -> Member:
        made = member("A", line, ports=(1,))
        made.taps = {PLAIN_PORT: True, WIRE_PORT: True}
        return made

    def tap(number: int, state: int) -> None:
        event = port_status(line, number, state=state)
        event.msg.desc.name = b"ri2n-wire"
        app.port_changed(event)

    line = Line(clock.now_s)
    app.cluster.members = {"A": host(Line(clock.now_s))}
    app.cluster.members["A"].silence.silent = True
    app._admit(host(line))
    assert app.cluster.fabric().hosts["A"].helper_hangs
    tap(WIRE_PORT, ofp.OFPPS_LINK_DOWN)
    assert (
        not app.cluster.fabric().hosts["A"].helper_up
        and not app.cluster.fabric().hosts["A"].helper_hangs
    )
    tap(WIRE_PORT, 0)
    assert app.cluster.fabric().hosts["A"].helper_up


def test_a_row_that_was_refused_makes_its_host_be_read_again(
    app: ConnectionApp, clock: Clock
) -> None:
    line = Line(clock.now_s)
    host = member("A", line)
    host.installed, host.dirty = Installed({}, {}), False
    app.cluster.members = {"A": host}
    # This error answers a request.
    app.refused(switch_event(line, xid=REQUESTED, type=1, code=2, data=b""))
    assert host.installed is not None and not host.dirty
    app.refused(switch_event(line, xid=REQUESTED + 1, type=1, code=2, data=b""))
    assert host.installed is None and host.dirty and clock.now_s < host.retry_s <= clock.now_s + 2
    assert app.cluster.counters["switch_errors"] == 1


def test_a_turn_goes_no_further_with_a_host_that_has_left(app: ConnectionApp, clock: Clock) -> None:
    """What the host held before is not used for the time when it is back."""
    line = Line(clock.now_s)
    line.datapath.ri2n_channel = line
    host = member("A", line)
    host.installed, host.dirty = Installed({}, {}), False
    app.cluster.members = {"A": host}
    app.cluster.config = parse_model("hosts: {A: {}}", ClusterConfig, "cluster.yaml")
    app.state_changed(SimpleNamespace(datapath=line.datapath, state=DEAD_DISPATCHER))
    assert line.closed and host.channel is None and host.left_s == clock.now_s
    assert host.installed is None and host.dirty
    assert texts(app) == ["A disconnected"]


@pytest.mark.parametrize(("heard", "lives"), [(True, True), (False, False)])
def test_a_host_that_owes_too_many_answers_is_not_gone(
    app: ConnectionApp, clock: Clock, monkeypatch: pytest.MonkeyPatch, heard: bool, lives: bool
) -> None:
    """An attacker who causes that, by answering slowly, must not get the host's place."""
    line = Line(clock.now_s)
    full: Future[bytes] = Future()
    full.set_exception(ConnectionError("too many open requests"))
    monkeypatch.setattr(line, "barrier", lambda: full)
    if heard:
        line.datapath.heard_s = clock.now_s + 0.1
    assert app._is_alive(cast(Channel, line)) == lives


HANDLERS = ("state_changed", "replied", "echoed", "refused", "port_changed")


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_message_that_is_handed_out_before_its_channel_is_made(
    app: ConnectionApp, handler: str
) -> None:
    """os-ken may do so. The sender is not known yet, so its message has no effect."""
    app.cluster.members = {"A": member("A", Line(0.0), ports=(1,))}
    event = port_status(cast(Line, None), 1, state=ofp.OFPPS_LINK_DOWN)
    event.msg.xid, event.msg.type, event.msg.code, event.msg.data = 1, 1, 1, b""
    event.datapath, event.state = event.msg.datapath, DEAD_DISPATCHER
    before = sum(handler_errors.described().values())
    getattr(app, handler)(event)
    assert sum(handler_errors.described().values()) == before
    assert app.cluster.members["A"].channel is not None and app.cluster.members["A"].ports[1].up
    assert not texts(app)
