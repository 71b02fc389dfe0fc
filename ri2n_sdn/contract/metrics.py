# SPDX-License-Identifier: Apache-2.0
"""The table of metrics: their names, types, labels, bounds, and where their values stand.

Names follow the conventions of Prometheus: base units, `_total` for counters, `_info` for labels
whose value is always 1. A family never has a label whose values grow with time, such as the id of a
job, or with the square of the number of hosts, such as a pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

from ri2n_sdn.contract.choices import FAST_PEERS
from ri2n_sdn.contract.counters import HANDLER, LOOP
from ri2n_sdn.contract.fair import worst_of
from ri2n_sdn.contract.family import (
    MAX_NAMES,
    MAX_NICS,
    MAX_USERS,
    Family,
    Label,
    Own,
    State,
    Values,
    at,
    capped,
    facts,
    lengths,
    numbers,
    said,
)
from ri2n_sdn.contract.sample import OLD_ROUNDS, OLD_SAMPLE_S, sample_age_s

__all__ = ["FAMILIES", "MAX_NAMES", "MAX_NICS", "MAX_USERS", "Family", "Own", "Values"]

_HOST = Label("host", "hosts")
_HELPED = Label("host", "hosts with a helper")
_FAST = Label("host", "hosts with a fast path")
_NIC = Label("nic", f"NICs, {MAX_NICS} of a host at most", MAX_NICS)
_CABLE = Label("cable", "declared cables")
_EVENT = Label("event", f"at most {MAX_NAMES + 1}, all named in the code")
# Paths.
_HOSTS = ("hosts", _HOST)
_NICS = (*_HOSTS, "nics", _NIC)
_FAIR = ("fair", Label("host", "hosts that send"))
# What is said of hosts and NICs by labels.
_OF_HOST, _OF_NIC = ("dpid", "mac", "ovs", "datapath"), ("network", "switch", "mac")
_JOB_STATES = ("installed", "waiting", "refused")
_SOURCES = {
    "handler": HANDLER,
    "loop": LOOP,
    "host": "host_faults",
    "cluster": "cluster_faults",
    "watch": "watch_errors",
}
"""Where something failed: what the names of its counters begin with."""


def _counters(prefix: str) -> Callable[[State], Values]:
    """The counters whose names begin with `prefix`, by the rest of the name."""
    return lambda state: capped(
        {
            name.removeprefix(prefix): count
            for name, count in state["counters"].items()
            if name.startswith(prefix)
        }
    )


def _events(state: State) -> Values:
    """The counters that have no family of their own."""
    return capped(
        {
            name: count
            for name, count in state["counters"].items()
            if not name.startswith((HANDLER, LOOP)) and name not in ("cycles", "slots_moved")
        }
    )


def _errors(state: State) -> Values:
    """What failed in the controller, also while it is 0: a rate needs a value before the first."""
    for source, prefix in _SOURCES.items():
        counts = (n for name, n in state["counters"].items() if name.startswith(prefix))
        yield (source,), float(sum(counts))


def _number_of(part: str, key: str, values: tuple[str, ...]) -> Callable[[State], Values]:
    """How many entries of a map of the state have each of the values of a key."""

    def counted(state: State) -> Values:
        found = Counter(entry[key] for entry in state[part].values())
        return [((value,), float(found[value])) for value in values]

    return counted


def _builds(state: State) -> Values:
    """The versions of both processes."""
    own, version = state["own"], state["controller"].get("version")
    yield ("web", own["version"]), 1.0
    if own["connected"] and isinstance(version, str):
        yield ("controller", version), 1.0


def _certificates(state: State) -> Values:
    """When the certificates of both processes end."""
    own, key = state["own"], "certificate_ends_s"
    theirs = state["controller"].get(key) if own["connected"] else None
    return numbers([(("web",), own[key]), (("controller",), theirs)])


def _weights(state: State) -> Values:
    """Each NIC's part of the slots of its host."""
    for host, activity in state.get("activity", {}).items():
        slots = activity.get("slots", {})
        every = sum(slots.values())
        nics = state["hosts"].get(host, {}).get("nics", ()) if every else ()
        for nic in islice(nics, MAX_NICS):
            yield (host, nic), slots.get(nic, 0) / every


def _outages(key: str) -> Callable[[State], Values]:
    """A number of each NIC's outages; 0 for those that had none."""
    return lambda state: (
        ((host, nic), float(state.get("outages", {}).get(host, {}).get(nic, {}).get(key, 0)))
        for (host, nic), _ in at(state, _NICS)
    )


def _out_since(state: State) -> Values:
    """When the NICs went out that are out now. Of a NIC that its host has no more, nothing."""
    there = {nic for nic, _ in at(state, _NICS)}
    outages = at(state, ("outages", _HOST, Label("nic", "all"), "since_s"))
    return numbers((nic, since_s) for nic, since_s in outages if nic in there)


