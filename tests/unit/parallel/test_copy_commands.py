# SPDX-License-Identifier: Apache-2.0
"""`ri2n serve` and `ri2n cp` over loopback addresses: what is copied where, and mistakes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from ri2n_parallel.cli import main
from tests.unit.parallel.copy_commands import (
    BLOCK,
    COMMAND,
    REPOSITORY,
    cp,
    good,
    here,
    one_line,
    run,
    serve,
)

LINKS = [f"127.0.0.{number}" for number in range(1, 5)]


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


def test_the_servers_answer_to_ctrl_c_is_a_summary_and_0(tmp_path: Path) -> None:
    with serve(tmp_path / "served", "--json") as server:
        code, out, _ = server.end(signal.SIGINT)
    assert code == 0 and json.loads(out)["counters"] == {}


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
