# SPDX-License-Identifier: Apache-2.0
"""Copies that end in the middle: killed, interrupted, without room or without a right."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from tests.unit.parallel.copy_commands import (
    BLOCK,
    COMMAND,
    HALF_WAY,
    Served,
    cp,
    good,
    half_way,
    has_blocks,
    many_blocks,
    one_line,
    part_of,
    run,
    same,
    serve,
    start,
)
from tests.unit.parallel.relay import PASS, Relay
from tests.unit.parallel.worlds import PATIENCE_S
from tests.waiting import wait_until

PR_CAPBSET_DROP = 24


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
