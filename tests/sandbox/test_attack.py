# SPDX-License-Identifier: Apache-2.0
"""A million hostile messages over thousands of connections do not affect the real hosts.

They go to a running controller. `RI2N_ATTACK_SEED` chooses other messages, `RI2N_ATTACK_MESSAGES`
another number of them for the long run.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Process, Sandbox, host_mac
from tests.waiting import wait_until

from .attacker import STAGES, Attacker, Identity
from .frames import Capture, udp
from .hostile import Hostile, record
from .test_recovery import installed, often

HOSTS = ("A", "B", "C", "D")
SEED = int(os.environ.get("RI2N_ATTACK_SEED", "20261124"))
MESSAGES = int(os.environ.get("RI2N_ATTACK_MESSAGES", "1000000"))
Rows = dict[str, tuple[list[str], list[str]]]
ATTACKERS_ADDRESS = "127.0.0.2"
ATTACKERS = 4
WAVE = 50_000  # messages, after which everything is checked
GROWN_BYTES = 64 << 20
WHAT_HAPPENED = (  # in every run, or there was no attack
    "message_malformed",
    "message_not_asked_for",
    "hosts_refused",
    "dropped_packet_in_of_stranger",
    "dropped_probe_forged",
    "dropped_report_malformed",
    "dropped_report_of_stranger",
)
# Messages that were read are counted (by threads that may lose a count, but never add one). What
# attackers leave behind is forgotten soon, so that the run is like the end of a long one.
COUNTED = f"""
import ri2n_sdn.apps.openflow as openflow, ri2n_sdn.apps.trunk as trunk
trunk._FORGET_S = 2.0
_read = openflow._Datapath._message
def _counted(self, *message):
    if self.address[0] == {ATTACKERS_ADDRESS!r}:
        openflow.handler_drops.add("attackers_messages")
    return _read(self, *message)
openflow._Datapath._message = _counted
"""


class Attack:
    """Attackers at work, each a thread with connection after connection, until `stop`."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self._sandbox, self._name = sandbox, name
        self._recorded = record(sandbox, "A")
        self._nics = [sandbox.nic_mac(host, 1) for host in HOSTS]
        self._stop = threading.Event()
        self.connections = Counter[str]()
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(ATTACKERS)
        ]

    def __enter__(self) -> Attack:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, messages: int) -> None:
        """Go on until the controller has read so many messages in all.

        It ends earlier when an attacker has found something wrong.
        """
        wait_until(
            lambda: self.errors or read_of_attackers(self._sandbox) >= messages,
            lambda: (
                f"seed {SEED}: {read_of_attackers(self._sandbox)} of {messages} messages were read"
            ),
            timeout_s=3600.0,
        )

    def _work(self, worker: int) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                number += 1
                generator = random.Random(f"{SEED} {self._name} {worker} {number}")
                self._connection(worker, generator)
        except BaseException as error:
            self.errors.append(error)

    def _connection(self, worker: int, generator: random.Random) -> None:
        stage = generator.choice(STAGES)
        damaged = generator.choice((0.0, 0.003, 0.01, 0.1, 0.8))
        who = self._identity(worker, generator)
        hostile = Hostile(self._sandbox, self._recorded, who.mac, generator)
        attacker = Attacker(self._sandbox.port, ATTACKERS_ADDRESS, hostile, generator, damaged)
        self.connections[stage] += 1
        try:
            attacker.run(who, stage, generator.choice((20, 200, 1000)))
        except OSError:
            pass  # the controller has ended the connection
        finally:
            attacker.close()

    def _identity(self, worker: int, generator: random.Random) -> Identity:
        """Mostly a host that was never here.

        Now and then it has a name, an address, or both, of a real host.
        """
        number = 16 * worker + generator.randrange(16)
        who = Identity(f"x{number}", 0x9000 + number, f"02:00:aa:{number:02x}:00:00", [])
        who.nics = [
            f"02:00:aa:{number:02x}:00:{nic:02x}" for nic in range(1, generator.randint(2, 4))
        ]
        as_whom = generator.randrange(len(HOSTS))
        theft = generator.randrange(12)
        if theft in (0, 1):
            who.name = HOSTS[as_whom]
        if theft in (1, 2):
            who.dpid = as_whom + 1
        if theft in (1, 3):
            who.mac = host_mac(as_whom + 1)
        if theft == 4:
            who.nics[0] = self._nics[as_whom]
        return who


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}, {"R": "n0"}, helpers=("C", "D")) as made:
        yield made


