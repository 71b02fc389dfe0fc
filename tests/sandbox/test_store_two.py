# SPDX-License-Identifier: Apache-2.0
"""Two controllers: with a common store one takes over; without, the second one stands back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, execute, reserve_port
from ri2n_sdn.store.store import Store
from tests.waiting import LONG_S, wait_until

from .frames import Capture, udp
from .store_servers import Server, common_server, transact
from .test_kills import Traffic
from .test_recovery import flows, groups
from .two_controllers import Controller, connect, two

HOSTS = ("A", "B", "C")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with common_server(tmp_path) as made:
        yield made


@pytest.fixture
def pair(sandbox: Sandbox, server: Server) -> Iterator[tuple[Controller, Controller]]:
    """Two controllers with a common store; the first one is in charge."""
    with two(sandbox, lambda name, folder: ["--store", server.target]) as (first, second):
        first.start()
        second.start()
        connect(sandbox, first, second)
        first.until(first.in_charge, "it does not take charge")
        second.until(lambda: second.stands_by() and second.hosts() == set(HOSTS), "no standby")
        yield first, second


def rows(sandbox: Sandbox) -> dict[str, tuple[list[str], list[str]]]:
    return {name: (flows(sandbox, name), groups(sandbox, name)) for name in HOSTS}


def test_the_standby_says_for_whom_and_sends_nothing(
    sandbox: Sandbox, pair: tuple[Controller, Controller]
) -> None:
    first, second = pair
    status = second.status()
    for each in pair:
        each.until(each.is_well, "something is wrong")
    assert status["waits_because"].endswith(f"(127.0.0.1:{first.port}) is in charge")
    for host in HOSTS:
        wait_until(partial(first.is_master_of, host), f"it is no master of {host}")
        assert not second.is_master_of(host)
    assert not {"flow_mods", "group_mods", "probes_sent"} & {
        name for name, count in status["counters"].items() if count
    }


def test_the_standby_takes_over_from_a_killed_one_and_no_frame_is_lost(
    sandbox: Sandbox, pair: tuple[Controller, Controller]
) -> None:
    first, second = pair
    before, names = rows(sandbox), first.status()["networks"]
    for _ in range(2):
        with Traffic(sandbox) as traffic:
            first.kill()
            took_s = second.until(second.in_charge, "it does not take over")
        print(f"taken over and settled after {took_s:.2f} s")
        traffic.all_arrived()
        status = second.status()
        assert status["networks"] == names
        second.until(second.is_well, "something is wrong")
        wait_until(partial(second.is_master_of, "A"), "it is no master")
        first.start()
        first.until(first.stands_by, "the one that was killed does not stand by")
        first.until(first.has_all_hosts, "no host comes back")
        assert not first.is_master_of("A") and second.is_master_of("A")
        first, second = second, first
    wait_until(lambda: rows(sandbox) == before, "the rows are others now")


def test_one_that_was_only_stopped_is_fenced_off_and_stands_back(
    sandbox: Sandbox, server: Server
) -> None:
    """The store's server notices by its probes that the first one is silent.

    They are quick, by a row of the table Connection.
    """
    reserved, port = reserve_port()
    server.listen("db:ri2n,Cluster,connections")
    store = Store([server.target], name="one")
    assert store.wait_active(LONG_S)
    store.close()
    assert transact(
        server.target,
        '{"op":"insert","table":"Connection","uuid-name":"c",'
        f'"row":{{"target":"ptcp:{port}:127.0.0.1","inactivity_probe":1000}}}},'
        '{"op":"update","table":"Cluster","where":[],"row":{"connections":["named-uuid","c"]}}',
    )
    reserved.close()
    options = ["--store", f"tcp:127.0.0.1:{port}"]
    with two(sandbox, lambda name, folder: options) as (first, second):
        first.start(spawn=execute)
        second.start()
        connect(sandbox, first, second)
        first.until(first.in_charge, "it does not take charge")
        second.until(lambda: second.hosts() == set(HOSTS), "no standby")
        assert first.process is not None
        pid = first.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            second.until(second.in_charge, "it does not take over")
            before = rows(sandbox)
        finally:
            os.kill(pid, signal.SIGCONT)
        words = f":{second.port}) is in charge"
        first.until(
            lambda: str(first.status().get("waits_because")).endswith(words),
            "it does not stand back",
        )
        assert first.status()["pid"] == pid
        first.until(lambda: first.hosts() == set(HOSTS), "its hosts do not come back")
        assert second.status()["in_charge"]
        second.until(second.in_charge, "it does not stay in charge")
        second.until(second.is_well, "something is wrong")
        frames = [udp(sandbox.mac("A"), sandbox.mac("B"), (number, 1)) for number in range(16)]
        capture = Capture(sandbox)
        sandbox.receive("A", *frames)
        capture.expect({"B": frames})
        wait_until(lambda: rows(sandbox) == before, "the old one has changed rows")
        second.kill()
        first.until(first.in_charge, "it does not take over again")


def test_a_store_that_is_away_changes_nothing_and_two_do_not_become_active(
    sandbox: Sandbox, pair: tuple[Controller, Controller], server: Server
) -> None:
    first, second = pair
    server.kill()
    for each in pair:
        words = f"nothing is remembered: the store at {server.target}: it does not answer"
        each.until(partial(each.says, words), "it does not say that the store is away")
    assert first.status()["in_charge"] and second.stands_by()
    first.until(first.in_charge, "it does not stay in charge")
    sandbox.ovs.vsctl("del-port", "C-e1")
    first.until(
        lambda: not any("C:C-e1" in each["nics"] for each in first.status()["networks"]),
        "nothing goes on",
    )
    server.start()
    for each in pair:
        each.until(each.is_well, "the store stays away")
    assert first.status()["in_charge"] and second.stands_by()
    first.until(first.in_charge, "it does not stay in charge")
    store = Store([server.target], name="reader", compete=False)
    wait_until(lambda: "C" in store.state().hosts, "nothing was stored")
    wait_until(lambda: set(store.state().hosts["C"].nic_names) == {1}, "it is not stored later")
    store.close()


def own(name: str, folder: Path) -> list[str]:
    return ["--state-dir", str(folder / name)]


def test_without_a_common_store_the_second_one_stands_back(sandbox: Sandbox) -> None:
    with two(sandbox, own) as (first, second):
        first.start()
        connect(sandbox, first, second)
        first.until(first.in_charge, "it does not take charge")
        before = rows(sandbox)
        second.start()
        connect(sandbox, second, first)
        second.until(second.stands_by, "it does not stand back")
        for each, other, words in (
            (first, second, ", is connected to the same hosts, and should stand back"),
            (second, first, " and was there first: this one stands back"),
        ):
            each.until(partial(each.says, f":{other.port}), ", words), f"{other.name} is not named")
        first.until(first.in_charge, "it does not go on")
        assert rows(sandbox) == before
        assert not second.status()["counters"].get("flow_mods")
        first.kill()
        second.until(second.in_charge, "it does not take over from one that has gone")
        second.until(second.is_well, "it still says that something is wrong")


def test_two_that_meet_while_both_are_in_charge(sandbox: Sandbox) -> None:
    """Each has hosts of its own first; then all hosts are told of both."""
    with two(sandbox, own) as (first, second):
        for each in (first, second):
            each.start(config="{}", spawn=execute)
        for name, each in (("A", first), ("B", first), ("C", second)):
            sandbox.ovs.vsctl("set-controller", name, f"tcp:127.0.0.1:{each.port}")
        first.until(lambda: first.hosts() == {"A", "B"}, "its hosts do not come")
        second.until(
            lambda: second.hosts() == {"C"} and "in charge of 1 hosts" in second.log(),
            "it does not take charge",
        )
        connect(sandbox, first, second)
        second.until(second.stands_by, "it does not stand back")
        first.until(first.in_charge, "it does not take charge of all")
        frames = [udp(sandbox.mac("A"), sandbox.mac("C"), (number, 1)) for number in range(16)]
        capture = Capture(sandbox)
        sandbox.receive("A", *frames)
        capture.expect({"C": frames})
        first.kill()
        second.until(second.in_charge, "it does not take over")
