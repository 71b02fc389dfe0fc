# SPDX-License-Identifier: Apache-2.0
"""Routes of jobs, and of reservations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from ri2n_sdn.contract.documents import EndedJob, Job, JobDetails, JobPolicy, Reservation
from ri2n_sdn.contract.names import HOST_NAME, JOB_ID
from ri2n_sdn.contract.operations import (
    JOB_BEGIN,
    JOB_END,
    JOB_HISTORY,
    JOB_LIST,
    JOB_MOVE,
    JOB_SHOW,
    RESERVE_ADD,
    RESERVE_LIST,
    RESERVE_REMOVE,
)
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.rest.access import Access, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import cached, check_match, etag_of
from ri2n_sdn.web.rest.job_models import JobOrder, PolicyBody, ReservationOrder
from ri2n_sdn.web.rest.pages import Descending, PartOf, page_of, text_filter
from ri2n_sdn.web.who import Who, uid_of

__all__ = ["router"]

_POLICY = ("policy", "paths", "tables", "services", "min_rate_bps", "max_rate_bps")
_ENDED_MOST = 1000
# The key of a job whose id another job has too ends with the name of a host.
_ID = re.compile(rf"{JOB_ID}(@{HOST_NAME})?\Z")

User = Annotated[str | None, Query(max_length=65, description="of this user")]
Sort = Literal["id", "begin", "end", "user"]
AtHost = Annotated[str | None, Query(max_length=64, description="at this host")]


def router(access: Access) -> APIRouter:
    """The routes."""
    api = APIRouter(tags=["jobs"])
    _add_jobs(api, access)
    _add_policy(api, access)
    _add_reservations(api, access)
    return api


def _add_jobs(api: APIRouter, access: Access) -> None:
    viewer: Who = access.needs("viewer")
    user: Who = access.needs("user")

    @api.get("/jobs", response_model=page(Job), operation_id="list_jobs")
    def jobs(
        part: PartOf,
        q: Annotated[str | None, Query(max_length=100, description="a part of the id")] = None,
        user: User = None,
        host: AtHost = None,
        state: Annotated[
            str | None, Query(max_length=20, description="`installed`, `waiting`, `refused`")
        ] = None,
        sort: Sort = "id",
        descending: Descending = False,
        who: Who = viewer,
    ) -> Any:
        """The jobs that run or wait."""
        fits = text_filter(q)
        found = [
            job
            for job in access.state["jobs"].values()
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
    async def begin(order: JobOrder, response: Response, who: Who = user) -> Any:
        """Order a job. The same order again changes nothing, and is answered with 200."""
        asked = order.model_dump(exclude_unset=True, exclude_none=True)
        if "user" not in asked:
            asked["user"] = _user_of(who)
        if "uid" not in asked:
            asked["uid"] = _uid_of(asked["user"])
        if not {"named", "policy"} & asked.keys():
            asked["policy"] = "shared"
        done = await access.feed.request(JOB_BEGIN, who, job=asked)
        if done.get("again"):
            response.status_code = 200
        response.headers["Location"] = f"/api/v1/jobs/{done['job']['id']}"
        return done["job"]

    @api.get("/jobs/{job}", response_model=answer(JobDetails), operation_id="show_job")
    async def show(job: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One job, with its class on each host and its paths."""
        found = await access.feed.request(JOB_SHOW, who, id=_id(job))
        return cached(request, response, found["job"])

    @api.delete("/jobs/{job}", status_code=204, operation_id="end_job")
    async def end(job: str, request: Request, who: Who = user) -> Response:
        """End a job that was ordered here. Job managers end theirs on the hosts."""
        async with access.writing():
            if "if-match" in request.headers or "if-none-match" in request.headers:
                shown = await access.feed.request(JOB_SHOW, who, id=_id(job))
                check_match(request, shown["job"])
            await access.feed.request(JOB_END, who, id=_id(job))
        return Response(status_code=204)

    @api.get("/ended-jobs", response_model=page(EndedJob), operation_id="list_ended_jobs")
    async def ended(part: PartOf, user: User = None, who: Who = viewer) -> Any:
        """The jobs that have ended, the last one first; the newest 1,000 of them."""
        asked = {} if user is None else {"user": user}
        found = await access.listed(JOB_HISTORY, who, "jobs", limit=_ENDED_MOST, **asked)
        return page_of(found, part)


