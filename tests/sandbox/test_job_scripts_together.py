# SPDX-License-Identifier: Apache-2.0
"""Many job-begin and job-end at the same time: one of them does the work of all."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .frames import LONG_S, wait_until
from .marked_host import MarkedHost, fake_program, host, shared

__all__ = ["host", "shared"]

# Whoever runs the program first says so, and waits until the test lets it go on.
PAUSE = """
if mkdir {folder}/first 2>/dev/null; then
    echo $PPID >{folder}/part && mv {folder}/part {folder}/leader
    until [[ -e {folder}/go ]]; do sleep 0.02; done
fi
exec REAL "$@"
"""
IMPATIENT = """
until REAL -n "${{@:3}}"; do
    [[ -e {folder}/leader ]] && exec REAL -w 3 "${{@:3}}"
    sleep 0.02
done
"""
COUNT = 'echo >>{folder}/{name}.calls\nexec REAL "$@"'


class Scripts:
    """Scripts that run at the same time; those that still run are killed at the end of a `with`."""

    def __init__(self, host: MarkedHost, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, script: str, *args: str) -> None:
        """Start a script. It finds the fake programs of the folder before the real ones."""
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        self.running[name] = subprocess.Popen(
            self.host.command(script, *args), env=env, stderr=subprocess.PIPE, text=True
        )

    def begin(self, job: str, uid: int, *args: str) -> None:
        """Start a job-begin under the name of its job."""
        self.start(job, "job-begin", "--id", job, "--user", str(uid), "--hosts", "A,B", *args)

    def await_asked(self, count: int) -> None:
        """Wait until so many scripts have said what they want."""
        folder = self.host.run_dir / "ask"
        wait_until(
            lambda: sum(path.read_text().endswith("\n.\n") for path in folder.glob("*")) >= count,
            lambda: f"{list(folder.iterdir())} of {count}",
        )

    def await_leader(self) -> int:
        """The process id of the script that does the work, as soon as it has come to the pause."""
        path = self.folder / "leader"
        wait_until(path.exists, "no script does the work")
        return int(path.read_text())

    def kill(self, name: str) -> None:
        """Kill a script. The program by which it waits for the lock may outlive it."""
        process = self.running.pop(name)
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()

    def ends(self, *names: str) -> dict[str, tuple[int, str]]:
        """Status and errors of scripts, all without names, when they have ended."""
        found = {}
        for name in names or list(self.running):
            process = self.running.pop(name)
            _, errors = process.communicate(timeout=LONG_S)
            found[name] = (process.returncode, errors)
        return found


@pytest.fixture
def scripts(host: MarkedHost, tmp_path: Path) -> Iterator[Scripts]:
    host.begin("stays", 30999)
    made = Scripts(host, tmp_path)
    yield made
    (tmp_path / "go").touch()
    for process in made.running.values():
        process.kill()
        process.communicate()


@contextmanager
def all_wait(host: MarkedHost) -> Iterator[None]:
    """Until the end of the `with`, no script gets the lock."""
    handle = os.open(host.run_dir, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def jobs_of(host: MarkedHost) -> set[str]:
    """The jobs of a host, which its files, its rules and its rows tell alike."""
    declared = {json.loads(note)["id"]: priority for priority, note in host.rows(248)}
    assert len(set(declared.values())) == len(declared)
    assert {job["id"] for job in json.loads(host.script("job-ls", "--json").stdout)["jobs"]} == set(
        declared
    )
    chains = re.findall(r"chain class_(\d+) ", str(host.left()["rules"]))
    assert sorted(map(int, chains)) == sorted(declared.values())
    names = {f"job.{name}" for name in declared}
    assert set(host.files()) == names | {"applied", "serial"}
    return set(declared) - {"stays"}


def names(count: int) -> list[str]:
    return [f"job-{number}" for number in range(count)]


def test_all_that_wait_are_carried_out_together(scripts: Scripts) -> None:
    """Eight jobs end, and each one's user begins another, which is asked for later."""
    for name in names(8):
        scripts.host.begin(name, 30000 + int(name[4:]))
    for program in ("nft", "ovs-ofctl"):
        fake_program(scripts.folder, program, COUNT.format(folder=scripts.folder, name=program))
    with all_wait(scripts.host):
        for name in names(8):
            scripts.start(f"end {name}", "job-end", "--id", name)
        scripts.await_asked(8)
        for number in range(8):
            by = ["--cgroup"] if number % 3 == 0 else []
            scripts.begin(f"next-{number}", 30000 + number, *by)
        scripts.await_asked(16)
    assert set(scripts.ends().values()) == {(0, "")}
    assert jobs_of(scripts.host) == {f"next-{number}" for number in range(8)}
    for program in ("nft", "ovs-ofctl"):
        assert (scripts.folder / f"{program}.calls").read_text() == "\n"


def test_one_job_that_is_refused_harms_no_other(scripts: Scripts) -> None:
    with all_wait(scripts.host):
        for name in names(15):
            scripts.begin(name, 30000 + int(name[4:]))
        scripts.await_asked(15)
        scripts.begin("bad", 30003)
        scripts.await_asked(16)
    ends = scripts.ends()
    status, errors = ends.pop("bad")
    assert status == 2 and len(errors.splitlines()) == 1
    assert "job-begin: --user 30003: job job-3 of this user runs here" in errors
    assert set(ends.values()) == {(0, "")} and jobs_of(scripts.host) == set(names(15))


