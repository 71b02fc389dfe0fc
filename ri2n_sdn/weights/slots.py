# SPDX-License-Identifier: Apache-2.0
"""Turn shares into a slot table, and move as few slots as possible.

Idle slots move first. Busy slots move only when the bytes that they carry do not fit the shares.

A slot is one value of the flow hash. Its entry is the index of the path that carries the flows with
that value. Open vSwitch hands the slots of a dead path to the next live slot, so the paths of
neighbouring slots are mixed. Then the load of a path that dies spreads over all others by weight,
before a controller has reacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from ri2n_sdn.fabric.model import PathKey

__all__ = [
    "SlotTable",
    "apportion",
    "assign",
    "default_slots",
    "flow_weights",
    "layout",
]

# A slot with less than this part of the mean slot's bytes is idle: no flow notices when it moves.
IDLE_OF_MEAN = 0.05
# Up to this value a share is a probing floor: idle slots serve it, busy ones leave the path.
CLOSED_SHARE = 0.035
# Misplaced bytes up to this part of a pair's bytes are not worth the reordering of a flow.
BYTES_TOLERANCE = 0.04
# A busy slot moves when that reduces the sum of deviations by at least this multiple of its bytes.
# A perfect move reduces it by 2.
CLEAR_GAIN = 1.0
# A full path takes no flow of another path when its own mean flow is slower than this part of the
# other path's mean flow.
SLOWER = 0.7
# The number of fresh layouts that are tried. The one whose fallbacks spread best is used.
SHUFFLES = 24
# The number of pairs of slots that are then tried in each other's place.
SWAPS = 150
# When an idle slot has to move, so many are compared: CANDIDATES for the last LAST_MOVES moves of a
# change, CANDIDATES_EARLY before.
CANDIDATES = 12
LAST_MOVES = 4
CANDIDATES_EARLY = 3


@dataclass(frozen=True)
class SlotTable:
    """A slot table: `slots[h]` is the index of the path for hash value h.

    `moved` slots differ from the table before; `busy_moved` of them carried traffic.
    """

    slots: tuple[int, ...]
    moved: int
    busy_moved: int = 0


def assign(
    shares: Sequence[float],
    alive: Sequence[bool],
    previous: Sequence[int] | None,
    slot_bytes: Sequence[float] | None,
    n: int = 64,
    *,
    busy_moves: int | None = None,
    crowded: Sequence[bool] | None = None,
) -> SlotTable:
    """The table of `n` slots for `shares` (one per path), as near to `previous` as possible.

    The goals:

    * A dead path has no slot.
    * With `slot_bytes` (the bytes that each slot carried lately), the bytes per path are the
      shares, as well as whole slots and BYTES_TOLERANCE allow. At most `busy_moves` busy slots
      leave a live path (None: no limit). No flow moves to a path whose links are full (`crowded`)
      if the flow is faster where it is.
    * The number of slots per path follows the shares by largest remainder. A path with a share has
      at least one slot.

    Entries of `previous` that are no index of a path are free slots. When no path is alive, the
    previous table stays.
    """
    paths = len(shares)
    share = [s if up and s > 0.0 else 0.0 for s, up in zip(shares, alive, strict=True)]
    total = sum(share)
    if total <= 0.0:
        return SlotTable(tuple(previous) if previous is not None else (0,) * n, 0)
    share = [s / total for s in share]
    if previous is None or len(previous) != n:
        fresh = layout(tuple(apportion(share, n)))
        return SlotTable(fresh, n if previous is not None else 0)

    table = [k if 0 <= k < paths and share[k] > 0.0 else -1 for k in previous]
    weight, busy = _busy_slots(slot_bytes, n)
    max_moves = n if busy_moves is None else busy_moves
    crowded = crowded or [False] * paths
    busy_moved = _place_bytes(table, share, weight, busy, max_moves, crowded)
    of_busy = [table[slot] for slot in busy]
    busy_count = [of_busy.count(k) for k in range(paths)]
    present = [table.count(k) for k in range(paths)]
    target = apportion(share, n, present, busy_count)
    if present != target:
        _move_idle(table, share, target, present, weight, frozenset(busy))
    moved = sum(1 for new, old in zip(table, previous, strict=True) if new != old)
    return SlotTable(tuple(table), moved, busy_moved)


def apportion(
    shares: Sequence[float],
    n: int,
    present: Sequence[int] | None = None,
    least: Sequence[int] | None = None,
) -> list[int]:
    """The whole numbers of slots per path that sum to `n`, by largest remainder.

    On a tie, the slot goes to a path that has it now: one whose number in `present` is larger than
    its whole part. A path with a share gets at least one slot (while there are as many slots as
    paths), and at least `least[k]`. Shares are >= 0 and not all 0.
    """
    paths = len(shares)
    least = [max(1 if s > 0.0 else 0, m) for s, m in zip(shares, least or [0] * paths, strict=True)]
    if sum(least) > n:
        least = [0] * paths
    present = present or [0] * paths
    count = [0] * paths
    open_paths = [k for k in range(paths) if shares[k] > 0.0]
    rest = n - sum(least[k] for k in range(paths) if shares[k] <= 0.0)
    # Paths whose quota is below their least number get just that number. The others share the rest.
    while True:
        total = sum(shares[k] for k in open_paths)
        quota = {k: rest * shares[k] / total for k in open_paths}
        short = [k for k in open_paths if quota[k] < least[k]]
        if not short:
            break
        for k in short:
            count[k] = least[k]
            rest -= least[k]
            open_paths.remove(k)
        if not open_paths:
            break
    for k in open_paths:
        count[k] = int(quota[k] + 1e-9)
    left = rest - sum(count[k] for k in open_paths)
    order = sorted(
        open_paths,
        key=lambda k: (-round(quota[k] - count[k], 9), 0 if present[k] > count[k] else 1, k),
    )
    for k in order[:left]:
        count[k] += 1
    return count


@lru_cache(maxsize=4096)
def layout(counts: tuple[int, ...]) -> tuple[int, ...]:
    """A fresh table with `counts[k]` slots of path k, whose fallbacks spread by weight.

    In order 0, 1, 2, 0, 1, 2 one neighbour would inherit all slots of a dead path. So fixed
    shuffles are tried first, then swaps of two slots in the best one (`_fallback_cost` compares
    them). The same counts give the same table on every machine.
    """
    ordered = [k for k, count in enumerate(counts) for _ in range(count)]
    best: list[int] = ordered
    if sum(1 for c in counts if c) > 1:
        best_cost = float("inf")
        # With two paths, one inherits all slots of the other in any order.
        shuffles = SHUFFLES if sum(1 for c in counts if c) > 2 else 1
        for seed in range(shuffles):
            order = _scrambled(len(ordered), seed)
            candidate = [ordered[i] for i in order]
            cost = _fallback_cost(candidate, counts)
            if cost < best_cost:
                best, best_cost = candidate, cost
        places = [
            i for seed in range(SHUFFLES, SHUFFLES + SWAPS) for i in _scrambled(len(best), seed)[:2]
        ]
        for one, other in zip(places[::2], places[1::2], strict=True):
            if best_cost > 0.0 and best[one] != best[other]:
                best[one], best[other] = best[other], best[one]
                cost = _fallback_cost(best, counts)
                if cost < best_cost:
                    best_cost = cost
                else:
                    best[one], best[other] = best[other], best[one]
    return tuple(best)


def flow_weights(
    slot_bytes: Sequence[float], table: Sequence[int], crowded: Sequence[bool]
) -> list[float]:
    """`slot_bytes` in which the flows of full paths are made comparable with the others.

    The mean flow of each path in `crowded` gets the weight of the mean flow on the pair's fastest
    path. This is for weights that are only ratios (those of the papers). A flow on a full path gets
    what the path leaves it, which says nothing about what it would carry elsewhere. So measured
    bytes would always seem to confirm weights that were measured with them.
    """
    _, busy = _busy_slots(slot_bytes, len(table))
    busy = [slot for slot in busy if 0 <= table[slot] < len(crowded)]
    mean = _flow_rates(table, slot_bytes, busy, len(crowded))
    fastest = max((mean[table[slot]] for slot in busy), default=0.0)
    result = list(slot_bytes)
    for slot in busy:
        if crowded[table[slot]]:
            result[slot] *= fastest / mean[table[slot]]
    return result


def _fallback_cost(slots: Sequence[int], weight: Sequence[float]) -> float:
    """How far the load of paths that die falls from its ideal place.

    It is the sum over paths of the squared differences between the slots that each other path would
    inherit and the ideal. Ideally the other paths inherit in the ratio of `weight`.
    """
    n, paths = len(slots), len(weight)
    inherited = [0] * (paths * paths)
    last = next((s for s in range(n) if slots[s] != slots[s - 1] and slots[s] >= 0), None)
    if last is None:
        return 0.0
    # One walk down from the start of a run of equal slots. The heir of a slot is the path of the
    # next slot, or the heir of that slot when both have the same path.
    path = heir = slots[last]
    for s in range(last - 1, last - 1 - n, -1):
        k = slots[s]
        if k >= 0:
            if k != path:
                path, heir = k, path
            inherited[k * paths + heir] += 1
    total, cost = sum(weight), 0.0
    for k in range(paths):
        row = inherited[k * paths : k * paths + paths]
        own, others = sum(row), total - weight[k]
        if own and others > 1e-9:
            cost += sum((row[j] - own * weight[j] / others) ** 2 for j in range(paths) if j != k)
    return cost


@lru_cache(maxsize=1024)
def _scrambled(n: int, seed: int) -> tuple[int, ...]:
    """A fixed permutation of 0..n-1, the same on every machine and Python version.

    Its sort keys are those of splitmix64.
    """

    def key(i: int) -> int:
        z = (i + 1 + seed * 1000003) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)

    return tuple(sorted(range(n), key=key))


def _busy_slots(slot_bytes: Sequence[float] | None, n: int) -> tuple[list[float], list[int]]:
    """Each slot's part of the bytes, and the busy slots. No slot is busy when bytes are unknown."""
    if slot_bytes is None or len(slot_bytes) != n:
        return [0.0] * n, []
    total = float(sum(slot_bytes))
    if total <= 0.0:
        return [0.0] * n, []
    weight = [b / total for b in slot_bytes]
    least = IDLE_OF_MEAN / n
    return weight, [s for s, w in enumerate(weight) if w >= least]


