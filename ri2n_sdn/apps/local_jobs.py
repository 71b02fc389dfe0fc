# SPDX-License-Identifier: Apache-2.0
"""Operations of the local interface on jobs, reservations, rights and named policies.

A user other than root may ask about everything, and may begin, move and end only what is his own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.apps.local_policies import (
    add_policy,
    list_policies,
    remove_policy,
    show_policy,
    spelled_out,
)
from ri2n_sdn.contract import documents, operations
from ri2n_sdn.contract.answers import (
    AllJobs,
    AllReservations,
    AllRights,
    BegunJob,
    EndedJobs,
    Nothing,
    OneJob,
    OneReservation,
    OneRight,
    ShownJob,
)
from ri2n_sdn.contract.names import job_id
from ri2n_sdn.contract.operations import Answer, Request
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.jobs.admit import conflict
from ri2n_sdn.jobs.check import check_policy, check_reservation
from ri2n_sdn.jobs.declaration import read_order
from ri2n_sdn.jobs.history import ended
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.moves import Move, move_of
from ri2n_sdn.jobs.rights import Right, allowed, check_right
from ri2n_sdn.jobs.text import policy_document
from ri2n_sdn.pipeline.job_plan import tables_of

__all__ = ["job_operations", "list_jobs", "list_reservations", "list_rights"]

_MAX_HISTORY = 1000


def job_operations(cluster: Cluster, asker: Asker) -> dict[str, Callable[..., Any]]:
    """The operations by name, for one who asks. They raise BadInput and NotAvailable.

    An operation is given the request, unless its requests have no keys.
    """
    return dict(
        (
            operations.JOB_BEGIN.by(partial(_begin, cluster, asker)),
            operations.JOB_END.by(partial(_end, cluster, asker)),
            operations.JOB_MOVE.by(partial(_move, cluster, asker)),
            operations.JOB_LIST.by(partial(list_jobs, cluster)),
            operations.JOB_SHOW.by(partial(_show, cluster)),
            operations.JOB_HISTORY.by(partial(_history, cluster)),
            operations.RESERVE_ADD.by(partial(_reserve, cluster, asker)),
            operations.RESERVE_LIST.by(partial(list_reservations, cluster)),
            operations.RESERVE_REMOVE.by(partial(_unreserve, cluster, asker)),
            operations.RIGHTS_SET.by(partial(_set_right, cluster, asker)),
            operations.RIGHTS_LIST.by(partial(list_rights, cluster)),
            operations.RIGHTS_REMOVE.by(partial(_remove_right, cluster, asker)),
            operations.POLICY_ADD.by(partial(add_policy, cluster, asker)),
            operations.POLICY_LIST.by(partial(list_policies, cluster)),
            operations.POLICY_SHOW.by(partial(show_policy, cluster)),
            operations.POLICY_REMOVE.by(partial(remove_policy, cluster, asker)),
        )
    )


def _admitting(
    operation: Callable[[Cluster, Asker, Request], Answer],
) -> Callable[[Cluster, Asker, Request], Answer]:
    """The operation as one step: nobody else is admitted between its check and its record."""

    @wraps(operation)
    def run(cluster: Cluster, asker: Asker, request: Request) -> Answer:
        with cluster.jobs.book.admission:
            return operation(cluster, asker, request)

    return run


# Jobs


@_admitting
def _begin(cluster: Cluster, asker: Asker, request: Request) -> BegunJob:
    """Order a job. Its hosts carry the order out as soon as they see it."""
    book, now_s = cluster.jobs.book, time.time()
    job = _job(request.get("job"), now_s, book)
    asker.check_owner(job.user, job.uid, "user")
    with cluster.lock:
        running = list(_all(cluster).values())
    if any(other.id == job.id for other in running):
        same = book.orders.get(job.id)
        if same is not None and replace(same, begin_s=job.begin_s) == job:
            return {"job": _document(cluster, job.id, same), "again": True}
        raise refusal("job_exists", "id", job=job.id)
    _check_room(cluster, asker, job, running, now_s)
    book.add_order(job)
    cluster.wake.jobs.set()
    with cluster.lock:
        cluster.note("job_ordered", {"job": job.id}, user=job.user, hosts=job.hosts)
        return {"job": _document(cluster, job.id, job)}


def _end(cluster: Cluster, asker: Asker, request: Request) -> Nothing:
    """End an order. What a host's job manager has begun, it must end itself."""
    name = _name(request)
    book = cluster.jobs.book
    job = book.orders.get(name)
    if job is None:
        declared = cluster.jobs.agreement.jobs.get(name)
        if declared is None:
            raise refusal("no_such_job", name=name)
        raise refusal("begun_on_hosts", job=name, id=declared.id, hosts=list(declared.hosts))
    asker.check_owner(job.user, job.uid, name)
    book.end(ended(job, time.time(), f"{asker.name} has ended it"))
    cluster.wake.jobs.set()
    with cluster.lock:
        who = {"user": job.user, "by": asker.name, "hosts": job.hosts}
        cluster.note("job_ended_by", {"job": name}, **who)
    return {}


