"""`ri2n serve` and `ri2n cp` over loopback addresses: what a user sees, also after a kill.

Servers are processes, and so are clients that get a signal or have fewer rights than the tests.
Other clients run in this process, by the same code.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ri2n_parallel.cli import main
from ri2n_parallel.copy import blocks
from tests.unit.parallel.copy_help import wait_until
from tests.unit.parallel.relay import PASS, SWALLOW, Relay
from tests.unit.parallel.worlds import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "200",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": str(REPOSITORY),
}
# Ctrl-C is heard: whoever runs the tests in the background of a script ignores it, and children
# inherit that.
ALONE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from ri2n_parallel.cli.main import main
main()
"""
COMMAND = [sys.executable, "-c", ALONE]
BLOCK = blocks.BLOCK_BYTES
PR_CAPBSET_DROP = 24
MAKES_ONE = "a token that it makes"
LINKS = [f"127.0.0.{number}" for number in range(1, 5)]


Done: TypeAlias = "subprocess.CompletedProcess[str]"


def run(*argv: str, **kwargs: Any) -> Done:
    pipe = subprocess.PIPE
    return subprocess.run(
        argv,
        env=ENVIRONMENT,
        stdout=pipe,
        stderr=pipe,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        **kwargs,
    )


def here(*argv: str) -> Done:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(argv)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # which `serve` raises
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def cp(*arguments: str | Path) -> Done:
    return here("cp", *map(str, arguments))


