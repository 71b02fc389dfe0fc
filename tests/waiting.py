# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition, with a limit against hanging."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["LONG_S", "wait_until"]

LONG_S = 120.0
"""The limit against hanging: no test waits so long for an event."""

FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.1


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], object],
    timeout_s: float = LONG_S,
) -> None:
    """Poll until `condition()` is true; fail with `what`, perhaps a function, when it never is.

    To ask is work for this process and for those that answer, so the pauses become longer, and each
    is at least as long as the question before it took, up to LAST_PAUSE_S.
    """
    started_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        if condition():
            return
        answered_s = time.monotonic()
        assert answered_s < started_s + timeout_s, (
            f"not within {timeout_s:g} s: {what() if callable(what) else what}"
        )
        waited_s, took_s = answered_s - started_s, answered_s - asked_s
        time.sleep(min(max(FIRST_PAUSE_S, waited_s / 20, took_s), LAST_PAUSE_S))
