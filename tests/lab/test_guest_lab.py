# SPDX-License-Identifier: Apache-2.0
"""Labs in guests that stay: the same commands work from outside.

Nothing is left, however a guest ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ri2n_lab.cluster import state
from ri2n_lab.guests import labs as guest_labs
from ri2n_lab.guests.kernels import find_kernel
from ri2n_lab.guests.labs import Connection, GuestLab, find_guest_lab
from ri2n_lab.guests.link import Frame, Kind, Parser, credit, encode, json_frame
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import load_topology

from .conftest import WaitUntil, await_true

TOPOLOGY = Path(__file__).resolve().parents[2] / "topologies" / "fig4" / "b.yaml"
HANG_S = 10.0  # for the guest that is made to hang; the others have the product's own time
DEADLINE_S = 180.0
pytestmark = pytest.mark.timeout(900)


@contextmanager
def labs_in(folder: Path) -> Iterator[Path]:
    """This process looks for labs in this folder."""
    before, state.ROOT = state.ROOT, folder
    try:
        yield folder
    finally:
        state.ROOT = before


@contextmanager
def empty_root(use: str) -> Iterator[Path]:
    """A folder for labs of this test alone, which must be empty at the end.

    It is in memory, as the real one is.
    """
    folder = Path(f"/run/ri2n-lab-test-{os.getpid()}-{use}")
    try:
        yield folder
    finally:
        with labs_in(folder):
            left = guest_labs.all_guest_labs()
            for lab in left:
                guest_labs.end(lab)
        names = (
            [path.name for path in folder.iterdir() if not path.name.startswith(".")]
            if folder.exists()
            else []
        )

        def is_removed() -> bool:
            # A keeper that is just ending may lock its lab once more.
            for lock in folder.glob(".lock-*"):
                lock.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
            return not folder.exists()

        await_true(is_removed, lambda: f"left in {folder}: {list(folder.iterdir())}")
    assert (left, names) == ([], [])


@pytest.fixture(scope="module", autouse=True)
def root() -> Iterator[Path]:
    """The folder that has only the lab that most of these tests share.

    So commands need not name the lab.
    """
    try:
        find_kernel("uml")
    except NotAvailable as error:
        pytest.skip(str(error))
    with empty_root("shared") as folder, labs_in(folder):
        yield folder


def ri2n(root: Path, *argv: str, **keywords: Any) -> subprocess.CompletedProcess[bytes]:
    keywords.setdefault("timeout", 500)
    keywords.setdefault("capture_output", True)
    if "input" not in keywords:
        keywords.setdefault("stdin", subprocess.DEVNULL)
    environment = {**os.environ, "RI2N_LAB_ROOT": str(root), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "ri2n_sdn.cli.main", *argv], env=environment, check=False, **keywords
    )


def started(name: str, *, limit_s: float = 3600.0, hang_s: float | None = None) -> Connection:
    return guest_labs.start_keeper(
        load_topology(TOPOLOGY), name, "uml", limit_s=limit_s, hang_s=hang_s
    )


def frames_until_closed(connection: Connection) -> list[Frame]:
    """Everything that arrives until the other side has closed the connection; else TimeoutError."""
    connection.socket.settimeout(DEADLINE_S)
    parser, frames = Parser(), list[Frame]()
    with suppress(ConnectionResetError):  # it was closed before everything was read
        while data := connection.socket.recv(1 << 16):
            frames += parser.feed(data)
    return frames


def last_words(connection: Connection) -> str:
    """Why the keeper closed the connection."""
    last = frames_until_closed(connection)[-1]
    assert last.kind is Kind.ERROR, last
    return last.payload.decode()


def record(name: str) -> GuestLab:
    lab = find_guest_lab(name)
    assert lab is not None
    return lab


def processes_of(name: str) -> list[int]:
    """The processes whose command line names the lab's folder.

    They are the kernel, its copies, and the process that starts it.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(state.run_dir(name)).encode() + b"/" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kernel_pid(name: str) -> int:
    """The guest's kernel: the first process of the guest's PID namespace."""
    for pid in processes_of(name):
        with suppress(OSError):  # programs of the guest are processes here, too, and they end
            status = Path(f"/proc/{pid}/status").read_text()
            if (
                next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
                == "1"
            ):
                return pid
    raise AssertionError(f"no kernel of {name}")


