# SPDX-License-Identifier: Apache-2.0
"""Slurm's prolog and epilog, and reconcile, with programs in place of job-begin and job-end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .commands import REPOSITORY
from .fake_jobs import FakeJobs

SCRIPTS = REPOSITORY / "ovs-host-scripts" / "slurm"
WAIT_S = 30.0
OPEN, CLOSED = "", "wait 5\n"
WISH = "policy=exclusive,min-rate=400M"
JOB = {"SLURM_JOB_ID": "14", "SLURM_JOB_UID": "20001", "SLURM_NODELIST": "n[1-2]"}


class Site:
    """A node's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fake = FakeJobs(folder / "scripts")
        self.log = folder / "log"
        self.state = folder / "state"
        # squeue fails at once. Without the file it would wait for one.
        (folder / "slurm.conf").write_text("no configuration\n")
        self.configure()

    def configure(self, more: str = "", mark_by: str = "cgroup") -> None:
        """Write ri2n.conf, with further lines."""
        (self.folder / "ri2n.conf").write_text(
            f"# a comment\n\nscripts {self.fake.folder}\nstate-dir {self.state}\n"
            f"log {self.log}\nmark-by {mark_by}\n{more}"
        )

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a script as slurmd does: with these variables and no others."""
        return subprocess.run(
            [str(SCRIPTS / script), *arguments],
            capture_output=True,
            text=True,
            env={"SLURM_CONF": str(self.folder / "slurm.conf"), "SLURMD_NODENAME": "n1", **env},
            timeout=WAIT_S,
            check=False,
        )

    def prolog(self, wish: str = WISH, **env: str) -> int:
        """Run the prolog for a job with that option, and wait for what it has started."""
        words = {"SPANK_RI2N": wish} if wish else {}
        code = self.run("prolog", **{**JOB, **words, **env}).returncode
        self.settle()
        return code

    def settle(self) -> None:
        """Wait until the reconcile that the first prolog of a job has started has ended."""
        if list(self.state.glob("[0-9]*")) and os.geteuid() == 0:
            deadline_s = time.monotonic() + WAIT_S
            while not (self.state / ".reconciled").exists():
                assert time.monotonic() < deadline_s, self.told()
                time.sleep(0.02)
            subprocess.run(["flock", "-w", str(WAIT_S), str(self.state), "true"], check=True)

    def begins(self) -> list[str]:
        """The calls of job-begin."""
        return [call for call in self.fake.calls if call.startswith("job-begin")]

    def told(self) -> str:
        """The messages in the log."""
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A node whose prolog and epilog were not called yet."""
    return Site(tmp_path)


def test_a_job_gets_its_class_and_loses_it(site: Site) -> None:
    assert site.prolog() == 0
    assert site.begins() == [
        "job-begin --id slurm-14 --user 20001 --hosts n1,n2 --policy exclusive --min-rate 400M "
        "--cgroup"
    ]
    link = site.state / "14" / "cgroup"
    assert link.readlink() == site.fake.folder / "groups" / "job_slurm-14"
    assert site.state.stat().st_mode & 0o777 == 0o700
    assert site.run("epilog", **JOB).returncode == 0
    assert site.fake.jobs == [] and not (site.state / "14").exists()
    assert site.told() == ""


def test_every_key_of_the_option_reaches_job_begin(site: Site) -> None:
    wish = (
        "policy=isolated,paths=net1+net2/12,table=10=net2+vlan:12,table=0=A:eth1,max-rate=1G,"
        "service=10.0.0.9/tcp/2049+[fd77::1]/udp/53,service=10.0.0.8/udp/1"
    )
    site.configure("bridge br-x\ndb unix:/x/db.sock\nrun-dir /x/jobs\nconfig /x/jobs.conf\n")
    assert site.prolog(wish) == 0
    assert site.begins()[0].split(" --hosts n1,n2 ")[1] == (
        "--policy isolated --paths net1,net2/12 --table 10=net2,vlan:12 --table 0=A:eth1 "
        "--max-rate 1G --service 10.0.0.9/tcp/2049 --service [fd77::1]/udp/53 "
        "--service 10.0.0.8/udp/1 --cgroup "
        "--bridge br-x --db unix:/x/db.sock --run-dir /x/jobs --config /x/jobs.conf"
    )


