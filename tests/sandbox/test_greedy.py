# SPDX-License-Identifier: Apache-2.0
"""A host that was let in sends far more than it was asked for: the other hosts lose nothing."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, reserve_port
from ri2n_sdn.apps.openflow import (
    _OTHERS_BURST,
    _OTHERS_PER_S,
    _PACKET_INS_BURST,
    _PACKET_INS_PER_S,
)
from tests.waiting import wait_until

from .fake_switch import ECHO_REQUEST, FakeSwitch
from .frames import Capture, ether, udp
from .test_recovery import flows, groups

HOSTS = ("A", "B")
PACKET_IN, PORT_STATUS = 10, 12
PROBES_PER_S = 300  # of the real hosts, at most
ENOUGH = 30_000
GROWN_BYTES = 32 << 20


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        made.start_controller(config="hbspan_s: {min: 0.1, max: 0.2}\n" + made.declared())
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("!BBHI", 6, kind, 8 + len(body), 0) + body


def packet_in(frame: bytes) -> bytes:
    """What a bridge says of a frame that arrived at port 1."""
    match = struct.pack("!HHHBBI4x", 1, 12, 0x8000, 0, 4, 1)
    head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0)
    return message(PACKET_IN, head + match + bytes(2) + frame)


class Greedy(FakeSwitch):
    """A switch that answers everything it is asked, and sends the same messages again and again."""

    def __init__(self, port: int, said: bytes) -> None:
        super().__init__(port)
        self._said = said
        self._ended = threading.Event()

    @contextmanager
    def talking(self) -> Iterator[None]:
        talker = threading.Thread(target=self._talk, daemon=True)
        talker.start()
        try:
            yield
            assert talker.is_alive(), "it was given up"
        finally:
            self._ended.set()
            talker.join()

    def _talk(self) -> None:
        while not self._ended.is_set():
            with self.turns:
                self.socket.settimeout(None)
                self.socket.sendall(self._said)


def memory_bytes(sandbox: Sandbox) -> int:
    """The memory of the controller in bytes."""
    lines = Path(f"/proc/{sandbox.ask('status')['pid']}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def counter(sandbox: Sandbox, name: str) -> int:
    return int(sandbox.ask("status", pairs=False)["counters"].get(name, 0))


def rows(sandbox: Sandbox) -> dict[str, tuple[list[str], list[str]]]:
    return {name: (flows(sandbox, name), groups(sandbox, name)) for name in HOSTS}


def greedy_host(sandbox: Sandbox, said: bytes) -> Greedy:
    made = Greedy(sandbox.port, said)
    made.answer(dpid=0x91, name="X", mac="02:00:0e:00:00:01", nics=["02:00:0e:00:00:02"])
    sandbox.wait_settled(hosts=3)
    return made


def test_who_floods_the_controller_with_packet_ins_costs_nobody_else(sandbox: Sandbox) -> None:
    noise = random.Random(20261124)
    frames = [
        ether("0e:00:00:00:66:01", "03:00:00:52:49:32", 0x88B5, noise.randbytes(64))
        for _ in range(200)
    ]
    greedy = greedy_host(sandbox, b"".join(packet_in(bytes.fromhex(frame)) for frame in frames))
    try:
        before, log = rows(sandbox), len(sandbox.log())
        with greedy.talking():
            wait_until(
                lambda: counter(sandbox, "packet_ins_over_budget") > ENOUGH, "it says too little"
            )
            held_bytes = memory_bytes(sandbox)
            began_s, handled = time.monotonic(), counter(sandbox, "packet_ins")
            wait_until(
                lambda: counter(sandbox, "packet_ins_over_budget") > 3 * ENOUGH,
                "it says too little",
            )
            handled = counter(sandbox, "packet_ins") - handled
            may_be = _PACKET_INS_BURST + (_PACKET_INS_PER_S + PROBES_PER_S) * (
                time.monotonic() - began_s
            )
            assert handled <= may_be, f"{handled} were handled, not {may_be:.0f}"
            assert rows(sandbox) == before
            text = sandbox.log()[log:]
            assert "disconnected" not in text and "cut off" not in text and "arrives" not in text, (
                text
            )
            sandbox.ovs.ofctl("mod-port", "n0", "n0-B-0", "no-forward")
            sandbox.ovs.ofctl("mod-port", "n0", "n0-B-0", "no-receive")
            try:
                wait_until(
                    lambda: not alive(sandbox, "B", 0), "nobody sees that B's NIC is cut off"
                )
                sandbox.wait_settled(hosts=3)
                sent = [udp(sandbox.mac("A"), sandbox.mac("B"), (port, 7)) for port in range(16)]
                capture = Capture(sandbox)
                sandbox.receive("A", *sent)
                capture.expect({"B": sent})
            finally:
                sandbox.ovs.ofctl("mod-port", "n0", "n0-B-0", "forward")
                sandbox.ovs.ofctl("mod-port", "n0", "n0-B-0", "receive")
            wait_until(lambda: alive(sandbox, "B", 0), "B's NIC does not come back")
            # Unused groups stay for a while.
            wait_until(lambda: rows(sandbox) == before, "rows are others than before")
            assert memory_bytes(sandbox) - held_bytes < GROWN_BYTES
        hosts = {host["name"]: host["connected"] for host in sandbox.ask("status")["hosts"]}
        assert hosts == {"A": True, "B": True, "X": True}
        assert sandbox.log()[log:].count("sends too many messages that nobody asked for") >= 1
    finally:
        greedy.close()


def alive(sandbox: Sandbox, host: str, nic: int) -> bool:
    found = next(each for each in sandbox.ask("status")["hosts"] if each["name"] == host)
    return bool(found["nics"][nic]["alive"])


def test_what_must_not_be_lost_is_read_more_slowly(sandbox: Sandbox) -> None:
    """Thousands of echo requests cost only as much time as others can spare.

    The connection stays.
    """
    requests = int(_OTHERS_BURST) + 500
    greedy = greedy_host(sandbox, b"")
    try:
        began_s = time.monotonic()
        with greedy.turns:
            greedy.socket.sendall(message(ECHO_REQUEST, b"") * requests)
        wait_until(
            lambda: greedy.echo_replies >= requests,
            lambda: f"{greedy.echo_replies} of {requests} are answered",
        )
        # All are answered, but no faster than that. (A busy machine is slower by itself.)
        took_s = time.monotonic() - began_s
        assert took_s > (requests - _OTHERS_BURST - 10) / _OTHERS_PER_S, (
            f"{requests} were read in {took_s:.2f} s: as fast as it speaks"
        )
        sandbox.wait_settled(hosts=3)
        assert counter(sandbox, "packet_ins_over_budget") == 0
    finally:
        greedy.close()


FEW_PLACES = (
    "import ri2n_sdn.apps.openflow as openflow; openflow._MAX_CONNECTIONS = 6; "
    "openflow._JUDGED_S = 0.0"
)


def test_polite_hosts_that_nobody_knows_do_not_keep_a_real_one_out() -> None:
    """They take every place while a real host is away.

    Their names are invented, and all connect from one address.
    """
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as sandbox:
        sandbox.start_controller(config="{}", before=FEW_PLACES)
        sandbox.wait_settled()
        begun = len(sandbox.log())  # the sandbox makes hosts connect anew while it waits
        reserved, nowhere = reserve_port()
        sandbox.ovs.vsctl("set", "controller", "B", f'target="tcp:127.0.0.1:{nowhere}"')
        wait_until(lambda: connected(sandbox) == {"A"}, "B does not leave")
        fakes = [FakeSwitch(sandbox.port, "127.0.0.2") for _ in range(5)]
        try:
            for number, fake in enumerate(fakes):
                mac = f"02:00:0f:{number:02x}:00:0"
                fake.answer(
                    dpid=0xA0 + number, name=f"fake{number}", mac=f"{mac}1", nics=[f"{mac}2"]
                )
            wait_until(
                lambda: len(connected(sandbox)) == 6,
                lambda: f"{connected(sandbox)} have the 6 places",
            )
            sandbox.hurry(("A",))
            wait_until(lambda: {"A", "B"} <= connected(sandbox), lambda: f"{connected(sandbox)}")
            frames = [udp(sandbox.mac("A"), sandbox.mac("B"), (port, 1)) for port in range(8)]
            capture = Capture(sandbox)
            sandbox.receive("A", *frames)
            capture.expect({"B": frames})
            wait_until(lambda: alive(sandbox, "B", 0) and alive(sandbox, "B", 1), "B is not served")
            assert counter(sandbox, "connections_turned_away") >= 1
            assert "A disconnected" not in sandbox.log()[begun:]
            assert "Traceback" not in sandbox.log()
        finally:
            reserved.close()
            for fake in fakes:
                fake.close()


def connected(sandbox: Sandbox) -> set[str]:
    return {host["name"] for host in sandbox.ask("status")["hosts"] if host["connected"]}
