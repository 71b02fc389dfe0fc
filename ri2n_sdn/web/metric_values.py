# SPDX-License-Identifier: Apache-2.0
"""How the values of metrics follow from a state of the operation `watch`. Everything is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ri2n_sdn.contract.counters import HANDLER, LOOP

__all__ = ["MAX_NAMES", "MAX_NICS", "MAX_USERS", "Own", "Values"]

MAX_USERS = 100
"""So many users have series of their own; what others have is under the user `(others)`."""
MAX_NAMES = 256
"""So many events, handlers and the like have series of their own."""

MAX_NICS = 64
"""So many NICs of a host have series of their own. A host may say that it has a thousand."""

State = Mapping[str, Any]
Values = Iterable[tuple[tuple[str, ...], float]]
"""The values of the labels, and the value."""

BITS = 8
_JOB_STATES = ("installed", "waiting", "refused")
ERRORS = {
    "handler": HANDLER,
    "loop": LOOP,
    "host": "host_faults",
    "cluster": "cluster_faults",
    "watch": "watch_errors",
}
"""Where something failed: what the names of its counters begin with."""
# These counters have families of their own.
_ELSEWHERE = frozenset({"cycles", "slots_moved"})


@dataclass(frozen=True)
class Own:
    """What the web process knows of itself and of its connection to the controller.

    `now_s`, `since_s` and `heard_s` are Unix times: now, of the last change of `connected`, and of
    the last line of the controller (None: there was none, or it is not known). So is
    `certificate_ends_s`, when its own certificate ends (None: it has none).
    """

    now_s: float
    connected: bool
    since_s: float
    heard_s: float | None
    version: str
    counters: Mapping[str, int] = field(default_factory=dict)
    certificate_ends_s: float | None = None


def one(value: object) -> Values:
    """The value of a family without labels; nothing when it is no number."""
    return [((), float(value))] if _is_number(value) else ()  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    # A float has no place for larger integers.
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 1000)


def controller(key: str) -> Callable[[State, Own], Values]:
    """One fact about the controller itself."""
    return lambda state, own: one(state["controller"].get(key))


def store(key: str) -> Callable[[State, Own], Values]:
    """One fact about the store."""
    return lambda state, own: one(state["controller"].get("store", {}).get(key))


def each_host(of: Callable[[Mapping[str, Any]], object]) -> Callable[[State, Own], Values]:
    """What `of` says of each host; nothing of those of which it says None."""

    def values(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
        for name, host in state["hosts"].items():
            value = of(host)
            if value is not None:
                yield (name,), float(value)  # type: ignore[arg-type]

    return values


def each_nic(of: Callable[[Mapping[str, Any]], object]) -> Callable[[State, Own], Values]:
    """What `of` says of each NIC; nothing of those of which it says None."""

    def values(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
        for name, host in state["hosts"].items():
            for nic, facts in _first(host["nics"]).items():
                value = of(facts)
                if value is not None:
                    yield (name, nic), float(value)  # type: ignore[arg-type]

    return values


def _first(nics: Mapping[str, Any]) -> Mapping[str, Any]:
    """The NICs of a host that have series of their own."""
    return nics if len(nics) <= MAX_NICS else dict(islice(nics.items(), MAX_NICS))


def entries(part: str, key: str) -> Callable[[State, Own], Values]:
    """One number of each entry of a map of the state, such as that of each host."""
    return lambda state, own: (
        ((name,), float(entry[key])) for name, entry in state.get(part, {}).items() if key in entry
    )


def size(part: str) -> Callable[[State, Own], Values]:
    """The number of entries of a map of the state."""
    return lambda state, own: one(len(state.get(part, {})))


def byte_counts(index: int) -> Callable[[State, Own], Values]:
    """The bytes of each NIC: sent (0) or received (1)."""
    return lambda state, own: (
        ((host, nic), float(counts[index]))
        for host, nics in state.get("bytes", {}).items()
        for nic, counts in _first(nics).items()
    )


def weights(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """Each NIC's part of the slots of its host."""
    for host, activity in state.get("activity", {}).items():
        slots = activity.get("slots", {})
        every = sum(slots.values())
        for nic in _first(state["hosts"].get(host, {}).get("nics", {})) if every else ():
            yield (host, nic), slots.get(nic, 0) / every