@pytest.mark.parametrize(
    ("line", "wish", "policy"),
    [
        ("", "", None),
        ("default-policy shared", "", "--policy shared"),
        ("default-policy policy=shared,max-rate=1G", "", "--policy shared --max-rate 1G"),
        ("default-policy shared", WISH, "--policy exclusive --min-rate 400M"),
    ],
)
def test_only_a_default_policy_gives_a_class_to_other_jobs(
    site: Site, line: str, wish: str, policy: str | None
) -> None:
    site.configure(line + "\n")
    assert site.prolog(wish) == 0
    if policy is None:
        assert site.fake.calls == [] and not site.state.exists()
        assert site.run("epilog", **JOB).returncode == 0
        assert site.fake.calls == []
    else:
        assert f" {policy} --cgroup" in site.begins()[0]


def test_prolog_and_epilog_may_run_twice(site: Site) -> None:
    assert site.prolog() == site.prolog() == 0
    assert len(set(site.begins())) == 1 and site.fake.jobs == ["slurm-14"]
    for _ in range(2):
        assert site.run("epilog", **JOB, SPANK_RI2N=WISH).returncode == 0
    assert site.fake.jobs == [] and site.told() == ""


def test_marked_by_uid_there_is_no_cgroup(site: Site) -> None:
    site.configure(mark_by="uid")
    assert site.prolog() == 0
    assert "--cgroup" not in site.begins()[0] and not (site.state / "14" / "cgroup").exists()
    assert site.run("epilog", **JOB).returncode == 0
    assert site.fake.jobs == []


def test_a_wrong_way_of_marking_is_named(site: Site) -> None:
    site.configure(mark_by="cgroups")
    assert site.prolog() == 0
    assert (
        "mark-by: must be auto, cgroup, slurm-cgroup or uid" in site.told() and site.begins() == []
    )


# ---- Trouble

REASON = "job-begin: net1 is taken by job 12 of bob"


@pytest.mark.parametrize("status", [1, 2, 3, 4, 77])
def test_an_open_node_starts_every_job(site: Site, status: int) -> None:
    site.fake.answer(status, f"more words\n{REASON}")
    assert site.prolog() == 0
    assert "--wait" not in site.begins()[0]
    assert site.told().count("\n") == 1
    assert f"prolog: job 14: {REASON}; the job runs on the common paths" in site.told()
    assert [path.name for path in (site.state / "14").iterdir()] == ["node"]


@pytest.mark.parametrize(("status", "code"), [(1, 1), (2, 0), (3, 1), (4, 0), (77, 1)])
def test_a_closed_node_fails_the_job_or_itself(site: Site, status: int, code: int) -> None:
    site.configure(CLOSED)
    site.fake.answer(status, REASON)
    assert site.prolog() == code
    assert site.begins()[0].endswith(" --cgroup --wait 5")
    refused = site.state / "14" / "refused"
    assert refused.exists() == (code == 0)
    ended = [call for call in site.fake.calls if call.startswith("job-end")]
    assert len(ended) == code, "nothing of the job stays on a node that is drained"
    if code == 0:
        assert refused.read_text() == REASON + "\n"
    assert REASON in site.told()
    # The job is tried again on this node: then the refusal is no longer there.
    site.fake.answer(0)
    assert site.prolog() == 0 and not refused.exists()
    assert site.run("epilog", **JOB).returncode == 0
    assert not (site.state / "14").exists()


