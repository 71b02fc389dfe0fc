# SPDX-License-Identifier: Apache-2.0
"""Which controller a command asks, and what it says when labs are not installed."""

from __future__ import annotations

import json
import socket
import tempfile
from pathlib import Path

import pytest

from ri2n_lab.cli.labs import listens
from ri2n_lab.cluster import state
from ri2n_sdn.cli import labs
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.shipped import find_topology

from .commands import ri2n


def test_a_lab_whose_controller_was_killed_has_none(tmp_path: Path) -> None:
    """Its socket's file is still there."""
    path = tmp_path / "controller.sock"
    assert not listens(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert listens(path)
    assert path.exists() and not listens(path)


def test_the_socket_of_the_only_lab_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        monkeypatch.setattr(labs, "DEFAULT_SOCKET", Path(folder) / "absent.sock")
        monkeypatch.setattr(state, "ROOT", Path(folder))
        with pytest.raises(NotAvailable, match="no controller is running"):
            _ = Where().path
        servers = []
        for name in ("one", "two"):
            (Path(folder) / name).mkdir()
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(Path(folder) / name / "controller.sock"))
            servers.append(server)
        servers[0].listen()  # the second file is a leftover: nobody listens there
        assert Where().path == Path(folder) / "one" / "controller.sock"
        assert "lab one" in capsys.readouterr().err
        servers[1].listen()
        with pytest.raises(NotAvailable, match=r"several labs.*--lab: one, two"):
            _ = Where().path
        assert Where(Path("/given")).path == Path("/given")
        with pytest.raises(BadInput, match="not both"):
            _ = Where(Path("/given"), "one").path
        with pytest.raises(NotAvailable, match="no lab 'three'"):
            _ = Where(lab="three").path
        # What is typed counts more than a variable, and the variable of the lab more than the
        # other one: a command with --lab works wherever it is typed.
        recorded: dict[str, object] = {
            "name": "one",
            "owner": "root",
            "phase": "up",
            "pid": 1,
            "created_s": 0.0,
        }
        recorded |= {"datapath": "netdev", "faults": []}
        recorded["topology"] = find_topology("fig4/d").model_dump(mode="json")
        (Path(folder) / "one" / "state.json").write_text(json.dumps(recorded))
        one = Path(folder) / "one" / "controller.sock"
        monkeypatch.setenv("RI2N_SOCKET", "/given")
        assert Where(Path("/given"), "one").path == one
        monkeypatch.setenv("RI2N_LAB", "one")
        assert Where(Path("/given"), "one").path == one
        assert Where(Path("/typed"), "one").path == Path("/typed")
        monkeypatch.delenv("RI2N_SOCKET")
        assert Where(Path("/typed"), "one").path == Path("/typed")
        for server in servers:
            server.close()


def test_without_the_package_of_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    monkeypatch.setattr(labs, "DEFAULT_SOCKET", Path("/nonexistent/absent.sock"))
    missing = "labs are not installed here: pip install ri2n-lab"
    for words, said in (
        (("status", "--lab", "x"), f"--lab: {missing}"),
        (("doctor", "--lab", "x"), f"--lab: {missing}"),
        (("doctor", "--kernel", "uml"), f"--kernel: {missing}"),
        (
            ("status",),
            "no controller is running (/nonexistent/absent.sock, no lab); start one with `ri2n "
            "controller`",
        ),
    ):
        done = ri2n(*words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ri2n: {said}\n"), words
