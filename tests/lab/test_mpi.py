# SPDX-License-Identifier: Apache-2.0
"""MPI programs in a lab run to their end with the right data, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.bench.patterns import phases
from ri2n_lab.bench.vbft import PROGRAM
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.namespaces import processes_in
from ri2n_lab.traffic.mpi import MpiRun, check_mpi
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology

from .conftest import controlled

RATE = 100_000_000
PATIENCE_S = 120.0  # a limit against hanging
UPPERS, LEAVES = ("up1", "up2"), ("leaf1", "leaf2")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two leaves with two hosts each, two upper switches, and a controller."""
    try:
        check_mpi()
    except NotAvailable as error:
        pytest.skip(str(error))
    switches: dict[str, Any] = {
        leaf: {
            "links": [{"to": up, "port": 10 + i, "rate_bps": RATE} for i, up in enumerate(UPPERS)]
        }
        for leaf in LEAVES
    }
    for up in UPPERS:
        switches[up] = {
            "links": [
                {"to": leaf, "port": 1 + i, "rate_bps": RATE} for i, leaf in enumerate(LEAVES)
            ]
        }
    hosts = {
        f"n{number}": {"nics": [{"name": "nic0", "switch": leaf, "rate_bps": RATE}]}
        for number, leaf in enumerate(sorted(LEAVES * 2), start=1)
    }
    document = {
        "name": "vbft-2-2",
        "switches": switches,
        "hosts": hosts,
        "vlans": {"table": "cyclic"},
    }
    with controlled(Topology.model_validate(document)) as made:
        yield made


def mpi_folders(lab: Lab) -> list[Path]:
    """The folders that Open MPI leaves of sessions."""
    return [*Path("/tmp").glob("ompi.*"), *lab.run_dir.glob("mpi-*")]


def pids(lab: Lab) -> set[int]:
    return set(processes_in([lab.namespace(host) for host in ("mgmt", *lab.hosts)]))


@pytest.mark.parametrize("pattern", ["alltoall", "shift"])
def test_a_program_runs_to_its_end(lab: Lab, pattern: str) -> None:
    before, folders = pids(lab), mpi_folders(lab)
    schedule = [
        [[lab.hosts.index(name) for name in pair] for pair in pairs]
        for pairs in phases(pattern, lab.hosts)
    ]
    document = {"collective": pattern == "alltoall", "phases": schedule, "warmup_s": 0.3}
    # A longer window helps where a busy machine brings a pair nothing in a short one.
    for window_s in (0.7, 3.0, 12.0):
        words = [json.dumps({**document, "window_s": window_s})]
        found = json.loads(MpiRun(lab, lab.hosts, PROGRAM, words).output(PATIENCE_S))
        assert len(found) == len(schedule)
        for phase, pairs in zip(found, schedule, strict=True):
            assert phase["wrong"] == 0
            assert sorted(
                [sender, receiver] for sender, receiver, _ in phase["received"]
            ) == sorted(pairs)
        silent = [phase for phase in found if not all(count > 0 for *_, count in phase["received"])]
        if not silent:
            break
    assert not silent
    assert pids(lab) <= before and mpi_folders(lab) == folders


def test_a_program_that_fails_says_so(lab: Lab, tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text(
        "from mpi4py import MPI\nraise SystemExit('not today' if MPI.COMM_WORLD.rank == 2 else 0)\n"
    )
    before = pids(lab)
    with pytest.raises(NotAvailable, match="the MPI program failed with status"):
        MpiRun(lab, lab.hosts, program).output(PATIENCE_S)
    assert pids(lab) <= before


def test_a_program_that_is_stopped_leaves_nothing(
    lab: Lab, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """Nothing stays even when mpirun is killed, whose daemons are no children of it."""
    program = tmp_path / "waits.py"
    program.write_text(
        "from mpi4py import MPI\nimport signal\nopen('/proc/self/comm', "
        "'w').write('waits')\nsignal.pause()\n"
    )
    before, folders = pids(lab), mpi_folders(lab)
    for kill in (False, True):
        run = MpiRun(lab, lab.hosts, program)

        def ranks() -> list[int]:
            return [pid for pid in pids(lab) - before if _name(pid) == "waits"]

        wait_until(lambda: len(ranks()) == 4, "not all four ranks wait", PATIENCE_S)
        if kill:
            (mpirun,) = [pid for pid in pids(lab) - before if _name(pid) == "mpirun"]
            os.kill(mpirun, signal.SIGKILL)
        run.stop()
        assert pids(lab) <= before and mpi_folders(lab) == folders
        run.stop()  # to call it twice is no error


def test_processes_that_are_about_to_end_are_waited_for(lab: Lab) -> None:
    """A process with many sockets takes a while to end.

    It has no environment any more that would say to which run it belongs.
    """
    run = MpiRun(lab, lab.hosts, PROGRAM, [json.dumps({"collective": False, "phases": []})])
    run.stop()
    hold = (
        "import resource, socket, sys; n = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))\n"
        "held = [socket.socketpair() for _ in range(min(n, 20000) // 2 - 20)]\n"
        "print('ready', flush=True); sys.stdin.read()"
    )

    def has_no_environment(pid: int) -> bool:
        try:
            return not Path(f"/proc/{pid}/environ").read_bytes()  # as other kernels say it
        except ProcessLookupError:
            return True

    for _ in range(3):
        child = lab.popen(
            lab.hosts[0],
            [sys.executable, "-c", hold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.kill()
        while not has_no_environment(child.pid):
            pass
        run.stop()
        assert child.pid not in pids(lab)
        child.communicate()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
