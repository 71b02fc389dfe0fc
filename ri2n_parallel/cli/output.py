# SPDX-License-Identifier: Apache-2.0
"""How both commands print, and how SIGTERM ends them.

`ri2n` has functions like these, but this package needs nothing of `ri2n_sdn`.
"""

from __future__ import annotations

import json
import signal
import sys
from types import FrameType

__all__ = ["note", "print_json", "rate_text", "terminate_as_interrupt"]


def print_json(document: object) -> None:
    """Print `document` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, sort_keys=False) + "\n")


def note(text: str) -> None:
    """Print one line on stderr, where it is no part of the result."""
    print(text, file=sys.stderr)


def rate_text(rate_bps: float) -> str:
    """A rate for people, such as `95.6 Mbit/s`."""
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate_bps >= factor:
            return f"{rate_bps / factor:.1f} {unit}"
    return f"{rate_bps:.0f} bit/s"


def terminate_as_interrupt() -> None:
    """Let SIGTERM end a command as Ctrl-C does, so that what it has open is closed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
