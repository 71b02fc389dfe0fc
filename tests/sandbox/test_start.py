# SPDX-License-Identifier: Apache-2.0
"""What keeps a controller from starting is said in one line, with exit code 2."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, execute, reserve_port
from tests.waiting import LONG_S

from .forked import fork


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox whose controller is an interpreter of its own, as a user starts it, and no fork."""
    with Sandbox({"A": ["n0"], "B": ["n0"]}) as made:
        made.spawn = execute
        made.start_controller()
        made.wait_settled()
        yield made


@pytest.fixture(scope="module")
def listen() -> Iterator[str]:
    """An address on which nobody listens."""
    reserved, port = reserve_port()
    yield f"127.0.0.1:{port}"
    reserved.close()


def one_line(code: int, text: str) -> str:
    """The one line of a controller that gives up; anything else fails."""
    assert code == 2, text
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    return lines[0]


def start(folder: Path, *options: str) -> str:
    """The one line that `ri2n controller` prints before it gives up."""
    log = folder / "log"
    options = (*options, "--state-dir", str(folder / "memory"))
    code = fork("", ["controller", *options], log).wait(LONG_S)
    return one_line(code, log.read_text())


def test_the_port_is_taken(sandbox: Sandbox, tmp_path: Path) -> None:
    """Here the controller is an interpreter of its own, as a user starts it, and no fork."""
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller"]
    argv += ["--listen", f"127.0.0.1:{sandbox.port}", "--socket", str(tmp_path / "s")]
    argv += ["--state-dir", str(tmp_path / "memory")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=False)
    line = one_line(done.returncode, done.stdout + done.stderr)
    assert f"cannot listen on 127.0.0.1:{sandbox.port}: Address already in use" in line
    assert not (tmp_path / "s").exists()


def test_the_address_is_not_here(tmp_path: Path) -> None:
    line = start(tmp_path, "--listen", "192.0.2.1:6653", "--socket", str(tmp_path / "s"))
    assert "cannot listen on 192.0.2.1:6653" in line


def test_the_socket_of_a_live_controller(sandbox: Sandbox, listen: str, tmp_path: Path) -> None:
    line = start(tmp_path, "--listen", listen, "--socket", str(sandbox.socket))
    assert f"--socket {sandbox.socket}: another controller listens there" in line
    assert sandbox.wait_settled()["ok"]  # the socket is still that of the first controller


def test_a_file_in_the_socket_s_place_stays(listen: str, tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("years of work\n")
    line = start(tmp_path, "--listen", listen, "--socket", str(path))
    assert f"--socket {path}: a file is there that is no socket" in line
    assert path.read_text() == "years of work\n"


def test_a_group_that_there_is_not(listen: str, tmp_path: Path) -> None:
    options = ("--socket", str(tmp_path / "s.sock"), "--web-group", "no-such-group")
    line = start(tmp_path, "--listen", listen, *options)
    assert "--web-group no-such-group: there is no such group" in line
    assert not list(tmp_path.glob("*.sock"))


def test_a_dead_controllers_socket_is_taken_over(sandbox: Sandbox) -> None:
    before = sandbox.ask("status")["pid"]
    sandbox.kill_controllers()
    assert sandbox.socket.exists()
    sandbox.start_controller()
    assert sandbox.wait_settled()["pid"] != before


def test_a_bad_configuration(tmp_path: Path, listen: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("hosts: {A: {nics: {eth0: {rate_bps: 0}}}}\n")
    line = start(
        tmp_path, "--listen", listen, "--config", str(path), "--socket", str(tmp_path / "s")
    )
    assert str(path) in line and "hosts.A.nics.eth0.rate_bps" in line


def test_certificates_that_are_none(tmp_path: Path, listen: str) -> None:
    files = {name: tmp_path / name for name in ("key", "cert", "ca")}
    for path in files.values():
        path.write_text("no certificate")
    options = [word for name, path in files.items() for word in (f"--tls-{name}", str(path))]
    assert "TLS: cannot use" in start(
        tmp_path, "--listen", listen, "--socket", str(tmp_path / "s"), *options
    )
