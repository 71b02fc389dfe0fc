# SPDX-License-Identifier: Apache-2.0
"""How old what rounds of the controller read is: rates, counters, and what is fair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["OLD_ROUNDS", "OLD_SAMPLE_S", "is_old", "sample_age_s"]

OLD_SAMPLE_S, OLD_ROUNDS = 30.0, 3
"""What rounds read is old when the last one is older than this time and so many rounds."""


def sample_age_s(state: Mapping[str, Any], now_s: float) -> float | None:
    """The time since rates and counters of a state were read; None when that is not known."""
    sampled_s = state.get("controller", {}).get("sampled_s")
    return None if sampled_s is None else max(0.0, now_s - float(sampled_s))


def is_old(state: Mapping[str, Any], now_s: float) -> bool:
    """Whether there was no round for so long that nobody should take its figures for new ones."""
    age_s, hbspan_s = sample_age_s(state, now_s), state.get("controller", {}).get("hbspan_s", 0.0)
    return age_s is not None and age_s > OLD_SAMPLE_S + OLD_ROUNDS * float(hbspan_s)
