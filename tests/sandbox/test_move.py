# SPDX-License-Identifier: Apache-2.0
"""A controller that moves to another machine with `ri2n store`, and what that command refuses."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from ri2n_lab.cluster.sandbox import SCHEMA, Sandbox, execute
from ri2n_sdn.cli import store as store_command
from ri2n_sdn.cli.store import contents, export
from ri2n_sdn.errors import BadInput
from ri2n_sdn.store.files import prepare_file
from tests.unit.commands import Ended, ri2n
from tests.waiting import LONG_S

from .forked import fork


def store(folder: Path, *arguments: str) -> Ended:
    command, *rest = arguments
    return ri2n("store", command, "--state-dir", str(folder), *rest)


def test_a_file_goes_out_and_in_again(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "moved"
    old.mkdir()
    prepare_file(old / "ri2n.db")
    row = {"user": "bob", "policies": ["set", ["shared"]]}
    insert = json.dumps(["ri2n", {"op": "insert", "table": "Right", "row": row}])
    subprocess.run(["ovsdb-tool", "transact", old / "ri2n.db", insert], check=True)
    assert store(old, "export", str(file)).returncode == 0
    assert store(new, "import", str(file), "--yes").returncode == 0
    assert json.loads(store(new, "show", "--json").stdout)["Right"] == ["bob"]
    twice = store(new, "import", str(file), "--yes")
    assert twice.returncode == 0 and "nothing to do" in twice.stdout
    delete = json.dumps(["ri2n", {"op": "delete", "table": "Right", "where": []}])
    subprocess.run(["ovsdb-tool", "transact", old / "ri2n.db", delete], check=True)
    refused = store(new, "import", str(old / "ri2n.db"), "--yes")
    assert refused.returncode == 2 and "has a memory of its own" in refused.stderr
    assert sorted(path.name for path in new.iterdir()) == ["ri2n.db"]


def no_link(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_file_goes_where_there_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on most USB sticks, by which it may be taken to another machine."""
    monkeypatch.setattr(os, "link", no_link)
    prepare_file(tmp_path / "ri2n.db")
    file = tmp_path / "moved"
    export(file, tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and contents(file)["Job"] == []
    with pytest.raises(BadInput, match="is there already"):
        export(file, tmp_path)


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_there_in_the_last_moment_stays(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_file(tmp_path / "ri2n.db")
    file = tmp_path / "moved"
    if not links:
        monkeypatch.setattr(os, "link", no_link)
    take = store_command.take_name

    def too_late(copy: Path, target: Path) -> None:
        target.write_text("somebody else's")
        take(copy, target)

    monkeypatch.setattr(store_command, "take_name", too_late)
    with pytest.raises(BadInput, match="is there already"):
        export(file, tmp_path)
    assert file.read_text() == "somebody else's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved", "ri2n.db"]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_who_is_killed_leaves_the_whole_file_or_none(
    links: bool, named: bool, tmp_path: Path
) -> None:
    """Before and after the one step in which the file gets its name."""
    prepare_file(tmp_path / "ri2n.db")
    file = tmp_path / "moved"
    before = (
        "import os, signal\n"
        "from ri2n_sdn.cli import store\n"
        "def no_link(*_, **__): raise PermissionError(1, 'no links')\n"
        f"if not {links}: os.link = no_link\n"
        "take = store.take_name\n"
        "def dies(copy, target):\n"
        f"    if {named}: take(copy, target)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.take_name = dies\n"
    )
    argv = ["store", "export", "--state-dir", str(tmp_path), str(file)]
    process = fork(before, argv, tmp_path / "log")
    assert process.wait(LONG_S) == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert file.exists() == named
    if not named:
        export(file, tmp_path)
    assert contents(file)["Job"] == [] and stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.long
def test_a_controller_takes_its_memory_to_another_folder(tmp_path: Path) -> None:
    with Sandbox({name: ["n0", "n1"] for name in ("A", "B")}) as sandbox:
        sandbox.spawn = execute
        sandbox.start_controller(config="")
        sandbox.wait_settled()
        job = {"id": "j1", "user": "alice", "uid": 20001, "hosts": ["A", "B"], "policy": "shared"}
        sandbox.ask("job_begin", job=job)
        sandbox.ask("rights_set", right={"user": "bob", "policies": ["shared"]})
        sandbox.ask("token_add", name="grafana", role="viewer", hash=64 * "a")
        old, new, file = sandbox.folder / "memory", tmp_path / "new", tmp_path / "moved"

        # While the controller runs.
        dry = store(old, "export", str(file), "--dry-run")
        assert dry.returncode == 0 and not file.exists() and "2 hosts" in dry.stdout
        ended = store(old, "export", str(file))
        assert ended.returncode == 0, ended.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for part in ("2 hosts", "2 networks", "1 jobs", "1 rights", "1 tokens"):
            assert part in ended.stdout
        again = store(old, "export", str(file))
        assert again.returncode == 2 and "is there already" in again.stderr
        running = store(old, "import", str(file), "--yes", "--force")
        assert running.returncode == 2 and "systemctl stop" in running.stderr

        # On the other machine.
        dry = store(new, "import", str(file), "--dry-run")
        assert dry.returncode == 0 and not new.exists() and "1 jobs" in dry.stdout
        unasked = store(new, "import", str(file))
        assert unasked.returncode == 2 and "--yes is missing" in unasked.stderr
        assert not (new / "ri2n.db").exists()
        assert store(new, "import", str(file), "--yes").returncode == 0
        twice = store(new, "import", str(file), "--yes")
        assert twice.returncode == 0 and "nothing to do" in twice.stdout
        assert [path.name for path in new.iterdir()] == ["ri2n.db"]

        sandbox.kill_controllers()
        sandbox.start_controller(config="", extra=["--state-dir", str(new)])
        sandbox.wait_settled()
        assert [each["id"] for each in sandbox.ask("job_list")["jobs"]] == ["j1"]
        assert [each["user"] for each in sandbox.ask("rights_list")["rights"]] == ["bob"]
        assert [each["name"] for each in sandbox.ask("token_list")["tokens"]] == ["grafana"]
        sandbox.ask("job_end", id="j1")
        sandbox.kill_controllers()

        other = store(new, "import", str(file), "--yes")
        assert other.returncode == 2 and "has a memory of its own" in other.stderr
        shown = json.loads(store(new, "show", "--json").stdout)
        assert shown["Job"] == [] and shown["History"] == ["j1"] and shown["Host"] == ["A", "B"]
        assert store(new, "import", str(file), "--yes", "--force").returncode == 0
        assert json.loads(store(new, "show", "--json").stdout)["Job"] == ["j1"]
        (kept,) = new.glob("ri2n.db.before-*")
        assert json.loads(store(new, "show", str(kept), "--json").stdout)["Job"] == []


@pytest.mark.parametrize("kind", ["missing", "text", "damaged", "other"])
def test_a_file_that_is_no_memory_changes_nothing(kind: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "state"
    folder.mkdir()
    if kind == "text":
        file.write_text("hello\n")
    elif kind == "damaged":
        file.write_text("OVSDB JSON 5 " + 40 * "0" + '\n{"a"}\nOVSDB JSON 1 ' + 40 * "0" + "\n1")
    elif kind == "other":
        subprocess.run(["ovsdb-tool", "create", file, SCHEMA], check=True)
    ended = store(folder, "import", str(file), "--yes")
    assert (
        ended.returncode == 2 and ended.stderr.count("\n") == 1 and str(file.name) in ended.stderr
    )
    assert list(folder.iterdir()) == []
