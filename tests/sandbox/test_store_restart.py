# SPDX-License-Identifier: Apache-2.0
"""A controller with a memory starts anew without waiting, and finds out what is wrong by now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.store.rows import HostRow, NetworkRow, Put, State
from ri2n_sdn.store.server import OwnServer
from ri2n_sdn.store.store import Store
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

from .declarations import declare, job, withdraw
from .forked import fork
from .frames import Capture, await_problems, udp
from .store_servers import is_gone
from .test_recovery import flows, groups
from .test_rewiring import expected, networks
from .test_start import one_line

WIRING = {"A": ["n0", "n1"], "B": ["n0", "n1"], "C": ["n0", "n1"]}
# Only a memory lets a controller with these times take charge: no host is declared.
PATIENT = (
    "import ri2n_sdn.apps.cluster as cluster; cluster.FRESH_GRACE_S, "
    "cluster.TAKEOVER_GRACE_S = 1e9, 1e9"
)
HASTY = PATIENT.replace("1e9, 1e9", "1.0, 1.0")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(WIRING) as made:
        yield made
        assert "Traceback" not in made.log()


def memory(sandbox: Sandbox) -> Path:
    return sandbox.folder / "memory"


def opened(folder: Path) -> tuple[OwnServer, Store]:
    server = OwnServer(folder)
    server.start()
    store = Store([server.target], name="test")
    assert store.wait_active(LONG_S)
    return server, store


def remembered(sandbox: Sandbox) -> State:
    """What is in the store, while no controller runs."""
    server, store = opened(memory(sandbox))
    state = store.state()
    store.close()
    server.stop()
    return state


def reader(sandbox: Sandbox) -> Store:
    """A reader beside the controller."""
    store = Store([f"unix:{memory(sandbox)}/db.sock"], name="reader", compete=False)
    wait_until(lambda: store.problem is None, lambda: store.problem)
    return store


def written(sandbox: Sandbox) -> None:
    """Wait until the store has all hosts and NICs that the controller knows."""
    store = reader(sandbox)
    try:
        wait_until(
            lambda: (
                {frozenset(row.nics) for row in store.state().networks.values()}
                == {
                    frozenset(f"{label[0]}:{int(label[-1]) + 1}" for label in nics)
                    for nics in networks(sandbox)
                }
            ),
            "the store does not have the networks",
        )
        wait_until(lambda: store.state().hosts.keys() == WIRING.keys(), "hosts are missing")
    finally:
        store.close()


def rows(sandbox: Sandbox) -> dict[str, tuple[list[str], list[str]]]:
    return {name: (flows(sandbox, name), groups(sandbox, name)) for name in WIRING}


def server_pid(controller: int) -> int:
    """The ovsdb-server of a controller's process; 0 while there is none."""
    gone = suppress(FileNotFoundError, ProcessLookupError)  # a thread or child that ends meanwhile
    pids: list[int] = []
    for path in Path(f"/proc/{controller}/task").glob("*/children"):
        with gone:
            pids += map(int, path.read_text().split())
    for pid in pids:
        with gone:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name == "ovsdb-server" and not is_gone(pid):
                return pid
    return 0


def test_a_restart_waits_for_nobody_and_changes_nothing(sandbox: Sandbox) -> None:
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    written(sandbox)
    before, names = rows(sandbox), sandbox.ask("status")["networks"]
    pid = server_pid(sandbox.ask("status")["pid"])
    sandbox.kill_controllers()
    wait_until(lambda: is_gone(pid), "its server outlives it")
    sandbox.start_controller(config="{}", before=PATIENT)
    status = sandbox.wait_settled()
    assert status["networks"] == names and rows(sandbox) == before
    assert status["counters"].get("flow_mods", 0) == status["counters"].get("group_mods", 0) == 0


def test_names_of_networks_are_kept(sandbox: Sandbox) -> None:
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    written(sandbox)
    sandbox.kill_controllers()
    server, store = opened(memory(sandbox))
    store.write(
        *(
            Put(NetworkRow({"n1": "n2", "n2": "n1"}[name], row.nics))
            for name, row in store.state().networks.items()
        )
    )
    names = {name: row.nics for name, row in store.state().networks.items()}
    store.close()
    server.stop()
    sandbox.start_controller(config="{}", before=PATIENT)
    status = sandbox.wait_settled()
    assert {
        each["id"]: {f"{nic[0]}:{int(nic[-1]) + 1}" for nic in each["nics"]}
        for each in status["networks"]
    } == names