def good(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def one_line(done: Done) -> str:
    assert done.returncode == 2 and done.stdout == "", done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ri2n-parallel: "), done.stderr
    return lines[0]


class Served:
    """A server in a process of its own.

    It has no token unless options name one; with MAKES_ONE it makes one.
    """

    def __init__(self, directory: Path, *options: str | Path, **kwargs: Any) -> None:
        argv = [*COMMAND, "serve", str(directory), "--listen", "127.0.0.1:0"]
        argv += [str(each) for each in options if each != MAKES_ONE]
        argv += (
            []
            if {MAKES_ONE, "--token-file", "--no-token"} & {*map(str, options)}
            else ["--no-token"]
        )
        pipe = subprocess.PIPE
        self.process: subprocess.Popen[str] = subprocess.Popen(
            argv, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True, **kwargs
        )
        assert self.process.stderr is not None
        ready, _, _ = select.select([self.process.stderr], [], [], PATIENCE_S)
        self.line = self.process.stderr.readline() if ready else ""
        found = re.search(r"serving .* on 127\.0\.0\.1:([0-9]+)", self.line)
        assert found, self.line or self.process.poll()
        self.port = int(found[1])

    def at(self, name: str, relay: Relay | None = None) -> str:
        address, port = relay.at(HALF_WAY) if relay else ("127.0.0.1", self.port)
        return f"{address}:{port}:{name}"

    def says(self) -> str:
        """The next line on its stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self, with_signal: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Its exit code and what it printed."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextlib.contextmanager
def serve(directory: Path, *options: str | Path, **kwargs: Any) -> Iterator[Served]:
    directory.mkdir(exist_ok=True)
    served = Served(directory, *options, **kwargs)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate(timeout=PATIENCE_S)


def many_blocks(path: Path, count: int, seed: bytes = b"") -> Path:
    """A file whose blocks all differ; it is mostly holes, so that it is made at once."""
    with path.open("wb") as file:
        for index in range(count):
            file.seek(index * BLOCK)
            file.write(b"%s block %d" % (seed, index))
        file.truncate(count * BLOCK - 5)
    return path


def same(one: Path, other: Path) -> bool:
    return subprocess.run(["cmp", "-s", one, other], check=False).returncode == 0


# ---- copies


def test_a_directory_goes_over_four_links_and_comes_back_the_same(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty dir").mkdir()
    (source / "big").write_bytes(os.urandom(20 * BLOCK // 3))
    (source / "empty").write_bytes(b"")
    (source / "deep" / "er" / "na\nme \udcff").write_bytes(b"odd")
    (source / "link").symlink_to("big")
    (source / "big").chmod(0o640)
    os.utime(source / "deep", ns=(7, 7))
    with serve(
        tmp_path / "served", *(word for link in LINKS for word in ("--address", link))
    ) as server:
        options = [
            "-r",
            "-p",
            "--json",
            "--streams",
            "4",
            *(word for link in LINKS for word in ("--source", link)),
        ]
        there = good(cp(*options, source, server.at("")))
        back = good(cp(*options, server.at("tree"), tmp_path / "back"))
        again = good(cp(*options, source, server.at("")))
        assert (again["moved_bytes"], again["kept_bytes"]) == (0, there["moved_bytes"])
        code, _, said = server.end()
        assert code == 0 and "files_received 6" in said and "files_sent 3" in said
    for found in (there, back):
        assert (found["files"], found["directories"], found["failures"]) == (3, 4, [])
        assert {
            link["remote"].split(":")[0] for link in found["links"] if link["number"] < 64
        } >= set(LINKS)
    assert len(there["skipped"]) == 1 and not back["skipped"]
    (source / "link").unlink()
    for copy in (tmp_path / "served" / "tree", tmp_path / "back"):
        assert subprocess.run(["diff", "-r", source, copy], check=False).returncode == 0
        assert (copy / "big").stat().st_mode & 0o777 == 0o640
        assert (copy / "deep").stat().st_mtime_ns == 7
        assert (copy / "big").stat().st_mtime_ns == (source / "big").stat().st_mtime_ns


def test_where_files_go_is_as_with_cp(tmp_path: Path) -> None:
    served, one, two = tmp_path / "served", tmp_path / "one", tmp_path / "two"
    (served / "d").mkdir(parents=True)
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    (tmp_path / "to").mkdir()
    with serve(served) as server:
        assert "1 file, 1 B" in cp(one, server.at("new")).stderr
        assert cp(one, two, server.at("d")).returncode == 0
        assert cp(server.at("d/one"), server.at("new"), tmp_path / "to").returncode == 0
        assert "is a directory (-r copies it)" in one_line(cp(server.at("d"), tmp_path / "to"))
        assert "is a directory (-r copies it)" in one_line(cp(tmp_path / "to", server.at("d")))
        assert "no directory on the server" in one_line(cp(one, two, server.at("new")))
        assert "no directory on the server" in one_line(cp(one, server.at("absent/")))
        assert "No such file" in one_line(cp(one, server.at("absent/one")))
        assert "is not on the server" in one_line(cp(server.at("absent"), tmp_path / "to"))
        assert "two of the sources" in one_line(cp(one, one, server.at("d")))
        assert "is no directory" in one_line(
            cp(server.at("new"), server.at("d/one"), tmp_path / "one")
        )
    found = {
        str(path.relative_to(served)): path.read_bytes()
        for path in served.rglob("*")
        if path.is_file()
    }
    assert found == {"new": b"1", "d/one": b"1", "d/two": b"2"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "to").iterdir()} == {
        "one": b"1",
        "new": b"1",
    }


def test_what_fails_is_named_and_the_rest_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    source.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_bytes(name.encode())
    (tmp_path / "served" / "tree" / "b").mkdir(parents=True)
    with serve(tmp_path / "served") as server:
        line = one_line(cp("-r", source, server.at("")))
    assert "1 of 4 were not copied" in line and "b: is a directory" in line
    assert (tmp_path / "served" / "tree" / "c").read_bytes() == b"c"


def test_a_token_and_tls(tmp_path: Path) -> None:
    cert, key, token, wrong = (tmp_path / name for name in ("cert", "key", "token", "wrong"))
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
    ]
    subprocess.run([*make, str(cert), *subject], check=True, capture_output=True)
    for path, text in ((token, "sesame\n"), (wrong, "barley")):
        path.write_text(text)
        path.chmod(0o600)
    file = tmp_path / "file"
    file.write_bytes(os.urandom(BLOCK + 1))
    with serve(tmp_path / "served", "--token-file", token, "--cert", cert, "--key", key) as server:
        assert "(TLS, token)" in server.line
        good(cp("--json", "--ca", cert, "--token-file", token, file, server.at("a")))
        assert "the server wants a token" in one_line(cp("--ca", cert, file, server.at("b")))
        told = one_line(cp("--ca", cert, "--token-file", wrong, file, server.at("b")))
        assert told.endswith(
            f"127.0.0.1:{server.port}: the server has another token (--token-file)"
        )
        assert "TLS" in one_line(cp("--token-file", token, file, server.at("b")))
        other = tmp_path / "other"
        subprocess.run([*make, str(other), *subject], check=True, capture_output=True)
        assert "--ca" in one_line(cp("--ca", other, "--token-file", token, file, server.at("b")))
        code, _, said = server.end()
    assert code == 0 and "tokens_missing 1, tokens_wrong 1" in said
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["a"]


def test_a_server_makes_a_token_unless_told_otherwise(tmp_path: Path) -> None:
    """It prints the token and how clients use it; another run has another token."""
    (tmp_path / "file").write_bytes(b"a file")
    tokens = set()
    for _ in range(2):
        with serve(tmp_path / "served", MAKES_ONE) as server:
            assert "(token)" in server.line
            token = re.fullmatch(r"token of this run: ([0-9a-f]{40})\n", server.says())
            assert (
                token and f"ri2n cp --token-file FILE SRC HOST:{server.port}:NAME" in server.says()
            )
            assert "the server wants a token" in one_line(cp(tmp_path / "file", server.at("a")))
            assert "the server wants a token" in one_line(cp(server.at(""), "-r", tmp_path / "got"))
            tokens.add(token[1])
            (tmp_path / "token").write_text(token[1])
            (tmp_path / "token").chmod(0o600)
            good(
                cp("--json", "--token-file", tmp_path / "token", tmp_path / "file", server.at("b"))
            )
    assert len(tokens) == 2
    assert not (tmp_path / "got").exists() and [
        path.name for path in (tmp_path / "served").iterdir()
    ] == ["b"]


def test_a_token_that_others_can_read_is_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame")
    for mode, told in ((0o600, False), (0o640, True), (0o604, True)):
        token.chmod(mode)
        done = cp("--token-file", token, token, "127.0.0.1:1:a")
        assert (
            "others can read it (chmod 600)" in done.stderr
        ) == told and "nobody listens" in done.stderr


def test_without_a_token_only_when_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a file")
    with serve(tmp_path / "served", "--no-token") as server:
        assert "(no token: whoever can connect may read and write)" in server.line
        good(cp("--json", tmp_path / "file", server.at("a")))


def test_the_servers_answer_to_ctrl_c_is_a_summary_and_0(tmp_path: Path) -> None:
    with serve(tmp_path / "served", "--json") as server:
        code, out, _ = server.end(signal.SIGINT)
    assert code == 0 and json.loads(out)["counters"] == {}


# ---- killed in the middle


def part_of(directory: Path, name: str) -> Path:
    return directory / f".{name}.ri2n-part"


def has_blocks(part: Path, count: int) -> Callable[[], bool]:
    def look() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return part.stat().st_size >= count * BLOCK
        return False

    return look


HALF_WAY = "127.0.2.1"
"""Where a copy goes that must not be complete: a relay that keeps what comes after half of it."""


@contextlib.contextmanager
def half_way(server: Served, count: int) -> Iterator[Relay]:
    """What goes over HALF_WAY stops there after half of `count` blocks."""
    with Relay(server.port, {HALF_WAY: "127.0.0.1"}) as relay:
        relay.after(count // 2 * BLOCK, SWALLOW, HALF_WAY)
        yield relay


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Run `ri2n cp` as a process."""
    return subprocess.Popen(
        [*COMMAND, "cp", *map(str, arguments)], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("direction", ["upload", "download"])
@pytest.mark.parametrize("victim", ["client", "server"])
def test_after_a_kill_the_old_file_is_there_and_the_copy_goes_on(
    tmp_path: Path, victim: str, direction: str
) -> None:
    served, count = tmp_path / "served", 12
    served.mkdir()
    upload = direction == "upload"
    source = many_blocks(tmp_path / "source" if upload else served / "source", count)
    target = served / "target" if upload else tmp_path / "target"
    target.write_bytes(b"what was there before")
    part = part_of(target.parent, "target")

    def pair(server: Served, relay: Relay | None = None) -> tuple[str, str]:
        if upload:
            return str(source), server.at("target", relay)
        return server.at("source", relay), str(target)

    with serve(served) as server:
        with half_way(server, count) as relay:
            client = start(*pair(server, relay))
            wait_until(has_blocks(part, 2), lambda: (client.poll(), list(part.parent.iterdir())))
            (client if victim == "client" else server.process).send_signal(signal.SIGKILL)
            if victim == "server":
                server.process.wait(PATIENCE_S)
                relay.set(PASS, HALF_WAY)  # so that the client learns it
            _, said = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == (-signal.SIGKILL if victim == "client" else 2), said
        if victim == "server":
            assert (
                "connection was lost" in said
                and "goes on where it stopped" in said
                and said.count("\n") == 1
            )
            server.end()
        assert target.read_bytes() == b"what was there before"
        if victim == "client":
            found = good(cp("--json", *pair(server)))
    if victim == "server":
        with serve(served) as again:
            found = good(cp("--json", *pair(again)))
    assert (
        found["kept_bytes"] >= BLOCK
        and found["moved_bytes"] + found["kept_bytes"] == source.stat().st_size
    )
    assert found["moved_bytes"] >= BLOCK
    assert same(source, target) and not part.exists()


def test_a_source_that_changed_in_between_is_sent_anew_where_it_differs(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    old, new = many_blocks(tmp_path / "old", 8), many_blocks(tmp_path / "new", 8)
    with new.open("r+b") as file:
        file.seek(3 * BLOCK)
        file.write(b"changed")
    with old.open("rb") as file:
        part_of(served, "target").write_bytes(file.read(6 * BLOCK))
    with serve(served) as server:
        found = good(cp("--json", new, server.at("target")))
    assert found["kept_bytes"] == 5 * BLOCK and same(new, served / "target")


def test_ctrl_c_leaves_what_came_and_sigterm_of_the_server_too(tmp_path: Path) -> None:
    served = tmp_path / "served"
    source = many_blocks(tmp_path / "source", 12)
    with serve(served) as server:
        with half_way(server, 12) as relay:
            client = start(source, server.at("a", relay))
            wait_until(has_blocks(part_of(served, "a"), 2), lambda: client.poll())
            client.send_signal(signal.SIGINT)
            _, said = client.communicate(timeout=PATIENCE_S)
        assert (client.returncode, said) == (130, "")
        with half_way(server, 12) as relay:
            second = start(source, server.at("b", relay))
            wait_until(has_blocks(part_of(served, "b"), 2), lambda: second.poll())
            code, _, said_by_server = server.end()
            relay.set(PASS, HALF_WAY)
            _, said = second.communicate(timeout=PATIENCE_S)
        assert code == 0 and "Traceback" not in said_by_server
        assert second.returncode == 2 and said.count("\n") == 1
    assert sorted(path.name for path in served.iterdir()) == [".a.ri2n-part", ".b.ri2n-part"]


# ---- disks


def small_files() -> None:
    """Let the disk be full after six blocks and a half."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (6 * BLOCK + BLOCK // 2,) * 2)


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    source, small = many_blocks(tmp_path / "source", 12), tmp_path / "small"
    small.write_bytes(b"small")
    (served / "a").write_bytes(b"old")
    with serve(served, preexec_fn=small_files) as server:
        assert "File too large" in one_line(cp(source, server.at("a")))
        assert {path.name: path.read_bytes() for path in served.iterdir()} == {"a": b"old"}
        good(cp("--json", small, server.at("small")))  # the server goes on
        shutil.copy(source, served / "source")
        target = tmp_path / "target"
        target.write_bytes(b"old")
        done = run(*COMMAND, "cp", server.at("source"), str(target), preexec_fn=small_files)
        assert "File too large" in one_line(done)
        assert target.read_bytes() == b"old" and not part_of(tmp_path, "target").exists()
        _, _, said = server.end()
        assert "refused_space 1" in said and "clients_gave_up 1" in said


def without_privileges() -> None:
    """Give up what makes root ignore permissions.

    These are CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    """
    for capability in (1, 2) if os.geteuid() == 0 else ():
        assert ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0


def test_no_permission_is_one_line(tmp_path: Path) -> None:
    served, file = tmp_path / "served", tmp_path / "file"
    (served / "closed").mkdir(parents=True)
    (served / "secret").write_bytes(b"secret")
    file.write_bytes(b"x")
    (served / "secret").chmod(0o000)
    (served / "closed").chmod(0o555)
    with serve(served, preexec_fn=without_privileges) as server:
        assert "secret: Permission denied" in one_line(cp(server.at("secret"), tmp_path / "y"))
        assert "closed/x: Permission denied" in one_line(cp(file, server.at("closed/x")))
        # To replace the file, only the permission of its directory counts.
        good(cp("--json", file, server.at("secret")))
        _, _, said = server.end()
        assert "refused_permission 2" in said
    assert not (tmp_path / "y").exists() and not list((served / "closed").iterdir())
    assert (served / "secret").stat().st_mode & 0o777 == 0
    served.chmod(0o555)
    done = run(
        *COMMAND, "serve", str(served), "--listen", "127.0.0.1:0", preexec_fn=without_privileges
    )
    assert "no permission to write (see --read-only)" in one_line(done)
    served.chmod(0o755)


# ---- mistakes

BAD: list[tuple[list[str], str]] = [
    (["cp", "a"], "at least one SRC"),
    (["cp", "a", "b"], "neither SRC nor DST is remote"),
    (["cp", "h:a", "g:b"], "both remote"),
    (["cp", "h:a", "g:b", "c"], "one server"),
    (["cp", "h:a", "b", "c"], "one server"),
    (["cp", "/nonexistent", "127.0.0.1:1:a"], "/nonexistent: no such file"),
    (["cp", "setup.cfg", "127.0.0.1:1:a"], "nobody listens there"),
    (["cp", "setup.cfg", "127.0.0.1:70000:a"], "port"),
    (["cp", "setup.cfg", "no-such-host.invalid:a"], "no-such-host.invalid: no such host"),
    (["cp", "--streams", "0", "setup.cfg", "127.0.0.1:1:a"], "--streams"),
    (
        ["cp", "--source", "192.0.2.1", "setup.cfg", "127.0.0.1:1:a"],
        "Cannot assign requested address",
    ),
    (
        ["cp", "--network", "10.0.0.0/33", "setup.cfg", "127.0.0.1:1:a"],
        "--network 10.0.0.0/33: must be a network",
    ),
    (
        ["cp", "--token-file", "/nonexistent", "setup.cfg", "127.0.0.1:1:a"],
        "--token-file /nonexistent",
    ),
    (["cp", "--ca", "/nonexistent", "setup.cfg", "127.0.0.1:1:a"], "--ca /nonexistent"),
    (["cp", "--ca", "setup.cfg", "setup.cfg", "127.0.0.1:1:a"], "no certificate"),
    (["serve", "/nonexistent"], "/nonexistent: No such file"),
    (["serve", "setup.cfg"], "setup.cfg: Not a directory"),
    (["serve", ".", "--listen", "here"], "ADDR:PORT"),
    (["serve", ".", "--listen", "127.0.0.1:65536"], "65535"),
    (["serve", ".", "--listen", "192.0.2.1:0"], "--listen 192.0.2.1:0"),
    (
        ["serve", ".", "--no-token", "--token-file", "setup.cfg"],
        "--no-token, --token-file: give one of them",
    ),
    (["serve", ".", "--cert", "x"], "--key"),
    (["serve", ".", "--cert", "/nonexistent", "--key", "/nonexistent"], "--cert /nonexistent"),
    (["serve", ".", "--cert", "setup.cfg", "--key", "setup.cfg"], "--cert setup.cfg"),
    (["serve", ".", "--max-transfers", "0"], "--max-transfers"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(a)[:50] for a, _ in BAD])
def test_mistakes_are_one_line(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert words in one_line(here(*arguments))


def test_a_mistake_is_one_line_of_the_process_too() -> None:
    assert "neither SRC nor DST is remote" in one_line(run(*COMMAND, "cp", "a", "b"))


@pytest.mark.parametrize(
    "greeting", [b"220 some.host ESMTP\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100, b""]
)
def test_a_port_of_something_else_is_one_line(greeting: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            with contextlib.suppress(OSError):
                end, _ = other.accept()
                with end:
                    end.sendall(greeting)
                    end.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        line = one_line(cp(tmp_path / "file", f"127.0.0.1:{other.getsockname()[1]}:x"))
        thread.join()
        assert f"127.0.0.1:{other.getsockname()[1]}: " in line and "something else" in line


def test_the_two_commands_are_commands_of_ri2n(capsys: pytest.CaptureFixture[str]) -> None:
    for command, words in (("cp", "--streams"), ("serve", "--read-only")):
        assert main.run([command, "--help"]) == 0
        assert words in capsys.readouterr().out
