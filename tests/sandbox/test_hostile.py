# SPDX-License-Identifier: Apache-2.0
"""Switches send garbage, fall silent, do not read, or pretend to be another: they harm nobody."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, host_mac
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

from .fake_switch import HELLO, MULTIPART_REPLY, FakeSwitch
from .frames import Capture, ether, udp

HOSTS = ("A", "B")
SEED = 20261120
PLACES = 12
# A greeting may take any time, except for connections that begin while the controller is impatient.
LIMITS = f"""
import signal, sys
import ri2n_sdn.apps.openflow as openflow
openflow._GREETING_S, openflow._MAX_CONNECTIONS = 600.0, {PLACES}
def patience(limit_s):
    def set_limit(number, frame):
        openflow._GREETING_S = limit_s
        print(f"a greeting may take {{limit_s:g}} s", file=sys.stderr, flush=True)
    return set_limit
signal.signal(signal.SIGUSR1, patience(0.5))
signal.signal(signal.SIGUSR2, patience(600.0))
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        made.start_controller(before=LIMITS)
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


@pytest.fixture
def sandbox(running: Sandbox) -> Iterator[Sandbox]:
    """The running sandbox.

    Afterwards the real hosts are still connected, settled and forwarding.
    """
    before = len(running.log())
    yield running
    status = running.wait_settled()
    assert {host["name"] for host in status["hosts"] if host["connected"]} == set(HOSTS)
    assert not [name for name in status["counters"] if "errors_" in name], status["counters"]
    text = running.log()[before:]
    assert "A disconnected" not in text and "B disconnected" not in text
    capture = Capture(running)
    frames = [udp(running.mac("A"), running.mac("B"), (port, before % 60000)) for port in range(4)]
    running.receive("A", *frames)
    capture.expect({"B": frames})


@pytest.fixture
def switch(running: Sandbox) -> Iterator[FakeSwitch]:
    made = FakeSwitch(running.port)
    yield made
    made.close()


def wait_log(sandbox: Sandbox, words: str, after: int = 0) -> None:
    """Wait until the log has `words` behind its first `after` characters."""
    wait_until(
        lambda: words in sandbox.log()[after:],
        lambda: f"{words!r} in the log: {sandbox.log()[-800:]}",
    )


@contextmanager
def impatient(sandbox: Sandbox) -> Iterator[FakeSwitch]:
    """A switch that must greet within 0.5 s."""
    pid, before = sandbox.ask("status")["pid"], len(sandbox.log())
    os.kill(pid, signal.SIGUSR1)
    try:
        wait_log(sandbox, "a greeting may take 0.5 s", before)
        made = FakeSwitch(sandbox.port)
        try:
            yield made
        finally:
            made.close()
    finally:
        os.kill(pid, signal.SIGUSR2)
        wait_log(sandbox, "a greeting may take 600 s", before)


GREETING = struct.pack("!BBHIHHI", 6, HELLO, 16, 1, 1, 8, 1 << 6)
GARBAGE = {
    "zeros": (bytes(64), "a message of 0 bytes"),
    "a message of 3 bytes": (struct.pack("!BBHI", 6, HELLO, 3, 1), "a message of 3 bytes"),
    "a packet-in before the greeting": (
        struct.pack("!BBHI", 6, 10, 8, 1),
        "a message of type 10 came before the greeting",
    ),
    "OpenFlow 9 after the greeting": (
        GREETING + struct.pack("!BBHI", 9, HELLO, 8, 1),
        "it speaks OpenFlow version 0x09",
    ),
    "a truncated features reply": (
        GREETING + struct.pack("!BBHI", 6, 6, 12, 1) + bytes(4),
        "malformed message of type 6",
    ),
    "a greeting whose element has no length": (
        bytes.fromhex("0600000c0000000700010000"),
        "malformed message of type 0: an item of 0 bytes",
    ),
}
UNFINISHED = {  # what seems to be the beginning of a long message
    "random bytes": random.Random(SEED).randbytes(4096),
    "http": b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n",
    "half a header": struct.pack("!BBH", 6, HELLO, 65535),
    "a huge message": struct.pack("!BBHI", 6, HELLO, 65535, 1) + bytes(1000),
}


