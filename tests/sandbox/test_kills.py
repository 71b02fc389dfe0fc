# SPDX-License-Identifier: Apache-2.0
"""A thousand `kill -9` of each process at random moments, under traffic.

What was there before comes back, and nothing else. Kills of the controller lose no frame. A switch
that is killed loses the frames that it has. No frame is duplicated. `RI2N_ATTACK_SEED` chooses
other moments, `RI2N_ATTACK_KILLS` another number of kills for the long runs.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.errors import NotAvailable
from tests.waiting import wait_until

from .frames import Capture, udp
from .test_attack import others
from .test_recovery import HOSTS, QUICK_AUDIT, installed, often

SEED = int(os.environ.get("RI2N_ATTACK_SEED", "20261124"))
KILLS = [4, pytest.param(int(os.environ.get("RI2N_ATTACK_KILLS", "1000")), marks=pytest.mark.long)]
BATCH = 10  # kills between two checks of everything
pytestmark = pytest.mark.timeout(6 * 3600)


class Traffic:
    """Frames of many flows from A to B, until the end of the block.

    Each is different from all others.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._numbers = iter(range(1 << 32))
        self._stop = threading.Event()

    def __enter__(self) -> Traffic:
        self.sent: list[str] = []
        self.may_be_lost: list[str] = []
        """Frames that were given to a switch that was not there, or about to be killed."""
        self._stop.clear()
        self._capture = Capture(self._sandbox)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        macs = self._sandbox.mac("A"), self._sandbox.mac("B")
        while not self._stop.wait(0.1):  # 2 Mbit/s, so the pair is active
            numbers = [next(self._numbers) for _ in range(16)]
            frames = [udp(*macs, (number >> 16, number & 0xFFFF), size=1400) for number in numbers]
            try:
                self._sandbox.receive("A", *frames)
            except (NotAvailable, OSError):
                self.may_be_lost += frames
            else:
                self.sent += frames

    def all_arrived(self) -> None:
        """Each frame has arrived once, and only at B."""
        assert not self.may_be_lost
        self._capture.expect({"B": self.sent})

    def none_doubled(self) -> None:
        """No frame has arrived more than once."""
        more = {frame[60:76]: count for frame, count in self._capture.new("B").items() if count > 1}
        assert not more, f"arrived more than once: {more}"


class Killing:
    """Kills one process, which is started again at once, at random moments.

    It keeps what was there before.
    """

    def __init__(self, sandbox: Sandbox, what: str, kill: Callable[[], None]) -> None:
        """`kill` returns when the process runs again."""
        self.sandbox, self._what, self._kill = sandbox, what, kill
        self._random = random.Random(f"{SEED} {what}")
        self._pause = threading.Event()
        self.before = installed(sandbox)
        self.files = files(sandbox)
        self.done, self._began_s = 0, time.monotonic()
        assert all(len(rows) > 50 for rows, _ in self.before.values())

    def batch(self, kills: int, whole_s: float) -> None:
        """Kill so often, each time up to `whole_s` seconds after the kill before.

        Everything is then as it was, or earlier.
        """
        for _ in range(kills):
            self._pause.wait(self._random.uniform(0.0, whole_s))  # the moment is random
            self._kill()
            self.done += 1

    def says(self) -> str:
        return (
            f"seed {SEED}: {self.done} kills of {self._what} in "
            f"{time.monotonic() - self._began_s:.0f} s"
        )

    def nothing_is_left(self) -> None:
        """There are no files except those of before."""
        wait_until(
            lambda: files(self.sandbox) == self.files,
            lambda: f"files: {self.files ^ files(self.sandbox)}",
        )


def files(sandbox: Sandbox) -> set[str]:
    """The names of all files of a sandbox, with 0 in place of pids."""
    return {re.sub(r"\.\d+\.", ".0.", path.name) for path in sandbox.folder.iterdir()}


def batches(kills: int) -> Iterator[int]:
    """The sizes of the batches."""
    for done in range(0, kills, BATCH):
        yield min(BATCH, kills - done)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}, {"R": "n0"}) as made:
        yield made


@pytest.fixture
def whole_s(sandbox: Sandbox) -> Iterator[float]:
    """The seconds in which a controller has started and settled, at most 3; it runs."""
    began_s = time.monotonic()
    sandbox.start_controller(before=QUICK_AUDIT, config=often(sandbox))
    sandbox.wait_settled()
    yield min(time.monotonic() - began_s, 3.0)
    sandbox.kill_controllers()
    # Otherwise the next test's controller takes over the pair that was active, and forgets it
    # later.
    for name in HOSTS:
        sandbox.ovs.ofctl("del-flows", name)
        sandbox.ovs.ofctl("del-groups", name)


