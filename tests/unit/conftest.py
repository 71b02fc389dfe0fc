# SPDX-License-Identifier: Apache-2.0
"""For the unit tier: hypothesis measures no time, and a picture is drawn once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from ri2n_lab.bench import drawing, report_charts, report_pictures

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
