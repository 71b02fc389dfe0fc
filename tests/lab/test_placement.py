# SPDX-License-Identifier: Apache-2.0
"""least_connections with real connections of three clients on six networks.

The tests also show what connections do when a NIC fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from ri2n_sdn.fabric.topology import Topology
from tests.topology_text import parse_topology

from .conftest import EXACT, WAYS, WaitUntil, on_way
from .connections import PORT, Client, Watcher, serve

pytestmark = pytest.mark.virtual

NICS = [f"eth{number}" for number in range(6)]
CLIENTS = ("B", "C", "D")
EACH = 12


def six() -> Topology:
    """A server A and three clients, all with a NIC on each of six networks.

    It is figure 5 of the Paradise paper.
    """
    nics = ", ".join(
        f"{{name: {nic}, switch: n{number}, rate_bps: 10000000}}"
        for number, nic in enumerate(NICS, 1)
    )
    hosts = "".join(f"  {host}: {{nics: [{nics}]}}\n" for host in ("A", *CLIENTS))
    switches = ", ".join(f"n{number}: {{port_buffer_bytes: 131072}}" for number in range(1, 7))
    return parse_topology(f"name: six-place\nswitches: {{{switches}}}\nhosts:\n{hosts}")


class Bench:
    """The lab, the server on A, and a client on each other host."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.config = lab.run_dir / "placement.yaml"
        self.config.write_text(
            f"{lab.cluster_file.read_text()}\nplacement: [{{hosts: [A], ports: [{PORT}]}}]\n"
        )
        self.start_controller()
        serve(lab, "A")
        self.watcher = Watcher(lab, "A")
        self.clients = {name: Client(lab, name) for name in CLIENTS}

    def start_controller(self) -> None:
        self.controller = self.lab.start_controller(config=self.config)
        self.lab.wait_ready()

    def kill_controller(self) -> None:
        self.controller.kill()
        self.controller.wait()

    def open(self, count: int, ipv6: str = "") -> None:
        """Each client, except those in `ipv6`, opens so many connections over IPv4."""
        for name, client in self.clients.items():
            client.open(self.lab.address6("A") if name in ipv6 else self.lab.address("A"), count)

    def close(self, every: int = 1) -> None:
        for client in self.clients.values():
            client.close(every)

    def talk(self, up_bytes: int = 8000, down_bytes: int = 8000) -> None:
        """All connections talk at once, in both directions."""
        for client in self.clients.values():
            client.start_talk(up_bytes, down_bytes)
        for client in self.clients.values():
            client.end_talk()

    def placed(self) -> dict[tuple[str, int], int]:
        """A's port by the client's address and port, as A's own rows have it."""
        rows = self.lab.ofctl("A", "--no-names", "dump-flows", "br-ri2n", "table=13")
        found = re.findall(
            r"priority=20,.*?(?:nw|ipv6)_dst=([^,]+),.*?tp_dst=(\d+) actions=set_field:(0x\w+)",
            rows,
        )
        return {(address, int(port)): int(path, 16) >> 22 for address, port, path in found}

    def await_placed(self, number: int, wait_until: WaitUntil) -> None:
        """Wait until A has rows of so many connections.

        The controller places connections after they have begun.
        """
        wait_until(
            lambda: len(self.placed()) == number,
            lambda: f"{len(self.placed())} rows: {self.counters()}",
        )

    def counters(self) -> dict[str, int]:
        counted: dict[str, int] = call(self.lab.controller_socket, "status")["counters"]
        return {
            name: count
            for name, count in counted.items()
            if "connections" in name or "error" in name
        }

    def followed_rows(self, host: str) -> list[str]:
        rows = self.lab.ofctl(host, "--no-names", "dump-flows", "br-ri2n", "table=13").splitlines()
        return [row for row in rows if "priority=10," in row]

    def await_none_followed(self, wait_until: WaitUntil) -> None:
        """Wait until no client's host has anything that it learned.

        Most of it ends with its connection, the rest when it is idle.
        """
        for name in self.clients:
            for max_rows, limit_s in ((2, 20), (0, 60)):

                def ended(host: str = name, max_rows: int = max_rows) -> bool:
                    return len(self.followed_rows(host)) <= max_rows

                wait_until(
                    ended, lambda host=name: str(self.followed_rows(host)), timeout_s=limit_s
                )

    def seen(self) -> tuple[Counter[str], Counter[str]]:
        """What all connections do when they talk: how many are on each of A's NICs, in and out.

        Connections that use more than one NIC, or different ones in the two directions, are counted
        as "torn".
        """
        self.watcher.report()
        self.talk()
        report = self.watcher.report()
        result = []
        for direction, other in (("in", "out"), ("out", "in")):
            whole = {
                c: n
                for c, n in report[direction].items()
                if len(n) == 1 and report[other].get(c) == n
            }
            count = Counter(nics[0] for nics in whole.values())
            count["torn"] = len(report[direction]) - len(whole)
            result.append(count)
        return result[0], result[1]


