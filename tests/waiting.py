# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition, with a limit against hanging."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["LONG_S", "wait_until"]

LONG_S = 120.0
"""The limit against hanging: no test waits so long for an event."""


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], object],
    timeout_s: float = LONG_S,
) -> None:
    """Poll until `condition()` is true; fail with `what`, perhaps a function, when it never is."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, (
            f"not within {timeout_s:g} s: {what() if callable(what) else what}"
        )
        time.sleep(0.01)