def _reservations(state: State) -> Values:
    """How many reservations have begun, and how many come later."""
    begun = Counter(
        each["begin_s"] <= state["own"]["now_s"] for each in state["reservations"].values()
    )
    return [(("now",), float(begun[True])), (("later",), float(begun[False]))]


def _age(own: Mapping[str, Any]) -> float | None:
    """How long ago the controller was last heard of."""
    return None if own["heard_s"] is None else max(0.0, own["now_s"] - own["heard_s"])


def _helper_up(helper: Mapping[str, Any] | None) -> bool | None:
    """Whether a host's helper runs and reports; None without a helper."""
    return None if helper is None else bool(helper["running"] and helper["reports"])


def _fast_up(fast: Mapping[str, Any] | None) -> bool | None:
    """Whether the programs of a host's fast path are in force; None where it is off or none is."""
    return None if fast is None or fast["state"] == "off" else fast["state"] == "in_force"


def _fast_peers(state: State) -> Values:
    """How many peers of each host with a fast path are in each state, also while it is 0."""
    for (host,), fast in at(state, (*_HOSTS, "fast")):
        for peer in FAST_PEERS if fast is not None else ():
            yield (host, peer), float(fast["peers"].get(peer, 0))


def _bytes(rate_bps: float | None) -> float | None:
    """A rate in bytes per second; None when it is not known."""
    return rate_bps / 8 if rate_bps else None


_counter, _gauge = partial(Family, "counter"), partial(Family, "gauge")
_info, _histogram = partial(Family, "info"), partial(Family, "histogram")

# What is there without a controller, too: the web process and its stream.
_WEB: Mapping[str, Family] = {
    "ri2n_up": _gauge("Whether the controller is there: 0 or 1.", ("own", "connected")),
    "ri2n_state_age_seconds": _gauge(
        "The time since the controller was last heard of. It gives a sign of life every 5 s.",
        ("own",),
        of=_age,
    ),
    "ri2n_sample_age_seconds": _gauge(
        "The time since rates and counters of hosts were read last. What rounds read has no series "
        f"after {OLD_SAMPLE_S:g} s and {OLD_ROUNDS} rounds.",
        lambda state: numbers([((), sample_age_s(state, state["own"]["now_s"]))]),
    ),
    "ri2n_connection_changed_timestamp_seconds": _gauge(
        "When ri2n_up changed last, as Unix time.", ("own", "since_s")
    ),
    "ri2n_web_events": _counter(
        "What the web process counts of its stream: streams, changes, lines that were dropped.",
        lambda state: capped(state["own"]["counters"]),
        (_EVENT,),
    ),
    "ri2n_build": _info(
        "The versions of the processes.", _builds, ("component", Label("version", "2"))
    ),
    "ri2n_certificate_end_timestamp_seconds": _gauge(
        "When the first of a process's certificates ends, as Unix time. Nothing without TLS.",
        _certificates,
        (Label("component", "2"),),
    ),
}