class Booting(NamedTuple):
    """What boots side by side, since booting is mostly waiting.

    There are two `lab up`, and guests that are to end when they are up.
    """

    up: Future[subprocess.CompletedProcess[bytes]]
    refused: Future[subprocess.CompletedProcess[bytes]]
    doomed: dict[str, Connection]
    elsewhere: Path

    def keep(self, name: str) -> None:
        """Wait until that guest is up, and let it stay."""
        guest_labs.await_ready(self.doomed[name])
        guest_labs.keep(self.doomed[name])


@pytest.fixture(scope="module")
def booting(root: Path) -> Iterator[Booting]:
    with (
        empty_root("elsewhere") as folder,
        ThreadPoolExecutor(2) as pool,
        ExitStack() as connections,
    ):
        command = ["lab", "up", "fig4/b", "--kernel", "uml", "--name"]
        up = pool.submit(ri2n, root, *command, "shared")
        refused = pool.submit(ri2n, folder, *command, "bad", "--datapath", "wrong")
        with labs_in(folder):
            doomed = {"hang": started("hang", hang_s=HANG_S), "agent": started("agent")}
        for connection in doomed.values():
            connections.enter_context(connection)
        yield Booting(up, refused, doomed, folder)


@pytest.fixture
def elsewhere(booting: Booting) -> Iterator[Path]:
    """The folder of the guests that boot beside the shared lab."""
    with labs_in(booting.elsewhere) as folder:
        yield folder


@pytest.fixture
def alone(booting: Booting) -> Iterator[Path]:
    """A folder for the guest of one test.

    In a folder where others are made, what is left of the guest would be swept.
    """
    with empty_root("alone") as folder, labs_in(folder):
        yield folder


def nothing_left(name: str) -> bool:
    return not processes_of(name) and not state.run_dir(name).exists()


# ---- guests that need not be up when they end: they do it while the others boot


@contextmanager
def new_guest(wait_until: WaitUntil) -> Iterator[Connection]:
    """A guest `new` that boots: its kernel runs, and something in it."""
    with started("new") as connection:
        wait_until(
            lambda: len(processes_of("new")) > 3,
            lambda: f"it does not boot: {processes_of('new')}",
            DEADLINE_S,
        )
        yield connection


def test_a_kernel_that_is_killed(alone: Path, wait_until: WaitUntil) -> None:
    with new_guest(wait_until) as connection:
        os.kill(kernel_pid("new"), signal.SIGKILL)
        words = last_words(connection)  # it is chance whether its first process has run by then
        assert "the guest died" in words or "its kernel ended" in words
    wait_until(lambda: nothing_left("new"), "something is left", DEADLINE_S)


def test_a_keeper_that_is_killed_takes_its_guest_along_and_the_rest_is_swept(
    alone: Path, wait_until: WaitUntil
) -> None:
    with new_guest(wait_until):
        os.kill(record("new").pid, signal.SIGKILL)
        wait_until(lambda: not processes_of("new"), "the guest lives on", DEADLINE_S)
    assert state.run_dir("new").exists()
    done = ri2n(alone, "lab", "exec", "--lab", "new", "A", "--", "true")
    assert (done.returncode, b"has ended" in done.stderr) == (2, True)
    assert json.loads(ri2n(alone, "lab", "ls", "--json").stdout) == []
    assert nothing_left("new")


def test_who_started_it_goes_away_before_it_is_kept(alone: Path, wait_until: WaitUntil) -> None:
    with new_guest(wait_until):
        assert record("new").phase == "making"
    wait_until(lambda: nothing_left("new"), "something is left", DEADLINE_S)


def test_a_guest_ends_at_its_time_limit(alone: Path, wait_until: WaitUntil) -> None:
    with started("new", limit_s=2.0) as connection:
        assert last_words(connection).startswith("the guest was ended at its limit of 2 s")
    wait_until(lambda: nothing_left("new"), "something is left", DEADLINE_S)


def test_down_all_mine_removes_guests_too(alone: Path, wait_until: WaitUntil) -> None:
    with new_guest(wait_until) as connection:
        done = ri2n(alone, "lab", "down", "--all-mine")
        assert (done.returncode, b"new" in done.stdout) == (0, True)
        assert last_words(connection) == "the lab was removed"
        assert nothing_left("new")


# ---- one lab that all of these tests share


@pytest.fixture(scope="module")
def lab(root: Path, booting: Booting) -> Iterator[str]:
    done = booting.up.result()
    assert done.returncode == 0, done.stderr.decode()
    assert b"lab shared is up" in done.stdout
    assert b"guest s" in done.stderr
    yield "shared"
    done = ri2n(root, "lab", "down", "shared")
    assert (done.returncode, done.stdout) == (0, b"removed: shared\n")
    assert (find_guest_lab("shared"), state.run_dir("shared").exists(), processes_of("shared")) == (
        None,
        False,
        [],
    )


