# SPDX-License-Identifier: Apache-2.0
"""Routes of jobs, and of reservations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.documents import EndedJob, Job, JobDetails, JobPolicy, Reservation
from ri2n_sdn.contract.names import HOST_NAME, JOB_ID
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.rest.access import Asked, Kind, User, Viewer, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import check_match
from ri2n_sdn.web.rest.models import JobOrder, PolicyBody, ReservationOrder
from ri2n_sdn.web.rest.pages import Descending, PartOf, page_of, text_filter
from ri2n_sdn.web.who import Who, uid_of

__all__ = ["api"]

_JOBS = Kind(ops.JOB_LIST, "jobs", "id", "job")
_RESERVATIONS = Kind(ops.RESERVE_LIST, "reservations", "id", "reservation", ops.RESERVE_REMOVE)
_ENDED_MOST = 1000
# The key of a job whose id another job has too ends with the name of a host.
_ID = re.compile(rf"{JOB_ID}(@{HOST_NAME})?\Z")

OfUser = Annotated[str | None, Query(max_length=65, description="of this user")]
Sort = Literal["id", "begin", "end", "user"]
AtHost = Annotated[str | None, Query(max_length=64, description="at this host")]

api = APIRouter(tags=["jobs"])


@api.get("/jobs", response_model=page(Job), operation_id="list_jobs")
def jobs(
    part: PartOf,
    asked: Viewer,
    q: Annotated[str | None, Query(max_length=100, description="a part of the id")] = None,
    user: OfUser = None,
    host: AtHost = None,
    state: Annotated[
        str | None, Query(max_length=20, description="`installed`, `waiting`, `refused`")
    ] = None,
    sort: Sort = "id",
    descending: Descending = False,
) -> Any:
    """The jobs that run or wait."""
    fits = text_filter(q)
    found = [
        job
        for job in asked.state["jobs"].values()
        if fits(job["id"])
        and user in (None, job["user"])
        and state in (None, job["state"])
        and (host is None or host in job["hosts"])
    ]
    return page_of(found, part, lambda job: (_place(job, sort), job["id"]), descending)


@api.post(
    "/jobs",
    response_model=answer(Job),
    status_code=201,
    operation_id="begin_job",
    responses={200: {"model": answer(Job), "description": "the same order was given before"}},
)
async def begin(order: JobOrder, asked: User) -> Any:
    """Order a job. The same order again changes nothing, and is answered with 200."""
    wanted = _wanted(order, asked.who)
    if "uid" not in wanted:
        wanted["uid"] = _uid_of(wanted["user"])
    if not {"named", "policy"} & wanted.keys():
        wanted["policy"] = "shared"
    done = await asked.request(ops.JOB_BEGIN, job=wanted)
    if done.get("again"):
        asked.response.status_code = 200
    asked.response.headers["Location"] = f"/api/v1/jobs/{done['job']['id']}"
    return done["job"]


@api.get("/jobs/{job}", response_model=answer(JobDetails), operation_id="show_job")
async def show(job: str, asked: Viewer) -> Any:
    """One job, with its class on each host and its paths."""
    found = await asked.request(ops.JOB_SHOW, id=_id(job))
    return asked.shown(found["job"])


@api.delete("/jobs/{job}", status_code=204, operation_id="end_job")
async def end(job: str, asked: User) -> Response:
    """End a job that was ordered here. Job managers end theirs on the hosts."""
    async with asked.writing():
        if "if-match" in asked.http.headers or "if-none-match" in asked.http.headers:
            shown = await asked.request(ops.JOB_SHOW, id=_id(job))
            check_match(asked.http, shown["job"])
        await asked.request(ops.JOB_END, id=_id(job))
    return Response(status_code=204)


@api.get("/ended-jobs", response_model=page(EndedJob), operation_id="list_ended_jobs")
async def ended(part: PartOf, asked: Viewer, user: OfUser = None) -> Any:
    """The jobs that have ended, the last one first; the newest 1,000 of them."""
    wanted = {} if user is None else {"user": user}
    found = await asked.listed(ops.JOB_HISTORY, "jobs", limit=_ENDED_MOST, **wanted)
    return page_of(found, part)


@api.get("/jobs/{job}/policy", response_model=answer(JobPolicy), operation_id="show_job_policy")
def policy(job: str, asked: Viewer) -> Any:
    """The policy of a job. Its ETag is for moving the job."""
    return asked.shown(_policy(entry_of(asked.state["jobs"], job, "job")))


@api.put("/jobs/{job}/policy", response_model=answer(JobPolicy), operation_id="move_job")
async def move(job: str, wanted: PolicyBody, asked: User) -> Any:
    """Give a job another policy while it runs. No packet is lost."""
    policy = wanted.model_dump(exclude_unset=True, exclude_none=True)
    if not {"named", "policy"} & policy.keys():
        raise refusal("policy_missing", "body.policy")
    return await _move(asked, job, job=policy)


@api.delete("/jobs/{job}/policy", response_model=answer(JobPolicy), operation_id="move_job_back")
async def back(job: str, asked: User) -> Any:
    """Give a job back the policy that its hosts declare."""
    return await _move(asked, job, back=True)


@api.get("/reservations", response_model=page(Reservation), operation_id="list_reservations")
def reservations(
    part: PartOf,
    asked: Viewer,
    user: OfUser = None,
    host: AtHost = None,
    sort: Sort = "begin",
    descending: Descending = False,
) -> Any:
    """The reservations that are kept."""
    found = [
        each
        for each in asked.state["reservations"].values()
        if user in (None, each["user"]) and (host is None or host in each["hosts"])
    ]
    return page_of(found, part, lambda each: (_place(each, sort), each["id"]), descending)


@api.post(
    "/reservations",
    response_model=answer(Reservation),
    status_code=201,
    operation_id="add_reservation",
    responses={
        200: {"model": answer(Reservation), "description": "there is this very one already"}
    },
)
async def reserve(order: ReservationOrder, asked: User) -> Any:
    """Reserve paths. The same reservation again changes nothing, and is answered with 200."""
    wanted = _wanted(order, asked.who)
    async with asked.writing():
        try:
            done = await asked.request(ops.RESERVE_ADD, reservation=wanted)
        except BadInput as error:
            if error.code != "reservation_exists":
                raise
            same = (await asked.fresh(_RESERVATIONS)).get(wanted["id"])
            if same is None or not _same(same, wanted):
                raise
            asked.response.status_code = 200
            done = {"reservation": same}
    asked.response.headers["Location"] = f"/api/v1/reservations/{done['reservation']['id']}"
    return done["reservation"]


@api.get(
    "/reservations/{reservation}",
    response_model=answer(Reservation),
    operation_id="show_reservation",
)
def reservation(reservation: str, asked: Viewer) -> Any:
    """One reservation."""
    return asked.shown(entry_of(asked.state["reservations"], reservation, "reservation"))


@api.delete("/reservations/{reservation}", status_code=204, operation_id="remove_reservation")
async def unreserve(reservation: str, asked: User) -> Response:
    """Give up a reservation."""
    return await asked.remove(_RESERVATIONS, reservation)


async def _move(asked: Asked, key: str, **wanted: Any) -> Any:
    """Have the controller move a job, and answer with its policy then."""
    async with asked.writing():
        before = await asked.one(_JOBS, key)
        check_match(asked.http, _policy(before), needed="back" not in wanted)
        moved = await asked.request(ops.JOB_MOVE, id=key, **wanted)
    return asked.changed(_policy(moved["job"]))


def _policy(job: Job) -> JobPolicy:
    """The document of a `JobPolicy`."""
    policy = {**job, "moved": job.get("moved") is not None}
    return answer(JobPolicy).model_validate(policy).model_dump()  # type: ignore[no-any-return]


def _place(document: Job | Reservation, sort: Sort) -> Any:
    if sort == "begin":
        return document["begin_s"]
    if sort == "end":
        return document["end_s"] if document["end_s"] is not None else float("inf")
    return document[sort]


def _same(kept: Reservation, asked: Mapping[str, Any]) -> bool:
    """Whether a reservation is what was asked for. Lists have no order, and a name no meaning."""

    def plain(value: Any) -> Any:
        return sorted(map(str, value)) if isinstance(value, list) else value

    return all(
        plain(kept.get(key)) == plain(value) for key, value in asked.items() if key != "named"
    )


def _id(name: str) -> str:
    """A job's id from the path. What cannot be one names nothing (404)."""
    if not _ID.match(name):
        raise refusal("no_such_job", name=name[:130])
    return name


def _wanted(order: JobOrder | ReservationOrder, who: Who) -> dict[str, Any]:
    """What an order asks for, which is for the user of who asks unless it says for whom."""
    wanted = order.model_dump(exclude_unset=True, exclude_none=True)
    if "user" not in wanted:
        if who.user is None:
            raise refusal("user_missing", "body.user", name=who.name)
        wanted["user"] = who.user
    return wanted


def _uid_of(user: str) -> int:
    """The uid of an order's user, who is known on this machine unless the order says it."""
    uid = uid_of(user)
    if uid is None:
        raise refusal("uid_missing", "body.uid", user=user)
    return uid
