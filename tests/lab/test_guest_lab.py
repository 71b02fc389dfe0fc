"""Labs in guests that stay: the same commands from outside, and nothing left however a guest ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.lab import guest_labs, state
from ri2n_sdn.lab.guest_labs import Connection, GuestLab, find_guest_lab
from ri2n_sdn.lab.guest_link import Kind, credit, encode, json_frame
from ri2n_sdn.lab.kernels import find_kernel

TOPOLOGY = Path(__file__).resolve().parents[2] / "topologies" / "fig4" / "d.yaml"
HANG_S = 8.0
pytestmark = pytest.mark.timeout(600)

WaitUntil = Callable[..., None]


@contextmanager
def empty_root(folder: Path) -> Iterator[Path]:
    """A folder of labs of our own, in memory as the real one; at the end it must be empty."""
    before = state.ROOT
    state.ROOT = folder
    yield folder
    left = guest_labs.all_guest_labs()
    for lab in left:
        guest_labs.end(lab)
    state.ROOT = before
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
    for lock in folder.glob(".lock-*"):
        lock.unlink()
    with suppress(FileNotFoundError):
        folder.rmdir()
    assert (left, names) == ([], [])


@pytest.fixture(scope="module", autouse=True)
def root() -> Iterator[Path]:
    """Where the labs of these tests are."""
    try:
        find_kernel("uml")
    except NotAvailable as error:
        pytest.skip(str(error))
    with empty_root(Path(f"/run/ri2n-lab-test-{os.getpid()}")) as folder:
        yield folder


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Another place for labs, of one test."""
    with empty_root(Path(f"/run/ri2n-lab-test-{os.getpid()}-elsewhere")) as folder:
        yield folder


def ri2n(root: Path, *argv: str, **keywords: Any) -> subprocess.CompletedProcess[bytes]:
    keywords.setdefault("timeout", 240)
    keywords.setdefault("capture_output", True)
    if "input" not in keywords:
        keywords.setdefault("stdin", subprocess.DEVNULL)
    environment = {**os.environ, "RI2N_LAB_ROOT": str(root), "COLUMNS": "200"}
    return subprocess.run([sys.executable, "-m", "ri2n_sdn.cli.main", *argv], env=environment, check=False, **keywords)


def started(name: str, *, limit_s: float = 600.0) -> Connection:
    return guest_labs.start_keeper(load_topology(TOPOLOGY), name, "uml", limit_s=limit_s, hang_s=HANG_S)


def record(name: str) -> GuestLab:
    lab = find_guest_lab(name)
    assert lab is not None
    return lab