def test_commands_run_on_its_hosts(root: Path, lab: str) -> None:
    ping = ri2n(root, "lab", "exec", "B", "--", "ping", "-c", "1", "-w", "60", "A")
    assert (ping.returncode, b"1 received" in ping.stdout) == (0, True), ping.stderr
    done = ri2n(
        root, "lab", "exec", "B", "--", "sh", "-c", "cat; echo e >&2; exit 7", input=b"\0in\xff"
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"\0in\xff", b"e\n")
    done = ri2n(root, "lab", "exec", "--time", "A", "--", "uname", "-r")
    assert done.stdout.strip() != os.uname().release.encode()
    assert b"real s" in done.stderr
    done = ri2n(root, "lab", "exec", "Q", "--", "true")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_it_is_listed_with_its_kernel_and_faults(root: Path, lab: str) -> None:
    assert ri2n(root, "lab", "fault", "blackhole", "--host", "A", "--nic", "eth0").returncode == 0
    (row,) = json.loads(ri2n(root, "lab", "ls", "--json").stdout)
    assert (row["name"], row["kernel"], row["datapath"], row["controller"]) == (
        "shared",
        "uml",
        "system",
        True,
    )
    assert [fault["kind"] for fault in row["faults"]] == ["blackhole"]
    assert row["hosts"]["A"] == "10.77.0.1"
    assert ri2n(root, "lab", "restore").returncode == 0
    (row,) = json.loads(ri2n(root, "lab", "ls", "--json").stdout)
    assert row["faults"] == []
    assert b"uml" in ri2n(root, "lab", "ls").stdout


def test_its_controller_answers(root: Path, lab: str) -> None:
    status = json.loads(ri2n(root, "status", "--lab", lab, "--json").stdout)
    assert {host["name"] for host in status["hosts"]} == {"A", "B"}
    assert json.loads(ri2n(root, "top", "--json").stdout)["hosts"]
    assert b"eth0" in ri2n(root, "explain", "B", "A").stdout
    doctor = ri2n(root, "doctor", "--lab", lab, "--json")
    found = json.loads(doctor.stdout)
    assert found["findings"]
    assert doctor.returncode == (2 if found["bad"] else 1 if found["warnings"] else 0)


def test_its_name_is_taken_and_another_is_unknown(root: Path, lab: str) -> None:
    for kernel in ("uml", "host"):
        done = ri2n(root, "lab", "up", "fig4/b", "--kernel", kernel, "--name", lab)
        assert (done.returncode, done.stderr.splitlines()[-1].count(b"exists already")) == (2, 1)
    done = ri2n(root, "lab", "exec", "--lab", "nosuch", "B", "--", "true")
    assert (done.returncode, b"no lab 'nosuch'" in done.stderr) == (2, True)


def test_a_client_that_is_killed_takes_its_command_along(
    root: Path, lab: str, wait_until: WaitUntil
) -> None:
    environment = {**os.environ, "RI2N_LAB_ROOT": str(root)}
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main"]
    argv += ["lab", "exec", "B", "--", "sh", "-c", "echo up; exec sleep 4321"]
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        assert ri2n(root, "lab", "exec", "B", "--", "pgrep", "-f", "^sleep 4321").returncode == 0
        client.kill()

    def gone() -> bool:
        return ri2n(root, "lab", "exec", "B", "--", "pgrep", "-f", "^sleep 4321").returncode == 1

    wait_until(gone, "the command is still there", DEADLINE_S)


def test_a_signal_is_passed_on(root: Path, lab: str) -> None:
    environment = {**os.environ, "RI2N_LAB_ROOT": str(root)}
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "lab", "exec", "B", "--"]
    argv += ["sh", "-c", "trap 'echo last; exit 5' TERM; echo up; while :; do sleep 0.1; done"]
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        client.terminate()
        assert client.communicate(timeout=DEADLINE_S)[0] == b"last\n"
        assert client.returncode == 5


def test_ten_megabytes_through_a_command(lab: str) -> None:
    data = os.urandom(10 << 20)
    started_s = time.monotonic()
    code, out = run(lab, ["cat"], data)
    print(f"{len(data) / 1e6 / (time.monotonic() - started_s):.1f} MB/s")
    assert (code, out == data) == (0, True)


