# SPDX-License-Identifier: Apache-2.0
"""What users may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ri2n_sdn.contract.choices import KINDS, Kind, one_of
from ri2n_sdn.contract.limits import MAX_HOSTS, MAX_RATE_BPS
from ri2n_sdn.contract.names import user_name
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import exact_rate
from ri2n_sdn.jobs.model import Job, Reservation

__all__ = ["EVERYBODY", "Right", "allowed", "check_right", "parse_policies", "right_of"]

EVERYBODY = "*"
"""The user of the right of all users that have none of their own."""


@dataclass(frozen=True, slots=True)
class Right:
    """What a user may ask for. `user` is a name, a uid in digits, or EVERYBODY.

    `max_rate_bps` is the highest min_rate per host, `max_hosts` the largest number of hosts of a
    job that asks for more than the common paths; None sets no limit. `reserve`: whether the user
    may have reservations.
    """

    user: str
    policies: frozenset[Kind] = frozenset(("shared",))
    max_rate_bps: int | None = None
    max_hosts: int | None = None
    reserve: bool = False


def allowed(rights: Iterable[Right], wanted: Job | Reservation) -> str | None:
    """Why a user may not have a job or reservation, in one line; None when the user may.

    Where there are no rights at all, everybody may have everything. Where there are some, a user
    without one, and without one for EVERYBODY, may have jobs with the policy `shared` and no
    min_rate, which need nothing that others could miss.
    """
    listed = list(rights)
    if not listed:
        return None
    job = wanted.as_job()
    title, policy = job.title, job.policy
    right = right_of(listed, job.user, wanted.uid if isinstance(wanted, Job) else None)
    if isinstance(wanted, Reservation) and not right.reserve:
        return f"{title}: user {wanted.user} may not reserve"
    if policy.kind not in right.policies:
        may = ", ".join(kind for kind in KINDS if kind in right.policies) or "none"
        return f"{title}: user {wanted.user} may not use policy {policy.kind} (may use: {may})"
    rate_bps = policy.min_rate_bps or 0
    if right.max_rate_bps is not None and rate_bps > right.max_rate_bps:
        may = f"min_rate {exact_rate(right.max_rate_bps)}, not {exact_rate(rate_bps)}"
        return f"{title}: user {wanted.user} may have {may}"
    most = right.max_hosts if policy.asks_for_more else None
    if most is not None and len(wanted.hosts) > most:
        may = f"policy {policy.kind} on {most} hosts, not {len(wanted.hosts)}"
        return f"{title}: user {wanted.user} may have {may}"
    return None


def right_of(rights: Iterable[Right], user: str, uid: int | None = None) -> Right:
    """The right of a user: by name, then by uid, then EVERYBODY's, then the least."""
    by_user = {right.user: right for right in rights}
    for name in (user, None if uid is None else str(uid), EVERYBODY):
        if name is not None and name in by_user:
            return by_user[name]
    return Right(user, max_rate_bps=0)


def parse_policies(text: str, where: str = "--policies") -> list[Kind]:
    """The kinds of policies in `shared,paths`. Raises BadInput, which begins with `where`."""
    return [one_of(kind.strip(), KINDS, where) for kind in text.split(",")]


def check_right(right: Right) -> None:
    """Raise BadInput, with one line that begins with the key, when a right cannot be right."""
    if right.user != EVERYBODY:
        user_name(right.user)
    for kind in sorted(right.policies):
        one_of(kind, KINDS, "policies")
    for key, value, high in (
        ("max_rate_bps", right.max_rate_bps, MAX_RATE_BPS),
        ("max_hosts", right.max_hosts, MAX_HOSTS),
    ):
        if value is not None and not 0 <= value <= high:
            raise refusal("value_out_of_range", key, value=value, low=0, high=high)