def whole(killing: Killing) -> None:
    """All hosts have settled and have what they had.

    The pair that was active is not active any more.
    """
    sandbox = killing.sandbox
    sandbox.wait_settled()
    wait_until(
        lambda: installed(sandbox) == killing.before,
        lambda: f"{killing.says()}: {others(killing.before, installed(sandbox))}",
    )
    status = sandbox.wait_settled()
    assert {host["name"] for host in status["hosts"] if host["connected"]} == set(HOSTS)
    assert not [name for name in status["counters"] if "errors_" in name], status["counters"]


def goes_through(killing: Killing) -> None:
    """Frames between two hosts arrive, each once, and only at the host that they are for."""
    sandbox = killing.sandbox
    capture = Capture(sandbox)
    frames = [udp(sandbox.mac("C"), sandbox.mac("D"), (port, killing.done)) for port in range(16)]
    sandbox.receive("C", *frames)
    capture.expect({"D": frames})


@pytest.mark.parametrize("kills", KILLS)
def test_kills_of_the_controller_lose_no_frame(
    sandbox: Sandbox, whole_s: float, kills: int
) -> None:
    def kill() -> None:
        sandbox.kill_controllers()
        sandbox.start_controller(before=QUICK_AUDIT, config=often(sandbox))
        if killing.done % 4:  # else it may be killed before it can be reached
            wait_until(lambda: answers(sandbox), "the new controller does not answer")
            sandbox.hurry()

    killing = Killing(sandbox, "the controller", kill)
    traffic = Traffic(sandbox)
    for number in batches(kills):
        with traffic:
            killing.batch(number, whole_s)
            sandbox.wait_settled()
        traffic.all_arrived()
        whole(killing)
    assert "Traceback" not in sandbox.log(), sandbox.log()[-3000:]
    killing.nothing_is_left()
    print(killing.says())


def answers(sandbox: Sandbox) -> bool:
    try:
        return bool(sandbox.ask("status")["pid"])
    except NotAvailable:
        return False


@pytest.mark.parametrize("kills", KILLS)
def test_kills_of_the_database_lose_no_setting_and_no_row(
    sandbox: Sandbox, whole_s: float, kills: int
) -> None:
    """Open vSwitch 3.1 waits for its database.

    Frames that its main thread forwards (netdev) wait until the database is back.
    """
    pid = sandbox.ask("status")["pid"]

    def kill() -> None:
        # What was acknowledged is in the file.
        sandbox.ovs.vsctl("--no-wait", "set", "bridge", "A", f"external_ids:kills={killing.done}")
        sandbox.ovs.replace("ovsdb-server")
        found = sandbox.ovs.vsctl("get", "bridge", "A", "external_ids:kills")
        assert found.strip().strip('"') == str(killing.done)

    killing = Killing(sandbox, "ovsdb-server", kill)
    traffic = Traffic(sandbox)
    for number in batches(kills):
        with traffic:
            killing.batch(number, whole_s)
            # Without --no-wait, the command waits until ovs-vswitchd has found the new database
            # server.
            sandbox.ovs.vsctl("set", "bridge", "A", f"external_ids:batch={killing.done}")
        traffic.none_doubled()
        assert not traffic.may_be_lost  # the switch itself was never away
        whole(killing)
        goes_through(killing)
    assert sandbox.ask("status")["pid"] == pid
    killing.nothing_is_left()
    print(killing.says())


@pytest.mark.parametrize("kills", KILLS)
def test_after_kills_of_the_switch_its_tables_come_back(
    sandbox: Sandbox, whole_s: float, kills: int
) -> None:
    pid = sandbox.ask("status")["pid"]
    killing = Killing(sandbox, "ovs-vswitchd", lambda: sandbox.ovs.replace("ovs-vswitchd"))
    names = named(sandbox, killing.before)
    traffic = Traffic(sandbox)
    for number in batches(kills):
        with traffic:
            killing.batch(number, whole_s)
        traffic.none_doubled()
        sandbox.wait_settled()
        wait_until(
            lambda: named(sandbox, installed(sandbox)) == names,
            lambda: f"{killing.says()}: {others(names, named(sandbox, installed(sandbox)))}",
        )
        status = sandbox.wait_settled()
        assert status["pid"] == pid
        goes_through(killing)
    assert "Traceback" not in sandbox.log(), sandbox.log()[-3000:]
    killing.nothing_is_left()
    print(killing.says())


def named(
    sandbox: Sandbox, rows: dict[str, tuple[list[str], list[str]]]
) -> dict[str, tuple[list[str], list[str]]]:
    """Rows without cookies, and with the names of NICs in place of their addresses.

    A new switch draws these addresses anew.
    """
    labels = {
        sandbox.nic_mac(host, port): f"{host}-e{port - 1}" for host in HOSTS for port in (1, 2)
    }

    def plain(text: str) -> str:
        for mac, label in labels.items():
            text = text.replace(mac, label)
        return re.sub(r"cookie=\w+", "", text)

    return {
        name: (sorted(map(plain, flows)), sorted(map(plain, groups)))
        for name, (flows, groups) in rows.items()
    }