def _place_bytes(
    table: list[int],
    share: Sequence[float],
    weight: Sequence[float],
    busy: Sequence[int],
    max_moves: int,
    crowded: Sequence[bool],
) -> int:
    """Place the busy slots so that the bytes per path fit the shares. Returns how many moved.

    Busy slots without a path (`table[slot]` is -1) get one first; they do not count as moved. Then
    at most `max_moves` busy slots leave a live path, one by one:

    * A path with a closed share (CLOSED_SHARE) keeps no busy slot: the one with the most bytes goes
      first. Else one flow would stay there that the share does not provide for.
    * After that, the slot moves whose move brings the bytes nearest to the shares (`_best_move`),
      until less than BYTES_TOLERANCE is misplaced. A moved flow may be reordered, so a smaller gain
      is not worth it.

    Each slot goes to the path that lacks the most bytes.
    """
    closed = [s <= CLOSED_SHARE for s in share]
    if all(closed):
        closed = [False] * len(share)
    usable = [k for k, is_closed in enumerate(closed) if not is_closed]
    open_total = sum(share[k] for k in usable)
    excess = [-s / open_total if k in usable else 0.0 for k, s in enumerate(share)]
    unplaced = [slot for slot in busy if table[slot] < 0]
    for slot in busy:
        if table[slot] >= 0:
            excess[table[slot]] += weight[slot]
    for slot in sorted(unplaced, key=lambda s: (-weight[s], s)):
        heir = min(usable, key=lambda k: (excess[k], k))
        table[slot] = heir
        excess[heir] += weight[slot]

    flow_rates = _flow_rates(table, weight, busy, len(share))
    moves = 0
    while moves < max_moves:
        to = min(usable, key=lambda k: (excess[k], k))
        leaving = [s for s in busy if closed[table[s]]]
        if leaving:
            slot = max(leaving, key=lambda s: (weight[s], -s))
        else:
            if sum(e for e in excess if e > 0.0) < BYTES_TOLERANCE:
                break
            slower = [crowded[to] and flow_rates[to] < SLOWER * rate for rate in flow_rates]
            best = _best_move(table, weight, busy, excess, to, slower)
            if best is None:
                break
            slot = best
        excess[table[slot]] -= weight[slot]
        excess[to] += weight[slot]
        table[slot] = to
        moves += 1
    return moves