@pytest.mark.parametrize(("lines", "code"), [(OPEN, 0), (CLOSED, 1)])
def test_a_job_begin_that_hangs_is_ended(
    site: Site, lines: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = site.folder / "copy" / "slurm"
    scripts.mkdir(parents=True)
    (scripts.parent / "common.sh").symlink_to(SCRIPTS.parent / "common.sh")
    for path in SCRIPTS.iterdir():
        text = path.read_text().replace("CALL_LIMIT_S=8", "CALL_LIMIT_S=1")
        (scripts / path.name).write_text(text.replace('"$WAIT_S")', "0)"))
        (scripts / path.name).chmod(path.stat().st_mode)
    site.configure(lines.replace("5", "1"))
    site.fake.hang()
    monkeypatch.setattr("tests.unit.test_slurm_scripts.SCRIPTS", scripts)
    assert site.prolog() == code
    assert "job-begin took longer than" in site.told()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("waits 5", "waits: unknown key"),
        ("wait five", "wait: must be 0 to 60 seconds"),
        ("wait", "wait: has no value"),
        ("bridge br0\nbridge br1", "bridge: is there twice"),
        ("bridge br/0", "bridge: must be the name of a device"),
        ("mark-by cgroup", "mark-by: is there twice"),
        ("db /x/db.sock", "db: must be unix:/PATH"),
        ("run-dir jobs", "run-dir: must be an absolute path without spaces"),
        ("id-prefix Slurm-", "id-prefix: must be lower-case letters, digits, - and _"),
        ("default-policy policy=shared,speed=9", "default-policy: unknown speed"),
    ],
)
@pytest.mark.parametrize(("closed", "code"), [(OPEN, 0), (CLOSED, 1)])
def test_a_wrong_ri2n_conf_is_named(
    site: Site, lines: str, why: str, closed: str, code: int
) -> None:
    if lines.startswith("wait"):
        closed, code = "", 0  # one wait is enough, and this one says nothing
    site.configure(f"{lines}\n{closed}")
    assert site.prolog() == code
    assert site.begins() == []
    line = site.told().splitlines()[0]
    assert f"{site.folder}/ri2n.conf:" in line and why in line
    done = site.run("reconcile")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert site.run("epilog", **JOB, SPANK_RI2N=WISH).returncode == 0


@pytest.mark.parametrize(
    "wish",
    [
        "policy=shared;touch x",
        "policy=$(touch x)",
        "policy=`touch x`",
        "policy=a b",
        "policy",
        "=shared",
        "policy=shared,,paths=net1",
        "speed=9",
        "--order=1",
        "policy=" + "x" * 1100,
        "policy=shared\nwait=1",
    ],
)
def test_a_hostile_option_reaches_nobody(site: Site, wish: str) -> None:
    """A user may have left the plugin out and set the variable."""
    before = sorted(Path.cwd().iterdir())
    assert site.prolog(wish) == 0
    assert site.begins() == [] and "--ri2n: " in site.told()
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "../14"},
        {"SLURM_JOB_UID": "alice"},
        {"SLURM_NODELIST": ""},
        {"SLURM_NODELIST": "n[1-"},
        {"SLURM_NODELIST": "n[1-99999]"},
        {"SLURM_NODELIST": "n1;touch x"},
    ],
)
def test_variables_that_slurm_does_not_give_are_no_reason_to_drain(
    site: Site, env: dict[str, str]
) -> None:
    assert site.prolog(**env) == 0
    assert site.begins() == [] and site.told().count("\n") == 1