def processes_of(name: str) -> list[int]:
    """The processes whose command line names the lab's folder: the kernel, its copies, what starts it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(state.run_dir(name)).encode() + b"/" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kernel_pid(name: str) -> int:
    """The guest's kernel: the first process of the guest's namespace of process ids."""
    for pid in processes_of(name):
        status = Path(f"/proc/{pid}/status").read_text()
        if next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1] == "1":
            return pid
    raise AssertionError(f"no kernel of {name}")


# ---- one lab that all of these share


@pytest.fixture(scope="module")
def lab(root: Path) -> Iterator[str]:
    done = ri2n(root, "lab", "up", "fig4/d", "--kernel", "uml", "--name", "shared")
    assert done.returncode == 0, done.stderr.decode()
    assert b"lab shared is up" in done.stdout
    assert b"guest s" in done.stderr
    yield "shared"
    done = ri2n(root, "lab", "down", "shared")
    assert (done.returncode, done.stdout) == (0, b"removed: shared\n")
    assert (find_guest_lab("shared"), state.run_dir("shared").exists(), processes_of("shared")) == (None, False, [])


def test_commands_run_on_its_hosts(root: Path, lab: str) -> None:
    ping = ri2n(root, "lab", "exec", "B", "--", "ping", "-c", "1", "-W", "5", "A")
    assert (ping.returncode, b"1 received" in ping.stdout) == (0, True), ping.stderr
    done = ri2n(root, "lab", "exec", "B", "--", "sh", "-c", "cat; echo e >&2; exit 7", input=b"\0in\xff")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"\0in\xff", b"e\n")
    done = ri2n(root, "lab", "exec", "--time", "C", "--", "uname", "-r")
    assert done.stdout.strip() != os.uname().release.encode()
    assert b"real s" in done.stderr
    done = ri2n(root, "lab", "exec", "Q", "--", "true")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_it_is_listed_with_its_kernel_and_faults(root: Path, lab: str) -> None:
    assert ri2n(root, "lab", "fault", "blackhole", "--host", "A", "--nic", "eth0").returncode == 0
    (row,) = json.loads(ri2n(root, "lab", "ls", "--json").stdout)
    assert (row["name"], row["kernel"], row["datapath"], row["controller"]) == ("shared", "uml", "system", True)
    assert [fault["kind"] for fault in row["faults"]] == ["blackhole"]
    assert row["hosts"]["A"] == "10.77.0.1"
    assert ri2n(root, "lab", "restore").returncode == 0
    (row,) = json.loads(ri2n(root, "lab", "ls", "--json").stdout)
    assert row["faults"] == []
    assert b"uml" in ri2n(root, "lab", "ls").stdout


def test_its_controller_answers(root: Path, lab: str) -> None:
    status = json.loads(ri2n(root, "status", "--lab", lab, "--json").stdout)
    assert {host["name"] for host in status["hosts"]} == {"A", "B", "C"}
    assert json.loads(ri2n(root, "top", "--json").stdout)["hosts"]
    assert b"eth0" in ri2n(root, "explain", "B", "A").stdout
    doctor = ri2n(root, "doctor", "--lab", lab, "--json")
    assert json.loads(doctor.stdout)["findings"]
    assert doctor.returncode == (1 if json.loads(doctor.stdout)["bad"] else 0)


def test_its_name_is_taken_and_another_is_unknown(root: Path, lab: str) -> None:
    for kernel in ("uml", "host"):
        done = ri2n(root, "lab", "up", "fig4/d", "--kernel", kernel, "--name", lab)
        assert (done.returncode, done.stderr.splitlines()[-1].count(b"exists already")) == (2, 1)
    done = ri2n(root, "lab", "exec", "--lab", "nosuch", "B", "--", "true")
    assert (done.returncode, b"no lab 'nosuch'" in done.stderr) == (2, True)


def test_a_client_that_is_killed_takes_its_command_along(root: Path, lab: str, wait_until: WaitUntil) -> None:
    environment = {**os.environ, "RI2N_LAB_ROOT": str(root)}
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "lab", "exec", "B", "--", "sh", "-c", "echo up; exec sleep 4321"]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        assert ri2n(root, "lab", "exec", "B", "--", "pgrep", "-f", "^sleep 4321").returncode == 0
        client.kill()

    def gone() -> bool:
        return ri2n(root, "lab", "exec", "B", "--", "pgrep", "-f", "^sleep 4321").returncode == 1

    wait_until(gone, "the command is still there", 30)


def test_a_signal_is_passed_on(root: Path, lab: str) -> None:
    environment = {**os.environ, "RI2N_LAB_ROOT": str(root)}
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "lab", "exec", "B", "--"]
    argv += ["sh", "-c", "trap 'echo last; exit 5' TERM; echo up; while :; do sleep 0.1; done"]
    with subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        client.terminate()
        assert client.communicate(timeout=30)[0] == b"last\n"
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


def test_garbage_for_the_keeper_ends_that_connection_only(lab: str) -> None:
    for garbage in (os.urandom(100000), b"GET / HTTP/1.1\r\n\r\n" * 9, encode(Kind.RUN, 0, b"[]")):
        with guest_labs.connect(record(lab)) as connection, suppress(NotAvailable):
            connection.socket.settimeout(5)
            connection.send(garbage)
            with pytest.raises(NotAvailable):
                connection.receive()
    assert run(lab, ["true"]) == (0, b"")


def run(name: str, argv: list[str], stdin: bytes = b"") -> tuple[int, bytes]:
    """Exit code and stdout of a command in the guest, spoken to as a client does."""
    with guest_labs.connect(record(name)) as connection:
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


# ---- how guests end


DOOMED = ("keeper", "kernel", "hang", "agent", "limit", "starter")


@pytest.fixture(scope="module")
def doomed(root: Path) -> Iterator[dict[str, Connection]]:
    """Guests without a lab, up and kept (but the starter's), each to be ended by one test; they boot side by side."""
    connections = {name: started(name, limit_s=100.0 if name == "limit" else 600.0) for name in DOOMED}
    for name, connection in connections.items():
        guest_labs.await_ready(connection)
        if name != "starter":
            guest_labs.keep(connection)
    yield connections
    for connection in connections.values():
        connection.close()


def nothing_left(name: str) -> bool:
    return not processes_of(name) and not state.run_dir(name).exists()


def test_a_keeper_that_is_killed_takes_its_guest_along_and_the_rest_is_swept(
    root: Path, doomed: dict[str, Connection], wait_until: WaitUntil
) -> None:
    os.kill(record("keeper").pid, signal.SIGKILL)
    wait_until(lambda: not processes_of("keeper"), "the guest lives on", 15)
    assert state.run_dir("keeper").exists()
    done = ri2n(root, "lab", "exec", "--lab", "keeper", "A", "--", "true")
    assert (done.returncode, b"has ended" in done.stderr) == (2, True)
    assert b"keeper" not in ri2n(root, "lab", "ls", "--json").stdout
    assert nothing_left("keeper")


def test_a_kernel_that_is_killed(doomed: dict[str, Connection], wait_until: WaitUntil) -> None:
    os.kill(kernel_pid("kernel"), signal.SIGKILL)
    wait_until(lambda: nothing_left("kernel"), "something is left", 15)


def test_a_guest_that_hangs_is_ended_and_its_command_says_so(
    doomed: dict[str, Connection], wait_until: WaitUntil
) -> None:
    with guest_labs.connect(record("hang")) as client:
        client.send(json_frame(Kind.RUN, {"argv": ["sleep", "600"], "env": {"PATH": os.environ["PATH"]}}))
        os.kill(kernel_pid("hang"), signal.SIGSTOP)
        stopped_s = time.monotonic()
        client.socket.settimeout(HANG_S * 4)
        with pytest.raises(NotAvailable, match="did not answer for 8 s"):
            while True:
                client.receive()
        assert HANG_S * 0.5 < time.monotonic() - stopped_s < HANG_S * 3
    wait_until(lambda: nothing_left("hang"), "something is left", 15)


def test_an_agent_that_is_killed(doomed: dict[str, Connection], wait_until: WaitUntil) -> None:
    with pytest.raises(NotAvailable), guest_labs.connect(record("agent")) as client:
        argv = ["pkill", "-9", "-f", "lab.guest_agent"]
        client.send(json_frame(Kind.RUN, {"argv": argv, "env": {"PATH": os.environ["PATH"]}}))
        client.socket.settimeout(30)
        while True:
            client.receive()
    wait_until(lambda: nothing_left("agent"), "something is left", 15)


def test_who_started_it_goes_away_before_it_is_kept(doomed: dict[str, Connection], wait_until: WaitUntil) -> None:
    assert record("starter").phase == "making"
    doomed["starter"].close()
    wait_until(lambda: nothing_left("starter"), "something is left", 15)


def test_a_guest_ends_at_its_time_limit(doomed: dict[str, Connection], wait_until: WaitUntil) -> None:
    wait_until(lambda: nothing_left("limit"), "it lives on", 120)


def test_a_lab_that_cannot_be_made_inside_is_one_line_and_leaves_nothing(root: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nhosts: {}\n")
    done = ri2n(root, "lab", "up", str(bad), "--kernel", "uml", "--name", "bad")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)  # seen before anything boots
    done = ri2n(root, "lab", "up", "fig4/d", "--kernel", "uml", "--name", "bad", "--datapath", "wrong")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith(b"ri2n:")] == [
        b"ri2n: datapath 'wrong': must be auto, system or netdev"
    ]
    assert nothing_left("bad")


def test_down_all_mine_removes_guests_too(elsewhere: Path) -> None:
    with started("mine") as connection:  # still booting
        deadline_s = time.monotonic() + 20
        while find_guest_lab("mine") is None or not processes_of("mine"):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        done = ri2n(elsewhere, "lab", "down", "--all-mine")
        assert (done.returncode, b"mine" in done.stdout) == (0, True)
        with pytest.raises(NotAvailable):
            guest_labs.await_ready(connection)
    assert nothing_left("mine")
