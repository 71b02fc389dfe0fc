# SPDX-License-Identifier: Apache-2.0
"""Slurm where the unified tree of cgroups is all there is, and Slurm has its own cgroups in it.

Slurm's daemons, its plugin cgroup/v2, the cgroups and the packets are real. Only what the kernel
says of its other trees is hidden from slurmd.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ri2n_lab.cluster import ovs

from .conftest import await_true
from .slurm_bridge import SCRIPTS
from .slurm_lab import WISH, Site, slurm_lab


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One lab with Slurm for all tests of this file."""
    with slurm_lab(tmp_path_factory.mktemp("slurm"), one_tree=True) as made:
        yield made


@pytest.fixture
def site(cluster: Site) -> Iterator[Site]:
    """The lab, with no job and open nodes; after a test nothing of a job is left."""
    with cluster.for_one_test() as made:
        yield made
    assert not [*cluster.slurm.scope(cluster.first).glob("job_*")]


LAST = 999
"""The size of the echo request that ends a capture."""


@contextmanager
def pings(site: Site) -> Iterator[dict[int, int]]:
    """The class of each echo request that leaves the first host, by its payload's size."""
    argv = ["tcpdump", "-i", "br-ri2n", "-e", "-n", "-l", "--immediate-mode", "icmp"]
    seen: dict[int, int] = {}
    with site.lab.popen(
        site.first, argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as capture:
        assert capture.stderr is not None and capture.stdout is not None
        assert any("listening on" in line for line in iter(capture.stderr.readline, ""))
        yield seen
        # Packets come in order: when this one was seen, all others were. A signal may end tcpdump
        # before it has read what is there.
        peer = site.lab.address(site.lab.hosts[1])
        site.lab.exec(site.first, ["ping", "-c1", "-w60", "-s", str(LAST), peer])
        for line in capture.stdout:
            if "echo request" in line:
                source, length = line.split()[1], re.search(r"length (\d+)$", line)
                assert length is not None, line
                size = int(length[1]) - 8
                if size == LAST:
                    break
                seen[size] = int(source[-2:], 16) if source.startswith("02:52:4a:00:00:") else 0
        capture.terminate()


def ping(site: Site, size: int) -> str:
    """A command that sends two echo requests of that size to the other host."""
    peer = site.lab.address(site.lab.hosts[1])
    return f"ping -c2 -W1 -i0.2 -s {size} {peer}; true"


def group_of(site: Site, job: int) -> str:
    """The path of the cgroup that Slurm has for a job on the first host."""
    return f"/system.slice/{site.slurm.scope(site.first).name}/job_{job}"


def test_two_jobs_of_one_user_on_one_host_stay_apart(site: Site) -> None:
    one, two = (site.held_job(f"--nodelist={site.first}", "-n1", WISH) for _ in range(2))
    classes = {job: site.declared(site.first)[f"slurm-{job}"]["class"] for job in (one, two)}
    assert len(set(classes.values())) == 2
    state = site.slurm.folder / "nodes" / site.first / "state"
    for job in (one, two):
        assert str((state / str(job) / "adopted").readlink()).endswith(group_of(site, job))
        assert f"job_{job}" in site.marked(site.first)
    with pings(site) as seen:
        for size, job in ((101, one), (202, two)):
            step = ["srun", "--overlap", f"--jobid={job}", "-n1", "sh", "-c"]
            site.slurm.run_as("alice", [*step, ping(site, size)])
        site.slurm.run_as(
            "alice", ["srun", f"--nodelist={site.first}", "-n1", "sh", "-c", ping(site, 303)]
        )
    assert seen == {101: classes[one], 202: classes[two], 303: 0}
    # A change of the job's end keeps its cgroup.
    site.slurm.run_as("root", ["scontrol", "update", f"jobid={two}", "timelimit=20"])
    reconcile = [str(SCRIPTS / "slurm" / "reconcile"), "--node", site.first]
    assert f"job {two}: its time limit" in site.slurm.run_on(site.first, reconcile).stdout
    site.slurm.run_as("alice", ["scancel", str(one)])
    await_true(lambda: list(site.declared(site.first)) == [f"slurm-{two}"], site.slurm.logs)
    with pings(site) as seen:
        step = ["srun", "--overlap", f"--jobid={two}", "-n1", "sh", "-c", ping(site, 404)]
        site.slurm.run_as("alice", step)
    assert seen == {404: classes[two]}
    site.let_go(two)
    assert site.await_end(two) == "COMPLETED"
    assert site.log(site.first).count("\n") == 1


def test_a_job_has_its_class_from_its_first_packet(site: Site) -> None:
    """The batch script, tasks that start at the same time, and what leaves its session."""
    script = f"{ping(site, 101)}\nsrun --overlap -n4 sh -c '{ping(site, 202)}'\n"
    script += f"setsid --wait sh -c '{ping(site, 303)}'; grep ^0: /proc/self/cgroup"
    with pings(site) as seen:
        job = site.slurm.submit("alice", script, f"--nodelist={site.first}", "-n4", WISH)
        assert site.await_end(job) == "COMPLETED"
    assert seen == {101: 1, 202: 1, 303: 1}
    assert f"{group_of(site, job)}/step_batch/user/" in site.slurm.output(job)
    with pings(site) as seen:
        argv = ["srun", f"--nodelist={site.first}", "-n4", WISH, "sh", "-c", ping(site, 404)]
        site.slurm.run_as("alice", argv)
    assert seen == {404: 1}


def test_a_job_that_lost_its_cgroup_harms_no_other_and_is_ended(site: Site) -> None:
    """Everything of Slurm is killed, and no Epilog ever runs."""
    job = site.held_job(f"--nodelist={site.first}", WISH)
    reconcile = [str(SCRIPTS / "slurm" / "reconcile"), "--boot", "--node", site.first]
    assert site.slurm.run_on(site.first, reconcile).stdout == ""
    site.slurm.power_off(site.first)
    # Slurm's cgroup is Slurm's. Nobody else removes it.
    group = site.slurm.scope(site.first) / f"job_{job}"
    for path in sorted(group.glob("**/"), reverse=True):
        path.rmdir()
    where = ["--db", ovs.database(site.lab.run_dir / site.first), "--id", "other"]
    begin = [str(SCRIPTS / "job-begin"), *where, "--user", "20002", "--hosts", site.first]
    done = site.slurm.run_on(site.first, begin)
    assert f"the cgroup of job slurm-{job} has gone" in done.stderr
    assert "20002 : goto class_2" in site.marked(site.first)
    site.slurm.run_on(site.first, [str(SCRIPTS / "job-end"), *where])
    assert f"ended job {job}," in site.slurm.run_on(site.first, reconcile).stdout
    assert site.left(site.first) == []
    site.slurm.start_slurmd(site.first)
    site.slurm.run_as("root", ["scancel", str(job)], check=False)
    site.slurm.wait_idle()