def test_eight_commands_at_once(lab: str) -> None:
    def one(number: int) -> tuple[int, bytes]:
        return run(lab, ["sh", "-c", f"cat; exit {number}"], b"%d" % number * 50000)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(8)))
    assert results == [(number, b"%d" % number * 50000) for number in range(8)]


@pytest.mark.parametrize(
    "garbage", [os.urandom(100000), b"GET / HTTP/1.1\r\n\r\n" * 9], ids=["noise", "HTTP"]
)
def test_garbage_for_the_keeper_ends_that_connection_only(lab: str, garbage: bytes) -> None:
    with guest_labs.connect(record(lab)) as connection:
        # The keeper closes the connection at the first bytes, and need not read the others.
        with suppress(BrokenPipeError):
            connection.socket.sendall(garbage)
        assert last_words(connection) == (
            "these bytes are no frames that a guest's keeper understands"
        )
    assert run(lab, ["true"]) == (0, b"")


def test_a_command_that_is_none_ends_nothing(lab: str) -> None:
    with guest_labs.connect(record(lab)) as connection:
        connection.send(encode(Kind.RUN, 0, b"[]"))
        with pytest.raises(NotAvailable, match="a frame RUN does not hold a JSON object"):
            connection.receive()
        assert converse(connection, ["true"]) == (0, b"")


def run(name: str, argv: list[str], stdin: bytes = b"") -> tuple[int, bytes]:
    """Exit code and stdout of a command in the guest, over a client's connection."""
    with guest_labs.connect(record(name)) as connection:
        return converse(connection, argv, stdin)


def converse(connection: Connection, argv: list[str], stdin: bytes = b"") -> tuple[int, bytes]:
    """The same, over a connection that exists already."""
    request = {"argv": argv, "env": {"PATH": os.environ["PATH"]}, "cwd": "/"}
    connection.send(json_frame(Kind.RUN, request))
    out, sent, room = bytearray(), 0, 128 << 10
    over = False
    while True:
        while room >= 1 << 14 and sent < len(stdin):
            part = stdin[sent : sent + (1 << 14)]
            connection.send(encode(Kind.STDIN, 0, part))
            sent, room = sent + len(part), room - len(part)
        if sent == len(stdin) and not over:
            over = True
            connection.send(encode(Kind.STDIN))
        frame = connection.receive()
        if frame.kind is Kind.STDOUT:
            out += frame.payload
            connection.send(credit(1, len(frame.payload)))
        elif frame.kind is Kind.CREDIT:
            room += frame.credit()[1]
        elif frame.kind is Kind.EXIT:
            return int(frame.json()["code"]), bytes(out)


# ---- guests that are up, and how they end


def test_a_guest_that_hangs_is_ended_and_its_command_says_so(
    booting: Booting, elsewhere: Path, wait_until: WaitUntil
) -> None:
    booting.keep("hang")
    with guest_labs.connect(record("hang")) as client:
        client.send(
            json_frame(Kind.RUN, {"argv": ["sleep", "600"], "env": {"PATH": os.environ["PATH"]}})
        )
        os.kill(kernel_pid("hang"), signal.SIGSTOP)
        stopped_s = time.monotonic()
        assert last_words(client) == f"the guest did not answer for {HANG_S:g} s and was ended"
        assert time.monotonic() - stopped_s > HANG_S * 0.5  # it is asked every 2 s
    wait_until(lambda: nothing_left("hang"), "something is left", DEADLINE_S)


def test_an_agent_that_is_killed(booting: Booting, elsewhere: Path, wait_until: WaitUntil) -> None:
    booting.keep("agent")
    with guest_labs.connect(record("agent")) as client:
        argv = ["pkill", "-9", "-f", "guests.agent"]
        client.send(json_frame(Kind.RUN, {"argv": argv, "env": {"PATH": os.environ["PATH"]}}))
        assert last_words(client).startswith("the guest has ended")
    wait_until(lambda: nothing_left("agent"), "something is left", DEADLINE_S)


def test_a_lab_that_cannot_be_made_inside_is_one_line_and_leaves_nothing(
    booting: Booting, elsewhere: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nhosts: {}\n")
    done = ri2n(elsewhere, "lab", "up", str(bad), "--kernel", "uml", "--name", "worse")
    # The error is found before anything boots.
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    done = booting.refused.result()
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith(b"ri2n:")] == [
        b"ri2n: datapath 'wrong': must be auto, system or netdev"
    ]
    assert nothing_left("bad")