@pytest.mark.parametrize(("data", "why"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_dropped_with_one_line(
    sandbox: Sandbox, switch: FakeSwitch, data: bytes, why: str
) -> None:
    dropped_with_one_line(sandbox, switch, data, why)


@pytest.mark.parametrize("data", UNFINISHED.values(), ids=UNFINISHED)
def test_a_message_that_never_ends_is_waited_for_for_a_while(sandbox: Sandbox, data: bytes) -> None:
    with impatient(sandbox) as switch:
        dropped_with_one_line(sandbox, switch, data, "it did not say in time which host it is")


def dropped_with_one_line(sandbox: Sandbox, switch: FakeSwitch, data: bytes, why: str) -> None:
    before, line = len(sandbox.log()), f":{switch.socket.getsockname()[1]} dropped: "
    switch.socket.sendall(data)
    assert switch.closed()
    wait_log(sandbox, line + why, before)
    assert connects(sandbox)  # and the controller says nothing more about it by now
    assert sandbox.log()[before:].count(line) == 1


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("bitmap", [True, False])
def test_another_openflow_version_is_dropped(
    sandbox: Sandbox, switch: FakeSwitch, version: int, bitmap: bool
) -> None:
    before = len(sandbox.log())
    elements = struct.pack("!HHI", 1, 8, 1 << version) if bitmap and version == 4 else b""
    switch.send(HELLO, elements, version=version)
    assert switch.closed()
    wait_until(
        lambda: "version" in sandbox.log()[before:],
        lambda: f"nothing about its version: {sandbox.log()[before:]}",
    )


def test_ports_before_the_features_are_not_read(sandbox: Sandbox, switch: FakeSwitch) -> None:
    """Nobody has asked for them yet.

    Taken for the end of a greeting, they would be a switch without a number.
    """
    before = sandbox.ask("status")["counters"].get("message_not_asked_for", 0)
    switch.socket.sendall(GREETING)
    switch.send(MULTIPART_REPLY, struct.pack("!HHxxxx", 13, 0))
    wait_until(
        lambda: sandbox.ask("status")["counters"].get("message_not_asked_for", 0) > before,
        "the ports were read",
    )
    polite(sandbox, switch, "early", 0x88, "02:00:0f:00:00:01", ["02:00:0f:00:00:02"])


def polite(
    sandbox: Sandbox, switch: FakeSwitch, name: str, dpid: int, mac: str, nics: list[str]
) -> None:
    before = len(sandbox.log())
    switch.answer(dpid=dpid, name=name, mac=mac, nics=nics)
    wait_log(sandbox, f"{name} connected from", before)


def test_garbage_replies_after_a_correct_greeting(sandbox: Sandbox, switch: FakeSwitch) -> None:
    before = len(sandbox.log())
    polite(sandbox, switch, "X", 0x77, "02:00:07:00:00:01", ["02:00:07:00:00:02"])
    generator = random.Random(SEED)
    try:
        for xid in range(1, 400):
            what = generator.choice([0, 1, 2, 4, 6, 7, 13, 0xFFFF])
            body = struct.pack("!HHxxxx", what, generator.randrange(2)) + generator.randbytes(
                generator.randrange(200)
            )
            switch.send(MULTIPART_REPLY, body, xid=xid)
    except OSError:
        pass  # dropped in the middle of it
    # As long as the switch is known, the others may not settle.
    wait_log(sandbox, "X disconnected", before)


def test_a_switch_that_does_not_read(sandbox: Sandbox, switch: FakeSwitch) -> None:
    before = len(sandbox.log())
    switch.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    polite(
        sandbox, switch, "Y", 0x78, "02:00:08:00:00:01", ["02:00:08:00:00:02", "02:00:08:00:00:03"]
    )
    switch.stop()
    cycles = sandbox.ask("status")["counters"]["cycles"]
    wait_until(lambda: sandbox.ask("status")["counters"]["cycles"] > cycles, "cycles stand still")
    frame = udp(sandbox.mac("B"), sandbox.mac("A"), (3, 3))
    capture = Capture(sandbox)
    sandbox.receive("B", frame)
    capture.expect({"A": [frame]})
    wait_log(sandbox, "Y disconnected", before)


def test_a_second_host_of_one_name_is_refused(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.answer(dpid=0x79, name="A", mac="02:00:09:00:00:01", nics=["02:00:09:00:00:02"])
    assert_refused(sandbox, switch, "A at 127.0.0.1 refused: A at 127.0.0.1 has the same name")


def test_a_second_host_with_anothers_mac_is_refused(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.answer(dpid=0x80, name="Z", mac=host_mac(2), nics=["02:00:09:00:01:02"])
    assert_refused(
        sandbox, switch, "Z at 127.0.0.1 refused: B at 127.0.0.1 has the same MAC address"
    )


def test_a_nic_with_anothers_mac_is_refused(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.answer(dpid=0x81, name="Q", mac="02:00:09:00:02:01", nics=[sandbox.nic_mac("A", 1)])
    assert_refused(
        sandbox, switch, "Q at 127.0.0.1 refused: A at 127.0.0.1 has the same MAC address"
    )


@pytest.mark.parametrize("name", ["", "two words", "x" * 200, "\x1b[31mred", "a\nb"])
def test_odd_names(sandbox: Sandbox, switch: FakeSwitch, name: str) -> None:
    before = len(sandbox.log())
    switch.answer(dpid=0x82, name=name, mac="02:00:09:00:03:01", nics=["02:00:09:00:03:02"])
    known = "host-0000000000000082 connected" if not name else "is not valid"
    wait_until(lambda: known in sandbox.log()[before:], lambda: f"log: {sandbox.log()[before:]}")
    assert "\x1b" not in sandbox.log()


def assert_refused(sandbox: Sandbox, switch: FakeSwitch, text: str) -> None:
    wait_until(
        lambda: any(text in entry["text"] for entry in sandbox.ask("events")["events"]),
        lambda: f"no event {text!r}: {sandbox.ask('events')['events'][-3:]}",
    )
    switch.stop()
    assert switch.closed()


ODD = {
    "two NICs with one address": (["02:00:0a:00:00:02"] * 2, "e1 and e2 have one MAC address"),
    "a stock bridge": (["02:00:0a:00:00:01"], "its bridge and e1 have one MAC address"),
}


@pytest.mark.parametrize(("nics", "said"), ODD.values(), ids=ODD)
def test_a_host_with_odd_addresses_is_refused_and_named(
    sandbox: Sandbox, switch: FakeSwitch, nics: list[str], said: str
) -> None:
    switch.answer(dpid=0x83, name="odd", mac="02:00:0a:00:00:01", nics=nics)
    assert_refused(sandbox, switch, said)
    assert any(said in warning for warning in problem_texts(sandbox.ask("status")))


def test_a_mute_switch_delays_nobody(sandbox: Sandbox, switch: FakeSwitch) -> None:
    """It answers echo requests and describes itself, and answers nothing else.

    The real hosts go on as if it were not there.
    """
    switch.mute = True
    polite(sandbox, switch, "mute", 0x84, "02:00:0b:00:00:01", ["02:00:0b:00:00:02"])
    wait_until(
        lambda: any(
            "mute has not answered" in warning for warning in problem_texts(sandbox.ask("status"))
        ),
        lambda: f"not named: {problem_texts(sandbox.ask('status'))}",
    )
    cycles = sandbox.ask("status")["counters"]["cycles"]
    wait_until(
        lambda: sandbox.ask("status")["counters"]["cycles"] > cycles + 3, "cycles stand still"
    )
    hosts = {host["name"]: host for host in sandbox.ask("status")["hosts"]}
    assert hosts["mute"]["connected"] and all(hosts[name]["connected"] for name in HOSTS)


def test_a_counter_that_a_switch_does_not_know(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.all_ones = True
    polite(sandbox, switch, "ones", 0x85, "02:00:0c:00:00:01", ["02:00:0c:00:00:02"])
    counters = sandbox.ask("status")["counters"]
    wait_until(
        lambda: (
            sandbox.ask("status")["counters"].get("dropped_counter_unknown", 0)
            > counters.get("dropped_counter_unknown", 0)
        ),
        "no counter was dropped",
    )


def test_an_answer_to_another_question_ends_that_connection_alone(
    sandbox: Sandbox, switch: FakeSwitch
) -> None:
    before = len(sandbox.log())
    switch.wrong_kind = True
    switch.answer(dpid=0x86, name="wrong", mac="02:00:0d:00:00:01", nics=["02:00:0d:00:00:02"])
    wait_log(sandbox, "it answers something else than it was asked", before)
    assert switch.closed()


def test_a_reply_without_end_is_bounded(sandbox: Sandbox, switch: FakeSwitch) -> None:
    before = len(sandbox.log())
    part = struct.pack("!HHxxxx", 1, 1) + bytes(60_000)

    def flood() -> None:
        while True:
            switch.send(MULTIPART_REPLY, part, xid=switch.asked_flows)

    polite(sandbox, switch, "endless", 0x87, "02:00:0e:00:00:01", ["02:00:0e:00:00:02"])
    switch.keeps_flows, asked = True, switch.asked_flows
    wait_until(lambda: switch.asked_flows != asked, "it is not asked for its flows")
    switch.socket.settimeout(LONG_S)  # a controller that reads slowly has not given it up
    with pytest.raises(OSError):
        flood()
    wait_log(sandbox, "its replies are longer than", before)


def test_a_flood_of_strange_probes_costs_no_nic_its_good_name(sandbox: Sandbox) -> None:
    """A plain host on n0 sends more than Open vSwitch reports, so real probes are lost, too."""
    frame = ether(
        "0e:00:00:00:66:01", "03:00:00:52:49:32", 0x88B5, random.Random(SEED).randbytes(64)
    )
    before = sandbox.ask("status")["counters"]

    rounds, status = 0, sandbox.ask("status")
    flooded = ("A:A-e0 is flooded with probes", "B:B-e0 is flooded with probes")

    def is_flooded() -> bool:
        """Go on with the flood; whether it went on for long, and both NICs are flooded now."""
        nonlocal rounds, status
        sandbox.receive("stranger", *[frame] * 400)
        rounds, status = rounds + 1, sandbox.ask("status")
        warnings = " ".join(problem_texts(status))
        sent = status["counters"]["probes_sent"] - before["probes_sent"]
        return rounds >= 100 and sent >= 400 and all(words in warnings for words in flooded)

    sandbox.ovs.vsctl(
        "add-port", "n0", "stranger", "--", "set", "interface", "stranger", "type=dummy"
    )
    try:
        wait_until(is_flooded, lambda: f"{rounds} rounds, {problem_texts(status)}", 5 * LONG_S)
    finally:
        sandbox.ovs.vsctl("del-port", "n0", "stranger")
    reported = status["counters"]["dropped_probe_unknown"] - before.get("dropped_probe_unknown", 0)
    assert reported > 1000, f"{reported} of {rounds * 400}: no flood"
    assert "e1 is flooded" not in " ".join(problem_texts(status))
    texts = [entry["text"] for entry in sandbox.ask("events")["events"]]
    assert not [text for text in texts if "arrives" in text or "cut off" in text]
    wait_until(
        lambda: "flooded" not in " ".join(problem_texts(sandbox.ask("status"))), "the warning stays"
    )


def test_connections_are_bounded(sandbox: Sandbox) -> None:
    """A client that opens many connections, and says nothing, takes places from itself alone.

    The places of the hosts, and of new ones, are kept.
    """
    before = sandbox.ask("status")["counters"].get("connections_turned_away", 0)
    several = [
        socket.create_connection(("127.0.0.1", sandbox.port), timeout=LONG_S)
        for _ in range(3 * PLACES)
    ]
    try:
        wait_until(
            lambda: (
                sandbox.ask("status")["counters"].get("connections_turned_away", 0)
                >= before + 2 * PLACES
            ),
            lambda: f"not turned away: {sandbox.ask('status')['counters']}",
        )
        assert is_greeted(several[-1])  # the newest has a place
        assert connects(sandbox)
    finally:
        for each in several:
            each.close()
    wait_until(lambda: connects(sandbox), "places are not given back")


def connects(sandbox: Sandbox) -> bool:
    """Whether a new connection is greeted."""
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=LONG_S) as probe:
        return is_greeted(probe)


def is_greeted(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(8))
    except ConnectionError:
        return False
