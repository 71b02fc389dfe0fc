# SPDX-License-Identifier: Apache-2.0
"""Labs for tests: made on demand, each under a name of its own, and always removed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.fast_paths import find_fast_program
from ri2n_lab.cluster.helpers import find_program
from ri2n_lab.cluster.ovs import check_ovs
from ri2n_lab.guests.kernels import GUEST
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology, load_topology

TOPOLOGIES = Path(__file__).resolve().parents[2] / "topologies"
EXACT = os.environ.get(GUEST) == "virtual"
"""Whether time is virtual.

Only then losses, gaps and times are the same on every machine, and only then tests assert them.
"""
PATIENCE_S = 180.0
"""The seconds that an event may take in real time.

It is a limit against hanging, which measures nothing.
"""

WAYS = ["bridge", pytest.param("fast", marks=pytest.mark.long)]
"""Parameters of a fixture that makes a lab: what holds for bridges holds with the fast path, too.

Its `fast` is `on_way(request)`.
"""

LabOf = Callable[[str | Topology], Lab]
WaitUntil = Callable[..., None]
"""The type of the fixture `wait_until`."""


def _topology(named: str | Topology) -> Topology:
    """A topology, or the one that comes with the product under that name, as `fig4/d`."""
    return load_topology(TOPOLOGIES / f"{named}.yaml") if isinstance(named, str) else named


@contextmanager
def controlled(
    topology: str | Topology, *, helpers: bool = False, fast: bool = False
) -> Iterator[Lab]:
    """A lab of that topology (`fig4/d`) with a controller that has settled; removed at the end."""
    with Lab.create(_topology(topology), helpers=helpers, fast=fast) as lab:
        lab.start_controller()
        lab.wait_ready()
        yield lab


def kill_controller(lab: Lab) -> None:
    """Kill the controller, whichever process started it."""
    pid = call(lab.controller_socket, "status")["pid"]
    os.kill(pid, signal.SIGKILL)
    await_true(lambda: not _alive(pid), "the controller does not die")


def replace_controller(lab: Lab, config: Path | None = None) -> None:
    """Kill the controller, and start another one with that configuration."""
    kill_controller(lab)
    lab.start_controller(config=config)
    lab.wait_ready()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="session", autouse=True)
def _lab_tier() -> None:
    """Skip the whole tier, with a message, without root or Open vSwitch, which its tests need."""
    if os.geteuid() != 0:
        pytest.skip("the lab tier needs root: sudo ./dev test")
    try:
        check_ovs()
    except NotAvailable as error:
        pytest.skip(f"the lab tier: {error}")


@pytest.fixture(scope="session")
def reorder_program() -> Path:
    """Skip a test, with a message, where its program, the helper ri2n-reorder, was not built."""
    try:
        return find_program()
    except NotAvailable as error:
        pytest.skip(f"needs the helper: {error}")


@pytest.fixture(scope="session")
def fast_program() -> Path:
    """Skip a test, with a message, where ri2n-fast was not built or the kernel refuses it."""
    try:
        program = find_fast_program()
    except NotAvailable as error:
        pytest.skip(f"needs the fast path: {error}")
    said = subprocess.run([program, "probe"], capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip(f"needs the fast path: {said.stdout.strip()}")
    return program


def on_way(request: pytest.FixtureRequest) -> bool:
    """Whether a fixture with WAYS is to have the fast path. Skips where there is none."""
    if request.param == "fast":
        request.getfixturevalue("fast_program")
    return bool(request.param == "fast")


@pytest.fixture(scope="session")
def stream_pps() -> float:
    """The packets per second that a test's stream can send and receive without being late."""
    return 1000.0


@pytest.fixture
def lab_of() -> Iterator[LabOf]:
    """`lab_of("fig4/d")` makes and returns a running lab of that topology.

    All labs are removed after the test.
    """
    labs: list[Lab] = []

    def make(topology: str | Topology) -> Lab:
        lab = Lab.create(_topology(topology))
        labs.append(lab)  # before it is up, so that a half-made lab is removed, too
        lab.up()
        return lab

    yield make
    for lab in labs:
        lab.down()


@pytest.fixture(scope="module")
def shared_lab_d() -> Iterator[Lab]:
    """One lab of fig4/d for all tests of a module that leave it as they found it."""
    with Lab.create(load_topology(TOPOLOGIES / "fig4" / "d.yaml")) as lab:
        yield lab


@pytest.fixture
def lab_d(shared_lab_d: Lab) -> Iterator[Lab]:
    """The module's lab of fig4/d; its faults are ended after each test."""
    yield shared_lab_d
    shared_lab_d.restore_all()


def await_true(
    condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 10.0
) -> None:
    """Poll until the condition is true; fail with `what` (text or function) when it never is.

    The limit holds in virtual time.
    """
    limit_s = timeout_s if EXACT else max(timeout_s, PATIENCE_S)
    started_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - started_s
        if waited_s > limit_s:
            pytest.fail(f"not within {limit_s:g} s: {what if isinstance(what, str) else what()}")
        # In virtual time a poll takes much real time, and waiting takes none.
        time.sleep(min(0.02 + waited_s / 4, 1.0) if EXACT else min(0.02 + waited_s / 20, 0.2))


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """The function `await_true`: `wait_until(condition, what, timeout_s=10)`."""
    return await_true
