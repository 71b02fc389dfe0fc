# SPDX-License-Identifier: Apache-2.0
"""What helpers and controller counted during a measurement: wakes per frame, links that died."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call

__all__ = [
    "FIGURES",
    "WAKES",
    "WAKES_BOUND",
    "HelperCounts",
    "counted",
    "frames",
    "wakes_per_frame",
]

WAKES = ("wakes_per_frame_sender", "wakes_per_frame_receiver")
WAKES_BOUND = 2.0
"""A helper is awake for nothing when its loop turns more often for each frame under load."""

FIGURES = (
    *(Figure(name, kind=None) for name in WAKES),
    Figure("late", kind=None),
    Figure("link_deaths", "links taken for dead", when_measured=True),
    Figure("nic_deaths", "NICs taken for dead", when_measured=True),
)

Json = dict[str, Any]


def frames(status: Mapping[str, Any]) -> float:
    """How many frames the helper with this status has woken for: in or out, data or not."""
    wakes = status["counters"]["wakes"]
    return float(wakes / status["wakes_per_frame"]) if status["wakes_per_frame"] else 0.0


def goes_beside(status: Mapping[str, Any]) -> bool:
    """Whether TCP goes beside the bridge, so that the helper is awake for frames not its own."""
    return any(peer.get("beside") for peer in status.get("peers", ()))


def wakes_per_frame(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Turns of a helper's loop for each frame between two statuses.

    None without frames, and where TCP goes beside the bridge: the helper turns for what the
    programs carry, too, and its own frames are few.
    """
    if goes_beside(before) or goes_beside(after):
        return None
    passed = frames(after) - frames(before)
    return round(counted(before, after, "wakes") / passed, 3) if passed > 0 else None


def counted(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> int:
    """What a counter of a helper counted between two statuses."""
    return int(after["counters"][name] - before["counters"][name])


class HelperCounts:
    """Call `begin`, then `end`; a figure is None without a helper or controller to count it."""

    def __init__(self, lab: Lab, sender: str, receiver: str) -> None:
        self._lab = lab
        self._ends = (sender, receiver) if {sender, receiver} <= set(lab.helpers.hosts) else ()
        self._before: dict[str, Json] = {}
        self._dead_before: int | None = None

    def begin(self) -> None:
        """Note the counters."""
        self._dead_before = self._dead_nics()
        self._before = {host: self._lab.helpers.status(host) for host in self._ends}

    def end(self) -> tuple[Json, Json]:
        """(figures since `begin`, both helpers' statuses then and now)."""
        after = {host: self._lab.helpers.status(host) for host in self._ends}
        figures: Json = dict.fromkeys(names(FIGURES))
        for name, host in zip(WAKES, self._ends, strict=False):
            figures[name] = wakes_per_frame(self._before[host], after[host])
        if self._ends:
            for name in ("late", "link_deaths"):
                figures[name] = sum(
                    counted(self._before[host], after[host], name) for host in self._ends
                )
        dead = self._dead_nics()
        if dead is not None and self._dead_before is not None:
            figures["nic_deaths"] = dead - self._dead_before
        return figures, {"helpers_before": self._before, "helpers_after": after}

    def _dead_nics(self) -> int | None:
        """How often the controller took a NIC for dead; None without a controller."""
        if self._lab.software != "ri2n":
            return None
        counters = call(self._lab.controller_socket, "status")["counters"]
        return int(counters.get("nic_deaths", 0))