def test_a_host_that_has_gone_meanwhile_is_not_waited_for_forever(sandbox: Sandbox) -> None:
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    written(sandbox)
    sandbox.kill_controllers()
    sandbox.ovs.vsctl("del-controller", "C")
    sandbox.start_controller(config="{}", before=HASTY.replace("1.0, 1.0", "0.0, 3.0"))
    status = sandbox.wait_settled(hosts=2)
    wait_until(
        lambda: (
            "C was connected before the controller started anew, and has not come back"
            in problem_texts(sandbox.ask("status"))
        ),
        f"{problem_texts(status)}",
    )
    store = reader(sandbox)
    wait_until(lambda: store.state().hosts["C"].away_since_s is not None, "C counts as there")
    store.close()
    sandbox.kill_controllers()
    sandbox.start_controller(config="{}", before=PATIENT)
    sandbox.wait_settled(hosts=2)
    assert remembered_names(sandbox) == set(WIRING)


def test_a_host_that_does_not_answer_costs_others_no_row_of_theirs(sandbox: Sandbox) -> None:
    """Neither one that its job needs, as long as the job goes on, nor any other."""
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    for host in "AB":
        declare(sandbox, host, job("one", 1, "AB", "exclusive"))
    store = reader(sandbox)
    wait_until(
        lambda: {row.state for row in store.state().jobs.values()} == {"installed"},
        lambda: str(sandbox.ask("job_list")),
    )
    wait_until(
        lambda: [row.accepts_wire for row in store.state().hosts.values()] == [True] * len(WIRING),
        lambda: str(store.state().hosts),
    )
    store.close()
    written(sandbox)
    sandbox.wait_settled()
    before = rows(sandbox)
    sandbox.kill_controllers()
    sandbox.ovs.vsctl("set", "controller", "B", 'target="tcp:127.0.0.1:1"')
    sandbox.start_controller(config="{}", before=HASTY)
    wait_until(lambda: _answers(sandbox), "the controller does not answer")
    sandbox.hurry({"B"})
    sandbox.wait_settled(hosts=2, hurry=False)
    after = rows(sandbox)
    # While a host is away, its NICs' addresses may be used by whatever runs there.
    gone = [f"priority=185,dl_src={sandbox.nic_mac('B', port)}" for port in (1, 2)]
    for host in "AC":
        flows_before, flows_after = (set(each[host][0]) for each in (before, after))
        assert not flows_after - flows_before, sandbox.log()[-4000:]
        lost = flows_before - flows_after
        assert len(lost) == len(gone) and all(any(g in line for line in lost) for g in gone), lost
        assert before[host][1] == after[host][1]
    (shown,) = sandbox.ask("job_list")["jobs"]
    assert (shown["state"], shown["hosts"]) == ("installed", ["A", "B"])
    assert any("reg6=0x1" in line for line in after["A"][0])
    withdraw(sandbox, "A", 1)
    wait_until(
        lambda: not any("reg6=0x1" in line for line in flows(sandbox, "A")),
        lambda: "\n".join(flows(sandbox, "A")),
    )
    sandbox.hurry({"A", "C"})
    sandbox.wait_settled(hurry=False)


def _answers(sandbox: Sandbox) -> bool:
    with suppress(NotAvailable):
        return bool(sandbox.ask("status"))
    return False


def remembered_names(sandbox: Sandbox) -> set[str]:
    sandbox.kill_controllers()
    return set(remembered(sandbox).hosts)


def test_wrong_beliefs_are_found_out(sandbox: Sandbox) -> None:
    """The store has C's NICs in each other's network, and a NIC of B in a third one."""
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    written(sandbox)
    sandbox.kill_controllers()
    server, store = opened(memory(sandbox))
    store.write(
        Put(NetworkRow("n1", frozenset({"A:1", "B:1", "C:2"}))),
        Put(NetworkRow("n2", frozenset({"A:2", "C:1"}))),
        Put(NetworkRow("n5", frozenset({"B:2"}))),
    )
    store.close()
    server.stop()
    sandbox.start_controller(config="{}", before=PATIENT)
    wait_until(lambda: sandbox.socket.exists(), "it does not start")
    sandbox.wait_settled()
    wait_until(
        lambda: networks(sandbox) == expected(WIRING), f"{networks(sandbox)} {sandbox.log()}"
    )
    sandbox.wait_settled()
    capture = Capture(sandbox)
    wanted: dict[str, list[str]] = {name: [] for name in WIRING}
    for source in WIRING:
        for target in WIRING.keys() - {source}:
            frames = [udp(sandbox.mac(source), sandbox.mac(target), (1, port)) for port in range(8)]
            sandbox.receive(source, *frames)
            wanted[target] += frames
    capture.expect(wanted)
    written(sandbox)


