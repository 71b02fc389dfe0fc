# SPDX-License-Identifier: Apache-2.0
"""The store with real servers: writes that are acknowledged survive, and one is in charge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import ri2n_sdn.store.link as link
from ri2n_lab.cluster.sandbox import reserve_port
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.jobs.history import Record
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Reservation, Service
from ri2n_sdn.jobs.moves import Move
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store.link import TlsFiles
from ri2n_sdn.store.rows import (
    ClusterRow,
    HostRow,
    JobRow,
    LanesRow,
    LinksRow,
    NetworkRow,
    PolicyRow,
    Put,
    Remove,
    Row,
    State,
)
from ri2n_sdn.store.server import FolderInUse, OwnServer
from ri2n_sdn.store.store import Store
from tests.waiting import LONG_S, wait_until

from .store_servers import Server, common_server, is_gone, transact
from .test_tls import authority, signed

POLICY = Policy(
    "exclusive",
    (PathTable(None, ("net1", "A:eth1")), PathTable(10, ())),
    (Service("fe80::1", "tcp", 2049),),
    *(4 * 10**8, 7),
)
JOB = JobRow(
    Job("j1", "alice", 20001, ("n2", "n1"), POLICY, 1.5, source="order"), "waiting", "no lane"
)
HOST = HostRow(
    "A",
    f"{2**64 - 1:016x}",
    "02:00:00:00:00:01",
    {1: "eth0"},
    {1: "m"},
    3.25,
    {1: 7},
    {1: "tx"},
    True,
    "on",
)
ROWS: list[Row] = [
    *(JOB, HOST, NetworkRow("n1", frozenset({"A:1", "B:2"}))),
    LinksRow("A", "B", {"1/2/0": 3, "2/1/12": 0}),
    Move("j1", 20001, POLICY, "root", 4.5),
    LanesRow("j1", frozenset({"n1/0", "n2/12"})),
    Reservation("r1", "bob", ("n1",), 5.0, 6.0, 10**9, POLICY),
    PolicyRow("fast", POLICY),
    Right("alice", frozenset({"paths", "shared"}), None, 4, True),
    Record("j0", "alice", 20001, ("n1",), POLICY, 1.0, 2.0, "ended"),
]
"""A row of every table."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with common_server(tmp_path) as made:
        yield made


@pytest.fixture
def open_store() -> Iterator[Callable[..., Store]]:
    opened: list[Store] = []

    def open_one(*targets: str, name: str = "one", compete: bool = True) -> Store:
        opened.append(Store(targets, name=name, compete=compete))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnServer]:
    made = OwnServer(tmp_path / "state")
    made.start()
    yield made
    made.stop()


def everything(state: State) -> list[Row]:
    tables = (state.jobs, state.hosts, state.networks, state.links)
    more = (state.moves, state.lanes, state.reservations, state.policies, state.rights)
    return [*(row for table in (*tables, *more) for row in table.values()), *state.history]


def test_what_is_written_is_there_at_once_and_for_others(
    server: Server, open_store: Callable[..., Store]
) -> None:
    store, reader = open_store(server.target), open_store(server.target, compete=False)
    assert store.wait_active(LONG_S)
    assert store.state().cluster == ClusterRow(
        store.epoch,
        "",
        "one",
        store.run,
        store.state().cluster.since_s,  # type: ignore[union-attr]
    )
    store.write(*(Put(row) for row in ROWS))
    assert everything(store.state()) == ROWS
    wait_until(lambda: everything(reader.state()) == ROWS, "the other one does not see it")
    assert reader.state().identity == store.state().identity != ""
    changed = JobRow(replace(JOB.job, hosts=()), "installed")
    store.write(Put(changed), Remove(HOST), Remove(replace(HOST, name="never")))
    assert store.state().jobs == {"j1": changed} and not store.state().hosts
    store.write(*(Remove(row) for row in ROWS))
    assert everything(store.state()) == []
    with pytest.raises(NotAvailable, match="this controller is not in charge: one is"):
        reader.write(Put(JOB))


def test_a_file_has_what_was_acknowledged_when_everything_is_killed(tmp_path: Path) -> None:
    """A process writes as fast as it can, and says what was acknowledged until it is killed."""
    program = f"""
import sys
from pathlib import Path
from ri2n_sdn.store.rows import HostRow, Put
from ri2n_sdn.store.server import OwnServer
from ri2n_sdn.store.store import Store
server = OwnServer(Path({str(tmp_path / "state")!r}))
server.start()
store = Store([server.target], name="x")
store.wait_active({LONG_S})
print(server.pid, flush=True)
number = len(store.state().hosts)
while True:
    store.write(Put(HostRow(f"h{{number}}", "0", "m")))
    print(number, flush=True)
    number += 1
"""
    acknowledged = -1
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        for _ in range(20):
            acknowledged = int(process.stdout.readline())
        process.kill()
        rest = process.stdout.read().decode().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        process.wait()
        process.stdout.close()
        wait_until(partial(is_gone, pid), "the server outlives its controller")
    server = OwnServer(tmp_path / "state")
    server.start()
    store = Store([server.target], name="y")
    try:
        assert store.wait_active(LONG_S)
        kept = {int(name[1:]) for name in store.state().hosts}
        assert kept >= set(range(acknowledged + 1)) and len(kept) <= acknowledged + 2
    finally:
        store.close()
        server.stop()


