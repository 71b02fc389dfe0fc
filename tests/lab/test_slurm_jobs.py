"""Slurm on the hosts of a lab: the real job-begin and job-end mark and declare its jobs."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab, ovs, plan
from ri2n_lab.traffic.slurm import GOING_STATES, Node, SlurmCluster, check_slurm
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology

from .conftest import await_true, kill_controller
from .slurm_bridge import SCRIPTS, build_plugin, slurm_of, unified_tree

RATE = 100_000_000
WISH = "--ri2n=policy=shared,max-rate=90M"
BOTH = ["-N2", "--ntasks-per-node=1"]
NETWORKS = ("s0", "s1")


@dataclass
class Site:
    """A lab of two hosts on which Slurm runs. No controller runs unless a test starts it."""

    lab: Lab
    slurm: SlurmCluster

    @property
    def first(self) -> str:
        """The name of the host that gets a job for one host."""
        return self.lab.hosts[0]

    def configure(self, more: str = "") -> None:
        """Write the hosts' ri2n.conf anew, with further lines."""
        for host in self.lab.hosts:
            text = lines_of(self.lab, host).replace("{folder}", str(self.slurm.folder))
            (self.slurm.folder / "nodes" / host / "ri2n.conf").write_text(text + more)

    def declared(self, host: str) -> dict[str, dict[str, Any]]:
        """The jobs that a host declares to the controller, by their ids."""
        rows = self.lab.ofctl(host, "--no-stats", "dump-flows", "br-ri2n", "table=248")
        notes = [bytes.fromhex(text.replace(".", "")) for text in re.findall(r"note:(\S+)", rows)]
        jobs = [json.loads(note.rstrip(b"\0")) for note in notes]
        return {job["id"]: job for job in jobs}

    def marked(self, host: str) -> str:
        """What the host's firewall has."""
        return self.slurm.run_on(host, ["nft", "list", "ruleset"]).stdout

    def cgroups(self, host: str) -> list[Path]:
        """The cgroups of a host's jobs."""
        return sorted(unified_tree().glob(f"ri2n/*_{self.lab.name}_{host}/class_*/job_*"))

    def folders(self, host: str) -> list[str]:
        """The jobs of which prolog has a folder."""
        state = self.slurm.folder / "nodes" / host / "state"
        return sorted(path.name for path in state.iterdir() if path.name.isdigit())

    def log(self, host: str) -> str:
        """What prolog, epilog and reconcile have told on a host."""
        path = self.slurm.folder / "log" / f"ri2n.{host}"
        return path.read_text() if path.exists() else ""

    def left(self, host: str) -> list[object]:
        """What a host has of jobs; nothing when all have ended."""
        marks = re.findall(r"class_\d+", self.marked(host))
        found = [list(self.declared(host)), self.folders(host), self.cgroups(host), marks]
        return [each for each in found if each]

    def await_nothing(self) -> None:
        """Wait until no host has anything of a job."""
        await_true(
            lambda: not any(self.left(host) for host in self.lab.hosts),
            lambda: f"{[self.left(host) for host in self.lab.hosts]} {self.slurm.logs()}",
        )

    def await_output(self, job: int, text: str) -> None:
        """Wait until a batch job has printed that text."""
        await_true(
            lambda: text in self.slurm.output(job),
            lambda: f"no {text} in {self.slurm.output(job)!r}: {self.slurm.logs()}",
        )

    def await_end(self, job: int) -> str:
        """Wait until a job has ended on all hosts, and return its state."""
        await_true(
            lambda: self.slurm.state(job) not in GOING_STATES,
            lambda: f"job {job} is {self.slurm.state(job)}: {self.slurm.logs()}",
        )
        self.slurm.wait_idle()
        return self.slurm.state(job)

    def held_job(self, *options: str) -> int:
        """A job of alice that runs until `let_go`, and has printed `started`."""
        script = "echo started; until [[ -e go-$SLURM_JOB_ID ]]; do sleep 0.1; done; echo done"
        job = self.slurm.submit("alice", script, *options)
        self.await_output(job, "started")
        return job

    def let_go(self, job: int) -> None:
        """Let a job of `held_job` end."""
        (self.slurm.folder / "work" / f"go-{job}").touch()


def lines_of(lab: Lab, host: str) -> str:
    """The lines of a host's ri2n.conf."""
    return (
        f"db {ovs.database(lab.run_dir / host)}\nmark-by cgroup\n"
        f"state-dir {{folder}}/state\nlog {{folder}}/log/ri2n.{host}\n"
    )


@contextmanager
def removed_cgroups(lab: Lab) -> Iterator[None]:
    """Remove what a test that fails leaves of its jobs' cgroups, after the lab's processes."""
    try:
        yield
    finally:
        for path in sorted(unified_tree().glob(f"ri2n/*_{lab.name}_*/**/"), reverse=True):
            path.rmdir()
        with suppress(OSError):  # others may have jobs
            (unified_tree() / "ri2n").rmdir()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One lab with Slurm for all tests of this file."""
    try:
        check_slurm()
        unified_tree()
    except NotAvailable as error:
        pytest.skip(str(error))
    unique = uuid.uuid4().hex[:5]
    nics = [
        {"name": f"eth{i}", "switch": switch, "rate_bps": RATE} for i, switch in enumerate(NETWORKS)
    ]
    document: dict[str, Any] = {
        "name": "slurm",
        "switches": {switch: {} for switch in NETWORKS},
        "hosts": {f"n{unique}{letter}": {"nics": nics} for letter in "ab"},
    }
    lab = Lab.create(Topology.model_validate(document))
    with removed_cgroups(lab), lab:
        nodes = [
            Node(host, lab.namespace(host), plan.management_address(lab.topology, host))
            for host in lab.hosts
        ]
        head = Node(f"h{unique}", lab.namespace("mgmt"), lab.controller_address)
        files = {host: lines_of(lab, host) for host in lab.hosts}
        plugin = build_plugin(tmp_path_factory.mktemp("slurm"))
        with slurm_of(head, nodes, files, plugin) as slurm:
            yield Site(lab, slurm)


@pytest.fixture
def site(cluster: Site) -> Iterator[Site]:
    """The lab, with no job and open nodes; after a test nothing of a job is left."""
    cluster.configure()
    yield cluster
    cluster.slurm.run_as("root", ["scancel", "--full", "--user=alice"], check=False)
    cluster.slurm.wait_idle()
    cluster.await_nothing()


SHOW = "echo $(hostname) $(sed -n s/^0:://p /proc/self/cgroup)"


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
