# SPDX-License-Identifier: Apache-2.0
"""A restarted controller that an odd switch reaches first takes charge of the real hosts.

Their rows stay as they were.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, host_mac, reserve_port
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

from .fake_switch import FakeSwitch
from .frames import Capture, udp
from .test_greedy import connected
from .test_recovery import flows, groups

HOSTS = ("A", "B", "C")
Rows = dict[str, tuple[list[str], list[str]]]
# Hosts that are there count at once, so that nothing depends on how fast hosts connect.
IMPATIENT = (
    "import ri2n_sdn.apps.cluster as cluster; cluster.FRESH_GRACE_S, "
    "cluster.TAKEOVER_GRACE_S = 0.0, 600.0"
)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A new sandbox for each test.

    A pair that has just sent something has a table of its own, and soon has none.
    """
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        yield made
        assert "Traceback" not in made.log()


def rows(sandbox: Sandbox) -> Rows:
    return {name: (flows(sandbox, name), groups(sandbox, name)) for name in HOSTS}


def difference(before: Rows, after: Rows) -> str:
    said = []
    for name in HOSTS:
        for old, new in zip(before[name], after[name], strict=True):
            said += [f"{name} lost {row}" for row in sorted(set(old) - set(new))]
            said += [f"{name} got {row}" for row in sorted(set(new) - set(old))]
    return "\n".join(said)


def send_elsewhere(sandbox: Sandbox, port: int) -> None:
    """All hosts look for their controller at a port where nobody listens, until `hurry`."""
    words = [["--", "set", "controller", name, f'target="tcp:127.0.0.1:{port}"'] for name in HOSTS]
    sandbox.ovs.vsctl(*[word for each in words for word in each][1:])


def first_at(port: int) -> FakeSwitch:
    """A switch that tries to connect until it can."""
    deadline_s = time.monotonic() + LONG_S
    while True:
        try:
            return FakeSwitch(port, "127.0.0.2")
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


ODD = {
    "a mute host": ("X", 0xB1, "02:00:0e:00:0b:01", True),
    "a mute host with the name of A": ("A", 0xB2, "02:00:0e:00:0b:01", True),
    "a host with the address of A": ("Z", 0xB3, host_mac(1), False),
}


@pytest.mark.parametrize(("name", "dpid", "mac", "mute"), ODD.values(), ids=ODD)
def test_whoever_comes_first_after_a_restart_takes_nothing_from_a_real_host(
    sandbox: Sandbox, name: str, dpid: int, mac: str, mute: bool
) -> None:
    sandbox.start_controller()
    sandbox.wait_settled(hosts=len(HOSTS))
    before = rows(sandbox)
    reserved, nowhere = reserve_port()
    send_elsewhere(sandbox, nowhere)
    wait_until(lambda: not connected(sandbox), "they stay")
    sandbox.kill_controllers()
    log = len(sandbox.log())
    controller = sandbox.start_controller(before=IMPATIENT)
    fake = first_at(sandbox.port)
    try:
        fake.mute = mute
        fake.answer(dpid=dpid, name=name, mac=mac, nics=["02:00:0e:00:0b:02"])
        wait_until(
            lambda: f"{name} connected from" in sandbox.log()[log:], lambda: sandbox.log()[log:]
        )
        sandbox.hurry()
        charge = wait_charge(sandbox)
        assert all(f" {each}" in charge.replace(",", "") for each in HOSTS), charge
        expected = {*HOSTS, "X"} if name == "X" else set(HOSTS)
        wait_until(lambda: connected(sandbox) == expected, lambda: f"{connected(sandbox)}")
        # Whoever came first has a real host's name until that host is there.
        wait_until(lambda: dpids(sandbox.ask("status")) == [1, 2, 3], sandbox.log)
        status = sandbox.wait_settled(hosts=len(expected), hurry=False)
        assert dpids(status) == [1, 2, 3] and status["pid"] == controller.pid
        found = rows(sandbox)  # a new host has more rows, which are about nothing else
        for of_host, _ in found.values():
            of_host[:] = [row for row in of_host if name != "X" or "02:00:0e:00:0b:0" not in row]
        assert found == before, f"{difference(before, found)}\n{sandbox.log()[log:]}"
        frames = [udp(sandbox.mac("B"), sandbox.mac("A"), (port, dpid)) for port in range(8)]
        capture = Capture(sandbox)
        sandbox.receive("B", *frames)
        capture.expect({"A": frames})
        said = [
            *problem_texts(status),
            *(entry["text"] for entry in sandbox.ask("events")["events"]),
        ]
        words = "X has not answered for" if name == "X" else f"{name} at 127.0.0.2 refused"
        assert any(words in text for text in said), said
    finally:
        fake.close()
        reserved.close()
        sandbox.kill_controllers()


def dpids(status: Mapping[str, Any]) -> list[int]:
    """The datapath ids of HOSTS; 0 for a host that the controller does not know."""
    found = {host["name"]: int(host["dpid"], 16) for host in status["hosts"]}
    return [found.get(each, 0) for each in HOSTS]


def wait_charge(sandbox: Sandbox) -> str:
    """The event that says of which hosts the controller is in charge."""

    def said() -> list[str]:
        return [
            entry["text"]
            for entry in sandbox.ask("events")["events"]
            if entry["text"].startswith("in charge of")
        ]

    wait_until(said, lambda: f"it does not take charge: {sandbox.ask('status')['hosts']}")
    return said()[0]