def test_a_killed_server_is_started_again_and_nothing_is_lost(
    own: OwnServer, open_store: Callable[..., Store]
) -> None:
    store = open_store(own.target)
    assert store.wait_active(LONG_S)
    epoch = store.epoch
    for number in range(5):
        pid = own.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        store.write(Put(HostRow(f"h{number}", "0", "m")), timeout_s=LONG_S)
    wait_until(lambda: own.starts == 6, f"{own.starts} starts")
    wait_until(lambda: store.problem is None, "the store stays away")
    assert store.state().hosts.keys() == {f"h{number}" for number in range(5)}
    assert store.active and store.epoch == epoch and not store.deposed


def test_many_threads_write_at_once(own: OwnServer, open_store: Callable[..., Store]) -> None:
    store = open_store(own.target)
    failed = []

    def write(number: int) -> None:
        try:
            for place in range(10):
                store.write(Put(HostRow(f"h{number}-{place}", "0", "m")), timeout_s=LONG_S)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(store.state().hosts) == 160


def test_a_wrong_change_is_refused_and_the_others_are_made(
    own: OwnServer, open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers' own rules are asked by writing what the checks before them would find."""
    store = open_store(own.target)
    assert store.wait_active(LONG_S)
    wrong, real = HostRow("wrong", "0", "m"), link.encode
    monkeypatch.setattr(
        "ri2n_sdn.store.store.encode",
        lambda change: (
            replace(real(change), columns={"name": 5}) if change.row == wrong else real(change)
        ),
    )
    os.kill(own.pid or 0, signal.SIGSTOP)  # so that all changes wait, and go in one transaction
    results: dict[str, Exception | None] = {}

    def write(row: HostRow) -> None:
        try:
            store.write(Put(row), timeout_s=LONG_S)
            results[row.name] = None
        except Exception as error:
            results[row.name] = error

    rows = [wrong if number == 2 else HostRow(f"h{number}", "0", "m") for number in range(5)]
    threads = [threading.Thread(target=write, args=(row,)) for row in rows]
    for thread in threads:
        thread.start()
    os.kill(own.pid or 0, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert isinstance(results.pop("wrong"), BadInput)
    assert set(results.values()) == {None} and store.state().hosts.keys() == results.keys()


def test_only_so_much_history_is_kept(
    own: OwnServer, open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MAX_HISTORY", 4)
    store = open_store(own.target)
    assert store.wait_active(LONG_S)
    rows = {end: Record(f"j{end}", "a", 1, (), Policy(), 0.0, float(end), "") for end in range(8)}
    for end in (3, 1, 2, 4, 5, 6):
        store.write(Put(rows[end]))
    assert [row.end_s for row in store.state().history] == [3.0, 4.0, 5.0, 6.0]
    # Where another one makes way, the oldest one stays.
    store.write(Remove(rows[5]), Put(rows[7]))
    assert [row.end_s for row in store.state().history] == [3.0, 4.0, 6.0, 7.0]


def test_the_second_one_takes_over_and_the_first_one_is_fenced_off(
    server: Server, open_store: Callable[..., Store]
) -> None:
    first = open_store(server.target, name="first")
    assert first.wait_active(LONG_S)
    second = open_store(server.target, name="second")
    wait_until(lambda: second.problem is None, lambda: second.problem)
    assert not second.active
    wait_until(lambda: second.state().cluster is not None, "the second one knows of no first")
    with pytest.raises(NotAvailable, match="this controller is not in charge: first is"):
        second.write(Put(HOST))
    before = first.epoch
    # The first one's session ends without its knowledge, as that of a stopped process does.
    stolen = threading.Event()
    first._link.run, run = lambda: False, first._link.run  # type: ignore[method-assign]
    first._link.ask_for_lock(None)
    assert second.wait_active(LONG_S) and second.epoch > before
    first._link.run = run  # type: ignore[method-assign]
    stolen.set()
    wait_until(lambda: first.deposed and not first.active, "the first one does not notice")
    with pytest.raises(NotAvailable, match="this controller is not in charge: second is"):
        first.write(Put(HOST))
    second.write(Put(HOST))
    second.close()
    assert not first.wait_active(0.3), "one that was deposed never comes back"


def test_a_closed_one_is_followed_at_once(server: Server, open_store: Callable[..., Store]) -> None:
    first = open_store(server.target, name="first")
    assert first.wait_active(LONG_S)
    second = open_store(server.target, name="second")
    wait_until(lambda: second.problem is None, lambda: second.problem)
    first.close()
    assert second.wait_active(LONG_S)
    cluster = second.state().cluster
    assert cluster is not None and cluster.active == "second"


def test_one_that_is_deposed_while_it_writes_writes_nothing_more(
    server: Server, open_store: Callable[..., Store]
) -> None:
    store = open_store(server.target)
    assert store.wait_active(LONG_S)
    later = store.epoch + 5
    assert transact(
        server.target,
        f'{{"op":"update","table":"Cluster","where":[],"row":{{"epoch":{later},"active":"x"}}}}',
    )
    with pytest.raises(NotAvailable, match="not in charge: x is"):
        store.write(Put(HOST))
    assert not store.state().hosts and store.deposed


def test_a_store_that_is_away_is_one_line(server: Server, open_store: Callable[..., Store]) -> None:
    store = open_store(server.target)
    assert store.wait_active(LONG_S)
    store.write(Put(HOST))
    server.kill()
    wait_until(lambda: store.problem is not None, "nobody says that the store is away")
    assert store.problem == f"the store at {server.target}: it does not answer"
    with pytest.raises(NotAvailable, match="it does not answer"):
        store.write(Put(JOB), timeout_s=0.1)
    assert store.state().hosts == {"A": HOST} and store.active
    server.start()
    store.write(Put(NetworkRow("n1")), timeout_s=LONG_S)
    assert store.problem is None and not store.state().jobs, "a change that was given up was made"


def test_nonsense_of_another_program_is_left_out(
    server: Server, open_store: Callable[..., Store]
) -> None:
    store = open_store(server.target)
    assert store.wait_active(LONG_S)
    assert transact(
        server.target,
        '{"op":"insert","table":"Job","row":{"id":"odd","kind":"shared",'
        '"services":["map",[[0,"x"]]]}},'
        '{"op":"insert","table":"Host","row":{"name":"B"}}',
    )
    wait_until(lambda: "B" in store.state().hosts, "the other row is not read")
    assert not store.state().jobs
    store.write(Put(HOST))


def test_watchers_are_told_and_must_not_write(
    own: OwnServer, open_store: Callable[..., Store]
) -> None:
    store = open_store(own.target)
    assert store.wait_active(LONG_S)
    seen: list[set[str]] = []
    refused = threading.Event()

    def watch(state: State) -> None:
        seen.append(set(state.hosts))
        try:
            store.write(Put(JOB))
        except RuntimeError:
            refused.set()

    store.watch(watch)
    store.write(Put(HOST))
    wait_until(lambda: {"A"} in seen, "nobody was told")
    assert refused.is_set() and not store.state().jobs


def test_a_folder_belongs_to_one_process(own: OwnServer, tmp_path: Path) -> None:
    with pytest.raises(
        FolderInUse, match=f"state: another controller uses it, process {os.getpid()}"
    ):
        OwnServer(tmp_path / "state").start()
    own.stop()
    again = OwnServer(tmp_path / "state")
    again.start()
    again.stop()
    left = {path.name for path in (tmp_path / "state").iterdir()}
    assert left == {"lock", "ri2n.db", ".ri2n.db.~lock~"}


def test_time_does_not_pass_for_a_closed_store(server: Server) -> None:
    store = Store([server.target], name="one")
    assert store.wait_active(LONG_S)
    store.close()
    store.close()
    before_s = time.monotonic()
    with pytest.raises(NotAvailable, match="the store is closed"):
        store.write(Put(HOST), timeout_s=LONG_S)
    assert time.monotonic() - before_s < LONG_S


def test_a_server_with_tls(tmp_path: Path) -> None:
    """With certificates of one authority it works, and with another authority's it does not."""
    for name in ("ours", "theirs"):
        authority(tmp_path, name)
    for name, by in (("server", "ours"), ("one", "ours"), ("two", "theirs")):
        signed(tmp_path, name, by)
    reserved, port = reserve_port()
    with common_server(
        tmp_path,
        *(f"--private-key={tmp_path}/server.key", f"--certificate={tmp_path}/server.pem"),
        *(f"--ca-cert={tmp_path}/ours.pem", f"--remote=pssl:{port}:127.0.0.1"),
    ):
        stores = {}
        for name, by in (("two", "theirs"), ("one", "ours")):
            files = TlsFiles(
                tmp_path / f"{name}.key", tmp_path / f"{name}.pem", tmp_path / f"{by}.pem"
            )
            stores[name] = Store([f"ssl:127.0.0.1:{port}"], name=name, tls=files)
            if name == "two":
                assert not stores[name].wait_active(1.0) and stores[name].problem
                stores[name].close()
        try:
            assert stores["one"].wait_active(LONG_S)
            stores["one"].write(Put(HOST))
        finally:
            stores["one"].close()
    reserved.close()
