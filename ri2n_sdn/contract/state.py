# SPDX-License-Identifier: Apache-2.0
"""The state that watchers see: what changes of it look like, and how they are made and applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["EVENTS", "MAX_EVENTS", "State", "difference", "merge"]

MAX_EVENTS = 200
"""A state has so many events at most, the newest."""

EVENTS = "events"
"""The part of a state that is a list. What a change has under this name is appended."""

State = dict[str, Any]
"""Maps by the names of the parts, and EVENTS. No value of a map is None."""


def merge(state: Mapping[str, Any], changed: Mapping[str, Any]) -> State:
    """The state after a change. Neither argument is changed, and no map in them.

    A change's keys replace those of the part, and a value of None removes the key. Its events are
    appended, and the newest MAX_EVENTS are kept.
    """
    result = dict(state)
    for part, new in changed.items():
        if part == EVENTS:
            result[part] = [*state.get(part, ()), *new][-MAX_EVENTS:]
        else:
            merged = {**state.get(part, {}), **new}
            result[part] = {key: value for key, value in merged.items() if value is not None}
    return result


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> State:
    """What `merge` must change in `before` to get `after`; nothing when they are equal.

    Entries that are the same object are not compared, which is what most of them are. A part that
    `before` lacks is empty there.
    """
    changed = State()
    for part, now in after.items():
        then = before.get(part)
        if now is then:
            continue
        if part == EVENTS:
            last = then[-1]["seq"] if then else 0
            new: Any = [event for event in now if event["seq"] > last]
        else:
            then = then or {}
            new = {
                key: value
                for key, value in now.items()
                if then.get(key) is not value and then.get(key) != value
            }
            new |= dict.fromkeys(then.keys() - now.keys())
        if new:
            changed[part] = new
    return changed
