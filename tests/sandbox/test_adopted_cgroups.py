# SPDX-License-Identifier: Apache-2.0
"""Jobs that are marked by a cgroup of their job manager, as on a machine with cgroup2 alone.

The cgroups have the shape of those of Slurm's plugin cgroup/v2. They are below a folder of the
test's own, because system.slice is the machine's.
"""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import ovs

from .frames import wait_until
from .marked_host import (
    ADDRESSES,
    BRIDGE,
    SCRIPTS,
    Frame,
    MarkedHost,
    classes,
    fake_program,
    host,
    shared,
)
from .test_job_scripts import FIN, TCP, UDP, serve

__all__ = ["host", "shared"]

USER, OTHER = 20001, 20002
FAMILIES = list(ADDRESSES)
IN_CGROUP = (
    'echo 0 >"$1/cgroup.procs"; shift; uid=$1; shift; '
    'exec setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"'
)
PYTHON = "/usr/bin/python3"


@dataclass
class Scope:
    """A scope in which a job manager keeps its jobs' cgroups."""

    mount: Path
    folder: Path

    def job(self, number: int, *steps: str) -> Path:
        """Make the cgroup of a job as slurmstepd does, and return it."""
        path = self.folder / f"job_{number}"
        for step in steps or ("step_0",):
            (path / step / "slurm").mkdir(parents=True)
            (path / step / "user" / "task_0").mkdir(parents=True)
        return path

    def task(self, number: int, step: str = "step_0") -> str:
        """The cgroup of a job's first task."""
        return str(self.folder / f"job_{number}" / step / "user" / "task_0")

    def remove(self, path: Path | None = None) -> None:
        """Remove a cgroup and all below it, as Slurm does at a job's end."""
        for each in sorted((path or self.folder).glob("**/"), reverse=True):
            # A process that was killed is in its cgroup until it was waited for.
            wait_until(partial(gone, each), f"{each} is not empty")


def gone(folder: Path) -> bool:
    """Whether a cgroup has no process and is removed now."""
    if (folder / "cgroup.procs").read_text():
        return False
    try:
        folder.rmdir()
    except OSError as error:
        # A process that is ending is in the list no more, and may still be in the cgroup.
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