_CONTROLLER: Mapping[str, Family] = {
    "ri2n_controller_in_charge": _gauge(
        "Whether it is in charge: 0 or 1.", ("controller", "in_charge")
    ),
    "ri2n_controller_settled": _gauge(
        "Whether all hosts hold what they should: 0 or 1.", ("controller", "settled"), charge=True
    ),
    "ri2n_controller_start_time_seconds": _gauge(
        "When it began, as Unix time.", ("controller", "started_s")
    ),
    "ri2n_config": _info(
        "The hash of its configuration.", said("controller", "config_hash"), ("hash",)
    ),
    "ri2n_strategy": _info("The strategy.", said("controller", "strategy"), ("strategy",)),
    "ri2n_parameter": _gauge(
        "The parameters that are numbers, in their own units.",
        ("controller", "parameters", Label("name", "parameters")),
    ),
    "ri2n_counting_interval_seconds": _gauge(
        "The time from one reading of the counters to the next.", ("controller", "hbspan_s")
    ),
    "ri2n_cycle_duration_seconds": _histogram(
        "How long rounds took, from the request for counters to acknowledged slot tables.",
        lengths("cycle"),
    ),
    "ri2n_cycle_cpu_seconds": _histogram("How much CPU time rounds took.", lengths("cycle_cpu")),
    "ri2n_active_pairs": _gauge(
        "The pairs of hosts with a slot table of their own.",
        ("controller", "active_pairs"),
        charge=True,
    ),
    "ri2n_openflow_messages": _counter(
        "OpenFlow messages of all hosts together.",
        ("openflow", Label("direction", "2"), Label("type", "2 x 36 types")),
    ),
    "ri2n_errors": _counter(
        "Exceptions in the controller: in handlers of messages, in loops, because of one host, "
        "because of the cluster as a whole, and in what watchers are told. 0 is there, too.",
        _errors,
        (Label("source", f"{len(_SOURCES)}"),),
    ),
    "ri2n_handler_errors": _counter(
        "Exceptions in handlers of messages.",
        _counters(HANDLER),
        (Label("handler", "handlers in the code"),),
    ),
    "ri2n_loop_errors": _counter(
        "Exceptions in the controller's loops.",
        _counters(LOOP),
        (Label("loop", "loops in the code"),),
    ),
    "ri2n_events": _counter(
        "What else the controller counts, as `ri2n status` shows it: changes, drops, refusals.",
        _events,
        (_EVENT,),
    ),
    "ri2n_problems": _gauge(
        "What is wrong now, as `ri2n status` shows it.",
        _number_of("problems", "severity", ("bad", "warning")),
        (Label("severity", "2"),),
    ),
    # The store.
    "ri2n_store": _info(
        "The kind of the store: none, own or common.",
        said("controller", "store", "kind"),
        ("kind",),
    ),
    "ri2n_store_active": _gauge(
        "Whether it keeps the controller's memory: 0 or 1.", ("controller", "store", "active")
    ),
    "ri2n_store_epoch": _gauge("How often charge changed.", ("controller", "store", "epoch")),
    "ri2n_store_problem": _gauge(
        "Whether something is wrong with the store: 0 or 1.",
        ("controller",),
        of=lambda facts: bool(facts.get("store", {}).get("problem")),
    ),
    # Hosts.
    "ri2n_hosts": _gauge("The hosts that are known.", ("hosts",), of=len),
    "ri2n_host": _info("What hosts are.", facts(*_HOSTS, keys=_OF_HOST), (_HOST, *_OF_HOST)),
    "ri2n_host_connected": _gauge(
        "Whether the host is connected to the controller: 0 or 1.", (*_HOSTS, "connected")
    ),
    "ri2n_host_certificate_end_timestamp_seconds": _gauge(
        "When the certificate ends with which the host connected last, as Unix time. Nothing "
        "where the controller asks for none.",
        (*_HOSTS, "certificate_ends_s"),
        charge=True,
    ),
}