@_admitting
def _move(cluster: Cluster, asker: Asker, request: Request) -> OneJob:
    """Give a job another policy while it runs. Its packets change over without a loss.

    An order becomes another order. Of a job that hosts have begun, the controller keeps the move
    (`ri2n_sdn.jobs.moves`), and `back` undoes it.
    """
    name = _name(request)
    book, now_s = cluster.jobs.book, time.time()
    back = request.get("back", False)
    if type(back) is not bool:
        raise refusal("not_flag", "back")
    with cluster.lock:
        job = book.orders.get(name) or cluster.jobs.agreement.jobs.get(name)
        declared = cluster.jobs.declared_policy(name)
    if job is None or (job.source == "order" and name not in book.orders):
        raise refusal("no_such_job", name=name)
    asker.check_owner(job.user, job.uid, name)
    if back:
        if "job" in request:
            raise refusal("back_and_policy", "back")
        if job.source == "order":
            raise refusal("order_has_no_other", job=name)
        if declared is None or name not in book.moves:
            raise refusal("has_declared_policy", job=name)
        wanted = replace(job, policy=declared)
    else:
        wanted = replace(job, policy=_moved_policy(job, declared, request.get("job"), now_s, book))
    if job.source == "host" and job.end_s is not None and job.end_s <= now_s:
        wanted = replace(wanted, end_s=None)  # it goes on, nobody knows for how long
    with cluster.lock:
        others = [other for key, other in _all(cluster).items() if key != name]
    # The job manager has given the user what the hosts declare, so no right is needed for it.
    _check_room(cluster, ROOT if back else asker, wanted, others, now_s)
    if job.source == "order":
        book.add_order(wanted)
    elif back:
        book.remove_move(name)
    else:
        moved_s = max(now_s, job.begin_s)
        book.put_move(Move(name, job.uid, wanted.policy, asker.name, moved_s))
    cluster.wake.jobs.set()
    with cluster.lock:
        who = {"user": job.user, "by": asker.name, "hosts": job.hosts}
        cluster.note("job_moved_back" if back else "job_moved", {"job": name}, **who)
        return {"job": _document(cluster, name, wanted)}


def _moved_policy(
    job: Job, declared: Policy | None, asked: object, now_s: float, book: JobBook
) -> Policy:
    """The policy that a request wants for a job that runs. Raises BadInput."""
    if not isinstance(asked, dict):
        raise refusal("not_object", "job")
    fixed = {"user": job.user, "uid": job.uid, "hosts": list(job.hosts)}
    fixed["id"] = job.id.partition("@")[0]
    if fixed.keys() & asked.keys():
        raise refusal("cannot_be_changed", "job", keys=sorted(fixed.keys() & asked.keys()))
    policy = _job({**asked, **fixed}, now_s, book).policy
    if job.source == "order":
        return policy
    # Hosts hold a job to its max_rate, by what they declare.
    rate_bps = declared.max_rate_bps if declared is not None else job.policy.max_rate_bps
    if policy.max_rate_bps not in (None, rate_bps):
        raise refusal("rate_held_by_hosts", "max_rate_bps", job=job.id, id=fixed["id"])
    policy = replace(policy, max_rate_bps=rate_bps)
    check_policy(policy)
    return policy


def list_jobs(cluster: Cluster) -> AllJobs:
    """All jobs, and the jobs that have been ordered and that no host carries out yet."""
    with cluster.lock:
        return {"jobs": [_document(cluster, key, job) for key, job in _all(cluster).items()]}


def _show(cluster: Cluster, request: Request) -> ShownJob:
    """One job, with its class on each host, and as `routes` its paths from each to the others."""
    name = _name(request)
    with cluster.lock:
        job = _all(cluster).get(name)
        if job is None:
            raise refusal("no_such_job", name=name)
        return {"job": _details(cluster, name, job)}