@pytest.fixture
def scope(host: MarkedHost) -> Iterator[Scope]:
    """A scope for jobs; it goes after the test, and the test's jobs end before."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = Path(next(words[1] for words in mounts if words[2] == "cgroup2"))
    top = mount / f"{host.host}.slice"
    made = Scope(mount, top / "slurmstepd.scope")
    made.folder.mkdir(parents=True)
    try:
        yield made
        host.script("job-end", "--all")
        assert made.folder.is_dir()
    finally:
        (top / "cgroup.kill").write_text("1")  # what a test that failed has left
        made.remove(top)


def adopt(host: MarkedHost, job: str, path: Path | str, *args: str) -> None:
    """Begin a job of USER in a cgroup that is there, with no word of warning."""
    argv = ("--id", job, "--user", str(USER), "--hosts", "A,B", "--cgroup-path", str(path), *args)
    done = host.script("job-begin", *argv)
    assert (done.stdout, done.stderr) == ("", "")


def inside(host: MarkedHost, group: str, uid: int, *argv: str) -> str:
    """Run a program of a user in a cgroup to its end; what it printed."""
    return host.run("bash", "-c", IN_CGROUP, "bash", group, str(uid), *argv).stdout


def class_in(host: MarkedHost, group: str, uid: int = USER, family: str = "-4") -> int | None:
    """The class of what a program of a user in a cgroup sends."""
    with host.capture() as capture:
        inside(host, group, uid, PYTHON, "-c", UDP, ADDRESSES[family][1])
        (number,) = classes(capture.wait(5, lambda frame: frame.dport == 9))
    return number


def listed(host: MarkedHost) -> dict[str, dict[str, Any]]:
    """The jobs as job-ls tells them, by their ids."""
    jobs = json.loads(host.script("job-ls", "--json").stdout)["jobs"]
    return {job["id"]: job for job in jobs}


@pytest.mark.parametrize("family", FAMILIES)
def test_two_jobs_of_one_user_stay_apart(host: MarkedHost, scope: Scope, family: str) -> None:
    _, peer = ADDRESSES[family]
    one, two = scope.job(1, "step_batch", "step_0"), scope.job(2)
    adopt(host, "slurm-1", one)
    adopt(host, "slurm-2", two.relative_to(scope.mount))
    host.begin("rest", USER)
    assert listed(host)["slurm-2"]["cgroup"] == str(two)
    # In all steps, also in those that begin later.
    later = one / "step_1" / "user" / "task_0"
    later.mkdir(parents=True)
    for group, number in (
        (scope.task(1), 1),
        (scope.task(1, "step_batch"), 1),
        (str(later), 1),
        (scope.task(2), 2),
    ):
        assert class_in(host, group, family=family) == number
    _, port = serve(host, peer, namespace=host.peer)
    with host.capture() as capture:
        inside(host, scope.task(2), USER, PYTHON, "-c", TCP, peer, port)

        def closed(frame: Frame) -> bool:
            return frame.dport == int(port) and bool(frame.flags & FIN)

        capture.wait(1, closed)
        assert classes(frame for frame in capture.frames if frame.dport == int(port)) == {2}
    with host.capture() as capture:
        host.python(UDP, peer, uid=USER)
        assert classes(capture.wait(5, lambda frame: frame.dport == 9)) == {3}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_managers_own_daemons_are_not_the_job(
    host: MarkedHost, scope: Scope, family: str
) -> None:
    """slurmstepd talks to slurmctld and to srun, also where the job is isolated.

    It opens some of its sockets as the job's user.
    """
    _, peer = ADDRESSES[family]
    path = scope.job(1)
    adopt(host, "slurm-1", f"{path}/*/*/*", "--policy", "isolated")
    daemon = str(path / "step_0" / "slurm")
    for uid in (0, USER):
        assert class_in(host, daemon, uid=uid, family=family) is None
        assert class_in(host, scope.task(1), uid=uid, family=family) == 1
    for group in (path, path / "step_0", path / "step_0" / "user"):
        assert class_in(host, str(group), family=family) is None
    assert listed(host)["slurm-1"]["cgroup"] == f"{path}/*/*/*"
    _, port = serve(host, peer, namespace=host.peer)
    with host.capture() as capture:
        inside(host, daemon, USER, PYTHON, "-c", TCP, peer, port)
        ends = capture.wait(1, lambda frame: frame.dport == int(port) and bool(frame.flags & FIN))
        assert classes(ends) == {None}
    # Levels are a part of the path.
    argv = ("--id", "slurm-1", "--user", str(USER), "--hosts", "A,B", "--policy", "isolated")
    done = host.script("job-begin", *argv, "--cgroup-path", f"{path}/*", check=False)
    assert done.returncode == 2 and "another --cgroup-path" in done.stderr
    adopt(host, "slurm-1", path, "--policy", "isolated", "--change")
    assert class_in(host, daemon, family=family) == 1


def test_a_job_begins_before_its_cgroup_is_there(host: MarkedHost, scope: Scope) -> None:
    """What Slurm's prolog and plugin do."""
    for number in (1, 2):
        adopt(host, f"slurm-{number}", "later", "--policy", "exclusive")
    assert [note[:18] for _, note in host.rows(248)] == [b'{"v":1,"id":"slurm'] * 2
    assert "cgroup" not in listed(host)["slurm-1"] and " later " in host.script("job-ls").stdout
    with host.capture() as capture:
        host.python(UDP, ADDRESSES["-4"][1], uid=USER)
        assert classes(capture.wait(5, lambda frame: frame.dport == 9)) == {None}
    rows = host.rows(248)
    for number in (1, 2):
        path = scope.job(number)
        adopt(host, f"slurm-{number}", path, "--policy", "exclusive", "--change")
    assert host.rows(248) == rows
    before = host.left()
    for number in (1, 2):
        assert class_in(host, scope.task(number)) == number
        path = scope.folder / f"job_{number}"
        # The same call again, with or without --change, and the prolog's call again.
        for words in ((path,), (path, "--change"), ("later",), ("later", "--change")):
            adopt(host, f"slurm-{number}", words[0], "--policy", "exclusive", *words[1:])
        assert host.left() == before
    assert class_in(host, scope.task(2)) == 2