@pytest.fixture(scope="module", params=WAYS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with Lab.create(six(), fast=on_way(request)) as lab:
        yield Bench(lab)


@pytest.fixture
def fresh(bench: Bench, wait_until: WaitUntil) -> Iterator[Bench]:
    """The lab with no connections, before and after each test."""
    yield bench
    bench.lab.restore_all()
    bench.close()
    wait_until(lambda: not bench.placed(), lambda: f"rows stay: {bench.placed()}", timeout_s=20)


def even(count: Counter[str], total: int, nics: list[str] = NICS) -> bool:
    """All of `total` connections are on these NICs, and each NIC has its part within one."""
    return not count["torn"] and all(abs(count[nic] - total / len(nics)) <= 1 for nic in nics)


def test_six_nics_carry_the_same_number_within_one(fresh: Bench, wait_until: WaitUntil) -> None:
    """There are 3 x 12 connections.

    Then half of them are closed, those of whole NICs, and as many are opened again.
    """
    total = EACH * len(CLIENTS)

    def each_carries_its_part() -> None:
        # The client's host follows a moment later, and data may once more arrive by the way that it
        # learned before.
        wait_until(
            lambda: all(even(count, total) for count in fresh.seen()), lambda: str(fresh.seen())
        )

    fresh.open(EACH, ipv6="D")
    fresh.await_placed(total, wait_until)
    each_carries_its_part()
    fresh.close(every=2)
    fresh.await_placed(total // 2, wait_until)
    assert max(Counter(fresh.placed().values()).values()) > total / 2 / len(NICS) + 1, (
        "nothing to put right"
    )
    fresh.open(EACH // 2, ipv6="B")
    fresh.await_placed(total, wait_until)
    each_carries_its_part()
    # Rows that a client learned must go, too, or the table would become full.
    fresh.close()
    fresh.await_none_followed(wait_until)


def test_explain_says_where_a_connection_goes(fresh: Bench, wait_until: WaitUntil) -> None:
    """The packets of the connection are seen there, in both directions."""
    (port,) = fresh.clients["B"].open(fresh.lab.address("A"), 1)
    fresh.await_placed(1, wait_until)

    def explanation(src: str, dst: str, sport: int, dport: int) -> str:
        ports = ["--sport", str(sport), "--dport", str(dport)]
        socket = ["--socket", str(fresh.lab.controller_socket)]
        command = [sys.executable, "-m", "ri2n_sdn.cli.main", "explain"]
        command += [src, dst, "--proto", "tcp", *ports, *socket]
        answer = json.loads(
            subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout
        )
        assert answer["slot"] is None, answer
        return str(answer["why"][-1])

    nic = NICS[fresh.placed()[fresh.lab.address("B"), port] - 1]
    wait_until(lambda: fresh.seen()[1][nic] == 1, "it does not go by its row")
    assert f"leaves A by {nic} and reaches B at {nic}" in explanation("A", "B", PORT, port)
    assert f"leaves B by {nic} and reaches A at {nic}" in explanation("B", "A", port, PORT)


def test_connections_that_are_reset_do_not_count(fresh: Bench, wait_until: WaitUntil) -> None:
    """Half of them are reset, those of whole NICs, and as many are opened again.

    Then all are reset.
    """
    total = 12 * len(CLIENTS)
    fresh.open(12, ipv6="C")
    fresh.await_placed(total, wait_until)
    fresh.talk()
    for client in fresh.clients.values():
        client.reset(every=2)
    wait_until(
        lambda: len(fresh.placed()) == total // 2,
        lambda: f"rows stay: {fresh.placed()}",
        timeout_s=10,
    )
    fresh.open(6, ipv6="B")
    fresh.await_placed(total, wait_until)
    wait_until(lambda: all(even(count, total) for count in fresh.seen()), lambda: str(fresh.seen()))
    for client in fresh.clients.values():
        client.reset()
    wait_until(lambda: not fresh.placed(), lambda: f"rows stay: {fresh.placed()}", timeout_s=10)
    fresh.await_none_followed(wait_until)


@pytest.mark.parametrize("end", ["close", "reset"])
def test_short_connections_leave_no_rows(fresh: Bench, wait_until: WaitUntil, end: str) -> None:
    """They end while their host's datapath still sends them as before it knew their way."""
    for _ in range(2):
        fresh.open(6, ipv6="C")
        fresh.await_placed(6 * len(CLIENTS), wait_until)
        for client in fresh.clients.values():
            getattr(client, end)()
        wait_until(lambda: not fresh.placed(), lambda: f"rows stay: {fresh.placed()}")
    fresh.await_none_followed(wait_until)


def test_a_nic_goes_down_and_all_connections_go_on(fresh: Bench, wait_until: WaitUntil) -> None:
    fresh.open(8)
    fresh.talk()
    total = 8 * len(CLIENTS)
    fresh.lab.fault("nic_down", host="A", nic="eth2")
    began_s = time.monotonic()
    fresh.talk()
    took_s = time.monotonic() - began_s
    assert not EXACT or took_s < 1, f"connections stood still: {took_s} s"
    counts = fresh.seen()
    assert all(count["eth2"] == 0 and sum(count.values()) == total for count in counts), counts
    # New connections are placed on the NICs that are left.
    fresh.open(2)
    fresh.await_placed(total + 6, wait_until)
    now = Counter(fresh.placed().values())
    assert now[3] == total / 6 and sum(now.values()) == total + 6, now
    fresh.lab.restore("nic_down", host="A", nic="eth2")
    wait_until(lambda: fresh.seen()[1]["eth2"] == total / 6, "its connections do not come back")


def test_without_a_controller_connections_begin_and_leave_dead_nics(
    fresh: Bench, wait_until: WaitUntil
) -> None:
    """And the next controller goes on counting where the last one stopped."""
    fresh.open(3)
    wait_until(lambda: even(fresh.seen()[1], 9), "nine connections are not placed")
    fresh.kill_controller()
    client = fresh.clients["B"]
    (port, *_) = client.open(fresh.lab.address("A"), 0)
    nic = NICS[fresh.placed()[fresh.lab.address("B"), port] - 1]
    fresh.watcher.report()
    client.start_talk(1, 500_000)
    wait_until(lambda: nic in str(fresh.watcher.report().get("out")), "nothing is sent on it")
    fresh.lab.fault("nic_down", host="A", nic=nic)
    client.end_talk()
    fresh.lab.restore("nic_down", host="A", nic=nic)
    fresh.open(1)
    fresh.talk()
    assert len(fresh.placed()) == 9, "who placed them?"
    fresh.start_controller()
    fresh.open(3)
    fresh.await_placed(18, wait_until)
    assert set(Counter(fresh.placed().values()).values()) == {3}, fresh.placed()
