# SPDX-License-Identifier: Apache-2.0
"""When the controller imports scipy, and that small clusters do without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ri2n_sdn.apps import solver
from ri2n_sdn.apps.solver import Solver
from ri2n_sdn.weights.split import MAX_DENSE_LINKS


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each import of scipy that begins."""
    begun: list[int] = []
    monkeypatch.setattr(solver, "_load", lambda: begun.append(1))
    return begun


def look(chosen: Solver, now_s: float, links: int, active: bool) -> None:
    chosen.look(now_s, links=links, active=active)
    if chosen._thread is not None:
        chosen._thread.join()


def test_a_large_cluster_imports_scipy_before_it_has_traffic(loads: list[int]) -> None:
    chosen = Solver()
    look(chosen, 0.0, MAX_DENSE_LINKS, active=False)
    assert not loads and not chosen.begun
    look(chosen, 1.0, MAX_DENSE_LINKS + 1, active=False)
    look(chosen, 2.0, MAX_DENSE_LINKS + 1, active=True)
    assert loads == [1] and chosen.begun


def test_a_small_cluster_imports_scipy_when_pairs_have_sent_for_a_while(loads: list[int]) -> None:
    chosen = Solver()
    for now_s, active in ((0.0, False), (100.0, True), (120.0, False), (129.9, True)):
        look(chosen, now_s, 8, active)
        assert not loads
    look(chosen, 130.0, 8, active=False)
    look(chosen, 200.0, 8, active=True)
    assert loads == [1]


def test_scipy_that_cannot_be_imported_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    solver._load()
    assert "scipy cannot be imported" in caplog.text


STEPS = """
import sys
from tests.unit.weights.test_loop import Crowd

crowd = Crowd(int(sys.argv[1]), "max_min")
for _ in range(4):
    decision, _ = crowd.step()
assert len(decision.pairs) == len(crowd.pairs)
print("scipy" in sys.modules)
"""


@pytest.mark.parametrize(("hosts", "needs_scipy"), [(6, False), (14, True)])
def test_the_weights_of_a_small_cluster_need_no_scipy(hosts: int, needs_scipy: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(hosts)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"{needs_scipy}\n", "")