def test_another_cgroup_is_refused_unless_that_is_asked_for(host: MarkedHost, scope: Scope) -> None:
    one, two = scope.job(1), scope.job(2)
    adopt(host, "slurm-1", one)
    before = host.left()
    begin = ("--id", "slurm-1", "--user", str(USER), "--hosts", "A,B")
    for words, why in (
        (("--cgroup-path", str(two)), "another --cgroup-path"),
        ((), "has begun with --cgroup-path"),
        (("--change",), "has begun with --cgroup-path"),
        (("--cgroup",), "another --cgroup:"),
    ):
        done = host.script("job-begin", *begin, *words, check=False)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1
        assert host.left() == before
    adopt(host, "slurm-1", two, "--change")
    assert class_in(host, scope.task(2)) == 1 and class_in(host, scope.task(1)) is None
    # A job that was marked by user moves into its cgroup, too.
    host.begin("slurm-3", USER)
    adopt(host, "slurm-3", one, "--change")
    assert class_in(host, scope.task(1)) == 2
    with host.capture() as capture:
        host.python(UDP, ADDRESSES["-4"][1], uid=USER)
        assert classes(capture.wait(5, lambda frame: frame.dport == 9)) == {None}


def test_bad_paths_are_one_line_and_change_nothing(host: MarkedHost, scope: Scope) -> None:
    path = scope.job(1)
    adopt(host, "there", path / "step_0")
    made = Path(host.begin("made", OTHER, "--cgroup").strip())
    before = host.left()
    mount = scope.mount
    for bad, why in (
        (str(mount), "must be below"),
        (f"{mount}/", "must be below"),
        ("/proc/self", "must be below"),
        ("/sys/fs/cgroup/../cgroup/x", "without . and .."),
        (f"{path}/../job_1", "without . and .."),
        (f"{path}/./step_0", "without . and .."),
        (f"{path}//step_0", "plain path"),
        (f'{path}" ; drop', "plain path"),
        ("..", "without . and .."),
        (f"{path}/step_9", "there is no such cgroup"),
        (f"{path}/cgroup.procs", "there is no such cgroup"),
        ("x", "there is no such cgroup"),
        (str(path), "job there has the cgroup"),
        (f"{path}/step_0", "job there has the cgroup"),
        (f"{path}/step_0/user", "job there has the cgroup"),
        (f"{path}/*/*", "job there has the cgroup"),
        (f"{mount}/*", "must be below"),
        (f"{path}/*/slurm", "plain path"),
        (str(made), "job made has the cgroup"),
        (str(made.parent.parent), "job made has the cgroup"),
    ):
        argv = ("--id", "x", "--user", str(USER), "--hosts", "A", "--cgroup-path", bad)
        done = host.script("job-begin", *argv, check=False)
        assert done.returncode == 2 and why in done.stderr, (bad, done.stderr)
        assert done.stderr.count("\n") == 1 and done.stdout == ""
        assert host.left() == before
    done = host.script("job-begin", *argv, "--cgroup", check=False)
    assert done.returncode == 2 and "choose one of the two" in done.stderr


def test_a_path_may_come_from_the_environment(host: MarkedHost, scope: Scope) -> None:
    words = [f"RI2N_JOB_CGROUP_PATH={scope.job(1)}", "RI2N_JOB_ID=x", f"RI2N_JOB_USER={USER}"]
    words.append(f"RI2N_JOB_DB={ovs.database(host.folder)}")
    host.run("env", *words, str(SCRIPTS / "job-begin"))
    assert class_in(host, scope.task(1)) == 1


def test_the_end_leaves_the_cgroup_and_its_processes(host: MarkedHost, scope: Scope) -> None:
    path = scope.job(1)
    adopt(host, "slurm-1", path)
    process = host.start("bash", "-c", IN_CGROUP, "bash", scope.task(1), str(USER), "sleep", "600")
    procs = Path(scope.task(1)) / "cgroup.procs"
    wait_until(lambda: str(process.pid) in procs.read_text(), "the process does not move")
    host.script("job-end", "--id", "slurm-1")
    assert procs.read_text().split() == [str(process.pid)]
    assert host.left()["rows"] == [] and class_in(host, scope.task(1)) is None
    # What a killed script has left is tidied in the same way.
    (host.run_dir / "new" / "job.slurm-1").write_text(f"class=3\nuid={USER}\nadopted={path}\n")
    host.script("job-begin", "--repair")
    assert "new/job.slurm-1" not in host.files()
    assert procs.read_text().split() == [str(process.pid)]
    process.kill()
    process.wait()


