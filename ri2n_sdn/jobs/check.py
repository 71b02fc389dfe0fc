# SPDX-License-Identifier: Apache-2.0
"""What a job or reservation must be like, whoever wrote it: a host, a command or the store."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ri2n_sdn.contract import limits
from ri2n_sdn.contract.choices import KINDS, SOURCES, one_of
from ri2n_sdn.contract.names import host_name, job_id, path_name, user_name
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import exact_rate, time_text
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.text import once, parse_service, service_text

__all__ = ["check_job", "check_policy", "check_reservation"]


def check_job(job: Job) -> None:
    """Raise BadInput, with one line that begins with the key, when a job cannot be right."""
    job_id(job.id)
    user_name(job.user)
    if not 0 <= job.uid <= limits.MAX_UID:
        raise refusal("value_out_of_range", "uid", value=shown(job.uid), low=0, high=limits.MAX_UID)
    _check_hosts(job.hosts)
    _check_times(job.begin_s, job.end_s)
    one_of(job.source, SOURCES, "source")
    check_policy(job.policy)


def check_reservation(reservation: Reservation) -> None:
    """Raise BadInput, with one line that begins with the key, when it cannot be right."""
    job_id(reservation.id)
    user_name(reservation.user)
    _check_hosts(reservation.hosts)
    _check_times(reservation.begin_s, reservation.end_s)
    _check_rate("rate_bps", reservation.rate_bps)
    check_policy(reservation.policy)
    low, high = reservation.rate_bps, reservation.policy.max_rate_bps
    if low is not None and high is not None and low > high:
        raise refusal("rate_above_most", "rate_bps", low=exact_rate(low), high=exact_rate(high))
    if not reservation.whole_policy.asks_for_more:
        raise refusal("reservation_of_nothing", "policy")


def check_policy(policy: Policy) -> None:
    """Raise BadInput, with one line that begins with the key, when a policy cannot be right."""
    one_of(policy.kind, KINDS, "policy")
    if len(policy.tables) > limits.MAX_TABLES:
        raise refusal("too_many", "tables", most=limits.MAX_TABLES)
    seen: set[int | None] = set()
    for table in policy.tables:
        key = "paths" if table.dscp is None else "tables"
        if table.dscp is not None and not 0 <= table.dscp <= limits.MAX_DSCP:
            raise refusal("dscp_form", "tables", high=limits.MAX_DSCP, value=shown(table.dscp))
        if table.dscp in seen:
            what = "the default table" if table.dscp is None else f"DSCP {table.dscp}"
            raise refusal("twice", key, what=what)
        seen.add(table.dscp)
        if len(table.paths) > limits.MAX_NAMES:
            raise refusal("too_many_names", key, most=limits.MAX_NAMES)
        if table.dscp is not None and not table.paths:
            raise refusal("table_empty", "tables", dscp=table.dscp)
        for name in table.paths:
            path_name(name, key)
    if policy.kind == "shared" and policy.all_names:
        raise refusal("shared_has_no_paths", "paths")
    if policy.kind == "paths" and not policy.all_names:
        raise refusal("paths_needs_paths", "paths")
    if policy.services and policy.kind != "isolated":
        raise refusal("services_need_isolated", "services", policy=policy.kind)
    if len(policy.services) > limits.MAX_SERVICES:
        raise refusal("too_many", "services", most=limits.MAX_SERVICES)
    for service in policy.services:
        parse_service(service_text(service), "services")
    _check_rate("min_rate_bps", policy.min_rate_bps)
    _check_rate("max_rate_bps", policy.max_rate_bps)
    low, high = policy.min_rate_bps, policy.max_rate_bps
    if low is not None and high is not None and low > high:
        raise refusal("rate_above_most", "min_rate_bps", low=exact_rate(low), high=exact_rate(high))


def _check_hosts(hosts: Sequence[str]) -> None:
    if not hosts:
        raise refusal("none_there", "hosts")
    if len(hosts) > limits.MAX_HOSTS:
        raise refusal("too_many", "hosts", most=limits.MAX_HOSTS)
    once([host_name(name) for name in hosts], "hosts")


def _check_times(begin_s: float, end_s: float | None) -> None:
    for key, time_s in (("begin_s", begin_s), ("end_s", end_s)):
        if time_s is not None and not (math.isfinite(time_s) and 0 <= time_s <= limits.MAX_TIME_S):
            raise refusal("time_out_of_range", key, value=shown(time_s))
    if end_s is not None and end_s <= begin_s:
        raise refusal("end_not_later", "end_s", end=time_text(end_s), begin=time_text(begin_s))


def _check_rate(key: str, rate_bps: int | None) -> None:
    if rate_bps is not None and not 0 < rate_bps <= limits.MAX_RATE_BPS:
        raise refusal("rate_out_of_range", key, value=shown(rate_bps), high=limits.MAX_RATE_BPS)
