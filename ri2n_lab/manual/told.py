# SPDX-License-Identifier: Apache-2.0
"""What the controller tells, by code, in the manual: the page of events, and lines of problems.

`python -m ri2n_lab.manual.told` writes the lines of problems into docs/troubleshooting.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from ri2n_lab.manual.markdown import table
from ri2n_sdn.contract.events import EVENTS
from ri2n_sdn.contract.problems import PROBLEMS

__all__ = ["TROUBLESHOOTING", "events_page", "shown", "with_lines"]

TROUBLESHOOTING = Path(__file__).parents[2] / "docs" / "troubleshooting.md"

# What stands for an argument, where that is not its name in capitals.
_WORDS = {
    **dict.fromkeys(("count", "silent_s", "away_s", "wait_s", "ahead_s", "vlan", "pairs"), "N"),
    **{"controller": "NAME", "owners": "NAMES", "part": "PERCENT", "macs": "MAC"},
    **{
        "other_address": "ADDRESS",
        "other_device": "DEVICE",
        "found": "OTHER",
        "others": "NETWORKS",
    },
}
_PLACEHOLDER = re.compile(r"\{(\w+)(?:![a-z])?(?::[^}]*)?\}")
_ROW = re.compile(r"\| `[^`]*` \| `(\w+)` \|")


def shown(template: str) -> str:
    """A template with words in capitals for names and numbers: `HOST is not connected`."""
    return _PLACEHOLDER.sub(lambda found: _WORDS.get(found[1], found[1].upper()), template)


def with_lines(page: str) -> str:
    """A page with the line of its problem in each row whose second cell is a problem's code."""

    def row(found: re.Match[str]) -> str:
        code = found[1]
        return f"| `{shown(PROBLEMS[code].text)}` | `{code}` |" if code in PROBLEMS else found[0]

    return _ROW.sub(row, page)


def events_page() -> str:
    """All events."""
    rows = [
        (f"`{code}`", kind.severity, f"`{shown(kind.text)}`", kind.advice)
        for code, kind in EVENTS.items()
    ]
    return (
        "# Events\n\nThis page is for operators and for people who write alarms: what the"
        " controller tells in its log, in the GUI, in the operation `events` and in its stream of"
        " changes. Programs go by the code, which lasts; a text may be worded better. Words in"
        " capitals stand for names and numbers.\n\n"
        + table(("code", "severity", "event", "what to do"), rows)
    )


if __name__ == "__main__":
    TROUBLESHOOTING.write_text(
        with_lines(TROUBLESHOOTING.read_text(encoding="utf-8")), encoding="utf-8"
    )
