# SPDX-License-Identifier: Apache-2.0
"""Slurm on the hosts of a lab: the real job-begin and job-end mark and declare its jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster import ovs
from ri2n_lab.traffic.slurm import GOING_STATES
from ri2n_sdn.client import call

from .conftest import await_true, kill_controller
from .slurm_bridge import SCRIPTS
from .slurm_lab import BOTH, WISH, Site, slurm_lab

END_SLACK_S = 60
"""How long after its time limit a job is declared to end (common.sh)."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One lab with Slurm for all tests of this file."""
    with slurm_lab(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def site(cluster: Site) -> Iterator[Site]:
    """The lab, with no job and open nodes; after a test nothing of a job is left."""
    with cluster.for_one_test() as made:
        yield made


def test_a_job_is_declared_and_marked_on_each_of_its_hosts(site: Site) -> None:
    job = site.held_job(*BOTH, WISH)
    for host in site.lab.hosts:
        declaration = site.declared(host)[f"slurm-{job}"]
        assert declaration["user"] == "alice" and declaration["uid"] == 20001
        assert sorted(declaration["hosts"]) == sorted(site.lab.hosts)
        assert declaration["policy"] == "shared" and declaration["max_rate_bps"] == 90_000_000
        assert f"class_{declaration['class']}" in site.marked(host)
        assert [path.name for path in site.cgroups(host)] == [f"job_slurm-{job}"]
    site.let_go(job)
    assert site.await_end(job) == "COMPLETED"
    site.await_nothing()


def test_packets_of_a_jobs_tasks_carry_its_class_and_those_of_others_do_not(site: Site) -> None:
    site.lab.start_controller()
    try:
        site.lab.wait_ready()
        peer = site.lab.address(site.lab.hosts[1])
        job = site.held_job(f"--nodelist={site.first}", "-n1", WISH)
        number = site.declared(site.first)[f"slurm-{job}"]["class"]
        capture = [
            *("tcpdump", "-i", "br-ri2n", "-e", "-n", "-l", "--immediate-mode"),
            f"ether src 02:52:4a:00:00:{number:02x}",
        ]
        with site.lab.popen(
            site.first, capture, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as seen:
            assert seen.stderr is not None and seen.stdout is not None
            assert any("listening on" in line for line in iter(seen.stderr.readline, ""))
            ping = f"ping -c2 -W1 -i0.2 -s {{}} {peer}"
            # Without the option, then within the job: the first that is captured is the job's.
            site.slurm.run_as(
                "alice", ["srun", f"--nodelist={site.first}", "sh", "-c", ping.format(101)],
                check=False,
            )  # fmt: skip
            srun = ["srun", "--overlap", f"--jobid={job}", "-n1", "sh", "-c", ping.format(202)]
            site.slurm.run_as("alice", srun, check=False)
            line = seen.stdout.readline()
            assert "ICMP echo request" in line and f"length {202 + 8}" in line, line
            seen.kill()
        site.let_go(job)
        assert site.await_end(job) == "COMPLETED"
    finally:
        kill_controller(site.lab)


def test_two_jobs_of_one_user_on_one_host_have_two_classes(site: Site) -> None:
    one, two = (site.held_job(f"--nodelist={site.first}", "-n1", WISH) for _ in range(2))
    classes = {name: job["class"] for name, job in site.declared(site.first).items()}
    assert sorted(classes) == sorted([f"slurm-{one}", f"slurm-{two}"])
    assert len(set(classes.values())) == 2
    site.slurm.run_as("alice", ["scancel", str(one)])
    await_true(lambda: list(site.declared(site.first)) == [f"slurm-{two}"], site.slurm.logs)
    assert site.slurm.state(two) == "RUNNING"
    assert site.declared(site.first)[f"slurm-{two}"]["class"] == classes[f"slurm-{two}"]
    site.let_go(two)
    assert site.await_end(two) == "COMPLETED"


def test_a_job_begins_and_ends_while_the_controller_is_away(site: Site) -> None:
    """Neither begin nor end asks for the controller, and no node is drained."""
    site.lab.start_controller()
    site.lab.wait_ready()
    with_it = site.held_job(*BOTH, WISH)
    kill_controller(site.lab)
    site.let_go(with_it)
    assert site.await_end(with_it) == "COMPLETED"
    site.await_nothing()
    without_it = site.held_job(*BOTH, WISH)
    assert all(f"slurm-{without_it}" in site.declared(host) for host in site.lab.hosts)
    site.lab.start_controller()
    try:
        site.lab.wait_ready()
        assert all(
            host["connected"] for host in call(site.lab.controller_socket, "status")["hosts"]
        )
        # The controller that is back finds the declarations, since no audit removes them.
        assert all(f"slurm-{without_it}" in site.declared(host) for host in site.lab.hosts)
        site.let_go(without_it)
        assert site.await_end(without_it) == "COMPLETED"
        site.await_nothing()
    finally:
        kill_controller(site.lab)


def test_a_closed_host_without_a_controller_keeps_nothing_of_the_job(site: Site) -> None:
    site.configure("wait 1\n")
    job = site.slurm.submit("alice", "echo runs", f"--nodelist={site.first}", WISH)
    await_true(lambda: "Slurm drains it" in site.log(site.first), site.slurm.logs)
    await_true(lambda: site.slurm.state(job) == "PENDING", lambda: site.slurm.state(job))
    site.await_nothing()
    assert site.slurm.output(job) == ""
    site.slurm.run_as("root", ["scancel", str(job)])
    for host in site.lab.hosts:
        site.slurm.run_as(
            "root", ["scontrol", "update", f"nodename={host}", "state=resume"], check=False
        )


def test_scancel_takes_everything_back(site: Site) -> None:
    job = site.slurm.submit("alice", "srun bash -c 'echo started; sleep 600'", *BOTH, WISH)
    await_true(lambda: site.slurm.output(job).count("started") == 2, site.slurm.logs)
    site.slurm.run_as("alice", ["scancel", str(job)])
    assert site.await_end(job) == "CANCELLED"
    site.await_nothing()


def test_a_job_that_ends_while_slurmd_is_dead_is_taken_back(site: Site) -> None:
    job = site.held_job(f"--nodelist={site.first}", WISH)
    site.slurm.kill_daemon(site.first)
    site.let_go(job)
    site.await_output(job, "done")
    assert f"slurm-{job}" in site.declared(site.first)
    site.slurm.start_slurmd(site.first)
    assert site.await_end(job) == "COMPLETED"
    site.await_nothing()


def test_reconcile_ends_a_job_that_lost_everything_of_slurm(site: Site) -> None:
    """slurmd and all slurmstepds are killed, and no Epilog ever runs."""
    job = site.held_job(f"--nodelist={site.first}", WISH)
    reconcile = [str(SCRIPTS / "slurm" / "reconcile"), "--boot", "--node", site.first]
    assert site.slurm.run_on(site.first, reconcile).stdout == ""
    assert f"slurm-{job}" in site.declared(site.first)
    # Its folder goes, too: job-ls still knows the job.
    site.slurm.power_off(site.first)
    assert f"ended job {job}," in site.slurm.run_on(site.first, reconcile).stdout
    assert site.left(site.first) == []
    site.slurm.start_slurmd(site.first)
    site.slurm.run_as("root", ["scancel", str(job)], check=False)
    site.slurm.wait_idle()


def test_a_host_that_starts_anew_has_nothing_of_its_jobs(site: Site) -> None:
    """A power cut in mid-job: processes, cgroups, firewall, bridge and /run are gone."""
    job = site.held_job(*BOTH, "--no-requeue", WISH)
    run_dir = Path(ovs.database(site.lab.run_dir / site.first).removeprefix("unix:")).parent
    site.slurm.power_off(site.first)
    site.slurm.run_on(site.first, ["nft", "flush", "ruleset"])
    for path in site.cgroups(site.first):
        path.rmdir()
    site.slurm.run_on(site.first, ["rm", "-r", str(run_dir / "ri2n-jobs")])
    site.lab.kill_switch(site.first)
    assert site.left(site.first) == []
    # What ri2n-slurm-reconcile.service does.
    reconcile = [str(SCRIPTS / "slurm" / "reconcile"), "--boot", "--node", site.first]
    assert site.slurm.run_on(site.first, reconcile).stdout == ""
    # As slurmctld does when a node has not answered for SlurmdTimeout seconds.
    down = ["scontrol", "update", f"nodename={site.first}", "state=down", "reason=power"]
    site.slurm.run_as("root", down)
    site.slurm.start_slurmd(site.first)  # by which the node is up again
    await_true(
        lambda: site.slurm.state(job) not in GOING_STATES,
        lambda: f"{site.slurm.state(job)} {site.slurm.logs()}",
    )
    assert site.slurm.state(job) != "COMPLETED"
    site.slurm.wait_idle()
    site.await_nothing()  # on the other host, too
    after = site.held_job(*BOTH, WISH)
    assert all(f"slurm-{after}" in site.declared(host) for host in site.lab.hosts)
    site.let_go(after)
    assert site.await_end(after) == "COMPLETED"


def test_a_job_runs_where_open_vswitch_is_dead_and_is_taken_back_later(site: Site) -> None:
    """An open node starts the job on the common paths; an Epilog that fails drains no node."""
    job = site.held_job(f"--nodelist={site.first}", WISH)
    pid = int((site.lab.run_dir / site.first / "ovs-vswitchd.pid").read_text())
    site.slurm.run_on(site.first, ["kill", "-STOP", str(pid)])
    try:
        during = site.slurm.submit("alice", "echo runs", f"--nodelist={site.first}", WISH)
        site.await_output(during, "runs")
        site.let_go(job)
        for each in (job, during):
            assert site.await_end(each) == "COMPLETED"
        assert "the job runs on the common paths" in site.log(site.first)
    finally:
        site.slurm.run_on(site.first, ["kill", "-CONT", str(pid)])
    reconcile = [str(SCRIPTS / "slurm" / "reconcile"), "--boot", "--node", site.first]
    await_true(
        lambda: site.slurm.run_on(site.first, reconcile, check=False).returncode == 0,
        lambda: site.log(site.first),
    )
    site.await_nothing()


# ---- Time limits


def end_of(site: Site, job: int) -> int:
    """The end of a job's time limit, as slurmctld has it, in seconds since 1970."""
    argv = ["squeue", "--noheader", f"--jobs={job}", "--format=%e"]
    return int(site.slurm.run_as("root", argv, env={"SLURM_TIME_FORMAT": "%s"}).stdout)


def test_the_end_of_the_time_limit_is_declared_and_follows_it(site: Site) -> None:
    job = site.held_job(f"--nodelist={site.first}", "-n1", "--time=30", WISH)
    before = site.declared(site.first)[f"slurm-{job}"]
    # Slurm counts the limit anew when the prologs have ended.
    assert abs(before["end_s"] - END_SLACK_S - end_of(site, job)) <= 30
    reconcile = [str(SCRIPTS / "slurm" / "reconcile"), "--node", site.first]
    assert site.slurm.run_on(site.first, reconcile).stdout == ""
    update = ["scontrol", "update", f"jobid={job}"]
    site.slurm.run_as("root", [*update, "timelimit=55"])
    changed = f"job {job}: its time limit has changed\n"
    assert site.slurm.run_on(site.first, reconcile).stdout == changed
    after = site.declared(site.first)[f"slurm-{job}"]
    assert after == {**before, "end_s": end_of(site, job) + END_SLACK_S}
    assert after["end_s"] > before["end_s"] + 20 * 60
    assert site.slurm.run_on(site.first, reconcile).stdout == ""
    partition = ["scontrol", "update", "partitionname=all"]
    site.slurm.run_as("root", [*partition, "maxtime=unlimited"])
    try:
        site.slurm.run_as("root", [*update, "timelimit=unlimited"])
        assert site.slurm.run_on(site.first, reconcile).stdout == changed
        del after["end_s"]
        assert site.declared(site.first)[f"slurm-{job}"] == after
        unlimited = site.held_job(f"--nodelist={site.first}", "-n1", "--time=unlimited", WISH)
        assert "end_s" not in site.declared(site.first)[f"slurm-{unlimited}"]
        assert site.slurm.run_on(site.first, reconcile).stdout == ""
        site.slurm.run_as("root", ["scontrol", "update", f"jobid={unlimited}", "timelimit=40"])
        assert f"job {unlimited}: its time" in site.slurm.run_on(site.first, reconcile).stdout
        limited = site.declared(site.first)[f"slurm-{unlimited}"]
        assert limited["end_s"] == end_of(site, unlimited) + END_SLACK_S
    finally:
        site.slurm.run_as("root", [*partition, "maxtime=60"])
    for each in (job, unlimited):
        site.let_go(each)
    assert {site.await_end(each) for each in (job, unlimited)} == {"COMPLETED"}


def test_jobs_of_an_array_have_their_own_ends(site: Site) -> None:
    """The number of an array is also that of one of its jobs."""
    script = "echo started; until [[ -e go ]]; do sleep 0.1; done"
    array = site.slurm.submit(
        "alice", script, f"--nodelist={site.first}", "-n1", "--array=1-2", "--time=20", WISH
    )
    await_true(lambda: len(site.declared(site.first)) == 2, site.slurm.logs)
    try:
        ends = [job["end_s"] for job in site.declared(site.first).values()]
        argv = ["squeue", "--noheader", f"--jobs={array}", "--format=%e"]
        shown = site.slurm.run_as("root", argv, env={"SLURM_TIME_FORMAT": "%s"}).stdout.split()
        assert len(shown) == 2
        assert all(abs(end - END_SLACK_S - int(shown[0])) <= 40 for end in ends)
    finally:
        (site.slurm.folder / "work" / "go").touch()
    site.slurm.wait_idle()
