# SPDX-License-Identifier: Apache-2.0
"""A helper dies under load: how soon traffic goes on, and how soon it is striped again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ri2n_lab.bench.striped import links_between, usable_links
from ri2n_lab.cluster import Lab
from ri2n_sdn.errors import NotAvailable

__all__ = ["DOWN_S", "HELPER_FAULTS", "HelperFault", "traffic_again_ms"]

HELPER_FAULTS = ("helper_killed", "peer_helper_killed")
DOWN_S = 1.5
"""Seconds for which the helper is gone."""

STRIPED_WAIT_S = 20.0
POLL_S = 0.01


class HelperFault:
    """`kill -9` of one helper, the sender's or the receiver's."""

    def __init__(
        self, lab: Lab, fault: str, sender: str, receiver: str, options: Sequence[str] = ()
    ) -> None:
        """`options` are further options that the helper gets when it starts again."""
        self._lab, self._sender, self._receiver, self._options = (
            lab,
            sender,
            receiver,
            list(options),
        )
        self._host = sender if fault == "helper_killed" else receiver

    def kill(self) -> None:
        """End it at once."""
        self._lab.helpers.kill(self._host)

    def again(self, killed_s: float) -> float | None:
        """Start the helper `DOWN_S` after it was killed.

        Returns the seconds from the kill until the sender uses every link again, None when it does
        not after 20 s.
        """
        time.sleep(max(0.0, killed_s + DOWN_S - time.monotonic()))
        started_s = time.monotonic()
        self._lab.helpers.start(self._host, self._options)
        return _seconds_until(self._is_striped, started_s)

    def _is_striped(self) -> bool:
        helpers = self._lab.helpers
        try:
            found = usable_links(
                helpers.status(self._sender), helpers.status(self._receiver)["mac"]
            )
        except NotAvailable:
            return False
        return found >= links_between(self._lab.topology, self._sender, self._receiver)


def _seconds_until(condition: Callable[[], bool], started_s: float) -> float | None:
    while not condition():
        if time.monotonic() > started_s + STRIPED_WAIT_S:
            return None
        time.sleep(POLL_S)
    return round(time.monotonic() - started_s, 3)


def traffic_again_ms(
    gaps: Sequence[dict[str, Any]], killed_s: float, longest_gap_ms: float
) -> float:
    """From the kill until packets came in again for good, while the helper was gone.

    `gaps` are times without a packet (`start_s`, `end_s`, all over 20 ms); without such a one it is
    less than the longest time between two packets.
    """
    ends = [
        gap["end_s"]
        for gap in gaps
        if gap["end_s"] > killed_s and gap["start_s"] < killed_s + DOWN_S
    ]
    return round((max(ends) - killed_s) * 1000 if ends else longest_gap_ms, 1)
