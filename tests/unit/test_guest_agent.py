# SPDX-License-Identifier: Apache-2.0
"""The agent of a guest and the client's relay, joined by a socket on this machine.

The tests need no guest and no root.
"""

from __future__ import annotations

import hashlib
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.guests.labs import Connection
from ri2n_lab.guests.link import MAX_PAYLOAD, WINDOW_BYTES, Kind, credit, encode, json_frame

# The process that runs the tests may ignore signals (nohup, a job in the background), and children
# inherit that.
PATIENCE_S = 120  # a limit against hanging
HEED = """
import signal
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
"""
AGENT = f"""{HEED}
import sys
from ri2n_lab.guests.agent import Agent
Agent(int(sys.argv[1])).serve()
"""
RELAY = f"""{HEED}
import socket, sys
from ri2n_sdn.cli.common import run_guarded
from ri2n_lab.guests.labs import Connection
from ri2n_lab.guests.relay import relay, request
connection = Connection(socket.socket(fileno=int(sys.argv[1])))
sys.exit(run_guarded(lambda: relay(connection, request(sys.argv[2:])).code))
"""


class Line:
    """A line to an agent, and what the agent sent."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_S)
        self.connection = Connection(connection)

    def start(self, argv: list[str], channel: int = 1, **more: Any) -> None:
        env = {"PATH": os.environ["PATH"]}
        self.connection.send(
            json_frame(Kind.RUN, {"argv": argv, "env": env, "cwd": "/", **more}, channel)
        )

    def send(self, kind: Kind, payload: bytes = b"", channel: int = 1) -> None:
        self.connection.send(encode(kind, channel, payload))

    def finish(self, channel: int = 1) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr of the command on a channel.

        The output is read as it arrives.
        """
        out = {Kind.STDOUT: bytearray(), Kind.STDERR: bytearray()}
        while True:
            frame = self.connection.receive()
            if frame.channel != channel:
                continue
            if frame.kind is Kind.EXIT:
                return frame.json()["code"], bytes(out[Kind.STDOUT]), bytes(out[Kind.STDERR])
            if frame.kind in out:
                out[frame.kind] += frame.payload
                self.connection.send(
                    credit(1 if frame.kind is Kind.STDOUT else 2, len(frame.payload), channel)
                )

    def run(self, *argv: str, stdin: bytes = b"", **more: Any) -> tuple[int, bytes, bytes]:
        self.start(list(argv), **more)
        if stdin:
            self.send(Kind.STDIN, stdin)
        self.send(Kind.STDIN)
        return self.finish()


def agent_on(theirs: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )


@pytest.fixture
def line() -> Iterator[Line]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = agent_on(theirs)
        theirs.close()
        yield Line(ours)
    assert process.wait(PATIENCE_S) == 0  # it ends with its line


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_exit_codes(line: Line, script: str, code: int) -> None:
    assert line.run("sh", "-c", script) == (code, b"", b"")


def test_output_streams_stay_apart(line: Line) -> None:
    assert line.run("sh", "-c", "echo out; echo err >&2") == (0, b"out\n", b"err\n")


def test_a_command_that_does_not_exist(line: Line) -> None:
    code, out, err = line.run("no-such-program")
    assert (code, out) == (127, b"")
    assert b"no-such-program" in err


def test_environment_and_folder_are_those_given_and_a_folder_that_is_not_there_is_no_error(
    line: Line,
) -> None:
    where: dict[str, Any] = {"env": {"PATH": os.environ["PATH"], "COLOUR": "blue"}, "cwd": "/usr"}
    assert line.run("sh", "-c", "pwd; echo $COLOUR $HOME", **where)[1] == b"/usr\nblue\n"
    assert line.run("pwd", cwd="/no/such/folder")[1] == b"/\n"


def test_any_bytes_go_through(line: Line) -> None:
    data = bytes(range(256)) * 300
    assert line.run("cat", stdin=data) == (0, data, b"")