def test_one_job_that_fails_harms_no_other(scripts: Scripts) -> None:
    refuse = 'text=$(cat)\nif [[ $text == *30666* ]]; then echo "no way" >&2; exit 1; fi\n'
    fake_program(scripts.folder, "nft", refuse + 'REAL "$@" <<<"$text"')
    scripts.host.begin("old", 30777)
    with all_wait(scripts.host):
        for name in names(14):
            scripts.begin(name, 30000 + int(name[4:]))
        scripts.begin("bad", 30666)
        scripts.start("end", "job-end", "--id", "old")
        scripts.await_asked(16)
    ends = scripts.ends()
    assert ends.pop("bad") == (1, "job-begin: job bad has not begun: nft: no way\n")
    assert set(ends.values()) == {(0, "")} and jobs_of(scripts.host) == set(names(14))


def test_the_same_job_twice_at_once_and_its_end_at_once(scripts: Scripts) -> None:
    fixed = ("--begin", "1790000000")
    with all_wait(scripts.host):
        for number, (name, uid) in enumerate([("same", 1), ("other", 2), ("brief", 3)]):
            scripts.begin(name, 30000 + uid, *fixed)
            scripts.await_asked(number + 1)
        argv = ("--user", "30001", "--hosts", "A,B", *fixed)
        scripts.start("again", "job-begin", "--id", "same", *argv)
        argv = ("--user", "30004", "--hosts", "A,B", *fixed)
        scripts.start("otherwise", "job-begin", "--id", "other", *argv)
        scripts.start("end", "job-end", "--id", "brief")
        scripts.start("unknown", "job-end", "--id", "none")
        scripts.await_asked(7)
    ends = scripts.ends()
    assert ends.pop("otherwise") == (
        2,
        "job-begin: job other has begun for another user, 30002\n",
    )
    assert ends.pop("unknown") == (2, "job-end: --id none: no such job on this host\n")
    assert set(ends.values()) == {(0, "")}, ends
    assert jobs_of(scripts.host) == {"same", "other"}


@pytest.mark.parametrize("program", ["sha256sum", "nft", "ovs-ofctl", "mv", "rm"])
def test_others_go_on_where_the_one_that_works_is_killed(scripts: Scripts, program: str) -> None:
    scripts.host.begin("old", 30777)
    fake_program(scripts.folder, program, PAUSE.format(folder=scripts.folder))
    with all_wait(scripts.host):
        for name in names(6):
            scripts.begin(name, 30000 + int(name[4:]), *(["--cgroup"] if name == "job-3" else []))
        scripts.start("end", "job-end", "--id", "old")
        scripts.await_asked(7)
    leader = scripts.await_leader()
    (lost,) = [name for name, running in scripts.running.items() if running.pid == leader]
    os.kill(leader, signal.SIGKILL)
    scripts.running[lost].wait()
    (scripts.folder / "go").touch()
    assert scripts.ends(lost)[lost][0] == -signal.SIGKILL
    ends = scripts.ends()
    assert set(ends.values()) == {(0, "")}, ends
    # The job of the killed one is there in full, or not at all.
    found = jobs_of(scripts.host)
    assert found - {lost, "old"} == set(names(6)) - {lost}
    assert "old" not in found or lost == "end"


def test_nothing_is_done_for_a_script_that_was_killed_while_it_waited(scripts: Scripts) -> None:
    with all_wait(scripts.host):
        scripts.begin("lost", 30000)
        scripts.await_asked(1)
        scripts.kill("lost")
        scripts.begin("next", 30001)
        scripts.await_asked(2)
    assert scripts.ends() == {"next": (0, "")} and jobs_of(scripts.host) == {"next"}


def test_nobody_waits_for_ever_for_one_that_hangs(scripts: Scripts) -> None:
    fake_program(scripts.folder, "nft", PAUSE.format(folder=scripts.folder))
    # Less than the 60 s; but until one of them works, all of them wait however long that takes.
    fake_program(scripts.folder, "flock", IMPATIENT.format(folder=scripts.folder))
    with all_wait(scripts.host):
        scripts.begin("hangs", 30000)
        scripts.await_asked(1)
        for name in names(4):
            scripts.begin(name, 30001 + int(name[4:]))
        scripts.await_asked(5)
    leader = scripts.await_leader()
    os.kill(leader, signal.SIGSTOP)
    try:
        (hangs,) = [name for name, running in scripts.running.items() if running.pid == leader]
        others = {"hangs", *names(4)} - {hangs}
        found = scripts.ends(*others)
        line = "job-begin: another job-begin or job-end is at work\n"
        assert set(found.values()) == {(1, line)}
    finally:
        (scripts.folder / "go").touch()
        os.kill(leader, signal.SIGCONT)
    # It goes on with what is still asked for.
    assert scripts.ends() == {hangs: (0, "")} and jobs_of(scripts.host) == {hangs}
