# SPDX-License-Identifier: Apache-2.0
"""The events that end the waits of the controller's loops."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

__all__ = ["Wakes"]


@dataclass
class Wakes:
    """One event for each app that others give work to; `stop` ends the controller."""

    trunk: threading.Event = field(default_factory=threading.Event)
    telemetry: threading.Event = field(default_factory=threading.Event)
    striping: threading.Event = field(default_factory=threading.Event)
    placement: threading.Event = field(default_factory=threading.Event)
    jobs: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def planners(self) -> None:
        """Wake all apps that plan: hosts, NICs or wiring have changed."""
        for event in (self.trunk, self.telemetry, self.striping, self.jobs):
            event.set()