def _history(cluster: Cluster, request: Request) -> EndedJobs:
    """The jobs that have ended, the newest first."""
    limit = request.get("limit", 50)
    if type(limit) is not int or not 1 <= limit <= _MAX_HISTORY:
        raise refusal("out_of_range", "limit", low=1, high=_MAX_HISTORY)
    user = request.get("user")
    if user is not None and not isinstance(user, str):
        raise refusal("not_user_name", "user")
    every = reversed(list(cluster.jobs.book.history))
    records = [record for record in every if user in (None, record.user)]
    jobs: list[documents.EndedJob] = [
        {
            "id": record.id,
            "user": record.user,
            "uid": record.uid,
            "hosts": list(record.hosts),
            **policy_document(record.policy),
            "begin_s": record.begin_s,
            "end_s": record.end_s,
            "why": record.why,
        }
        for record in records[:limit]
    ]
    return {"jobs": jobs}


def _all(cluster: Cluster) -> dict[str, Job]:
    """All jobs by key: those of hosts that agree, and orders that no host carries out yet."""
    state = cluster.jobs
    return {**dict(sorted(state.book.orders.items())), **state.agreement.jobs}


def _document(cluster: Cluster, key: str, job: Job) -> documents.Job:
    """A job for an answer (cluster.lock is held, or the job has just been ordered)."""
    what, why = cluster.jobs.state_of(key)
    return {
        "id": key,
        "user": job.user,
        "uid": job.uid,
        "hosts": list(job.hosts),
        **policy_document(job.policy),
        "begin_s": job.begin_s,
        "end_s": job.end_s,
        "source": job.source,
        "state": what,
        "why": why,
        "failed": cluster.jobs.failures(key),
        "moved": _moved(cluster, job),
        "lanes": [
            cluster.jobs.assignment.lane_map.text(lane)
            for lane in sorted(cluster.jobs.assignment.lanes.get(key, ()))
        ],
    }


def _moved(cluster: Cluster, job: Job) -> documents.Moved | None:
    """Who has moved a job of hosts, when, and what its hosts declare; None when nobody has."""
    move = move_of(job, cluster.jobs.book.moves)
    if move is None:
        return None
    declared = cluster.jobs.declared_policy(job.id)
    return {
        "by": move.by,
        "at_s": move.moved_s,
        "declared": policy_document(declared) if declared is not None else None,
    }


def _details(cluster: Cluster, key: str, job: Job) -> documents.JobDetails:
    state, fabric = cluster.jobs, cluster.fabric()
    refused = key in state.assignment.refused
    paths: list[documents.Route] = [
        {
            "src": host,
            "dst": receiver,
            "dscp": dscp,
            "own": path.own.name,
            "peer": path.peer.name,
            "network": path.network,
            "vlan": path.route.vlan or None,
            "alive": path.alive,
        }
        for host in (job.hosts if not refused else ())
        if host in fabric.hosts
        for dscp, chosen in tables_of(fabric, state.assignment, key, job, host).items()
        for receiver, paths_to in chosen.items()
        for path in paths_to
    ]
    return {
        **_document(cluster, key, job),
        "classes": dict(state.agreement.classes.get(key, {})),
        "routes": paths,
    }


# Reservations


@_admitting
def _reserve(cluster: Cluster, asker: Asker, request: Request) -> OneReservation:
    """Keep a reservation, if its user may have it and it fits beside all others."""
    book, now_s = cluster.jobs.book, time.time()
    asked = request.get("reservation")
    if not isinstance(asked, dict):
        raise refusal("not_object", "reservation")
    rate = asked.get("rate_bps")
    if rate is not None and type(rate) is not int:
        raise refusal("not_rate_number", "rate_bps")
    rest = {key: value for key, value in asked.items() if key != "rate_bps"}
    kind = {} if "named" in rest else {"policy": "exclusive"}
    job = _job({"uid": 0, **kind, **rest}, now_s, book)
    if job.end_s is None:
        raise refusal("missing", "end_s")
    wanted = Reservation(job.id, job.user, job.hosts, job.begin_s, job.end_s, rate, job.policy)
    check_reservation(wanted)
    asker.check_owner(wanted.user, None, "user")
    with cluster.lock:
        running = list(_all(cluster).values())
    if wanted.id in book.reservations:
        raise refusal("reservation_exists", "id", reservation=wanted.id)
    _check_room(cluster, asker, wanted, running, now_s)
    book.put_reservation(wanted)
    cluster.wake.jobs.set()
    return {"reservation": _reservation(wanted)}


def list_reservations(cluster: Cluster) -> AllReservations:
    """All reservations, in the order in which they begin."""
    kept = cluster.jobs.book.reservations.values()
    in_turn = sorted(kept, key=lambda each: (each.begin_s, each.id))
    return {"reservations": [_reservation(each) for each in in_turn]}


