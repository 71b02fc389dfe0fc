# SPDX-License-Identifier: Apache-2.0
"""One finding of `ri2n doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Verdict"]

Verdict = Literal["bad", "warning", "ok"]


@dataclass(frozen=True)
class Finding:
    """What was checked on a host, the verdict, what was seen, and what to do.

    `advice` is empty when the verdict is ok.
    """

    host: str
    check: str
    verdict: Verdict
    seen: str
    advice: str = ""
