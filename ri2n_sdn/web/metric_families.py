# SPDX-License-Identifier: Apache-2.0
"""The families of metrics: their names, types, labels and bounds.

Names follow the conventions of Prometheus: base units, `_total` for counters, `_info` for labels
whose value is always 1. A family never has a label whose values grow with time, such as the id of a
job, or with the square of the number of hosts, such as a pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ri2n_sdn.contract.counters import HANDLER, LOOP
from ri2n_sdn.web import metric_values as of
from ri2n_sdn.web.metric_values import MAX_NAMES, MAX_NICS, MAX_USERS, Own, Values

__all__ = ["FAMILIES", "Family"]

State = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """One family of metrics.

    * `name` has no suffix; `kind` gives it one.
    * `bound` says how many series there are at most, for people.
    * `values` gives them. For a histogram, it gives `le` as the last label, and two values more,
      with `count` and `sum` in its place.
    * `web`: it is there also while the controller is not.
    * `charge`: only a controller in charge measures or decides it. One that stands by has no values
      of it, or those of before.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    about: str
    labels: tuple[str, ...]
    bound: str
    values: Callable[[State, Own], Values]
    web: bool = False
    charge: bool = False

    @property
    def full_name(self) -> str:
        """The name that queries use; that of a histogram gets `_bucket`, `_count` or `_sum`."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


_HOSTS, _NICS, _ONE = "hosts", f"NICs, {MAX_NICS} of a host at most", "1"
_HELPED = "hosts with a helper"

_ALWAYS: tuple[Family, ...] = (
    # The web process and its stream.
    Family(
        *("ri2n_up", "gauge", "Whether the controller is there: 0 or 1.", (), _ONE),
        *(lambda state, own: of.one(own.connected), True),
    ),
    Family(
        "ri2n_state_age_seconds",
        "gauge",
        "The time since the controller was last heard of. It gives a sign of life every 5 s.",
        (),
        _ONE,
        lambda state, own: of.one(
            None if own.heard_s is None else max(0.0, own.now_s - own.heard_s)
        ),
        True,
    ),
    Family(
        "ri2n_connection_changed_timestamp_seconds",
        "gauge",
        "When ri2n_up changed last, as Unix time.",
        (),
        _ONE,
        lambda state, own: of.one(own.since_s),
        True,
    ),
    Family(
        "ri2n_web_events",
        "counter",
        "What the web process counts of its stream: streams, changes, lines that were dropped.",
        ("event",),
        f"at most {MAX_NAMES + 1}, all named in the code",
        lambda state, own: of.capped(own.counters, MAX_NAMES),
        True,
    ),
    Family(
        *("ri2n_build", "info", "The versions of the processes.", ("component", "version"), "2"),
        *(of.builds, True),
    ),
    Family(
        "ri2n_certificate_end_timestamp_seconds",
        "gauge",
        "When the first of a process's certificates ends, as Unix time. Nothing without TLS.",
        ("component",),
        "2",
        of.certificates,
        True,
    ),
    # The controller.
    Family(
        *("ri2n_controller_in_charge", "gauge", "Whether it is in charge: 0 or 1.", (), _ONE),
        of.controller("in_charge"),
    ),
    Family(
        "ri2n_controller_settled",
        "gauge",
        "Whether all hosts hold what they should: 0 or 1.",
        (),
        _ONE,
        of.controller("settled"),
        charge=True,
    ),
    Family(
        "ri2n_controller_start_time_seconds",
        "gauge",
        "When it began, as Unix time.",
        (),
        _ONE,
        of.controller("started_s"),
    ),
    Family(
        "ri2n_config",
        "info",
        "The hash of its configuration.",
        ("hash",),
        _ONE,
        of.info("config_hash"),
    ),
    Family("ri2n_strategy", "info", "The strategy.", ("strategy",), _ONE, of.info("strategy")),
    Family(
        *("ri2n_parameter", "gauge", "The parameters that are numbers, in their own units."),
        *(("name",), "parameters", of.parameters),
    ),
    Family(
        "ri2n_counting_interval_seconds",
        "gauge",
        "The time from one reading of the counters to the next.",
        (),
        _ONE,
        of.controller("hbspan_s"),
    ),
    Family(
        "ri2n_cycle_duration_seconds",
        "histogram",
        "How long rounds took, from the request for counters to acknowledged slot tables.",
        (),
        "15",
        of.lengths("cycle"),
    ),
    Family(
        "ri2n_cycle_cpu_seconds",
        "histogram",
        "How much CPU time rounds took.",
        (),
        "15",
        of.lengths("cycle_cpu"),
    ),
    Family(
        "ri2n_active_pairs",
        "gauge",
        "The pairs of hosts with a slot table of their own.",
        (),
        _ONE,
        of.controller("active_pairs"),
        charge=True,
    ),
    Family(
        "ri2n_openflow_messages",
        "counter",
        "OpenFlow messages of all hosts together.",
        ("direction", "type"),
        "2 x 36 types",
        of.messages,
    ),
    Family(
        "ri2n_errors",
        "counter",
        "Exceptions in the controller: in handlers of messages, in loops, because of one host, "
        "because of the cluster as a whole, and in what watchers are told. 0 is there, too.",
        ("source",),
        "5",
        of.errors,
    ),
    Family(
        "ri2n_handler_errors",
        "counter",
        "Exceptions in handlers of messages.",
        ("handler",),
        "handlers in the code",
        of.counters(HANDLER),
    ),
    Family(
        "ri2n_loop_errors",
        "counter",
        "Exceptions in the controller's loops.",
        ("loop",),
        "loops in the code",
        of.counters(LOOP),
    ),
    Family(
        "ri2n_events",
        "counter",
        "What else the controller counts, as `ri2n status` shows it: changes, drops, refusals.",
        ("event",),
        f"at most {MAX_NAMES + 1}, all named in the code",
        of.events,
    ),
    Family(
        "ri2n_problems",
        "gauge",
        "What is wrong now, as `ri2n status` shows it.",
        ("severity",),
        "2",
        of.problems,
    ),
    # The store.
    Family(
        "ri2n_store",
        "info",
        "The kind of the store: none, own or common.",
        ("kind",),
        _ONE,
        lambda state, own: (
            [((str(state["controller"]["store"]["kind"]),), 1.0)]
            if "kind" in state["controller"].get("store", {})
            else ()
        ),
    ),
    Family(
        *("ri2n_store_active", "gauge", "Whether it keeps the controller's memory: 0 or 1."),
        *((), _ONE, of.store("active")),
    ),
    Family("ri2n_store_epoch", "gauge", "How often charge changed.", (), _ONE, of.store("epoch")),
    Family(
        "ri2n_store_problem",
        "gauge",
        "Whether something is wrong with the store: 0 or 1.",
        (),
        _ONE,
        lambda state, own: of.one(bool(state["controller"].get("store", {}).get("problem"))),
    ),
    # Hosts.
    Family("ri2n_hosts", "gauge", "The hosts that are known.", (), _ONE, of.size("hosts")),
    Family(
        "ri2n_host",
        "info",
        "What hosts are.",
        ("host", "dpid", "mac", "ovs", "datapath"),
        _HOSTS,
        of.host_infos,
    ),
    Family(
        "ri2n_host_connected",
        "gauge",
        "Whether the host is connected to the controller: 0 or 1.",
        ("host",),
        _HOSTS,
        of.each_host(lambda host: host["connected"]),
    ),
    Family(
        "ri2n_host_certificate_end_timestamp_seconds",
        "gauge",
        "When the certificate ends with which the host connected last, as Unix time. Nothing "
        "where the controller asks for none.",
        ("host",),
        _HOSTS,
        of.each_host(lambda host: host.get("certificate_ends_s")),
        charge=True,
    ),
)

_MEASURED: tuple[Family, ...] = (
    Family(
        "ri2n_host_active_pairs",
        "gauge",
        "The pairs that the host sends, with a slot table of their own.",
        ("host",),
        _HOSTS,
        of.entries("activity", "active_pairs"),
    ),
    Family(
        "ri2n_host_reweights",
        "counter",
        "Slot tables of the host that were changed.",
        ("host",),
        _HOSTS,
        of.entries("activity", "reweights"),
    ),
    Family(
        "ri2n_host_slots_moved",
        "counter",
        "Slots of the host that went to another path.",
        ("host",),
        _HOSTS,
        of.entries("activity", "slots_moved"),
    ),
    # NICs, and with them the links between hosts and switches.
    Family(
        "ri2n_nic",
        "info",
        "What NICs are, and where they are plugged in.",
        ("host", "nic", "network", "switch", "mac"),
        _NICS,
        of.nic_infos,
    ),
    Family(
        "ri2n_nic_up",
        "gauge",
        "Whether the NIC has carrier: 0 or 1. Nothing for a host that is away.",
        ("host", "nic"),
        _NICS,
        of.each_nic(lambda nic: nic["up"]),
    ),
    Family(
        "ri2n_nic_alive",
        "gauge",
        "Whether frames arrive from it and at it, as probes say: 0 or 1.",
        ("host", "nic"),
        _NICS,
        of.each_nic(lambda nic: nic["alive"]),
    ),
    Family(
        "ri2n_nic_speed_bytes_per_second",
        "gauge",
        "The rate of the NIC.",
        ("host", "nic"),
        _NICS,
        of.each_nic(lambda nic: nic["speed_bps"] / of.BITS if nic["speed_bps"] else None),
    ),
    Family(
        "ri2n_nic_transmit_bytes",
        "counter",
        "What the NIC has sent, as the host's switch counts it: the link to the network.",
        ("host", "nic"),
        _NICS,
        of.byte_counts(0),
    ),
    Family(
        "ri2n_nic_receive_bytes",
        "counter",
        "What the NIC has received: the link from the network.",
        ("host", "nic"),
        _NICS,
        of.byte_counts(1),
    ),
    Family(
        "ri2n_nic_weight_ratio",
        "gauge",
        "The NIC's part of the slots of the host's active pairs, from 0 to 1.",
        ("host", "nic"),
        _NICS,
        of.weights,
    ),
    Family(
        "ri2n_nic_outages",
        "counter",
        "How often the NIC was out. It is out while it is not alive and its host is connected.",
        ("host", "nic"),
        _NICS,
        of.outages("count"),
    ),
    Family(
        "ri2n_nic_outage_seconds",
        "counter",
        "How long all outages of the NIC were together that have ended.",
        ("host", "nic"),
        _NICS,
        of.outages("seconds"),
    ),
    Family(
        "ri2n_nic_out_since_timestamp_seconds",
        "gauge",
        "When the present outage of the NIC began, as Unix time. Nothing when it is not out.",
        ("host", "nic"),
        _NICS,
        of.out_since,
    ),
    Family(
        "ri2n_nic_outage_duration_seconds",
        "histogram",
        "How long the outages of all NICs were that have ended.",
        (),
        "15",
        of.lengths("outage"),
    ),
    # Networks, and the cables between switches.
    Family(
        "ri2n_network_nics",
        "gauge",
        "The NICs in the network.",
        ("network",),
        "networks",
        of.network_nics,
    ),
    Family(
        "ri2n_cable_alive",
        "gauge",
        "Whether everything arrives that is sent over the cable between switches: 0 or 1.",
        ("cable",),
        "declared cables",
        of.cables(lambda cable: float(bool(cable["alive"]))),
    ),
    Family(
        "ri2n_cable_speed_bytes_per_second",
        "gauge",
        "The rate of the cable.",
        ("cable",),
        "declared cables",
        of.cables(lambda cable: cable["rate_bps"] / of.BITS),
    ),
    # Helpers.
    Family(
        "ri2n_helper_up",
        "gauge",
        "Whether the helper runs and reports: 0 or 1.",
        ("host",),
        _HELPED,
        of.each_host(of.helper_up),
    ),
    *(
        Family(
            f"ri2n_helper_{name}", "gauge", about, ("host",), _HELPED, of.entries("helpers", key)
        )
        for name, key, about in (
            ("links", "links", "The helper links that the helper has reported."),
            ("usable_links", "usable", "Those that are usable."),
            ("striping_links", "striping", "Those that carry striped frames."),
        )
    ),
    *(
        Family(
            f"ri2n_helper_{key}_frames",
            "counter",
            f"Frames that the helper has {about} since this controller first heard of it.",
            ("host",),
            _HELPED,
            of.entries("helpers", key),
        )
        for key, about in (
            ("sent", "sent"),
            ("received", "received"),
            ("lost", "missed"),
            ("repeated", "sent once more"),
        )
    ),
    # Jobs.
    Family("ri2n_jobs", "gauge", "The jobs.", ("state",), "3", of.jobs),
    Family(
        "ri2n_user_jobs",
        "gauge",
        "The jobs of each user.",
        ("user",),
        f"users with jobs, at most {MAX_USERS + 1}",
        of.jobs_of_users,
    ),
    Family(
        "ri2n_jobs_failing",
        "gauge",
        "The jobs that a host cannot carry out.",
        (),
        _ONE,
        lambda state, own: of.one(sum(bool(job.get("failed")) for job in state["jobs"].values())),
    ),
    Family(
        "ri2n_hosts_in_jobs",
        "gauge",
        "The hosts that are in a job at least.",
        (),
        _ONE,
        lambda state, own: of.one(
            len({host for job in state["jobs"].values() for host in job["hosts"]})
        ),
    ),
    Family("ri2n_reservations", "gauge", "The reservations.", ("when",), "2", of.reservations),
    Family("ri2n_rights", "gauge", "The users with rights.", (), _ONE, of.size("rights")),
    Family("ri2n_policies", "gauge", "The policies with a name.", (), _ONE, of.size("policies")),
)

FAMILIES = (*_ALWAYS, *(replace(family, charge=True) for family in _MEASURED))
