# SPDX-License-Identifier: Apache-2.0
"""What the fast path of one host has reported last, and whether it still reports: pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from ri2n_sdn.contract.choices import FastFilter, FastOrder, FastPeer, FastState, FastWay
from ri2n_sdn.pipeline.fast_counts import FastCounts
from ri2n_sdn.pipeline.fast_reports import MAX_STATES, StateReport

__all__ = ["HOLDS_S", "MAX_PARTS", "SILENT_S", "FastPath"]

SILENT_S = 3.0
"""A fast path is silent after this time. It reports once a second, so three reports are missing."""

HOLDS_S = 5.0
"""Programs that hear nothing do for so long at most what they were told (docs/fast-path.md)."""

# A host that has a fast path has reported after this time. It reports every second.
_FIRST_S = 2.0

MAX_PARTS = -(-4096 // MAX_STATES)
"""Reports of the state with more parts are not kept: they are about more than 4,096 peers."""


@dataclass
class FastPath:
    """What one host's fast path has reported last on its present connection, in bounded memory.

    `state` is None while nothing is known: before the first report, and when reports stopped while
    no programs were in force. `heard_s` is when the newest whole report of the state was read.
    `peers` is how frames to each peer go, by the peer's MAC address. `counts` goes on over
    connections.

    A late fast path is not a dead one, so time alone does not make it silent (`judge`).
    """

    state: FastState | None = None
    filter: FastFilter = "not_needed"
    order: FastOrder = "none"
    errno: int = 0
    dropped: int = 0
    obeyed: int = 0
    heard_s: float = -math.inf
    peers: dict[str, FastPeer] = field(default_factory=dict)
    counts: FastCounts = field(default_factory=FastCounts)
    _parts: dict[int, StateReport] = field(default_factory=dict, repr=False)
    _ordered_s: float = -math.inf
    _carried: bool = False

    def connected_anew(self) -> None:
        """Know nothing until the next report, since the host may have started anew meanwhile."""
        self._carried |= self.state in ("in_force", "silent")
        self.state, self.obeyed, self.heard_s = None, 0, -math.inf
        self.peers, self._parts = {}, {}

    def take_state(self, report: StateReport, now_s: float) -> bool:
        """Take in a part of a report of the state, and return whether `state` has changed.

        Nothing changes before all parts of a report are there.
        """
        whole = next(iter(self._parts.values()), report)
        if (whole.time_ns, whole.parts) != (report.time_ns, report.parts):
            self._parts = {}
        self._parts[report.part] = report
        if len(self._parts) < report.parts:
            return False
        before, self.state = self.state, report.programs
        self._carried = False  # from now on `state` says it
        self.filter, self.order = report.filter, report.order
        self.errno, self.dropped, self.obeyed = report.errno, report.dropped, report.obeyed
        self.peers = {peer.mac: peer.state for part in self._parts.values() for peer in part.peers}
        self.heard_s, self._parts = now_s, {}
        is_ready = self.state == "in_force" and self.order == "ready"
        self._ordered_s = now_s if is_ready else -math.inf
        return self.state != before

    def judge(self, answered_s: float) -> bool:
        """Find out whether reports have stopped, and return whether `state` has changed.

        `answered_s` is when the newest echo request was sent that the host's switch has answered.
        Its answers wait behind the reports. So neither a lost connection, nor a busy host, nor a
        controller that was held up makes a fast path silent.
        """
        before = self.state
        if answered_s - self.heard_s > SILENT_S and before is not None:
            # Programs stay attached without their process. Where none were in force, all passes
            # the bridge, and nothing is left to be said.
            self.state = "silent" if before in ("in_force", "silent") else None
        return self.state != before

    def obeys(self, digest: int, held_s: float, came_s: float, now_s: float) -> bool:
        """Whether the programs do what the bridge's rows say, and nothing that earlier rows said.

        `digest` is that of the rows, which the bridge has held since `held_s`. The host has been
        connected since `came_s`: one with a fast path has reported within a second or two. What
        does not hear of new rows does nothing more after HOLDS_S.
        """
        if self.state == "off" or now_s - held_s > HOLDS_S:
            return True
        if self.state is None:
            return now_s - came_s > (HOLDS_S if self._carried else _FIRST_S)
        return digest == self.obeyed

    def is_late(self, now_s: float) -> bool:
        """Whether the newest report is too old to say how frames go now."""
        return now_s - self.heard_s > SILENT_S

    def way_to(self, mac: str, now_s: float) -> FastWay | None:
        """By which way frames to a peer go that the programs could take; None: nobody knows."""
        if self.state not in ("in_force", "silent"):
            return "bridge"
        if self.is_late(now_s):
            return None
        return "beside" if self.may_carry(mac) else "bridge"

    def may_carry(self, mac: str) -> bool:
        """Whether frames to a peer may pass beside the bridge, as far as was reported."""
        return self.state in ("in_force", "silent") and self.peers.get(mac.lower()) == "carried"

    def stripes_tcp(self, mac: str) -> bool:
        """Whether TCP to a peer is striped beside the bridge, as far as was reported."""
        return self.state in ("in_force", "silent") and self.peers.get(mac.lower()) == "striped_tcp"

    def orders(self, now_s: float) -> bool:
        """Whether the host puts TCP in order that comes beside the bridge, as it said just now.

        A connection that is lost, or new, says nothing of that: the programs go on while the
        bridge's controller, or Open vSwitch itself, is away. So what the host said before holds for
        as long as a report may be late.
        """
        return now_s - self._ordered_s <= SILENT_S

    def sums(self) -> dict[str, int]:
        """How many peers are in each state; states without a peer are left out."""
        return dict(Counter(self.peers.values()))
