# SPDX-License-Identifier: Apache-2.0
"""A lab of two hosts on which Slurm runs with the real job-begin and job-end."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab, ovs, plan
from ri2n_lab.traffic.slurm import GOING_STATES, Node, SlurmCluster, check_slurm, unified_tree
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology

from .conftest import await_true
from .slurm_bridge import build_plugin, slurm_of

__all__ = ["BOTH", "WISH", "Site", "slurm_lab"]

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
            text = _lines_of(self.lab, host).replace("{folder}", str(self.slurm.folder))
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

    @contextmanager
    def for_one_test(self) -> Iterator[Site]:
        """The site with open nodes and without a job; after the test nothing of a job is left."""
        self.configure()
        yield self
        self.slurm.run_as("root", ["scancel", "--full", "--user=alice"], check=False)
        self.slurm.wait_idle()
        self.await_nothing()

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


def _lines_of(lab: Lab, host: str) -> str:
    """The lines of a host's ri2n.conf."""
    return (
        f"db {ovs.database(lab.run_dir / host)}\n"
        f"state-dir {{folder}}/state\nlog {{folder}}/log/ri2n.{host}\n"
    )


@contextmanager
def _removed_cgroups(lab: Lab) -> Iterator[None]:
    """Remove what a test that fails leaves of its jobs' cgroups, after the lab's processes."""
    try:
        yield
    finally:
        for path in sorted(unified_tree().glob(f"ri2n/*_{lab.name}_*/**/"), reverse=True):
            path.rmdir()
        with suppress(OSError):  # others may have jobs
            (unified_tree() / "ri2n").rmdir()


@contextmanager
def slurm_lab(folder: Path, one_tree: bool = False) -> Iterator[Site]:
    """A lab with Slurm. With `one_tree`, its hosts have the unified tree of cgroups alone."""
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
    with _removed_cgroups(lab), lab:
        nodes = [
            Node(host, lab.namespace(host), plan.management_address(lab.topology, host))
            for host in lab.hosts
        ]
        head = Node(f"h{unique}", lab.namespace("mgmt"), lab.controller_address)
        files = {host: _lines_of(lab, host) for host in lab.hosts}
        plugin = build_plugin(folder)
        with slurm_of(head, nodes, files, plugin, one_tree=one_tree) as slurm:
            yield Site(lab, slurm)
