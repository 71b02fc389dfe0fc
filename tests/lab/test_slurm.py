# SPDX-License-Identifier: Apache-2.0
"""Slurm's prolog, epilog and plugin, in a real Slurm cluster.

Programs in place of job-begin and job-end answer as each test wants. test_slurm_jobs.py has the
real ones.
"""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ri2n_lab.traffic.mpi import PYTHON, check_mpi
from ri2n_lab.traffic.slurm import GOING_STATES, SlurmCluster, check_slurm, unified_tree
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.slurm_topology import slurm_tree, write_conf

from ..unit.fake_jobs import FakeJobs
from .conftest import await_true
from .slurm_bridge import SCRIPTS, bridged, build_plugin, slurm_of

WISH = "--ri2n=policy=exclusive,min-rate=400M"
OPTIONS = ["--ntasks-per-node=1", "-N2"]


@dataclass
class Site:
    """A Slurm cluster of two nodes, and the programs in place of job-begin on each."""

    slurm: SlurmCluster
    fakes: dict[str, FakeJobs]
    lines: dict[str, str]

    @property
    def first(self) -> str:
        """The name of the first node."""
        return self.slurm.nodes[0].name

    def configure(self, more: str = "") -> None:
        """Write the nodes' ri2n.conf anew, with further lines."""
        for name, text in self.lines.items():
            # The file is bound to another name, so it must stay the same file.
            path = self.slurm.folder / "nodes" / name / "ri2n.conf"
            path.write_text(text + more)

    def log(self, name: str) -> str:
        """What prolog, epilog and reconcile have told on a node."""
        path = self.fakes[name].folder / "log"
        return path.read_text() if path.exists() else ""

    def folders(self, name: str) -> list[str]:
        """The jobs that have a folder on a node."""
        state = self.slurm.folder / "nodes" / name / "state"
        return sorted(path.name for path in state.iterdir() if path.name.isdigit())

    def await_output(self, job: int, pattern: str) -> str:
        """Wait for a line in the output of a batch job."""
        await_true(
            lambda: re.search(pattern, self.slurm.output(job)),
            lambda: f"no {pattern} in {self.slurm.output(job)!r}: {self.slurm.logs()}",
        )
        return self.slurm.output(job)

    def await_end(self, job: int) -> str:
        """Wait until a job has ended on all nodes, and return its state."""
        await_true(
            lambda: self.slurm.state(job) not in GOING_STATES,
            lambda: f"job {job} is {self.slurm.state(job)}: {self.slurm.logs()}",
        )
        self.slurm.wait_idle()
        return self.slurm.state(job)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster for all tests of this file."""
    try:
        check_slurm()
        tree = unified_tree() / f"ri2n-test-{uuid.uuid4().hex[:8]}"
    except NotAvailable as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("slurm")
    fakes: dict[str, FakeJobs] = {}
    try:
        tree.mkdir()
        with bridged(2) as (head, nodes):
            for node in nodes:
                (tree / node.name).mkdir()
                fakes[node.name] = FakeJobs(folder / node.name, tree / node.name)
            lines = {
                name: f"scripts {fake.folder}\nlog {fake.folder}/log\nmark-by cgroup\n"
                "state-dir {folder}/state\n"
                for name, fake in fakes.items()
            }
            with slurm_of(head, nodes, lines, build_plugin(folder)) as slurm:
                own = {
                    name: text.replace("{folder}", str(slurm.folder))
                    for name, text in lines.items()
                }
                yield Site(slurm, fakes, own)
    finally:
        for path in sorted(tree.rglob("*/"), reverse=True):
            path.rmdir()
        tree.rmdir()


@pytest.fixture
def site(cluster: Site) -> Iterator[Site]:
    """The cluster, with no job, open nodes, and empty logs."""
    cluster.configure()
    for fake in cluster.fakes.values():
        fake.answer(0)
        for name in ("calls", "log"):
            (fake.folder / name).unlink(missing_ok=True)
    yield cluster
    cluster.slurm.run_as("root", ["scancel", "--full", "--user=alice"], check=False)
    cluster.slurm.run_as("root", ["scancel", "--full", "--user=bob"], check=False)
    for name in cluster.fakes:
        cluster.slurm.run_as(
            "root", ["scontrol", "update", f"nodename={name}", "state=resume"], check=False
        )
    cluster.slurm.wait_idle()


SHOW_CGROUP = "echo $(hostname) $(sed -n s/^0:://p /proc/self/cgroup)"


def test_srun_puts_every_task_into_the_jobs_cgroup(site: Site) -> None:
    done = site.slurm.run_as("alice", ["srun", *OPTIONS, WISH, "bash", "-c", SHOW_CGROUP])
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert sorted(lines) == sorted(site.fakes)
    for name, group in lines.items():
        fake = site.fakes[name]
        begin = next(call for call in fake.calls if call.startswith("job-begin"))
        job = re.search(r"--id (slurm-\d+) --user 20001 --hosts (\S+) ", begin)
        assert job is not None and job[2] == ",".join(sorted(site.fakes))
        assert re.search("--policy exclusive --min-rate 400M --until [0-9]+ --cgroup$", begin)
        assert group.endswith(f"/{name}/job_{job[1]}")
    site.slurm.wait_idle()
    for name, fake in site.fakes.items():
        assert fake.jobs == [] and site.folders(name) == []
        assert site.log(name) == ""


def test_batch_script_steps_and_what_they_start_are_in_the_jobs_cgroup(site: Site) -> None:
    show = site.slurm.folder / "work" / "show"
    show.write_text(f"{SHOW_CGROUP}\n")
    # What leaves its session and its parent stays in the cgroup.
    script = f"#SBATCH {WISH}\n{SHOW_CGROUP}\nsrun bash -c 'setsid --wait bash {show}'\n"
    job = site.slurm.submit("alice", script, *OPTIONS)
    assert site.await_end(job) == "COMPLETED"
    lines = [line.split() for line in site.slurm.output(job).splitlines()]
    assert sorted(name for name, _ in lines) == sorted([site.first, *site.fakes])
    assert all(group.endswith(f"/{name}/job_slurm-{job}") for name, group in lines)


def test_a_job_without_the_option_has_no_class(site: Site) -> None:
    done = site.slurm.run_as("alice", ["srun", "-N1", "bash", "-c", SHOW_CGROUP])
    assert "ri2n-test" not in done.stdout
    site.slurm.wait_idle()
    assert all(fake.calls == [] for fake in site.fakes.values())


def test_a_default_policy_gives_one_to_every_job(site: Site) -> None:
    site.configure("default-policy shared\n")
    done = site.slurm.run_as("alice", ["srun", "-N1", "bash", "-c", SHOW_CGROUP])
    assert "ri2n-test" in done.stdout
    site.slurm.wait_idle()
    assert all(fake.jobs == [] for fake in site.fakes.values())


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ("", "is empty"),
        ("policy", "policy: must be KEY=VALUE"),
        ("min-rate=400M", "policy is missing"),
        ("policy=mine", "policy=mine: must be shared, paths, exclusive or isolated"),
        ("policy=paths", "policy=paths: paths is missing"),
        ("policy=paths,paths=", "paths=: must be KEY=VALUE"),
        ("policy=paths,paths=net1+", "a path is a network"),
        ("policy=paths,paths=net1++net2", "a path is a network"),
        ("policy=paths,paths=net 1", "a path is a network"),
        ("policy=paths,paths=a,paths=b", "paths is given twice"),
        ("policy=paths,table=64=net1", "with a DSCP from 0 to 63"),
        ("policy=paths,table=net1", "with a DSCP from 0 to 63"),
        ("policy=exclusive,policy=shared", "policy is given twice"),
        ("policy=exclusive,min-rate=0", "min-rate=0: must be a number"),
        ("policy=exclusive,min-rate=4T", "min-rate=4T: must be a number"),
        ("policy=exclusive,min-rate=-4M", "min-rate=-4M: must be a number"),
        ("policy=exclusive,min-rate=2000000G", "min-rate=2000000G: must be a number"),
        ("policy=exclusive,min-rate=2G,max-rate=1G", "min-rate is above max-rate"),
        ("policy=isolated,service=host/tcp/80", "service=host/tcp/80: must be ADDRESS"),
        ("policy=isolated,service=10.0.0.1/tcp/0", "service=10.0.0.1/tcp/0: must be ADDRESS"),
        ("policy=isolated,service=10.0.0.1/icmp/1", "service=10.0.0.1/icmp/1: must be ADDRESS"),
        ("policy=shared,speed=9", "unknown speed; choose from policy, paths, table"),
        ("policy=isolated,service=fd77::1/tcp/1", "service=fd77::1/tcp/1: must be ADDRESS"),
        ("policy=isolated,service=[fd77::1/tcp/1", "service=[fd77::1/tcp/1: must be ADDRESS"),
        ("policy=exclusive,service=10.0.0.1/tcp/1", "policy=exclusive has no services"),
        ("policy=shared,paths=net1", "policy=shared has no paths of its own"),
        ("policy=paths,paths=net1+net2+net1", "net1 is there twice"),
        ("policy=paths,paths=vlan:x", "a path is a network"),
        ("policy=paths,paths=net1/5000", "a path is a network"),
        ("policy=paths,table=9=net1,table=09=net2", "DSCP 9 is there twice"),
        ("policy=shared,", "(empty): must be KEY=VALUE"),
        ("policy=shared,x=\x1b[31m", "unknown x"),
        ("policy=" + "x" * 2000, "is longer than 1024 bytes"),
        ("policy=" + "x" * 500, "is longer than 256 bytes"),
    ],
)
def test_a_wrong_option_is_refused_at_submission(cluster: Site, wish: str, why: str) -> None:
    before = [fake.calls for fake in cluster.fakes.values()]
    for argv in (["srun", "-N1", f"--ri2n={wish}", "true"], ["sbatch", f"--ri2n={wish}"]):
        done = cluster.slurm.run_as("alice", argv, check=False, stdin="#!/bin/sh\ntrue\n")
        assert done.returncode != 0 and done.stdout == ""
        ours = [line for line in done.stderr.splitlines() if "error: --ri2n: " in line]
        assert len(ours) == 1 and why in ours[0], done.stderr
    assert [fake.calls for fake in cluster.fakes.values()] == before


@pytest.mark.parametrize(
    "wish",
    [
        "policy=shared,max-rate=1G",
        "policy=paths,paths=net1/12+vlan:12+A:eth1+eth1,table=0=net1,table=63=net2+net3",
        "policy=isolated,service=10.0.0.9/tcp/2049+[fd77::1]/udp/53",
        "policy=exclusive,min-rate=1,max-rate=1000000G",
    ],
)
def test_a_right_option_is_taken(site: Site, wish: str) -> None:
    assert (
        site.slurm.run_as("bob", ["srun", "-N1", f"--ri2n={wish}", "id", "-un"]).stdout == "bob\n"
    )
    site.slurm.wait_idle()
    assert site.fakes[site.first].calls[0].startswith("job-begin")


def test_a_step_cannot_have_other_paths_than_its_job(site: Site) -> None:
    other = "--ri2n=policy=shared"
    script = f"srun {other} echo other; srun {WISH} echo same; srun echo none"
    for options, ran in (([WISH], "same none"), ([], "none")):
        job = site.slurm.submit("alice", script, "-N1", *options)
        site.await_end(job)
        lines = site.slurm.output(job).splitlines()
        assert [line for line in lines if " " not in line] == ran.split()
        refused = [line for line in lines if "--ri2n: a step has the paths of its job" in line]
        assert len(refused) == 3 - len(ran.split())


def test_two_jobs_of_one_user_on_one_node_stay_apart(site: Site) -> None:
    script = f"{SHOW_CGROUP}; echo started; sleep 600"
    node = f"--nodelist={site.first}"
    one, two = (site.slurm.submit("alice", script, node, "-n1", WISH) for _ in range(2))
    for job in (one, two):
        assert f"/job_slurm-{job}\n" in site.await_output(job, "started")
    site.slurm.run_as("alice", ["scancel", str(one)])
    await_true(lambda: site.folders(site.first) == [str(two)], site.slurm.logs)
    assert site.fakes[site.first].jobs == [f"slurm-{two}"]
    assert site.slurm.state(two) == "RUNNING"


def test_scancel_ends_a_job_on_all_nodes(site: Site) -> None:
    job = site.slurm.submit("alice", "srun bash -c 'echo started; sleep 600'", *OPTIONS, WISH)
    site.await_output(job, "started\n.*started")
    assert all(fake.jobs == [f"slurm-{job}"] for fake in site.fakes.values())
    site.slurm.run_as("alice", ["scancel", str(job)])
    assert site.await_end(job) == "CANCELLED"
    assert all(fake.jobs == [] for fake in site.fakes.values())


MPI_PROGRAM = """
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
block = bytearray(world.rank.to_bytes(1, "big") * 300_000)
got = bytearray(len(block))
other = 1 - world.rank
world.Sendrecv([block, MPI.BYTE], other, recvbuf=[got, MPI.BYTE], source=other)
assert got == bytes([other]) * len(got)
group = next(line for line in open("/proc/self/cgroup") if line.startswith("0::"))
print(world.rank, world.size, socket.gethostname(), group[3:].strip(), flush=True)
"""


def test_an_mpi_program_runs_in_the_jobs_cgroups(site: Site) -> None:
    try:
        check_mpi()
    except NotAvailable as error:
        pytest.skip(str(error))
    work = site.slurm.folder / "work"
    (work / "program.py").write_text(MPI_PROGRAM)
    settings = {
        "btl": "tcp,self",
        "pml": "ob1",
        "btl_tcp_if_include": "10.76.0.0/24",
        "oob_tcp_if_include": "10.76.0.0/24",
        "mpi_yield_when_idle": "1",
        "orte_tmpdir_base": str(work),
    }
    script = "".join(f"export OMPI_MCA_{name}={value}\n" for name, value in settings.items())
    script += f"mpirun --bind-to none {PYTHON} {work}/program.py\n"
    job = site.slurm.submit("alice", script, *OPTIONS, WISH)
    assert site.await_end(job) == "COMPLETED", site.slurm.output(job)
    lines = [line.split() for line in site.slurm.output(job).splitlines() if " 2 n" in line]
    assert sorted(rank for rank, *_ in lines) == ["0", "1"], site.slurm.output(job)
    assert sorted(host for _, _, host, _ in lines) == sorted(site.fakes)
    assert all(group.endswith(f"/{host}/job_slurm-{job}") for _, _, host, group in lines)


# ---- The network


def test_slurm_takes_the_tree_that_ri2n_writes() -> None:
    try:
        check_slurm()
    except NotAvailable as error:
        pytest.skip(str(error))
    with bridged(3) as (head, nodes):
        one, two, three = (node.name for node in nodes)
        text = write_conf(slurm_tree({one: ["a", "b"], two: ["b", "a"], three: ["a"]}))
        cluster = SlurmCluster(
            head,
            nodes,
            {},
            settings="TopologyPlugin=topology/tree",
            etc_files={"topology.conf": text},
        )
        with cluster:
            shown = cluster.run_as("root", ["scontrol", "show", "topology"]).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    common = one[:-1]
    assert f"SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes={one},{two}" in lines, shown
    assert f"SwitchName=a Level=0 LinkSpeed=1 Nodes={three}" in lines, shown
    top = f"SwitchName=level1-1 Level=1 LinkSpeed=1 Nodes={common}[1-3] Switches=leaf1,a"
    assert top in lines, shown


# ---- Trouble

REASON = "net1 is taken by job 12 of bob"


@pytest.mark.parametrize("status", [1, 2, 3, 4])
def test_open_nodes_run_the_job_whatever_job_begin_says(site: Site, status: int) -> None:
    for fake in site.fakes.values():
        fake.answer(status, REASON)
    assert site.slurm.run_as("alice", ["srun", *OPTIONS, WISH, "id", "-un"]).stdout.split() == [
        "alice",
        "alice",
    ]
    site.slurm.wait_idle()  # no node is drained
    assert all(REASON in site.log(name) for name in site.fakes)


@pytest.mark.parametrize("status", [2, 4])
def test_on_closed_nodes_a_refused_job_fails_with_the_reason(site: Site, status: int) -> None:
    site.configure("wait 1\n")
    site.fakes[site.first].answer(status, REASON)
    done = site.slurm.run_as("alice", ["srun", *OPTIONS, WISH, "id", "-un"], check=False)
    assert done.returncode != 0 and REASON in done.stderr
    assert done.stdout.count("alice") < 2, "no task may start on the node that refuses"
    site.fakes[site.first].answer(0)
    site.slurm.wait_idle()  # no node is drained
    job = site.slurm.submit("alice", "echo runs", *OPTIONS, WISH)
    assert site.await_end(job) == "COMPLETED" and site.slurm.output(job) == "runs\n"


def test_a_closed_node_without_an_answer_is_drained_and_the_job_is_held(site: Site) -> None:
    site.configure("wait 1\n")
    site.fakes[site.first].answer(3, "no answer from the controller")
    job = site.slurm.submit("alice", "echo runs", *OPTIONS, WISH)
    await_true(lambda: any("drain" in state for state in site.slurm.node_states()), site.slurm.logs)
    await_true(lambda: site.slurm.state(job) == "PENDING", lambda: site.slurm.state(job))
    assert site.slurm.output(job) == ""
    # What docs/jobs-slurm.md says.
    site.fakes[site.first].answer(0)
    site.slurm.run_as("root", ["scontrol", "update", f"nodename={site.first}", "state=resume"])
    site.slurm.run_as("root", ["scontrol", "release", str(job)])
    # Else Slurm waits two minutes before it starts a job again.
    site.slurm.run_as("root", ["scontrol", "update", f"jobid={job}", "starttime=now"])
    assert site.await_end(job) == "COMPLETED" and site.slurm.output(job) == "runs\n"


def test_a_job_goes_on_and_ends_when_slurmd_was_killed(site: Site) -> None:
    work = site.slurm.folder / "work"
    script = f"echo started; until [[ -e {work}/go-$SLURM_JOB_ID ]]; do sleep 0.1; done; echo done"
    job = site.slurm.submit("alice", script, f"--nodelist={site.first}", WISH)
    site.await_output(job, "started")
    site.slurm.kill_daemon(site.first)
    (work / f"go-{job}").touch()
    site.await_output(job, "done")
    assert site.fakes[site.first].jobs == [f"slurm-{job}"]
    site.slurm.start_slurmd(site.first)
    assert site.await_end(job) == "COMPLETED"
    assert site.fakes[site.first].jobs == [] and site.folders(site.first) == []


def test_a_job_gets_its_class_while_slurmctld_is_away(site: Site) -> None:
    """Nothing in prolog, epilog and reconcile waits for slurmctld."""
    work = site.slurm.folder / "work"
    script = "echo started; until [[ -e go-$SLURM_JOB_ID ]]; do sleep 0.1; done; "
    job = site.slurm.submit("alice", script + SHOW_CGROUP, WISH)
    site.await_output(job, "started")
    site.slurm.kill_daemon(site.slurm.head.name, signal.SIGTERM)
    fake = site.fakes[site.first]
    env = [
        "env",
        f"SLURM_JOB_ID={job + 100}",
        "SLURM_JOB_UID=20001",
        f"SLURM_NODELIST={site.first}",
    ]
    env += ["SPANK_RI2N=policy=shared", f"SLURMD_NODENAME={site.first}"]
    site.slurm.run_on(site.first, [*env, str(SCRIPTS / "slurm" / "prolog")])
    assert f"slurm-{job + 100}" in fake.jobs
    done = site.slurm.run_on(
        site.first, [str(SCRIPTS / "slurm" / "reconcile"), "--boot", "--node", site.first]
    )
    assert f"ended job {job + 100}," in done.stdout and f"job {job}," not in done.stdout
    assert fake.jobs == [f"slurm-{job}"]
    site.slurm.start_slurmctld()
    (work / f"go-{job}").touch()
    assert site.await_end(job) == "COMPLETED"
    assert f"/job_slurm-{job}" in site.slurm.output(job)
    assert fake.jobs == []
