# SPDX-License-Identifier: Apache-2.0
"""The web process as the controller's child, with a small program in place of the web process."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.apps import web_child
from ri2n_sdn.apps.web_child import WebChild, web_user
from tests.waiting import LONG_S, wait_until

# It ends, as the web process does, when nobody has the other end of the pipe any more.
STAYS = "import os; os.read({fd}, 1)"
ENDS = "raise SystemExit(2)"


class Child(WebChild):
    """A child that runs a line of Python."""

    line = STAYS

    def _command(self, descriptor: int) -> list[str]:
        return [sys.executable, "-ISc", self.line.format(fd=descriptor)]

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setattr(web_child, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(web_child, "_LAST_PAUSE_S", 0.05)
    made = Child(Path("controller.sock"), "127.0.0.1:8420", None)
    yield made
    made.stop()


def test_a_child_that_dies_is_started_again(child: Child) -> None:
    child.start()
    wait_until(lambda: child.starts == 1 and child.pid, "it is not started")
    for starts in (2, 3):
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: child.starts == starts, lambda: child.starts)  # noqa: B023
    last = child.pid
    child.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    child.stop()
    assert child.starts == 3


def test_a_new_start_of_the_controller_does_not_wait_for_browsers(child: Child) -> None:
    child.line = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"
    child.start()
    wait_until(lambda: child.pid, "it is not started")
    process = child._process
    child.stop(at_once=True)
    assert process is not None and process.returncode == -signal.SIGKILL


def test_a_child_that_ends_at_once_is_not_started_all_the_time(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    wait = child._stopping.wait

    def noted(pause_s: float) -> bool:
        pauses.append(pause_s)
        return wait(pause_s)

    monkeypatch.setattr(child._stopping, "wait", noted)
    child.line = ENDS
    child.start()
    wait_until(lambda: child.starts == 6, lambda: child.starts)
    assert pauses[:5] == [0.01, 0.02, 0.04, 0.05, 0.05]


def test_what_cannot_be_started_is_tried_again(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_command", lambda descriptor: ["/nonexistent/program"])
    before = descriptors()
    child.start()
    pauses: list[float] = []
    wait = child._stopping.wait

    def noted(pause_s: float) -> bool:
        pauses.append(pause_s)
        return wait(0.001)

    monkeypatch.setattr(child._stopping, "wait", noted)
    wait_until(lambda: len(pauses) > 3, "it is not tried again")
    assert child.starts == 0
    child.stop()
    wait_until(lambda: descriptors() <= before, "descriptors are left open")


def test_the_child_ends_when_its_parent_is_killed() -> None:
    """A parent of its own, which has no chance to say anything."""
    code = (
        "import sys, time\n"
        "from tests.unit.test_web_child import Child\n"
        "from pathlib import Path\n"
        "child = Child(Path('x'), 'y', None)\n"
        "child.start()\n"
        "while not child.pid: time.sleep(0.01)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()

    def ended() -> bool:
        path = Path(f"/proc/{pid}/stat")
        try:
            return path.read_text().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(ended, "the child has outlived its parent", LONG_S)


def test_the_command_is_the_one_of_users(tmp_path: Path) -> None:
    made = WebChild(tmp_path / "controller.sock", "127.0.0.1:8420", None, "json")
    assert made._command(7)[1:] == [
        *("-m", "ri2n_sdn.cli.main", "web", "--socket", str(tmp_path / "controller.sock")),
        *("--listen", "127.0.0.1:8420", "--ends-with", "7", "--log-format", "json"),
    ]


def test_the_user_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's child has a user without rights, where that user was made."""
    nobody = pwd.getpwnam("nobody")

    def getpwnam(name: str) -> Any:
        assert name == "ri2n-web"
        return nobody

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    user = web_user()
    assert user is not None and (user.uid, user.gid) == (nobody.pw_uid, nobody.pw_gid)
    made = WebChild(Path("x"), "y", user)
    assert made._as_user() == {"user": user.uid, "group": user.gid, "extra_groups": []}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert web_user() is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", {}.__getitem__)
    assert web_user() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_the_child_has_no_right_of_root(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    # The Python of these tests may be in a folder that is root's alone.
    monkeypatch.setattr(child, "_command", lambda descriptor: ["sleep", "1000"])
    child._user = web_child.WebUser(nobody.pw_uid, nobody.pw_gid, "nogroup")
    child.start()
    wait_until(lambda: child.pid, "it is not started")
    status = Path(f"/proc/{child.pid}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert lines["Uid"].split() == 4 * [str(nobody.pw_uid)]
    assert lines["Gid"].split() == 4 * [str(nobody.pw_gid)]
    assert not lines["Groups"].split() and int(lines["CapEff"], 16) == 0
