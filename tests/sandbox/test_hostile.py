"""Switches that send garbage, fall silent, do not read or pretend to be another: they harm nobody."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from ri2n_sdn.bench.sandbox import Sandbox, host_mac

from .fake_switch import HELLO, MULTIPART_REPLY, FakeSwitch
from .frames import Capture, udp, wait_until

HOSTS = ("A", "B")
SEED = 20261120
LIMITS = """
import ri2n_sdn.apps.connection as connection, ri2n_sdn.apps.openflow as openflow
openflow._GREETING_S, openflow._MAX_CONNECTIONS, connection._SILENT_S = 1.0, 12, 3.0
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
    """The running sandbox; afterwards the real hosts are still connected, settled and forwarding."""
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


def wait_log(sandbox: Sandbox, words: str, timeout_s: float = 10.0) -> None:
    wait_until(lambda: words in sandbox.log(), lambda: f"{words!r} in the log: {sandbox.log()[-800:]}", timeout_s)


GARBAGE = {
    "random bytes": random.Random(SEED).randbytes(4096),
    "http": b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n",
    "zeros": bytes(64),
    "a message of 3 bytes": struct.pack("!BBHI", 6, HELLO, 3, 1),
    "a packet-in before the greeting": struct.pack("!BBHI", 6, 10, 8, 1),
    "OpenFlow 9 after the greeting": struct.pack("!BBHIHHI", 6, HELLO, 16, 1, 1, 8, 1 << 6)
    + struct.pack("!BBHI", 9, HELLO, 8, 1),
    "a truncated features reply": struct.pack("!BBHIHHI", 6, HELLO, 16, 1, 1, 8, 1 << 6)
    + struct.pack("!BBHI", 6, 6, 12, 1)
    + bytes(4),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_dropped_with_one_line(sandbox: Sandbox, switch: FakeSwitch, data: bytes) -> None:
    before = sandbox.log().count("dropped:")
    switch.socket.sendall(data)
    assert switch.closed()
    wait_until(lambda: sandbox.log().count("dropped:") == before + 1, lambda: f"log: {sandbox.log()[-600:]}")


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("bitmap", [True, False])
def test_another_openflow_version_is_dropped(sandbox: Sandbox, switch: FakeSwitch, version: int, bitmap: bool) -> None:
    before = len(sandbox.log())
    elements = struct.pack("!HHI", 1, 8, 1 << version) if bitmap and version == 4 else b""
    switch.send(HELLO, elements, version=version)
    assert switch.closed()
    wait_until(
        lambda: "version" in sandbox.log()[before:], lambda: f"nothing about its version: {sandbox.log()[before:]}"
    )


def test_half_a_message_and_silence(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.socket.sendall(struct.pack("!BBH", 6, HELLO, 65535))
    assert switch.closed()
    wait_log(sandbox, "no greeting within 1 s")


def test_a_huge_message_that_never_ends(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.send(HELLO, bytes(1000), length=65535)
    assert switch.closed()


def polite(sandbox: Sandbox, switch: FakeSwitch, name: str, dpid: int, mac: str, nics: list[str]) -> None:
    switch.answer(dpid=dpid, name=name, mac=mac, nics=nics)
    wait_log(sandbox, f"{name} connected from")


def test_garbage_replies_after_a_correct_greeting(sandbox: Sandbox, switch: FakeSwitch) -> None:
    polite(sandbox, switch, "X", 0x77, "02:00:07:00:00:01", ["02:00:07:00:00:02"])
    generator = random.Random(SEED)
    try:
        for xid in range(1, 400):
            what = generator.choice([0, 1, 2, 4, 6, 7, 13, 0xFFFF])
            body = struct.pack("!HHxxxx", what, generator.randrange(2)) + generator.randbytes(generator.randrange(200))
            switch.send(MULTIPART_REPLY, body, xid=xid)
    except OSError:
        pass  # dropped in the middle of it
    wait_log(sandbox, "X disconnected")
    forget(sandbox)


def forget(sandbox: Sandbox) -> None:
    """A fake switch that is gone leaves a host that is not connected; it must not keep the others from settling."""
    assert sandbox.wait_settled()["ok"]


def test_a_switch_that_does_not_read(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    polite(sandbox, switch, "Y", 0x78, "02:00:08:00:00:01", ["02:00:08:00:00:02", "02:00:08:00:00:03"])
    switch.stop()
    cycles = sandbox.ask("status")["counters"]["cycles"]
    wait_until(lambda: sandbox.ask("status")["counters"]["cycles"] > cycles, "cycles stand still", timeout_s=5)
    frame = udp(sandbox.mac("B"), sandbox.mac("A"), (3, 3))
    capture = Capture(sandbox)
    sandbox.receive("B", frame)
    capture.expect({"A": [frame]})
    wait_log(sandbox, "Y disconnected", timeout_s=15)


def test_a_second_host_of_one_name_is_refused(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.answer(dpid=0x79, name="A", mac="02:00:09:00:00:01", nics=["02:00:09:00:00:02"])
    assert_refused(sandbox, switch, "A at 127.0.0.1 refused: A at 127.0.0.1 has the same name")


def test_a_second_host_with_anothers_mac_is_refused(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.answer(dpid=0x80, name="Z", mac=host_mac(2), nics=["02:00:09:00:01:02"])
    assert_refused(sandbox, switch, "Z at 127.0.0.1 refused: B at 127.0.0.1 has the same MAC address")


def test_a_nic_with_anothers_mac_is_refused(sandbox: Sandbox, switch: FakeSwitch) -> None:
    switch.answer(dpid=0x81, name="Q", mac="02:00:09:00:02:01", nics=[sandbox.nic_mac("A", 1)])
    assert_refused(sandbox, switch, "Q at 127.0.0.1 refused: A at 127.0.0.1 has the same MAC address")


@pytest.mark.parametrize("name", ["", "two words", "x" * 200, "\x1b[31mred", "a\nb"])
def test_odd_names(sandbox: Sandbox, switch: FakeSwitch, name: str) -> None:
    before = len(sandbox.log())
    switch.answer(dpid=0x82, name=name, mac="02:00:09:00:03:01", nics=["02:00:09:00:03:02"])
    known = "host-0000000000000082 connected" if not name else "is not one"
    wait_until(lambda: known in sandbox.log()[before:], lambda: f"log: {sandbox.log()[before:]}")
    assert "\x1b" not in sandbox.log()


def assert_refused(sandbox: Sandbox, switch: FakeSwitch, text: str) -> None:
    wait_until(
        lambda: any(text in entry["text"] for entry in sandbox.ask("events")["events"]),
        lambda: f"no event {text!r}: {sandbox.ask('events')['events'][-3:]}",
    )
    switch.stop()
    assert switch.closed()


def test_connections_are_bounded(sandbox: Sandbox) -> None:
    several: list[socket.socket] = []
    try:
        several = [socket.create_connection(("127.0.0.1", sandbox.port)) for _ in range(20)]
        wait_log(sandbox, "refused: 12 connections are open")
    finally:
        for each in several:
            each.close()
    late = FakeSwitch(sandbox.port)
    wait_until(lambda: connects(sandbox), "places are not given back")
    late.close()


def connects(sandbox: Sandbox) -> bool:
    """Whether a new connection is greeted."""
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=1) as probe:
        try:
            return bool(probe.recv(8))
        except OSError:
            return False
