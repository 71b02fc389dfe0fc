# SPDX-License-Identifier: Apache-2.0
"""The store on three ovsdb-servers: one of them is killed and comes back, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.store.rows import HostRow, JobRow, Put
from ri2n_sdn.store.store import Store
from tests.waiting import LONG_S, wait_until

from .raft_servers import leader, raft_cluster, status
from .store_servers import Server
from .test_kills import Traffic
from .test_recovery import flows, groups
from .two_controllers import connect, two

HOSTS = ("A", "B")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Server]]:
    """A RAFT cluster of three."""
    with raft_cluster(tmp_path) as members:
        yield members


def rows(sandbox: Sandbox) -> dict[str, tuple[list[str], list[str]]]:
    """What the hosts hold, but for the rows about the port of the controller in charge."""
    return {
        name: ([row for row in flows(sandbox, name) if ",tp_" not in row], groups(sandbox, name))
        for name in HOSTS
    }


def targets(servers: dict[str, Server]) -> list[str]:
    return [server.target for server in servers.values()]


def test_each_server_may_be_killed_and_nothing_acknowledged_is_lost(
    servers: dict[str, Server],
) -> None:
    store = Store(targets(servers), name="one")
    other = Store(targets(servers), name="other")
    try:
        assert store.wait_active(LONG_S) or other.wait_active(LONG_S)
        wait_until(lambda: store.active != other.active, "none is active, or both are")
        active, standby = (store, other) if store.active else (other, store)
        number = 0
        for _ in range(3):
            victim = leader(servers)
            servers[victim].kill()
            for _ in range(5):
                active.write(Put(HostRow(f"h{number}", "0", "m")), timeout_s=LONG_S)
                number += 1
            servers[victim].start()
            wait_until(partial(status, servers[victim]), f"{victim} stays away")
            assert active.active and not standby.active, "a change of the leader is no take-over"
        names = {f"h{each}" for each in range(number)}
        assert set(active.state().hosts) == names
        wait_until(lambda: set(standby.state().hosts) == names, "the standby has not read them")
        active.close()
        assert standby.wait_active(LONG_S)
        standby.write(Put(JobRow(Job("j", "alice", 1, ("A",), Policy(), 0.0))), timeout_s=LONG_S)
    finally:
        store.close()
        other.close()


def test_without_most_of_the_servers_nothing_is_acknowledged(servers: dict[str, Server]) -> None:
    store = Store(targets(servers), name="one")
    try:
        assert store.wait_active(LONG_S)
        left = leader(servers)
        gone = [name for name in servers if name != left]
        for name in gone:
            servers[name].kill()
        with pytest.raises(NotAvailable):
            store.write(Put(HostRow("A", "0", "m")), timeout_s=1.0)
        wait_until(lambda: store.problem is not None, "it does not say that the store is away")
        servers[gone[0]].start()
        store.write(Put(HostRow("B", "0", "m")), timeout_s=LONG_S)
        assert "B" in store.state().hosts and store.active
    finally:
        store.close()


def test_controllers_with_three_servers_of_which_one_is_killed(servers: dict[str, Server]) -> None:
    """One server goes and comes back under traffic; then the controller in charge is killed."""
    options = ["--store", ",".join(targets(servers))]
    with (
        Sandbox({name: ["n0", "n1"] for name in HOSTS}) as sandbox,
        two(sandbox, lambda name, folder: options) as (first, second),
    ):
        first.start()
        first.until(lambda: first.status()["in_charge"], "it does not take charge")
        second.start()
        connect(sandbox, first, second)
        first.until(first.in_charge, "it does not settle")
        second.until(lambda: second.stands_by() and second.hosts() == set(HOSTS), "no standby")
        before = rows(sandbox)
        reader = Store(targets(servers), name="reader", compete=False)
        try:
            wait_until(lambda: set(reader.state().hosts) == set(HOSTS), "nothing is stored")
        finally:
            reader.close()
        with Traffic(sandbox) as traffic:
            victim = leader(servers)
            servers[victim].kill()
            leader({name: each for name, each in servers.items() if name != victim})
            for each in (first, second):
                each.until(each.is_well, "the store stays away")
            assert first.status()["in_charge"] and second.stands_by()
            first.until(first.in_charge, "it does not stay in charge")
            servers[victim].start()
            first.kill()
            second.until(second.in_charge, "it does not take over")
        traffic.all_arrived()
        wait_until(lambda: rows(sandbox) == before, "the rows are others now")