def test_what_a_command_leaves_running_is_not_waited_for(line: Line) -> None:
    code, out, _ = line.run("sh", "-c", "sleep 600 & echo $!")
    assert code == 0
    os.kill(int(out), signal.SIGKILL)  # it still runs


def test_all_of_the_output_comes_before_the_exit(line: Line) -> None:
    code, out, _ = line.run("head", "-c", "1000000", "/dev/zero")
    assert (code, len(out)) == (0, 1000000)


def test_a_reader_that_gives_no_credit_gets_no_more_than_the_window(line: Line) -> None:
    line.start(["head", "-c", "1000000", "/dev/zero"])
    line.send(Kind.PING)
    got = 0
    while got < WINDOW_BYTES:
        frame = line.connection.receive()
        got += len(frame.payload) if frame.kind is Kind.STDOUT else 0
    line.send(Kind.PING, b"now")
    while (frame := line.connection.receive()).payload != b"now":
        assert frame.kind is not Kind.STDOUT
    line.connection.send(credit(1, got, 1))
    code, rest, _ = line.finish()
    assert (code, got + len(rest)) == (0, 1000000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command_and_its_children(line: Line, number: int) -> None:
    """A shell waits for its child before it looks at a signal.

    Between its fork and exec, the child would lose a signal.
    """
    child = "trap 'exit 7' INT TERM HUP; echo ready; while :; do sleep 0.1; done"
    line.start(["sh", "-c", f'trap : INT TERM HUP; sh -c "{child}"; echo child $?; exit 5'])
    while line.connection.receive().payload != b"ready\n":
        pass
    line.send(Kind.SIGNAL, str(int(number)).encode())
    assert line.finish()[:2] == (5, b"child 7\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_command_that_heeds_no_signal_is_ended_by_it_also_at_its_first_moment(
    line: Line, number: int
) -> None:
    line.start(["cat"])
    line.send(Kind.SIGNAL, str(int(number)).encode())
    assert line.finish()[0] == 128 + number


def test_a_lost_client_ends_its_command_even_if_that_ignores_it(line: Line) -> None:
    line.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    while line.connection.receive().payload != b"ready\n":
        pass
    line.send(Kind.KILL)
    assert line.finish()[0] == 137


def test_eight_commands_at_once(line: Line) -> None:
    for channel in range(1, 9):
        line.start(["cat"], channel)
    for channel in range(1, 9):
        line.send(Kind.STDIN, b"%d" % channel * 9999, channel)
        line.send(Kind.STDIN, b"", channel)
    left = dict.fromkeys(range(1, 9), b"")
    codes: dict[int, int] = {}
    while len(codes) < 8:
        frame = line.connection.receive()
        if frame.kind is Kind.STDOUT:
            left[frame.channel] += frame.payload
        elif frame.kind is Kind.EXIT:
            codes[frame.channel] = frame.json()["code"]
    assert left == {channel: b"%d" % channel * 9999 for channel in range(1, 9)}
    assert set(codes.values()) == {0}


def test_a_terminal(line: Line) -> None:
    line.start(
        ["sh", "-c", "tty; stty size; read word; echo got $word"], tty=True, rows=33, columns=99
    )
    line.send(Kind.STDIN, b"hello\r")
    code, out, _ = line.finish()
    assert code == 0
    assert b"/dev/pts/" in out
    assert b"33 99" in out
    assert out.endswith(b"got hello\r\n")


def test_control_c_on_a_terminal(line: Line) -> None:
    line.start(["sh", "-c", "echo ready; read word"], tty=True)
    while b"ready" not in line.connection.receive().payload:
        pass
    line.send(Kind.STDIN, b"\x03")
    assert line.finish()[0] == 130


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"{}",
        b'{"argv": []}',
        b'{"argv": [1]}',
        b'{"argv": ["true"], "env": 3}',
        b'{"argv": ["true"], "cwd": 3}',
    ],
)
def test_a_bad_request_is_answered_and_the_next_one_works(line: Line, request_: bytes) -> None:
    line.send(Kind.RUN, request_)
    while line.connection.socket.recv(1, socket.MSG_PEEK) and not _error(line):
        pass
    assert line.run("true")[0] == 0


