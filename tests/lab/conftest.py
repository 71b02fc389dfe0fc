"""Labs for tests: made on demand, each under a name of its own, and removed whatever happens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.ovs import check_ovs

TOPOLOGIES = Path(__file__).resolve().parents[2] / "topologies"

LabOf = Callable[[str], Lab]


@pytest.fixture(scope="session", autouse=True)
def _lab_tier() -> None:
    """These tests need root and Open vSwitch; without them the whole tier is skipped, and says so."""
    if os.geteuid() != 0:
        pytest.skip("the lab tier needs root: sudo ./dev test")
    try:
        check_ovs()
    except NotAvailable as error:
        pytest.skip(f"the lab tier: {error}")


@pytest.fixture
def lab_of() -> Iterator[LabOf]:
    """`lab_of("fig4/d")` makes and returns a running lab of that topology; all are removed after the test."""
    labs: list[Lab] = []

    def make(topology: str) -> Lab:
        lab = Lab.create(load_topology(TOPOLOGIES / f"{topology}.yaml"))
        labs.append(lab)  # before it is up: a half-made lab is removed too
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
    """The module's lab of fig4/d; faults are restored afterwards."""
    yield shared_lab_d
    shared_lab_d.restore_all()


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    """`wait_until(condition, what, timeout_s=10)`: poll until true; fail with `what` (text or function) if never."""

    def wait(condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
            time.sleep(0.02)

    return wait