def test_a_cgroup_that_has_gone_harms_no_other_job(host: MarkedHost, scope: Scope) -> None:
    one, two = scope.job(1), scope.job(2)
    adopt(host, "slurm-1", f"{one}/*/*/*")
    adopt(host, "slurm-2", two)
    scope.remove(one)
    argv = ("--user", str(USER), "--hosts", "A,B")
    begun = host.script("job-begin", "--id", "by-user", *argv)
    assert f"the cgroup of job slurm-1 has gone, and nothing of it is marked: {one}" in begun.stderr
    repaired = host.script("job-begin", "--repair")
    assert repaired.stderr.count("\n") == 1 and "job slurm-1 has gone" in repaired.stderr
    assert class_in(host, scope.task(2)) == 2
    with host.capture() as capture:
        host.python(UDP, ADDRESSES["-4"][1], uid=USER)
        assert classes(capture.wait(5, lambda frame: frame.dport == 9)) == {3}
    assert host.script("job-end", "--id", "slurm-1").stderr == ""
    assert host.script("job-end", "--id", "by-user").stderr == ""
    assert class_in(host, scope.task(2)) == 2


def test_a_cgroup_that_goes_before_its_rule_is_loaded_harms_no_other_job(
    host: MarkedHost, scope: Scope, tmp_path: Path
) -> None:
    one, two = scope.job(1), scope.job(2)
    adopt(host, "slurm-1", one)
    fake_program(
        tmp_path,
        "nft",
        f"if [[ -d {one} ]]; then find {one} -depth -type d -exec rmdir {{}} \\;; fi\n"
        'exec REAL "$@"',
    )
    argv = host.command("job-begin", "--id", "slurm-2", "--user", str(USER), "--hosts", "A,B")
    path = f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = host.run("env", path, *argv[2:], "--cgroup-path", str(two))
    assert "the cgroup of job slurm-1 has gone" in done.stderr
    assert class_in(host, scope.task(2)) == 2


def test_a_cgroup_that_was_made_anew_is_marked_by_the_same_call(
    host: MarkedHost, scope: Scope
) -> None:
    path = scope.job(1)
    adopt(host, "slurm-1", path)
    scope.remove(path)
    scope.job(1)
    assert class_in(host, scope.task(1)) is None
    adopt(host, "slurm-1", path)
    assert class_in(host, scope.task(1)) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_that_was_killed_is_put_right(
    host: MarkedHost, scope: Scope, tmp_path: Path, when: str
) -> None:
    adopt(host, "slurm-1", "later")
    path = scope.job(1)
    kill = f'kill -9 "$(<{tmp_path}/pid)"'
    script = f'{kill}; REAL "$@"' if when == "before" else f'REAL "$@"; {kill}'
    fake_program(tmp_path, "nft", script)
    argv = host.command("job-begin", "--id", "slurm-1", "--user", str(USER), "--hosts", "A,B")
    start = f'echo $$ >{tmp_path}/pid; exec "$@"'
    search = f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = host.run(
        "env", search, "bash", "-c", start, "bash", *argv[2:], "--change", "--cgroup-path",
        str(path), check=False,
    )  # fmt: skip
    assert done.returncode in (-9, 137)
    host.script("job-begin", "--repair")
    assert class_in(host, scope.task(1)) == 1


def test_host_watch_marks_an_adopted_cgroup_again_and_never_empties_it(
    host: MarkedHost, scope: Scope, tmp_path: Path
) -> None:
    adopt(host, "slurm-1", scope.job(1))
    adopt(host, "slurm-2", f"{scope.job(2)}/*/*/*")
    config = tmp_path / "host.conf"
    config.write_text(f"bridge {BRIDGE}\ndb {ovs.database(host.folder)}\n")
    log = (tmp_path / "log").open("w+")
    watch = subprocess.Popen(
        host.inside([str(SCRIPTS / "host-watch"), "--config", str(config)]),
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        before = host.left()
        host.run("nft", "flush", "ruleset")
        wait_until(lambda: host.left() == before, lambda: f"not as before: {host.left()}")
        assert class_in(host, scope.task(2)) == 2
        scope.remove(scope.folder / "job_1")
        host.run("nft", "flush", "ruleset")
        wait_until(lambda: "mark_2" in str(host.left()["rules"]), "not marked again")
        assert class_in(host, scope.task(2)) == 2
        assert watch.poll() is None
    finally:
        watch.terminate()
        watch.wait()
        log.close()