def _flow_rates(
    table: Sequence[int], weight: Sequence[float], busy: Sequence[int], paths: int
) -> list[float]:
    """The mean bytes of each path's busy slots; inf on paths without a busy slot."""
    total, count = [0.0] * paths, [0] * paths
    for slot in busy:
        total[table[slot]] += weight[slot]
        count[table[slot]] += 1
    return [t / c if c else float("inf") for t, c in zip(total, count, strict=True)]


def _best_move(
    table: Sequence[int],
    weight: Sequence[float],
    busy: Sequence[int],
    excess: Sequence[float],
    to: int,
    slower: Sequence[bool],
) -> int | None:
    """The busy slot whose move to path `to` helps most, or None when no move helps clearly.

    A move helps by the amount that it takes off the sum of deviations of the two paths. `excess`
    has the deviation of each path (bytes it carries minus its share). Where `slower` is set for a
    path, its flows would be slower at `to`, so they stay.
    """
    best, best_gain = None, 0.0
    lack = -excess[to]
    for slot in busy:
        source = table[slot]
        if excess[source] <= 0.0 or source == to or slower[source]:
            continue
        w = weight[slot]
        gain = excess[source] + lack - abs(excess[source] - w) - abs(lack - w)
        if gain > best_gain + 1e-12 and gain >= CLEAR_GAIN * w:
            best, best_gain = slot, gain
    return best