def test_a_store_that_hangs_or_dies_stops_nothing(sandbox: Sandbox) -> None:
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    written(sandbox)
    pid = server_pid(sandbox.ask("status")["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: server_pid(sandbox.ask("status")["pid"]) not in (pid, 0),
        "the server is not started again",
    )
    pid = server_pid(sandbox.ask("status")["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        sandbox.ovs.vsctl("del-port", "C-e1")
        wait_until(
            lambda: (
                "A and C" not in str(sandbox.ask("status")["pairs"])
                and not any("C:C-e1" in nic for nic in networks(sandbox))
            ),
            "nothing goes on",
        )
        sandbox.wait_settled()
        wait_until(
            lambda: (
                f"nothing is remembered: the store at unix:{memory(sandbox)}/db.sock: it does "
                "not answer" in problem_texts(sandbox.ask("status"))
            ),
            "status does not say that the store hangs",
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    store = reader(sandbox)
    wait_until(lambda: set(store.state().hosts["C"].nic_names) == {1}, "it is not written later")
    store.close()
    wait_until(
        lambda: not any("remembered" in text for text in problem_texts(sandbox.ask("status"))),
        f"{problem_texts(sandbox.ask('status'))}",
    )


def test_a_damaged_memory_is_one_line_and_stays_as_it_is(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    written(sandbox)
    sandbox.kill_controllers()
    path = memory(sandbox) / "ri2n.db"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path.write_bytes(damaged)
    argv = ["controller", "--listen", f"127.0.0.1:{sandbox.port}", "--socket", str(tmp_path / "s")]
    log = tmp_path / "log"
    code = fork("", [*argv, "--state-dir", str(path.parent)], log).wait(LONG_S)
    assert f"{path}: is damaged at byte" in one_line(code, log.read_text())
    assert path.read_bytes() == damaged


def test_what_is_wrong_with_the_options_is_one_line(sandbox: Sandbox, tmp_path: Path) -> None:
    process = sandbox.start_controller(config="{}", before=HASTY)
    sandbox.wait_settled()
    (tmp_path / "file").write_text("thesis")
    argv = ["controller", "--listen", "127.0.0.1:1", "--socket", str(tmp_path / "s")]
    for number, (options, words) in enumerate(
        [
            (["--state-dir", str(memory(sandbox))], f"uses it, process {process.pid}: choose"),
            (["--state-dir", str(tmp_path / "file")], "file: File exists"),
            (["--store", "tcp:here"], "--store: 'tcp:here' is not unix:PATH"),
            (["--store", "ssl:127.0.0.1:1"], "--store: ssl: needs --tls-key"),
            (["--store", "none", "--state-dir", "x"], "--store: cannot be combined"),
        ]
    ):
        log = tmp_path / f"log{number}"
        code = fork("", [*argv, *options], log).wait(LONG_S)
        assert words in one_line(code, log.read_text())
    assert sandbox.ask("status")["pid"] == process.pid


def test_without_a_store_it_runs_as_before(sandbox: Sandbox) -> None:
    sandbox.start_controller(config="{}", before=HASTY, extra=["--store", "none"])
    sandbox.wait_settled()
    await_problems(sandbox)
    assert not memory(sandbox).exists()


def test_the_default_folder_is_not_asked_for_and_so_no_error(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """It is a file here, as a folder that the controller's user may not write."""
    (tmp_path / "file").write_text("")
    before = (
        "import pathlib, ri2n_sdn.apps.memory as memory; "
        f"memory.DEFAULT_STATE_DIR = pathlib.Path({str(tmp_path / 'file')!r})"
    )
    argv = ["controller", "--listen", f"127.0.0.1:{sandbox.port}", "--socket", str(sandbox.socket)]
    argv += ["--config", "/dev/null"]
    process = fork(f"{HASTY}\n{before}", argv, sandbox.log_file)
    try:
        sandbox.wait_settled()
        await_problems(sandbox, f"nothing is remembered: {tmp_path}/file: File exists")
    finally:
        process.kill()
        process.wait(LONG_S)


def test_an_expendable_host_is_not_stored(sandbox: Sandbox) -> None:
    """A host that shares no network with others may be anybody's, under any name."""
    sandbox.ovs.vsctl(*sandbox.host_commands("X", 77, [])[1:])
    try:
        sandbox.start_controller(config="{}", before=HASTY)
        wait_until(lambda: "in charge of" in sandbox.log(), "nobody is in charge")
        wait_until(
            lambda: {host["name"] for host in sandbox.ask("status")["hosts"]} == {*WIRING, "X"},
            "X has not come",
        )
        written(sandbox)
    finally:
        sandbox.kill_controllers()
        sandbox.ovs.vsctl("del-br", "X")
    hosts = remembered(sandbox).hosts
    assert hosts["A"] == HostRow(
        *("A", f"{1:016x}", sandbox.mac("A"), {1: "A-e0", 2: "A-e1"}, hosts["A"].nic_macs),
        nic_speeds_bps=hosts["A"].nic_speeds_bps,
        accepts_wire=hosts["A"].accepts_wire,
    )
    assert set(hosts) == set(WIRING)


def test_the_command_names_its_options() -> None:
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=True)
    assert "--state-dir" in done.stdout and "--store" in done.stdout