def test_lists_of_hosts_are_those_of_slurm() -> None:
    lists = {
        "n1": "n1",
        "n1,n2": "n1 n2",
        "n[1-3]": "n1 n2 n3",
        "n[1-3,7],m[08-10]": "n1 n2 n3 n7 m08 m09 m10",
        "n[098-101]": "n098 n099 n100 n101",
        "r[1-2]n[1-2]": "r1n1 r1n2 r2n1 r2n2",
        "a-b[9-10].c": "a-b9.c a-b10.c",
        "n[5]": "n5",
        "n[1-4096]": " ".join(f"n{i}" for i in range(1, 4097)),
        **dict.fromkeys(
            ["n[1-4097]", "n[1", "n]", "n[]", "n[3-1]", ",n1", "n1,", "a,,b", "n[a-b]", "n 1", "*"],
            "wrong",
        ),
    }
    code = 'HERE=$1; source "$1/common.sh"; shift; for list; do HOSTS=(); '
    code += 'if expand_hosts "$list"; then echo "${HOSTS[*]}"; else echo wrong; fi; done'
    done = subprocess.run(
        ["bash", "-c", code, "bash", str(SCRIPTS), *lists],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert dict(zip(lists, done.stdout.splitlines(), strict=True)) == lists


# ---- reconcile


def old(site: Site, job: str) -> None:
    """Let a job have begun, or a file have been written, long ago."""
    then_s = time.time() - 3600
    os.utime(site.state / job, (then_s, then_s))


@pytest.fixture
def as_root() -> None:
    """Skip a test of reconcile, which ends other users' jobs, without root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.mark.usefixtures("as_root")
def test_a_job_that_slurm_does_not_know_is_ended(site: Site) -> None:
    assert site.prolog() == 0
    assert site.run("reconcile").returncode == 0
    assert site.fake.jobs == ["slurm-14"], "it is young"
    old(site, "14")
    done = site.run("reconcile")
    assert done.returncode == 0 and "ended job 14" in done.stdout
    assert site.fake.jobs == [] and not (site.state / "14").exists()
    assert "reconcile: ended job 14, which Slurm no longer knows" in site.told()
    assert site.run("reconcile").stdout == ""


@pytest.mark.usefixtures("as_root")
def test_after_a_start_of_the_host_no_job_is_young(site: Site) -> None:
    assert site.prolog() == 0
    assert site.run("reconcile", "--boot").returncode == 0
    assert site.fake.jobs == []


@pytest.mark.usefixtures("as_root")
def test_a_job_with_processes_in_its_cgroup_stays(site: Site) -> None:
    assert site.prolog() == 0
    old(site, "14")
    (site.state / "14" / "cgroup" / "cgroup.procs").write_text("4711\n")
    assert site.run("reconcile").returncode == 0
    assert site.fake.jobs == ["slurm-14"]


@pytest.mark.usefixtures("as_root")
def test_what_job_ls_alone_knows_is_ended_and_what_is_not_slurms_stays(site: Site) -> None:
    for name in ("slurm-15", "pbs-16", "slurm-x", "myslurm-17"):
        (site.fake.folder / "jobs" / name).touch()
    assert site.run("reconcile").returncode == 0
    assert site.fake.jobs == ["myslurm-17", "pbs-16", "slurm-x"]


@pytest.mark.usefixtures("as_root")
def test_prolog_ends_what_an_epilog_could_not_end(site: Site) -> None:
    assert site.prolog() == 0
    site.fake.answer(1, "Open vSwitch does not answer", both=True)
    assert site.run("epilog", **JOB).returncode == 0
    assert "not ended yet: Open vSwitch does not answer" in site.told()
    old(site, "14")
    done = site.run("reconcile")
    assert done.returncode == 1 and "not ended yet" in done.stderr
    assert (site.state / "14").is_dir()
    site.fake.answer(0)
    assert site.prolog(SLURM_JOB_ID="15") == 0
    assert site.fake.jobs == ["slurm-14", "slurm-15"], "the last look was a moment ago"
    old(site, ".reconciled")
    assert site.prolog(SLURM_JOB_ID="15") == 0
    deadline_s = time.monotonic() + WAIT_S
    while site.fake.jobs != ["slurm-15"]:  # reconcile takes the lock a moment after prolog's end
        assert time.monotonic() < deadline_s, site.told()
        time.sleep(0.05)


@pytest.mark.usefixtures("as_root")
def test_a_killed_prolog_leaves_what_reconcile_finds(site: Site) -> None:
    site.fake.hang()
    env = {**JOB, "SPANK_RI2N": WISH, "SLURM_CONF": str(site.folder / "slurm.conf")}
    with subprocess.Popen([str(SCRIPTS / "prolog")], env=env) as prolog:
        deadline_s = time.monotonic() + WAIT_S
        while site.fake.hanging is None:
            assert time.monotonic() < deadline_s and prolog.poll() is None, site.told()
            time.sleep(0.02)
        prolog.kill()
    os.kill(site.fake.hanging, signal.SIGKILL)
    assert site.fake.jobs == ["slurm-14"] and not (site.state / "14" / "cgroup").exists()
    (site.fake.folder / "job-ls").write_text("#!/bin/sh\nexit 1\n")  # the folder is enough
    old(site, "14")
    assert site.run("reconcile").returncode == 0
    assert site.fake.jobs == [] and not (site.state / "14").exists()


@pytest.mark.usefixtures("as_root")
def test_wrong_words_are_refused(site: Site) -> None:
    for words in (["--bot"], ["--node"], ["--config", "/nonexistent"]):
        done = site.run("reconcile", *words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, words


# ---- Slurm's own cgroup of a job, and time limits

SOON_S = 4102444800  # in the year 2100


def adopt(site: Site, cgroup: str = "/sys/fs/cgroup/x/job_14") -> int:
    """Call what the prolog has left for the plugin, as the plugin does."""
    program = site.state / "14" / "adopt"
    argv = [str(program), str(site.state / "14"), cgroup]
    return subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin"}, timeout=WAIT_S, check=False
    ).returncode


def test_a_job_adopts_slurms_cgroup_after_the_prolog(site: Site) -> None:
    site.configure(CLOSED, mark_by="slurm-cgroup")
    assert site.prolog(SLURM_JOB_END_TIME=str(SOON_S)) == 0
    begin = "job-begin --id slurm-14 --user 20001 --hosts n1,n2 --policy exclusive --min-rate 400M"
    end = f"--until {SOON_S + 60}"
    assert site.begins() == [f"{begin} {end} --cgroup-path later --wait 5"]
    assert not (site.state / "14" / "cgroup").exists()
    # All tasks of a step at the same time.
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: adopt(site), range(8))) == [0] * 8
    change = f"{end} --change --cgroup-path /sys/fs/cgroup/x/job_14/*/*/*"
    assert site.begins()[1:] == [f"{begin} --cgroup-path later {change}"]
    assert (site.state / "14" / "adopted").readlink() == Path("/sys/fs/cgroup/x/job_14")
    # The job is started again, and Slurm's cgroup is another one.
    assert site.prolog(SLURM_JOB_END_TIME=str(SOON_S)) == 0
    assert adopt(site) == 0 and len(site.begins()) == 4
    assert site.run("epilog", **JOB).returncode == 0
    assert not (site.state / "14").exists() and site.told() == ""


def test_a_cgroup_that_cannot_be_adopted_is_tried_once_for_all_tasks(site: Site) -> None:
    site.configure(mark_by="slurm-cgroup")
    assert site.prolog() == 0
    site.fake.answer(1, REASON)
    assert [adopt(site) for _ in range(3)] == [1, 1, 1]
    assert len(site.begins()) == 2
    assert site.told().count("\n") == 1
    assert f"adopt: job 14: {REASON}; the job runs on the common paths" in site.told()
    site.fake.answer(0)
    then_s = time.time() - 31  # a later step tries again
    os.utime(site.state / "14" / "adopt-failed", (then_s, then_s))
    assert adopt(site) == 0 and len(site.begins()) == 3
    assert site.run("epilog", **JOB).returncode == 0
    assert not (site.state / "14").exists()


def test_a_job_that_has_not_begun_has_nothing_to_adopt(site: Site) -> None:
    site.configure(mark_by="slurm-cgroup")
    site.fake.answer(1, REASON)
    assert site.prolog() == 0
    assert [path.name for path in (site.state / "14").iterdir()] == ["node"]


@pytest.mark.parametrize("end", ["", "0", "1790000000", "Unknown", "N/A", "-1", "9" * 12, "1;x"])
def test_an_end_that_is_none_or_over_is_not_declared(site: Site, end: str) -> None:
    """An empty end is asked for, and nobody answers here."""
    site.configure(CLOSED)
    assert site.prolog(SLURM_JOB_END_TIME=end) == 0
    assert site.begins()[0].endswith(" --min-rate 400M --cgroup --wait 5") and site.told() == ""


def test_a_prolog_that_runs_again_says_the_same_end(site: Site) -> None:
    assert site.prolog(SLURM_JOB_END_TIME=str(SOON_S)) == 0
    assert site.prolog(SLURM_JOB_END_TIME=str(SOON_S + 1)) == 0
    assert len(set(site.begins())) == 1
    begun = site.state / "14" / "begun"
    begun.write_text(begun.read_text().replace(str(SOON_S + 60), "1790000000"))
    assert site.prolog(SLURM_JOB_END_TIME=str(SOON_S + 1)) == 0
    assert f"--until {SOON_S + 61} " in site.begins()[-1]
    calls = [call.split()[0] for call in site.fake.calls]
    assert calls == ["job-begin", "job-begin", "job-end", "job-begin"]