def _move_idle(
    table: list[int],
    share: Sequence[float],
    target: Sequence[int],
    present: list[int],
    weight: Sequence[float],
    busy: frozenset[int],
) -> None:
    """Move idle slots, the emptiest first, until every path has `target` slots.

    Slots that carry equally few bytes are compared, and the one moves whose new path harms the
    spread of fallbacks the least (`_best_place`). Otherwise the neighbours would be less and less
    mixed with every change, and one path would inherit most of what another one leaves. In a large
    change, fewer slots are compared until the last few moves.
    """
    n, paths = len(table), len(share)
    every = range(paths)
    # Slots that are equally empty are in a fixed mixed order, so that moved slots do not cluster.
    mixed = _scrambled(n, SHUFFLES)
    order = sorted((s for s in mixed if s not in busy), key=weight.__getitem__)
    left = sum(want - have for want, have in zip(target, present, strict=True) if want > have)
    for only_free in (True, False):  # free slots come first: they have to move anyway
        for to in sorted(every, key=lambda k: present[k] - target[k]):
            while present[to] < target[to]:
                max_candidates = CANDIDATES if left <= LAST_MOVES else CANDIDATES_EARLY
                left -= 1
                leaving = {-1} if only_free else {k for k in every if present[k] > target[k]}
                movable = (slot for slot in order if table[slot] in leaving)
                candidates = list(islice(movable, 1 if paths == 2 else max_candidates))
                if not candidates:
                    break
                lightest = weight[candidates[0]]
                equal = [s for s in candidates if weight[s] <= lightest]
                slot = equal[0] if len(equal) == 1 else _best_place(table, equal, to, share)
                if table[slot] >= 0:
                    present[table[slot]] -= 1
                table[slot] = to
                present[to] += 1


def _best_place(table: list[int], places: Sequence[int], to: int, share: Sequence[float]) -> int:
    """The slot of `places` where path `to` harms the spread of a dead path's slots the least."""

    def cost(slot: int) -> float:
        was, table[slot] = table[slot], to
        cost = _fallback_cost(table, share)
        table[slot] = was
        return cost

    return min(places, key=cost)


def default_slots(
    paths: Sequence[PathKey], capacity: Sequence[float], n: int = 64
) -> tuple[PathKey, ...]:
    """The table of `n` slots of an inactive pair, by capacity.

    It is the same on every host for the same paths and capacities. It is () when there is no path.
    Paths of capacity 0 get no slot, unless all capacities are 0.
    """
    return _default_slots(tuple(sorted(zip(paths, capacity, strict=True))), n)


@lru_cache(maxsize=4096)
def _default_slots(ordered: tuple[tuple[PathKey, float], ...], n: int) -> tuple[PathKey, ...]:
    """The table, made once per set of paths and capacities: many pairs use it in every round."""
    if not ordered:
        return ()
    weight = [max(float(c), 0.0) for _, c in ordered]
    if sum(weight) <= 0.0:
        weight = [1.0] * len(ordered)
    total = sum(weight)
    table = layout(tuple(apportion([w / total for w in weight], n)))
    return tuple(ordered[k][0] for k in table)
