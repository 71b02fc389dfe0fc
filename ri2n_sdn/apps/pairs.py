# SPDX-License-Identifier: Apache-2.0
"""The operation `pairs` of the local interface: a page of pairs of hosts, filtered and sorted.

A page of active pairs costs what the active pairs cost, and not the square of the number of hosts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.measured import PathRates, Sample
from ri2n_sdn.apps.slot_groups import slots_in_force
from ri2n_sdn.contract.answers import LinkReport, Pair, PairsPage, Path
from ri2n_sdn.contract.operations import PAIRS, Request
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.fabric.model import Fabric, PairKey
from ri2n_sdn.pipeline.helper_frames import NO_LIMIT
from ri2n_sdn.pipeline.plan import pair_group_id

__all__ = ["MAX_PAIRS", "fair_rate_bps", "pair_document", "pairs_page", "path_documents"]

MAX_PAIRS = 500
"""A page has so many pairs at most."""

SORTS = ("rate", "src", "dst")

# So many pairs are described before other threads may have the cluster's lock.
_BATCH = 20

# Half a slot of 64. See `_planned`.
_LEAST_PART = 1 / 128


@dataclass(frozen=True)
class _Question:
    host: str | None
    src: str | None
    dst: str | None
    active: bool | None
    sort: str
    descending: bool
    offset: int
    limit: int


def pairs_page(cluster: Cluster, request: Request) -> PairsPage:
    """The pairs that a request asks for, and how many there are (`total`).

    `host` is either end, `src` and `dst` one of them. `active` asks for pairs with a slot table of
    their own, or for the others. `sort` is `rate`, `src` (the default) or `dst`. `descending` is
    true for `rate` and false for names, unless the request says otherwise. By rate, the pairs that
    are not active come last, in order of names: their rates are next to nothing, and to sort them
    would cost the square of the number of hosts. `offset` and `limit` choose the page. Raises
    BadInput for a wrong request, and for the name of a host that is not known.
    """
    asked = _question(request)
    with cluster.lock:
        fabric = cluster.fabric()
        active = set(cluster.pair_slots)
        sample = cluster.measured.sample()
    for name in {asked.host, asked.src, asked.dst} - {None}:
        if name not in fabric.hosts:
            raise refusal("no_such_host", name=name)

    found = [pair for pair in active if _fits(asked, pair) and _joined(fabric, pair)]
    if asked.sort == "rate":
        sign = -1 if asked.descending else 1
        found.sort(key=lambda pair: (sign * (sample.tx_bps(pair) or 0.0), pair))
    else:
        by_dst = asked.sort == "dst"
        found.sort(key=lambda pair: pair[::-1] if by_dst else pair, reverse=asked.descending)
    if asked.active is True:
        page: Sequence[PairKey] = found[asked.offset : asked.offset + asked.limit]
        total = len(found)
    else:
        page, total = _with_inactive(fabric, asked, found, active)
    return {
        "pairs": list(_documents(cluster, page, sample)),
        "total": total,
        "offset": asked.offset,
        "sampled_s": sample.sampled_s,
    }


def pair_document(
    cluster: Cluster, fabric: Fabric, sample: Sample, sender: str, receiver: str
) -> Pair:
    """A pair for an answer, with the rates of a sample (cluster.lock is held)."""
    pair = (sender, receiver)
    active = pair in cluster.pair_slots
    return {
        "src": sender,
        "dst": receiver,
        "active": active,
        "striped": fabric.striped(sender, receiver),
        "group": pair_group_id(receiver) if active else 0,
        "tx_bps": sample.tx_bps(pair),
        "fair_bps": fair_rate_bps(sample, pair),
        "paths": path_documents(cluster, fabric, sample, sender, receiver),
    }


def fair_rate_bps(sample: Sample, pair: PairKey) -> int | None:
    """The max-min fair rate of a pair for an answer; None when no link limits it."""
    fair_bps = sample.fair_bps.get(pair)
    return None if fair_bps is None else int(fair_bps)


def path_documents(
    cluster: Cluster, fabric: Fabric, sample: Sample, sender: str, receiver: str
) -> list[Path]:
    """The paths of a pair for an answer, with the rates of a sample (cluster.lock is held)."""
    slots = slots_in_force(cluster, sender, receiver)
    rates = sample.rates.get((sender, receiver), {})
    planned_bps = sum(rate.rate_bps or 0.0 for rate in rates.values())
    numbers = {path.key: number for number, path in fabric.helper_links(sender, receiver).items()}
    result: list[Path] = []
    for path in fabric.paths(sender, receiver):
        rate, number = rates.get(path.key, PathRates()), numbers.get(path.key)
        count = slots.count(path.key)
        result.append(
            {
                "own": path.own.name,
                "peer": path.peer.name,
                "network": path.network,
                "vlan": path.route.vlan or None,
                "alive": path.alive,
                "share": rate.share if rate.share is not None else count / max(1, len(slots)),
                "slots": count,
                "tx_bps": rate.tx_bps,
                "rx_bps": rate.rx_bps,
                "rate_bps": _planned(rate.rate_bps, planned_bps),
                "speed_bps": path.rate_bps,
                "link": number,
                "helper": _reported(cluster, sender, fabric.hosts[receiver].mac, number),
            }
        )
    return result


def _planned(rate_bps: float | None, of_pair_bps: float) -> float | None:
    """The planned rate of a path; None where nothing is planned for it.

    The even split of a pair's rate gives a path that the pair does not need a last bit per second,
    which says nothing about the path. What is less than _LEAST_PART of the pair's rate cannot be
    seen in a slot table either.
    """
    return None if rate_bps is None or rate_bps < _LEAST_PART * of_pair_bps else rate_bps or None


def _reported(
    cluster: Cluster, sender: str, peer_mac: str, number: int | None
) -> LinkReport | None:
    """What a helper has reported of a helper link in the last seconds; None when nothing.

    Numbers of frames are since the helper began.
    """
    reported = cluster.measured.reports.get(sender)
    if reported is None or number is None:
        return None
    entry = reported.link(peer_mac, number, time.monotonic())
    if entry is None:
        return None
    return {
        "heard": entry.heard,
        "usable": entry.usable,
        "striping": entry.striping,
        "sent": entry.sent,
        "received": entry.received,
        "lost": entry.lost,
        "repeated": entry.repeated,
        "skew_s": entry.skew_us / 1e6,
        "rtt_s": entry.rtt_us / 1e6,
        "rate_bps": entry.rate_kbps * 1000,
        "demand_bps": None if entry.demand_kbps == NO_LIMIT else entry.demand_kbps * 1000,
    }


def _with_inactive(
    fabric: Fabric, asked: _Question, found: list[PairKey], active: set[PairKey]
) -> tuple[Sequence[PairKey], int]:
    """A page of pairs that need not be active, and the number of pairs.

    Names are walked through in order up to the page's end, so no list of all pairs is made.
    """
    by_rate = asked.sort == "rate"
    names = sorted(fabric.hosts, reverse=asked.descending and not by_rate)
    skipped = active if by_rate or asked.active is False else frozenset[PairKey]()
    first = found if by_rate and asked.active is None else []
    rest = (pair for pair in _every(names, asked) if pair not in skipped and _joined(fabric, pair))
    apart = sum(
        _fits(asked, pair)
        for one, other in fabric.unconnected_pairs
        for pair in ((one, other), (other, one))
    )
    total = _number(len(names), asked) - apart - (len(found) if asked.active is False else 0)
    page = first[asked.offset : asked.offset + asked.limit]
    begin = max(0, asked.offset - len(first))
    return page + list(islice(rest, begin, begin + asked.limit - len(page))), total


def _every(names: Sequence[str], asked: _Question) -> Iterator[PairKey]:
    """All pairs that fit a request, in its order."""
    outer, inner = (asked.src, asked.dst) if asked.sort != "dst" else (asked.dst, asked.src)
    for one in (outer,) if outer is not None else names:
        others: Iterable[str] = (inner,) if inner is not None else names
        if asked.host is not None and one != asked.host:
            others = [asked.host] if inner in (None, asked.host) else []
        for other in others:
            if one != other:
                yield (one, other) if asked.sort != "dst" else (other, one)


def _number(hosts: int, asked: _Question) -> int:
    """How many pairs fit, whether or not they have a path."""
    ends = {asked.src, asked.dst} - {None}
    if asked.src is not None and asked.dst is not None:
        fits = asked.src != asked.dst and asked.host in (None, asked.src, asked.dst)
        return int(fits)
    if asked.host is None:
        return (hosts - 1) * (1 if ends else hosts)
    if not ends:
        return 2 * (hosts - 1)
    return hosts - 1 if asked.host in ends else 1


def _fits(asked: _Question, pair: PairKey) -> bool:
    return (
        (asked.src is None or pair[0] == asked.src)
        and (asked.dst is None or pair[1] == asked.dst)
        and (asked.host is None or asked.host in pair)
    )


def _joined(fabric: Fabric, pair: PairKey) -> bool:
    return fabric.hosts.keys() >= set(pair) and bool(fabric.paths(*pair))


def _documents(cluster: Cluster, page: Sequence[PairKey], sample: Sample) -> Iterator[Pair]:
    """The pairs of a page. Those whose hosts have gone meanwhile are left out."""
    for start in range(0, len(page), _BATCH):
        with cluster.lock:
            fabric = cluster.fabric()
            made: list[Pair] = [
                pair_document(cluster, fabric, sample, *pair)
                for pair in page[start : start + _BATCH]
                if _joined(fabric, pair)
            ]
        yield from made


def _question(request: Request) -> _Question:
    """The request, checked. Raises BadInput."""
    for key in PAIRS.strange(request):
        raise refusal("unknown_key", name=ascii(key)[:64])
    host, src, dst = (_host_in(request, key) for key in ("host", "src", "dst"))
    active, descending = (_flag_in(request, key) for key in ("active", "descending"))
    sort = request.get("sort", "src")
    if not isinstance(sort, str) or sort not in SORTS:
        raise refusal("not_one_of", "sort", choices=list(SORTS))
    if sort == "rate" and descending is False and active is not True:
        raise refusal("lowest_first", "descending")
    return _Question(
        *(host, src, dst, active, sort),
        sort == "rate" if descending is None else descending,
        _whole(request, "offset", 0, 0, 10**9),
        _whole(request, "limit", 100, 1, MAX_PAIRS),
    )


def _host_in(request: Request, key: str) -> str | None:
    name = request.get(key)
    if name is not None and not isinstance(name, str):
        raise refusal("not_host_name", key)
    return name


def _flag_in(request: Request, key: str) -> bool | None:
    flag = request.get(key)
    if flag is not None and not isinstance(flag, bool):
        raise refusal("not_flag", key)
    return flag


def _whole(request: Request, key: str, default: int, low: int, high: int) -> int:
    value = request.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise refusal("out_of_range", key, low=low, high=high)
    return value