def _add_policy(api: APIRouter, access: Access) -> None:
    viewer: Who = access.needs("viewer")
    user: Who = access.needs("user")

    @api.get("/jobs/{job}/policy", response_model=answer(JobPolicy), operation_id="show_job_policy")
    def policy(job: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """The policy of a job. Its ETag is for moving the job."""
        return cached(request, response, _policy(entry_of(access.state["jobs"], job, "job")))

    @api.put("/jobs/{job}/policy", response_model=answer(JobPolicy), operation_id="move_job")
    async def move(
        job: str, wanted: PolicyBody, request: Request, response: Response, who: Who = user
    ) -> Any:
        """Give a job another policy while it runs. No packet is lost."""
        asked = wanted.model_dump(exclude_unset=True, exclude_none=True)
        if not {"named", "policy"} & asked.keys():
            raise refusal("policy_missing", "body.policy")
        return await change(job, request, response, who, job=asked)

    @api.delete(
        "/jobs/{job}/policy", response_model=answer(JobPolicy), operation_id="move_job_back"
    )
    async def back(job: str, request: Request, response: Response, who: Who = user) -> Any:
        """Give a job back the policy that its hosts declare."""
        return await change(job, request, response, who, back=True)

    async def change(
        key: str, request: Request, response: Response, who: Who, /, **wanted: Any
    ) -> JobPolicy:
        async with access.writing():
            kept = await access.fresh(JOB_LIST, who, "jobs", "id")
            before = entry_of(kept, key, "job")
            check_match(request, _policy(before), needed="back" not in wanted)
            moved = await access.feed.request(JOB_MOVE, who, id=key, **wanted)
        after = _policy(moved["job"])
        response.headers["ETag"] = etag_of(after)
        return after


def _add_reservations(api: APIRouter, access: Access) -> None:
    viewer: Who = access.needs("viewer")
    user: Who = access.needs("user")

    @api.get("/reservations", response_model=page(Reservation), operation_id="list_reservations")
    def reservations(
        part: PartOf,
        user: User = None,
        host: AtHost = None,
        sort: Sort = "begin",
        descending: Descending = False,
        who: Who = viewer,
    ) -> Any:
        """The reservations that are kept."""
        found = [
            each
            for each in access.state["reservations"].values()
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
    async def reserve(order: ReservationOrder, response: Response, who: Who = user) -> Any:
        """Reserve paths. The same reservation again changes nothing, and is answered with 200."""
        asked = order.model_dump(exclude_unset=True, exclude_none=True)
        if "user" not in asked:
            asked["user"] = _user_of(who)
        async with access.writing():
            try:
                done = await access.feed.request(RESERVE_ADD, who, reservation=asked)
            except BadInput as error:
                if error.code != "reservation_exists":
                    raise
                kept = await access.fresh(RESERVE_LIST, who, "reservations", "id")
                same = kept.get(asked["id"])
                if same is None or not _same(same, asked):
                    raise
                response.status_code = 200
                done = {"reservation": same}
        response.headers["Location"] = f"/api/v1/reservations/{done['reservation']['id']}"
        return done["reservation"]

    @api.get(
        "/reservations/{reservation}",
        response_model=answer(Reservation),
        operation_id="show_reservation",
    )
    def reservation(
        reservation: str, request: Request, response: Response, who: Who = viewer
    ) -> Any:
        """One reservation."""
        found = entry_of(access.state["reservations"], reservation, "reservation")
        return cached(request, response, found)

    @api.delete("/reservations/{reservation}", status_code=204, operation_id="remove_reservation")
    async def unreserve(reservation: str, request: Request, who: Who = user) -> Response:
        """Give up a reservation."""
        async with access.writing():
            kept = await access.fresh(RESERVE_LIST, who, "reservations", "id")
            check_match(request, entry_of(kept, reservation, "reservation"))
            await access.feed.request(RESERVE_REMOVE, who, id=reservation)
        return Response(status_code=204)


def _policy(job: Job) -> JobPolicy:
    """The document of a `JobPolicy`."""
    policy = {key: job.get(key) for key in _POLICY}
    policy["moved"] = job.get("moved") is not None
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


def _user_of(who: Who) -> str:
    if who.user is None:
        raise refusal("user_missing", "body.user", name=who.name)
    return who.user


def _uid_of(user: str) -> int:
    """The uid of an order's user, who is known on this machine unless the order says it."""
    uid = uid_of(user)
    if uid is None:
        raise refusal("uid_missing", "body.uid", user=user)
    return uid