# What only a controller in charge has.
_MEASURED: Mapping[str, Family] = {
    "ri2n_host_active_pairs": _gauge(
        "The pairs that the host sends, with a slot table of their own.",
        ("activity", _HOST, "active_pairs"),
    ),
    "ri2n_host_fair_ratio": _gauge(
        "What the worst pair that the host sends gets of its max-min fair rate; 1 is all of it. "
        "Nothing for a host whose pairs no link limits.",
        _FAIR,
        of=worst_of,
    ),
    "ri2n_host_limited_bytes_per_second": _gauge(
        "What the host sends by pairs that a link limits.",
        (*_FAIR, "tx_bps"),
        of=lambda bps: bps / 8,
    ),
    "ri2n_host_fair_bytes_per_second": _gauge(
        "Their max-min fair rates together, under any strategy.", (*_FAIR, "fair_bps"), of=_bytes
    ),
    "ri2n_host_reweights": _counter(
        "Slot tables of the host that were changed.", ("activity", _HOST, "reweights")
    ),
    "ri2n_host_slots_moved": _counter(
        "Slots of the host that went to another path.", ("activity", _HOST, "slots_moved")
    ),
    # NICs, and with them the links between hosts and switches.
    "ri2n_nic": _info(
        "What NICs are, and where they are plugged in.",
        facts(*_NICS, keys=_OF_NIC),
        (_HOST, _NIC, *_OF_NIC),
    ),
    "ri2n_nic_up": _gauge(
        "Whether the NIC has carrier: 0 or 1. Nothing for a host that is away.", (*_NICS, "up")
    ),
    "ri2n_nic_alive": _gauge(
        "Whether frames arrive from it and at it, as probes say: 0 or 1.", (*_NICS, "alive")
    ),
    "ri2n_nic_speed_bytes_per_second": _gauge(
        "The rate of the NIC.", (*_NICS, "speed_bps"), of=_bytes
    ),
    "ri2n_nic_transmit_bytes": _counter(
        "What the NIC has sent, as the host's switch counts it: the link to the network.",
        ("bytes", _HOST, _NIC),
        of=itemgetter(0),
    ),
    "ri2n_nic_receive_bytes": _counter(
        "What the NIC has received: the link from the network.",
        ("bytes", _HOST, _NIC),
        of=itemgetter(1),
    ),
    "ri2n_nic_weight_ratio": _gauge(
        "The NIC's part of the slots of the host's active pairs, from 0 to 1.",
        _weights,
        (_HOST, _NIC),
    ),
    "ri2n_nic_outages": _counter(
        "How often the NIC was out. It is out while it is not alive and its host is connected.",
        _outages("count"),
        (_HOST, _NIC),
    ),
    "ri2n_nic_outage_seconds": _counter(
        "How long all outages of the NIC were together that have ended.",
        _outages("seconds"),
        (_HOST, _NIC),
    ),
    "ri2n_nic_out_since_timestamp_seconds": _gauge(
        "When the present outage of the NIC began, as Unix time. Nothing when it is not out.",
        _out_since,
        (_HOST, _NIC),
    ),
    "ri2n_nic_outage_duration_seconds": _histogram(
        "How long the outages of all NICs were that have ended.", lengths("outage")
    ),
    # Networks, and the cables between switches.
    "ri2n_network_nics": _gauge(
        "The NICs in the network.", ("networks", Label("network", "networks"), "nics"), of=len
    ),
    "ri2n_cable_alive": _gauge(
        "Whether everything arrives that is sent over the cable between switches: 0 or 1.",
        ("cables", _CABLE, "alive"),
    ),
    "ri2n_cable_speed_bytes_per_second": _gauge(
        "The rate of the cable.", ("cables", _CABLE, "rate_bps"), of=_bytes
    ),
    # Helpers.
    "ri2n_helper_up": _gauge(
        "Whether the helper runs and reports: 0 or 1.", ("hosts", _HELPED, "helper"), of=_helper_up
    ),
    **{
        f"ri2n_helper_{name}": _gauge(about, ("helpers", _HELPED, key))
        for name, key, about in (
            ("links", "links", "The helper links that the helper has reported."),
            ("usable_links", "usable", "Those that are usable."),
            ("striping_links", "striping", "Those that carry striped frames."),
        )
    },
    **{
        f"ri2n_helper_{key}_frames": _counter(
            f"Frames that the helper has {about} since this controller first heard of it.",
            ("helpers", _HELPED, key),
        )
        for key, about in (
            ("sent", "sent"),
            ("received", "received"),
            ("lost", "missed"),
            ("repeated", "sent once more"),
        )
    },
    # Fast paths.
    "ri2n_fast_up": _gauge(
        "Whether the programs of the fast path are in force and reported: 0 or 1. Nothing where it "
        "is off.",
        ("hosts", _FAST, "fast"),
        of=_fast_up,
    ),
    "ri2n_fast_peers": _gauge(
        "The peers whose frames pass beside the bridge, or why not.",
        _fast_peers,
        (_FAST, Label("state", f"{len(FAST_PEERS)} of each")),
    ),
    "ri2n_fast_dropped_frames": _counter(
        "Frames that the programs of the fast path have dropped since they were loaded.",
        ("hosts", _FAST, "fast"),
        of=lambda fast: fast and fast["dropped"],
    ),
    # Jobs.
    "ri2n_jobs": _gauge(
        "The jobs.", _number_of("jobs", "state", _JOB_STATES), (Label("state", "3"),)
    ),
    "ri2n_user_jobs": _gauge(
        "The jobs of each user.",
        lambda state: capped(Counter(job["user"] for job in state["jobs"].values()), MAX_USERS),
        (Label("user", f"users with jobs, at most {MAX_USERS + 1}"),),
    ),
    "ri2n_jobs_failing": _gauge(
        "The jobs that a host cannot carry out.",
        ("jobs",),
        of=lambda jobs: sum(bool(job.get("failed")) for job in jobs.values()),
    ),
    "ri2n_hosts_in_jobs": _gauge(
        "The hosts that are in a job at least.",
        ("jobs",),
        of=lambda jobs: len({host for job in jobs.values() for host in job["hosts"]}),
    ),
    "ri2n_reservations": _gauge("The reservations.", _reservations, (Label("when", "2"),)),
    "ri2n_rights": _gauge("The users with rights.", ("rights",), of=len),
    "ri2n_policies": _gauge("The policies with a name.", ("policies",), of=len),
}


_SAMPLED = (
    *("ri2n_active_pairs", "ri2n_host_active_pairs", "ri2n_host_fair", "ri2n_host_limited"),
    *("ri2n_nic_receive", "ri2n_nic_transmit", "ri2n_nic_weight"),
)
"""What rounds read or decide: the beginnings of the names."""

FAMILIES = tuple(
    replace(
        family,
        name=name,
        web=name in _WEB,
        charge=family.charge or name in _MEASURED,
        sampled=name.startswith(_SAMPLED),
    )
    for name, family in {**_WEB, **_CONTROLLER, **_MEASURED}.items()
)
