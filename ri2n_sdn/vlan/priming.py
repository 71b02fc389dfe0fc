# SPDX-License-Identifier: Apache-2.0
"""Frames that teach switches where each NIC is, in every VLAN that it is used in.

A switch floods frames to an address that it does not know. It learns (address, VLAN) from what a
NIC sends in that VLAN, and forgets it after its ageing time, even while frames to the NIC keep
coming. The two hosts of a pair may use different VLANs for the two directions, so their traffic
alone does not keep both NICs known.

* Small clusters: every NIC announces itself in every VLAN, by broadcasts. These reach every host.
* Large clusters: that would be too many broadcasts. Every NIC announces itself in the base tree,
  but in any other VLAN only when it comes into use there. After that, small unicast frames between
  the two ends of each active pair keep them known; these cross only the path of the pair.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ri2n_sdn.fabric.model import NicId

__all__ = ["Prime", "Priming", "PrimingSettings", "Use"]

Use: TypeAlias = tuple[NicId, NicId, int]
"""Two NICs and the tree in which one sends to the other now, or is about to."""

_Key: TypeAlias = tuple[NicId, int]
"""A NIC, and a tree in which it announces itself."""

_MAX_STEP_S = 0.1
"""A pause between ticks counts as this long at most, so that no large burst follows a long one."""
_MAX_PAIRS_PER_TICK = 500
"""New pairs that a tick looks at, so that its work is bounded."""


@dataclass(frozen=True)
class PrimingSettings:
    """Times in seconds, and rates.

    Switches forget an address after `ageing_s`. Everything is repeated after a third of that, so
    two losses do no harm. Announcements in all trees must not exceed `frames_per_s`, since every
    host receives each of them. What is due at once is sent at `start_per_s`. A NIC is taken to be
    known everywhere `settle_s` after it was announced.
    """

    ageing_s: float = 300.0
    frames_per_s: float = 100.0
    start_per_s: float = 2000.0
    settle_s: float = 0.05

    @property
    def period_s(self) -> float:
        """After how many seconds everything is repeated."""
        return self.ageing_s / 3


@dataclass(frozen=True, slots=True)
class Prime:
    """A frame from NIC `sender` in a tree's VLAN, to NIC `target`, or to all when that is None.

    A frame to all is an announcement.
    """

    sender: NicId
    target: NicId | None
    tree: int


class Priming:
    """Which frames to send when.

    Pure and deterministic: the caller gives the time and sends the frames that `tick` returns. The
    state has no more entries than NICs x trees, and the pairs in use.
    """

    def __init__(self, settings: PrimingSettings | None = None) -> None:
        self.settings = settings or PrimingSettings()
        self.everywhere = True
        """All NICs are announced in all trees: that is affordable at present."""
        self._nics: Mapping[NicId, int] = {}
        self._in_use: frozenset[Use] = frozenset()
        self._announced_s: dict[_Key, float] = {}
        # Everything that is announced again and again, the next one first.
        self._round: deque[_Key] = deque()
        # What is to be announced at once; what pairs wait for comes first.
        self._due_first: OrderedDict[_Key, None] = OrderedDict()
        self._due: OrderedDict[_Key, None] = OrderedDict()
        # When the two NICs of each pair last sent frames to each other, oldest first; and the pairs
        # that have not done so yet.
        self._pairs: OrderedDict[Use, float] = OrderedDict()
        self._new_pairs: OrderedDict[Use, None] = OrderedDict()
        self._last_s: float | None = None
        self._start_tokens = self._round_tokens = self._pair_tokens = 0.0
        self._next_sweep_s = -1e9

    def ready(self, nic: NicId, tree: int, now_s: float) -> bool:
        """Whether every switch of the tree knows the NIC.

        A pair may be moved to the tree when both its ends are ready. A NIC is no longer ready some
        time before the switches forget it, since whoever asks will only send a moment later.
        """
        age_s = now_s - self._announced_s.get((nic, tree), -1e9)
        return self.settings.settle_s <= age_s < self.settings.ageing_s * 5 / 6

    def due_at_once(self) -> None:
        """A port or switch went up or down, so switches may have forgotten everything.

        No NIC is ready any more, and all announcements are due at once.
        """
        self._announced_s.clear()
        self._due_first.clear()
        self._due = OrderedDict.fromkeys(self._round)
        self._new_pairs.update(dict.fromkeys(self._pairs))
        self._pairs.clear()
        self._put_first()

    def tick(self, now_s: float, nics: Mapping[NicId, int], in_use: Collection[Use]) -> list[Prime]:
        """Returns the frames to send now; the caller calls it every 25 ms or so.

        `nics` are the NICs that can send, each with the number of trees in its network: it is in
        the first ones. `in_use` are the trees that pairs use, or are about to use: a pair that
        wants another tree is added here first, and moved when both ends are `ready`. Either order
        of the two NICs means both directions.
        """
        settings = self.settings
        elapsed_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        step_s = min(elapsed_s, _MAX_STEP_S)
        self._last_s = now_s
        if nics is not self._nics and nics != self._nics:
            self._set_nics(dict(nics))
        # This is the same object when `in_use` is a frozenset already.
        uses = frozenset(in_use)
        if uses is not self._in_use and uses != self._in_use:
            self._in_use = uses
            self._take_pairs()
        self._overdue(now_s)
        most = settings.start_per_s * _MAX_STEP_S
        self._start_tokens = min(self._start_tokens + step_s * settings.start_per_s, most)
        frames = self._announce(now_s)
        frames += self._refresh(now_s, min(elapsed_s, 1.0))
        if not self.everywhere:
            frames += self._keep_pairs(now_s, min(elapsed_s, 1.0))
        return frames

    def _set_nics(self, nics: dict[NicId, int]) -> None:
        """Take over other NICs: what is announced for the first time is due at once."""
        self._nics = nics
        self.everywhere = sum(nics.values()) / self.settings.period_s <= self.settings.frames_per_s
        keys = [
            (nic, tree)
            for nic in sorted(nics)
            for tree in range(nics[nic] if self.everywhere else 1)
        ]
        kept = set(keys)
        before = set(self._round)
        self._round = deque(key for key in self._round if key in kept)
        self._round.extend(key for key in keys if key not in before)
        self._announced_s = {
            key: at_s for key, at_s in self._announced_s.items() if key[1] < nics.get(key[0], 0)
        }
        self._due = OrderedDict.fromkeys(
            key for key in keys if key in self._due or key not in self._announced_s
        )
        self._due_first = OrderedDict.fromkeys(
            key for key in self._due_first if key[1] < nics.get(key[0], 0)
        )
        self._take_pairs()

    def _take_pairs(self) -> None:
        """Take over other pairs, or other NICs of pairs."""
        tree_count = self._nics.get
        wanted = {
            (a, b, tree) if a < b else (b, a, tree)
            for a, b, tree in self._in_use
            if a != b and 0 <= tree < min(tree_count(a, 0), tree_count(b, 0))
        }
        for gone in self._pairs.keys() - wanted:
            del self._pairs[gone]
        self._new_pairs = OrderedDict.fromkeys(sorted(wanted - self._pairs.keys()))
        self._put_first()

    def _put_first(self) -> None:
        """Announcements that pairs wait for come first."""
        for a, b, tree in self._new_pairs:
            for key in ((a, tree), (b, tree)):
                if key in self._due:
                    del self._due[key]
                    self._due_first[key] = None

    def _overdue(self, now_s: float) -> None:
        """Make due at once what switches would soon forget, after a pause of the caller.

        What they have forgotten is forgotten here, too.
        """
        limit_s = now_s - 2 * self.settings.period_s
        for _ in range(len(self._round)):
            key = self._round[0]
            if key not in self._announced_s or self._announced_s[key] >= limit_s:
                break
            self._round.rotate(-1)
            if key not in self._due_first:
                self._due[key] = None
        while self._pairs and next(iter(self._pairs.values())) < limit_s:
            self._new_pairs[self._pairs.popitem(last=False)[0]] = None
        if now_s >= self._next_sweep_s:
            self._next_sweep_s = now_s + self.settings.period_s
            old_s = now_s - self.settings.ageing_s
            self._announced_s = {
                key: at_s for key, at_s in self._announced_s.items() if at_s > old_s
            }

    def _announce(self, now_s: float) -> list[Prime]:
        """The announcements that are due, as many as `start_per_s` allows."""
        frames = []
        for due in (self._due_first, self._due):
            while due and self._start_tokens >= 1.0:
                key, _ = due.popitem(last=False)
                self._start_tokens -= 1.0
                self._announced_s[key] = now_s
                frames.append(Prime(key[0], None, key[1]))
        return frames

    def _refresh(self, now_s: float, step_s: float) -> list[Prime]:
        """The announcements of the round: one after the other, all within `period_s`."""
        frames: list[Prime] = []
        self._round_tokens += step_s * len(self._round) / self.settings.period_s
        while self._round and self._round_tokens >= 1.0:
            self._round_tokens -= 1.0
            key = self._round[0]
            self._round.rotate(-1)
            # Otherwise it is due anyway.
            if key in self._announced_s:
                self._announced_s[key] = now_s
                frames.append(Prime(key[0], None, key[1]))
        return frames

    def _keep_pairs(self, now_s: float, step_s: float) -> list[Prime]:
        """Unicast frames between the ends of pairs: at once for new pairs, then every `period_s`.

        A new pair waits until both its NICs are `ready`: otherwise the frames would be flooded. In
        the base tree there are none, since all NICs announce themselves there.
        """
        frames: list[Prime] = []
        limit_s = now_s - 2 * self.settings.period_s
        for _ in range(min(len(self._new_pairs), _MAX_PAIRS_PER_TICK)):
            if self._start_tokens < 2.0:
                break
            pair, _ = self._new_pairs.popitem(last=False)
            a, b, tree = pair
            old = [
                key for key in ((a, tree), (b, tree)) if self._announced_s.get(key, -1e9) < limit_s
            ]
            if not old and self.ready(a, tree, now_s) and self.ready(b, tree, now_s):
                self._pairs[pair] = now_s
                if tree > 0:
                    self._start_tokens -= 2.0
                    frames += [Prime(a, b, tree), Prime(b, a, tree)]
                continue
            # It goes to the end of the queue: other pairs may be ready.
            self._new_pairs[pair] = None
            for key in old:
                self._due.pop(key, None)
                self._due_first[key] = None
        self._pair_tokens += step_s * len(self._pairs) / self.settings.period_s
        while self._pairs and self._pair_tokens >= 1.0:
            self._pair_tokens -= 1.0
            pair, _ = self._pairs.popitem(last=False)
            self._pairs[pair] = now_s
            a, b, tree = pair
            if tree > 0:
                frames += [Prime(a, b, tree), Prime(b, a, tree)]
        return frames