@pytest.fixture
def controller(sandbox: Sandbox) -> Iterator[Process]:
    placed = "placement: [{hosts: [B], ports: [80]}]\n"
    process = sandbox.start_controller(before=COUNTED, config=often(sandbox) + placed)
    sandbox.wait_settled()
    yield process
    sandbox.kill_controllers()


def memory_bytes(pid: int) -> int:
    """The memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def read_of_attackers(sandbox: Sandbox) -> int:
    return int(sandbox.ask("status")["counters"].get("attackers_messages", 0))


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(
    "messages", [6_000, pytest.param(MESSAGES, marks=pytest.mark.long)], ids=["few", "all"]
)
def test_hostile_messages_harm_no_host(
    sandbox: Sandbox, controller: Process, messages: int
) -> None:
    before = installed(sandbox)
    assert all(len(rows) > 50 for rows, _ in before.values())
    began_s, log = time.monotonic(), len(sandbox.log())
    read, wave, held_bytes, grown_bytes = 0, 0, 0, 0
    connections = Counter[str]()
    while read < messages:
        # After the first wave, which is short, memory has its size.
        target = min(messages, read + (WAVE if wave else min(WAVE, messages // 3)))
        with Attack(sandbox, f"wave {wave}") as attack:
            attack.go_on(target)
        assert not attack.errors, f"seed {SEED}, wave {wave}: {attack.errors}"
        connections += attack.connections
        wave, read = wave + 1, read_of_attackers(sandbox)
        unharmed(sandbox, controller, before, wave, log)
        grown_bytes = memory_bytes(controller.pid) - held_bytes if held_bytes else 0
        held_bytes = held_bytes or memory_bytes(controller.pid)
        assert grown_bytes < GROWN_BYTES, (
            f"seed {SEED}, after {read} messages: {grown_bytes} bytes more"
        )
    counters = sandbox.ask("status")["counters"]
    said = (
        f"seed {SEED}: {read} messages in {time.monotonic() - began_s:.0f} s over "
        f"{dict(connections)}, {counters}"
    )
    print(f"{said}; {grown_bytes} bytes more than after the first wave")
    assert all(connections[stage] for stage in STAGES), said
    assert all(counters.get(name) for name in WHAT_HAPPENED), said
    assert any(" refused: " in entry["text"] for entry in sandbox.ask("events")["events"]), said


def unharmed(sandbox: Sandbox, controller: Process, before: Rows, wave: int, log: int) -> None:
    """The controller is the same, and the real hosts were never away.

    Their rows are as before, and frames arrive.
    """
    status = sandbox.wait_settled()
    assert (controller.poll(), status["pid"]) == (None, controller.pid)
    wait_until(
        lambda: {host["name"] for host in sandbox.ask("status")["hosts"]} == set(HOSTS),
        "attackers stay",
    )
    text = sandbox.log()[log:]
    gone = re.findall(rf"(?:.*\n){{,4}}.*(?<!\w)[{''.join(HOSTS)}] disconnected\n", text)
    assert not gone, f"seed {SEED}: {gone[:3]}"
    assert "Traceback" not in text, f"seed {SEED}: {text[text.index('Traceback') - 300 :][:3000]}"
    counters = sandbox.ask("status")["counters"]
    assert not [name for name in counters if "errors_" in name or name == "host_faults"], (
        f"seed {SEED}: {counters}"
    )
    wait_until(
        lambda: installed(sandbox) == before,
        lambda: f"seed {SEED}: {others(before, installed(sandbox))}",
    )
    sandbox.wait_settled()
    capture = Capture(sandbox)
    frames = [udp(sandbox.mac("A"), sandbox.mac("B"), (wave, port)) for port in range(8)]
    sandbox.receive("A", *frames)
    capture.expect({"B": frames})


def others(before: Rows, now: Rows) -> dict[str, list[str]]:
    """Rows and groups that appeared or vanished, by host."""
    return {
        name: sorted({*before[name][0], *before[name][1]} ^ {*now[name][0], *now[name][1]})
        for name in before
    }
