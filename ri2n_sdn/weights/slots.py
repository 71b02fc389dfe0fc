"""Turn shares into a slot table: the fewest slots move, idle ones first, and busy ones only when
bytes ask for it.

A slot is one value of the flow hash; its entry is the index of the path that carries the flows with
that value. Open vSwitch hands the slots of a dead path to the next live slot, so neighbours are
mixed: the load of a path that dies spreads over all others by weight before any controller has
reacted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ri2n_sdn.fabric.model import PathKey

__all__ = [
    "SlotTable",
    "apportion",
    "assign",
    "default_slots",
    "fallback_counts",
    "flow_weights",
    "layout",
]

IDLE_OF_MEAN = (
    0.05  # a slot with less than 5 % of the mean slot's bytes is idle: moving it disturbs nobody
)
CLOSED_SHARE = 0.035  # up to here a share is a probing floor: idle slots serve it, busy ones leave
BYTES_TOLERANCE = 0.04  # misplaced part of a pair's bytes that is not worth reordering a flow
# a busy slot moves when that takes at least its own bytes off the summed deviation (2 is perfect)
CLEAR_GAIN = 1.0
# of the mean flow elsewhere: a full path that gives its flows less than this is no place for more
SLOWER = 0.7
SHUFFLES = 24  # fresh layouts tried; the one whose fallbacks spread best is used
SWAPS = 150  # pairs of slots then tried in each other's place
CANDIDATES = 12  # idle slots compared when one has to move,
LAST_MOVES = 4  # for the last few; before that
CANDIDATES_EARLY = 3


@dataclass(frozen=True)
class SlotTable:
    """`slots[h]` is the path of hash value h.

    `moved` of them differ from before, `busy_moved` carried traffic.
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
    """The slot table of `n` slots for `shares` (one per path), as near to `previous` as the goals
    allow.

    Goals: no slot on a dead path; slot counts are the shares by largest remainder, at least one
    slot for a path with a share; with `slot_bytes` (what each slot carried lately) the bytes per
    path are the shares, as well as whole slots and BYTES_TOLERANCE allow, and at most `busy_moves`
    busy slots leave a live path (None: no limit). To a path whose links are full (`crowded`) no
    flow moves that is faster where it is. Entries of `previous` outside the paths are free. With no
    path alive the previous table stays.
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
    budget = n if busy_moves is None else busy_moves
    busy_moved = (
        _place_bytes(table, share, weight, busy, budget, crowded or [False] * paths) if busy else 0
    )
    busy_count = [0] * paths
    for slot in busy:
        busy_count[table[slot]] += 1
    present = [0] * paths
    for k in table:
        if k >= 0:
            present[k] += 1
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
    """Whole slots per path that sum to `n`: largest remainder, ties to the path that has more than
    its floor now.

    A path with a share gets at least one slot (while there are as many slots as paths) and at least
    `least[k]`. Shares are >= 0 and not all 0.
    """
    paths = len(shares)
    least = [max(1 if s > 0.0 else 0, m) for s, m in zip(shares, least or [0] * paths, strict=True)]
    if sum(least) > n:
        least = [0] * paths
    present = present or [0] * paths
    count = [0] * paths
    open_paths = [k for k in range(paths) if shares[k] > 0.0]
    rest = n - sum(least[k] for k in range(paths) if shares[k] <= 0.0)
    # Paths whose quota is under their least get just that; the others share what is left.
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
    """A fresh table with `counts[k]` slots of path k, shuffled so that every path's fallbacks
    spread by weight.

    Deterministic: the same counts give the same table everywhere.
    """
    ordered = [k for k, count in enumerate(counts) for _ in range(count)]
    best: list[int] = ordered
    if sum(1 for c in counts if c) > 1:
        best_cost = float("inf")
        for seed in range(
            SHUFFLES if sum(1 for c in counts if c) > 2 else 1
        ):  # of two, one inherits all anyway
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
    """`slot_bytes` with the flows of crowded paths made comparable: each path's mean flow weighs as
    the fastest path's.

    For weights that are only ratios (the papers'). A flow on a full path gets what the path leaves
    it: that says nothing about what it would carry elsewhere, and measured bytes would always seem
    to confirm measured weights.
    """
    if len(slot_bytes) != len(table):
        return list(slot_bytes)
    _, busy = _busy_slots(slot_bytes, len(table))
    busy = [slot for slot in busy if 0 <= table[slot] < len(crowded)]
    mean = _flow_rates(table, slot_bytes, busy, len(crowded))
    fastest = max((mean[table[slot]] for slot in busy), default=0.0)
    result = list(slot_bytes)
    for slot in busy:
        if crowded[table[slot]]:
            result[slot] *= fastest / mean[table[slot]]
    return result


def fallback_counts(slots: Sequence[int], dead: int, paths: int) -> list[int]:
    """How many of path `dead`'s slots each path takes over when it dies:

    Open vSwitch goes to the next live slot.
    """
    n = len(slots)
    counts = [0] * paths
    heir = next((k for k in slots if k != dead and k >= 0), None)
    if heir is None:
        return counts
    for s in range(
        n - 1, -1, -1
    ):  # walking down, `heir` is the next slot (wrapping) that is not the dead path's
        if slots[s] == dead:
            counts[heir] += 1
        elif slots[s] >= 0:
            heir = slots[s]
    return counts


def _fallback_cost(slots: Sequence[int], weight: Sequence[float]) -> float:
    """Sum over paths of squared differences between their slots' heirs and the ideal, by
    `weight` over the others.
    """
    n, paths = len(slots), len(weight)
    got = [0] * (paths * paths)
    last = next((s for s in range(n) if slots[s] != slots[s - 1] and slots[s] >= 0), None)
    if last is None:
        return 0.0
    # One walk down from the start of a run: the heir of a slot is the next path, or its heir when
    # that is its own.
    path = heir = slots[last]
    for s in range(last - 1, last - 1 - n, -1):
        k = slots[s]
        if k >= 0:
            if k != path:
                path, heir = k, path
            got[k * paths + heir] += 1
    total, cost = sum(weight), 0.0
    for k in range(paths):
        row = got[k * paths : k * paths + paths]
        own, others = sum(row), total - weight[k]
        if own and others > 1e-9:
            cost += sum((row[j] - own * weight[j] / others) ** 2 for j in range(paths) if j != k)
    return cost


@lru_cache(maxsize=1024)
def _scrambled(n: int, seed: int) -> tuple[int, ...]:
    """A fixed permutation of 0..n-1 (splitmix64 keys), the same on every machine and Python
    version.
    """

    def key(i: int) -> int:
        z = (i + 1 + seed * 1000003) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)

    return tuple(sorted(range(n), key=key))


def _busy_slots(slot_bytes: Sequence[float] | None, n: int) -> tuple[list[float], list[int]]:
    """Each slot's part of the bytes, and the busy slots; nothing is busy when bytes are unknown."""
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
    budget: int,
    crowded: Sequence[bool],
) -> int:
    """Give homeless busy slots a path and move at most `budget` others until bytes fit the shares.

    Returns moves.
    """
    closed = [s <= CLOSED_SHARE for s in share]
    if all(closed):
        closed = [False] * len(share)
    open_total = sum(s for s, shut in zip(share, closed, strict=True) if not shut)
    wanted = [0.0 if shut else s / open_total for s, shut in zip(share, closed, strict=True)]
    usable = [k for k, shut in enumerate(closed) if not shut]
    excess = [-w for w in wanted]
    homeless = []
    for slot in busy:
        if table[slot] >= 0:
            excess[table[slot]] += weight[slot]
        else:
            homeless.append(slot)
    for slot in sorted(homeless, key=lambda s: (-weight[s], s)):
        heir = min(usable, key=lambda k: (excess[k], k))
        table[slot] = heir
        excess[heir] += weight[slot]

    flow = _flow_rates(table, weight, busy, len(share))
    moves = 0
    while moves < budget:
        to = min(usable, key=lambda k: (excess[k], k))
        leaving = [s for s in busy if closed[table[s]]]
        if leaving:
            slot = max(leaving, key=lambda s: (weight[s], -s))
        else:
            if sum(e for e in excess if e > 0.0) < BYTES_TOLERANCE:
                break
            slower = [crowded[to] and flow[to] < SLOWER * f for f in flow]
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
    """Mean bytes of each path's busy slots; inf on paths without any."""
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
    """The busy slot whose move to path `to` helps most, or None when no move helps clearly."""
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

    Keeps neighbours mixed.
    """
    n, paths = len(table), len(share)
    order = sorted((s for s in range(n) if s not in busy), key=_emptiest_first(weight, n))
    left = sum(want - have for want, have in zip(target, present, strict=True) if want > have)
    for pass_free in (True, False):  # homeless slots first: they have to move anyway
        for to in sorted(range(paths), key=lambda k: present[k] - target[k]):
            while present[to] < target[to]:
                candidates = []
                most = 1 if paths == 2 else CANDIDATES if left <= LAST_MOVES else CANDIDATES_EARLY
                left -= 1
                for slot in order:
                    source = table[slot]
                    if (
                        source < 0
                        if pass_free
                        else source >= 0 and present[source] > target[source]
                    ):
                        candidates.append(slot)
                        if len(candidates) == most:
                            break
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
    """The slot of `places` where path `to` does the spread of a dead path's slots the least
    harm.
    """
    best, best_cost = places[0], float("inf")
    for slot in places:
        was, table[slot] = table[slot], to
        cost = _fallback_cost(table, share)
        table[slot] = was
        if cost < best_cost:
            best, best_cost = slot, cost
    return best


def _emptiest_first(weight: Sequence[float], n: int) -> Callable[[int], tuple[float, int]]:
    """Sort key: bytes carried, then a fixed scrambled order, so that moved slots do not cluster."""
    rank = _ranks(n)
    return lambda slot: (weight[slot], rank[slot])


@lru_cache(maxsize=64)
def _ranks(n: int) -> tuple[int, ...]:
    rank = [0] * n
    for position, slot in enumerate(_scrambled(n, SHUFFLES)):
        rank[slot] = position
    return tuple(rank)


def default_slots(
    paths: Sequence[PathKey], capacity: Sequence[float], n: int = 64
) -> tuple[PathKey, ...]:
    """The table of an inactive pair: slots by capacity, the same on every host for the same paths
    and capacities.

    Returns () when there is no path. Paths of capacity 0 get no slot unless all are 0.
    """
    return _default_slots(tuple(sorted(zip(paths, capacity, strict=True))), n)


@lru_cache(maxsize=4096)
def _default_slots(ordered: tuple[tuple[PathKey, float], ...], n: int) -> tuple[PathKey, ...]:
    """One table serves many pairs, at every round: made once per set of paths and capacities."""
    if not ordered:
        return ()
    weight = [max(float(c), 0.0) for _, c in ordered]
    if sum(weight) <= 0.0:
        weight = [1.0] * len(ordered)
    total = sum(weight)
    table = layout(tuple(apportion([w / total for w in weight], n)))
    return tuple(ordered[k][0] for k in table)
