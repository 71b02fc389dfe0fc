"""Frames that teach switches where each NIC is, in every VLAN it is used in: else they flood what
is sent to it.

A switch learns (address, VLAN) from what a NIC sends there, and forgets it after its ageing time,
though frames for the NIC keep coming. Broadcasts by every NIC in every VLAN reach every host, so
they are for small clusters; in large ones a NIC is announced where it comes into use, and kept
known by small unicast frames between the two ends of each active pair, which touch only the pair's
way.
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

_LATE_S = 0.1
_PAIRS_PER_TICK = 500  # new ones that are looked at, so that a tick's work is bounded


@dataclass(frozen=True)
class PrimingSettings:
    """`ageing_s` is when switches forget. Everything is repeated after a third of it, so two losses
    do no harm.

    Announcements in all trees must not exceed `frames_per_s`, since every host gets each of them.
    What is due at once is sent at `start_per_s`. A NIC is taken to be known everywhere `settle_s`
    after it was announced.
    """

    ageing_s: float = 300.0
    frames_per_s: float = 100.0
    start_per_s: float = 2000.0
    settle_s: float = 0.05

    @property
    def period_s(self) -> float:
        return self.ageing_s / 3


@dataclass(frozen=True, slots=True)
class Prime:
    """A frame from NIC `sender` in a tree's VLAN:

    to NIC `target`, or to all when None (an announcement).
    """

    sender: NicId
    target: NicId | None
    tree: int


class Priming:
    """What to send when. Pure and deterministic.

    It remembers no more than NICs x trees, and the pairs in use.
    """

    def __init__(self, settings: PrimingSettings | None = None) -> None:
        self.settings = settings or PrimingSettings()
        self.everywhere = True
        """All NICs are announced in all trees: that is affordable at present."""
        self._nics: Mapping[NicId, int] = {}
        self._in_use: frozenset[Use] = frozenset()
        self._announced_s: dict[_Key, float] = {}
        self._kept: set[_Key] = set()
        self._round: deque[_Key] = deque()
        self._due_first: OrderedDict[_Key, None] = OrderedDict()
        self._due: OrderedDict[_Key, None] = OrderedDict()
        self._pairs: OrderedDict[Use, float] = OrderedDict()
        self._new_pairs: OrderedDict[Use, None] = OrderedDict()
        self._last_s: float | None = None
        self._start_tokens = self._round_tokens = self._pair_tokens = 0.0
        self._next_sweep_s = -1e9

    def ready(self, nic: NicId, tree: int, now_s: float) -> bool:
        """Every switch of the tree knows the NIC: a pair may be moved there when both its ends are
        ready.

        False again some time before the switches forget it, for who asks is about to send a moment
        later.
        """
        age_s = now_s - self._announced_s.get((nic, tree), -1e9)
        return self.settings.settle_s <= age_s < self.settings.ageing_s * 5 / 6

    def due_at_once(self) -> None:
        """A port or switch went up or down:

        switches may have forgotten everything, so nothing is ready any more.
        """
        self._announced_s.clear()
        self._due_first.clear()
        self._due = OrderedDict.fromkeys(self._round)
        self._new_pairs.update(dict.fromkeys(self._pairs))
        self._pairs.clear()
        self._put_first()

    def tick(self, now_s: float, nics: Mapping[NicId, int], in_use: Collection[Use]) -> list[Prime]:
        """Frames to send now; call it every 25 ms or so.

        `nics` are those that can send, each with the number of trees in its network (it is in the
        first ones); `in_use` names what pairs use, or are about to: a pair that wants another tree
        adds it here, and is moved when both ends are `ready`. Either order of the two NICs means
        both directions.
        """
        settings = self.settings
        elapsed_s = 0.0 if self._last_s is None else max(0.0, now_s - self._last_s)
        step_s = min(elapsed_s, _LATE_S)
        self._last_s = now_s
        if nics is not self._nics and nics != self._nics:
            self._set_nics(dict(nics))
        uses = frozenset(in_use)  # the same object when it is one already
        if uses is not self._in_use and uses != self._in_use:
            self._in_use = uses
            self._take_pairs()
        self._overdue(now_s)
        self._start_tokens = min(
            self._start_tokens + step_s * settings.start_per_s, settings.start_per_s * _LATE_S
        )
        frames = self._announce(now_s)
        frames += self._refresh(now_s, min(elapsed_s, 1.0))
        if not self.everywhere:
            frames += self._keep_pairs(now_s, min(elapsed_s, 1.0))
        return frames

    def _set_nics(self, nics: dict[NicId, int]) -> None:
        self._nics = nics
        self.everywhere = sum(nics.values()) / self.settings.period_s <= self.settings.frames_per_s
        keys = [
            (nic, tree)
            for nic in sorted(nics)
            for tree in range(nics[nic] if self.everywhere else 1)
        ]
        self._kept = set(keys)
        known = set(self._round)
        self._round = deque(key for key in self._round if key in self._kept)
        self._round.extend(key for key in keys if key not in known)
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
        count = self._nics.get
        wanted = {
            (a, b, tree) if a < b else (b, a, tree)
            for a, b, tree in self._in_use
            if a != b and 0 <= tree < min(count(a, 0), count(b, 0))
        }
        for gone in self._pairs.keys() - wanted:
            del self._pairs[gone]
        self._new_pairs = OrderedDict.fromkeys(sorted(wanted - self._pairs.keys()))
        self._put_first()

    def _put_first(self) -> None:
        """What pairs wait for comes first."""
        for a, b, tree in self._new_pairs:
            for key in ((a, tree), (b, tree)):
                if key in self._due:
                    del self._due[key]
                    self._due_first[key] = None

    def _overdue(self, now_s: float) -> None:
        """What would soon be forgotten, after a pause of the caller's: at once. What was forgotten:

        out of memory.
        """
        limit_s = now_s - 2 * self.settings.period_s
        for _ in range(len(self._round)):
            key = self._round[0]
            if key not in self._announced_s or self._announced_s[key] >= limit_s:
                break
            self._round.rotate(-1)
            if key not in self._due_first:
                self._due[key] = None
        while (
            self._pairs and next(iter(self._pairs.values())) < limit_s
        ):  # they are in order of their refreshing
            self._new_pairs[self._pairs.popitem(last=False)[0]] = None
        if now_s >= self._next_sweep_s:
            self._next_sweep_s = now_s + self.settings.period_s
            old_s = now_s - self.settings.ageing_s
            self._announced_s = {
                key: at_s for key, at_s in self._announced_s.items() if at_s > old_s
            }

    def _announce(self, now_s: float) -> list[Prime]:
        frames = []
        for due in (self._due_first, self._due):
            while due and self._start_tokens >= 1.0:
                key, _ = due.popitem(last=False)
                self._start_tokens -= 1.0
                self._announced_s[key] = now_s
                frames.append(Prime(key[0], None, key[1]))
        return frames

    def _refresh(self, now_s: float, step_s: float) -> list[Prime]:
        """One after the other, all within a third of the ageing time."""
        frames: list[Prime] = []
        self._round_tokens += step_s * len(self._round) / self.settings.period_s
        while self._round and self._round_tokens >= 1.0:
            self._round_tokens -= 1.0
            key = self._round[0]
            self._round.rotate(-1)
            if key in self._announced_s:  # else it is due anyway
                self._announced_s[key] = now_s
                frames.append(Prime(key[0], None, key[1]))
        return frames

    def _keep_pairs(self, now_s: float, step_s: float) -> list[Prime]:
        """Unicast frames in both directions; in the base tree announcements do that for all."""
        frames: list[Prime] = []
        limit_s = now_s - 2 * self.settings.period_s
        for _ in range(min(len(self._new_pairs), _PAIRS_PER_TICK)):
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
            self._new_pairs[pair] = None  # at the end: others may be further
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
