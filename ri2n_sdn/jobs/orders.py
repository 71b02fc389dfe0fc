# SPDX-License-Identifier: Apache-2.0
"""Which orders each host is told of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

from ri2n_sdn.jobs.model import Job

__all__ = ["told"]


def told(orders: Iterable[Job], most: int) -> dict[str, list[tuple[int, Job]]]:
    """By host, the orders that it is told, at most `most`, and the number of each.

    First comes one of each user, then the second ones, the earlier before the later. So a user who
    gives very many orders is in nobody else's way. The number is the order's place among all.
    """
    wanted: dict[str, list[tuple[int, int, Job]]] = {}
    turns: Counter[tuple[str, str]] = Counter()
    for number, order in enumerate(sorted(orders, key=lambda job: (job.begin_s, job.id))):
        for host in order.hosts:
            wanted.setdefault(host, []).append((turns[host, order.user], number, order))
            turns[host, order.user] += 1
    return {
        host: [(number, order) for _, number, order in sorted(mine, key=itemgetter(0, 1))[:most]]
        for host, mine in wanted.items()
    }