def outages(key: str) -> Callable[[State, Own], Values]:
    """A number of each NIC's outages; 0 for those that had none."""

    def values(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
        for name, host in state["hosts"].items():
            known = state.get("outages", {}).get(name, {})
            for nic in _first(host["nics"]):
                yield (name, nic), float(known.get(nic, {}).get(key, 0))

    return values


def out_since(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """When the NICs went out that are out now. Of a NIC that its host has no more, nothing."""
    for host, nics in state.get("outages", {}).items():
        there = _first(state["hosts"].get(host, {}).get("nics", {}))
        for nic, outage in nics.items():
            if "since_s" in outage and nic in there:
                yield (host, nic), float(outage["since_s"])


def lengths(key: str) -> Callable[[State, Own], Values]:
    """The buckets, the count and the sum of a histogram."""

    def values(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
        lengths = state.get("lengths", {}).get(key)
        if lengths is None:
            return
        total = 0
        bounds = [f"{float(bound)}" for bound in lengths["bounds_s"]]
        for bound, count in zip([*bounds, "+Inf"], lengths["counts"], strict=False):
            total += count
            yield (bound,), float(total)
        yield ("count",), float(total)
        yield ("sum",), float(lengths["sum_s"])

    return values


def capped(counts: Mapping[str, float], limit: int) -> Iterator[tuple[tuple[str, ...], float]]:
    """The counts by name, of `limit` names; those of the others together.

    Names are sorted, so they are the same ones each time.
    """
    names = sorted(counts)
    for name in names[:limit]:
        yield (name,), float(counts[name])
    if len(names) > limit:
        yield ("(others)",), float(sum(counts[name] for name in names[limit:]))


def counters(prefix: str) -> Callable[[State, Own], Values]:
    """The counters whose names begin with `prefix`, by the rest of the name."""
    return lambda state, own: capped(
        {
            name.removeprefix(prefix): count
            for name, count in state["counters"].items()
            if name.startswith(prefix)
        },
        MAX_NAMES,
    )


def errors(state: State, own: Own) -> Values:
    """What failed in the controller, also while it is 0: a rate needs a value before the first."""
    found = Counter(dict.fromkeys(ERRORS, 0))
    for name, count in state["counters"].items():
        for source, prefix in ERRORS.items():
            if name.startswith(prefix):
                found[source] += count
    return [((source,), float(count)) for source, count in found.items()]


def events(state: State, own: Own) -> Values:
    """The counters that have no family of their own."""
    return capped(
        {
            name: count
            for name, count in state["counters"].items()
            if not name.startswith((HANDLER, LOOP)) and name not in _ELSEWHERE
        },
        MAX_NAMES,
    )


def messages(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """OpenFlow messages by direction and type."""
    for direction, counts in state.get("openflow", {}).items():
        for kind, count in counts.items():
            yield (direction, kind), float(count)


def problems(state: State, own: Own) -> Values:
    """How many problems there are."""
    found = Counter(problem["severity"] for problem in state["problems"].values())
    return [((severity,), float(found[severity])) for severity in ("bad", "warning")]


def jobs(state: State, own: Own) -> Values:
    """How many jobs are in each state."""
    found = Counter(job["state"] for job in state["jobs"].values())
    return [((each,), float(found[each])) for each in _JOB_STATES]


def jobs_of_users(state: State, own: Own) -> Values:
    """How many jobs each user has."""
    return capped(Counter(job["user"] for job in state["jobs"].values()), MAX_USERS)


def reservations(state: State, own: Own) -> Values:
    """How many reservations have begun, and how many come later."""
    now = sum(each["begin_s"] <= own.now_s for each in state["reservations"].values())
    later = len(state["reservations"]) - now
    return [(("now",), float(now)), (("later",), float(later))]


def parameters(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """The parameters that are numbers."""
    for name, value in state["controller"].get("parameters", {}).items():
        if _is_number(value):
            yield (name,), float(value)


def info(*keys: str) -> Callable[[State, Own], Values]:
    """Facts about the controller as labels."""

    def values(state: State, own: Own) -> Values:
        if not all(isinstance(state["controller"].get(key), str) for key in keys):
            return ()
        return [(tuple(state["controller"][key] for key in keys), 1.0)]

    return values


def builds(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """The versions of both processes."""
    yield ("web", own.version), 1.0
    if own.connected and isinstance(state["controller"].get("version"), str):
        yield ("controller", state["controller"]["version"]), 1.0


def certificates(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """When the certificates of both processes end."""
    if own.certificate_ends_s is not None:
        yield ("web",), own.certificate_ends_s
    ends_s = state["controller"].get("certificate_ends_s")
    if own.connected and _is_number(ends_s):
        yield ("controller",), float(ends_s)


def host_infos(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """What hosts are."""
    for name, host in state["hosts"].items():
        yield (name, *(host.get(key) or "" for key in ("dpid", "mac", "ovs", "datapath"))), 1.0


def nic_infos(state: State, own: Own) -> Iterator[tuple[tuple[str, ...], float]]:
    """What NICs are."""
    for name, host in state["hosts"].items():
        for nic, facts in _first(host["nics"]).items():
            more = (facts.get(key) or "" for key in ("network", "switch", "mac"))
            yield (name, nic, *more), 1.0


def cables(of: Callable[[Mapping[str, Any]], float]) -> Callable[[State, Own], Values]:
    """What `of` says of each cable between switches."""
    return lambda state, own: (
        ((name,), of(cable)) for name, cable in state.get("cables", {}).items()
    )


def network_nics(state: State, own: Own) -> Values:
    """How many NICs each network has."""
    return (((name,), float(len(each["nics"]))) for name, each in state["networks"].items())


def helper_up(host: Mapping[str, Any]) -> bool | None:
    """Whether a host's helper runs and reports; None without a helper."""
    helper = host.get("helper")
    return None if helper is None else bool(helper["running"] and helper["reports"])