def _error(line: Line) -> bool:
    from ri2n_sdn.errors import NotAvailable

    try:
        line.connection.receive()
    except NotAvailable as error:
        return "must be" in str(error) or "wrong type" in str(error) or "JSON" in str(error)
    return False


def test_garbage_on_the_line_is_no_harm(line: Line) -> None:
    for garbage in (
        bytes(1000),
        b"\xf5\x52" * 500,
        os.urandom(5000),
        encode(Kind.STDIN, 77, b"nobody's"),
    ):
        line.connection.send(garbage)
    line.connection.send(
        encode(Kind.SIGNAL, 1, b"not a number") + encode(Kind.RUN, 1, bytes(MAX_PAYLOAD))[:500]
    )
    # The frame that never ended still takes these bytes.
    line.connection.send(bytes(MAX_PAYLOAD + 100))
    assert line.run("echo", "fine")[1] == b"fine\n"


# ---- the relay

Relayed = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def relayed() -> Iterator[Relayed]:
    """`relayed(*argv, **popen_keywords)`: a client that runs argv through an agent."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **keywords: Any) -> subprocess.Popen[bytes]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            processes.append(agent_on(theirs))
            command = [sys.executable, "-c", RELAY, str(ours.fileno()), *argv]
            processes.append(subprocess.Popen(command, pass_fds=[ours.fileno()], **keywords))
        return processes[-1]

    yield start
    for process in processes[::-1]:
        with process:  # closes its pipes
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()  # a client that hangs must not delay the other tests


def test_ten_megabytes_through_stdin_and_stdout(relayed: Relayed, tmp_path: Path) -> None:
    data = os.urandom(10 << 20)
    (tmp_path / "in").write_bytes(data)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        assert relayed("cat", stdin=source, stdout=target).wait(PATIENCE_S) == 0
    assert hashlib.sha256((tmp_path / "out").read_bytes()).digest() == hashlib.sha256(data).digest()


def test_the_relay_keeps_streams_apart_and_exits_alike(relayed: Relayed) -> None:
    pipe = subprocess.PIPE
    process = relayed("sh", "-c", "cat; echo e >&2; exit 9", stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.communicate(b"i", timeout=PATIENCE_S) == (b"i", b"e\n")
    assert process.returncode == 9


def test_no_stdin_at_all(relayed: Relayed) -> None:
    process = relayed("cat", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(0))
    assert process.communicate(timeout=PATIENCE_S)[0] == b""
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_relay_passes_signals_on_and_waits_for_the_end(
    relayed: Relayed, number: signal.Signals
) -> None:
    script = "trap 'echo last; exit 5' INT TERM; echo ready; while :; do sleep 0.1; done"
    process = relayed("sh", "-c", script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE_S)[0] == b"last\n"
    assert process.returncode == 5


def test_a_reader_that_goes_away_ends_the_command(relayed: Relayed) -> None:
    process = relayed("yes", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0


def test_a_terminal_from_outside_to_inside(relayed: Relayed) -> None:
    master, slave = pty.openpty()
    with os.fdopen(master, "rb+", buffering=0) as keyboard:
        session = ["setsid", "--ctty", "--wait"]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            agent = agent_on(theirs)
            command = [*session, sys.executable, "-c", RELAY, str(ours.fileno())]
            command += ["sh", "-c", "tty >/dev/null && echo yes; read x; echo got-$x"]
            process = subprocess.Popen(
                command, pass_fds=[ours.fileno()], stdin=slave, stdout=slave, stderr=slave
            )
        os.close(slave)
        seen = b""
        while b"yes" not in seen:
            seen += keyboard.read(100)
        keyboard.write(b"word\r")
        while b"got-word" not in seen:
            seen += keyboard.read(100)
        assert process.wait(PATIENCE_S) == 0
        assert agent.wait(PATIENCE_S) == 0