def _unreserve(cluster: Cluster, asker: Asker, request: Request) -> Nothing:
    """Remove a reservation."""
    name = _name(request)
    book = cluster.jobs.book
    kept = book.reservations.get(name)
    if kept is None:
        raise refusal("no_such_reservation", name=name)
    asker.check_owner(kept.user, None, name)
    book.remove_reservation(name)
    cluster.wake.jobs.set()
    return {}


def _reservation(kept: Reservation) -> documents.Reservation:
    return {
        "id": kept.id,
        "user": kept.user,
        "hosts": list(kept.hosts),
        "begin_s": kept.begin_s,
        "end_s": kept.end_s,
        "rate_bps": kept.rate_bps,
        **policy_document(kept.policy),
    }


# Rights


def _set_right(cluster: Cluster, asker: Asker, request: Request) -> OneRight:
    """Say what a user may do, `*` for all others. Only root may do so."""
    asker.check_root("rights")
    asked = request.get("right")
    keys = {"user", "policies", "max_rate_bps", "max_hosts", "reserve"}
    if not isinstance(asked, dict) or not asked.keys() <= keys:
        raise refusal("not_object_with", "right", keys=sorted(keys))
    if not isinstance(asked.get("user"), str):
        raise refusal("not_user_name", "user")
    policies = asked.get("policies", [])
    if not isinstance(policies, list) or not all(isinstance(kind, str) for kind in policies):
        raise refusal("not_policy_kinds", "policies")
    for key in ("max_rate_bps", "max_hosts"):
        if asked.get(key) is not None and type(asked[key]) is not int:
            raise refusal("not_number", key)
    if type(asked.get("reserve", False)) is not bool:
        raise refusal("not_flag", "reserve")
    right = Right(
        asked["user"],
        frozenset(policies),
        asked.get("max_rate_bps"),
        asked.get("max_hosts"),
        asked.get("reserve", False),
    )
    check_right(right)
    cluster.jobs.book.put_right(right)
    return {"right": _right(right)}


def list_rights(cluster: Cluster) -> AllRights:
    """The rights of all users that have any."""
    return {"rights": [_right(right) for _, right in sorted(cluster.jobs.book.rights.items())]}


def _remove_right(cluster: Cluster, asker: Asker, request: Request) -> Nothing:
    """Take away what was said of a user. Only root may do so."""
    asker.check_root("rights")
    user = request.get("user")
    if not isinstance(user, str):
        raise refusal("not_user_name", "user")
    cluster.jobs.book.remove_right(user)
    return {}


def _right(right: Right) -> documents.Right:
    return {
        "user": right.user,
        "policies": sorted(right.policies),
        "max_rate_bps": right.max_rate_bps,
        "max_hosts": right.max_hosts,
        "reserve": right.reserve,
    }


# Checks


def _job(asked: object, now_s: float, book: JobBook) -> Job:
    """The job of a request, whose keys are those of an order. Raises BadInput.

    `named` may stand in place of the keys of a policy.
    """
    if not isinstance(asked, Mapping):
        raise refusal("not_object", "job")
    asked = spelled_out(book, asked)
    for key in ("v", "order", "source"):
        if key in asked:
            raise refusal("unknown_key", name=key)
    order = {"begin_s": now_s, **asked, "v": 1, "order": True, "source": "order"}
    return read_order(json.dumps(order).encode())


def _check_room(
    cluster: Cluster,
    asker: Asker,
    wanted: Job | Reservation,
    running: Sequence[Job],
    now_s: float,
) -> None:
    """Raise BadInput when the asker may not have a job or reservation, or when there is no room."""
    with cluster.lock:
        fabric, before = cluster.fabric(), cluster.jobs.assignment
    book = cluster.jobs.book
    for name in wanted.hosts:
        if name not in fabric.hosts:
            known = sorted(fabric.hosts) or "none"
            raise refusal("host_unknown", "hosts", host=name, known=known)
    if wanted.end_s is not None and wanted.end_s <= max(wanted.begin_s, now_s):
        raise refusal("over_already", "end_s")
    why = None if asker.uid == 0 else allowed(book.rights.values(), wanted)
    if why is None:
        why = conflict(fabric, running, list(book.reservations.values()), wanted, now_s, before)
    if why is not None:
        raise refusal("not_admitted", why=why)


def _name(request: Request) -> str:
    name = request.get("id")
    if not isinstance(name, str):
        raise refusal("not_text", "id")
    # The key of a job whose id another job has too ends with the name of a host.
    job_id(name.partition("@")[0])
    return name
