# SPDX-License-Identifier: Apache-2.0
"""For the unit tier: no test is timed, programs see other sentences, pictures are drawn once."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, settings

from ri2n_lab.bench import drawing, report_charts, report_pictures
from ri2n_sdn.contract import refusals
from ri2n_sdn.contract.events import EVENTS, Event
from ri2n_sdn.contract.problems import PROBLEMS, Problem
from ri2n_sdn.contract.refusals import REFUSALS
from tests.unit.said_examples import reworded

settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("any-machine")


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each picture of a bench's report once for all tests of a worker.

    To draw takes a second of CPU, and most tests of reports are about tables and files. The same
    picture has the same bytes (test_bench_pictures.py), so nobody sees which test drew it.
    """
    for module in (report_charts, report_pictures):
        for name in ("bars", "steps"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, partial(_drawn, getattr(drawing, name)))


_DRAWN: dict[str, str] = {}


def _drawn(draw: Callable[..., str], *args: object, **more: object) -> str:
    key = repr((draw.__name__, args, more))
    if key not in _DRAWN:
        _DRAWN[key] = draw(*args, **more)
    return _DRAWN[key]


SEED = int(os.environ.get("RI2N_REWORDED", "1"))
"""Decides the other sentences; 0 leaves all as they are written."""

SEEN_BY_PROGRAMS = (
    *("test_rest*", "test_gui*", "test_web*", "test_cli*", "test_doctor*", "test_top"),
    *("test_watch", "test_metrics", "test_prometheus", "test_monitoring_files", "test_counters"),
    *("test_tallies", "test_documents", "test_local_api", "test_audit", "test_tokens"),
    *("test_support_bundle", "test_pairs", "test_explain*", "test_guards", "test_policies"),
    *("test_job_control", "test_job_moves", "test_job_failures", "test_host_certificates"),
    *("test_host_commands", "test_rollout", "test_fat_tree", "test_vlan_assign_cli"),
    "test_contract_operations",
)
"""The files, without ".py", about what programs see: REST, pages, commands, watches and metrics."""


@pytest.fixture(scope="module", autouse=True)
def _other_sentences(request: pytest.FixtureRequest) -> Iterator[None]:
    """In files of SEEN_BY_PROGRAMS, all sentences of refusals, problems and events are others.

    The values in them are the same. A test fails that depends on a sentence, and so does one whose
    program reads a sentence.
    """
    name = request.path.stem
    with pytest.MonkeyPatch.context() as patch:
        if SEED and any(fnmatch(name, each) for each in SEEN_BY_PROGRAMS):
            random = Random(SEED + zlib.crc32(name.encode()))
            patch.setattr(refusals, "REFUSALS", reworded(REFUSALS, random, 1))
            patch.setattr(Problem, "table", reworded(PROBLEMS, random, 1))
            patch.setattr(Event, "table", reworded(EVENTS, random, 1))
        yield


@pytest.fixture
def as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentences as they are written, for a test of a page that shows one."""
    monkeypatch.setattr(refusals, "REFUSALS", REFUSALS)
    monkeypatch.setattr(Problem, "table", PROBLEMS)
    monkeypatch.setattr(Event, "table", EVENTS)
