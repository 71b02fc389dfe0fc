# SPDX-License-Identifier: Apache-2.0
"""Routes of what users may ask for: rights, and named policies."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from ri2n_sdn.contract.documents import NamedPolicy, Right
from ri2n_sdn.contract.operations import (
    POLICY_ADD,
    POLICY_LIST,
    POLICY_REMOVE,
    RIGHTS_LIST,
    RIGHTS_REMOVE,
    RIGHTS_SET,
)
from ri2n_sdn.web.rest.access import Access, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import cached, check_match, etag_of
from ri2n_sdn.web.rest.job_models import NewPolicy, RightBody
from ri2n_sdn.web.rest.pages import PartOf, page_of
from ri2n_sdn.web.who import Who

__all__ = ["router"]

UserName = Annotated[str, Path(max_length=65, description="a user's name, or `*` for all others")]


def router(access: Access) -> APIRouter:
    """The routes."""
    api = APIRouter(tags=["rights"])
    viewer: Who = access.needs("viewer")
    admin: Who = access.needs("admin")

    @api.get("/rights", response_model=page(Right), operation_id="list_rights")
    def rights(part: PartOf, who: Who = viewer) -> Any:
        """What users may ask for. Without any entry, everybody may ask for everything."""
        return page_of(access.state["rights"].values(), part, lambda each: str(each["user"]))

    @api.get("/rights/{user}", response_model=answer(Right), operation_id="show_right")
    def right(user: UserName, request: Request, response: Response, who: Who = viewer) -> Any:
        """What one user may ask for."""
        return cached(request, response, entry_of(access.state["rights"], user, "right"))

    @api.put(
        "/rights/{user}",
        response_model=answer(Right),
        operation_id="set_right",
        responses={201: {"model": answer(Right), "description": "there was no entry before"}},
    )
    async def set_right(
        user: UserName, body: RightBody, request: Request, response: Response, who: Who = admin
    ) -> Any:
        """Set what a user may ask for. To replace an entry needs its ETag in If-Match."""
        async with access.writing():
            before = (await access.fresh(RIGHTS_LIST, who, "rights", "user")).get(user)
            check_match(request, before, needed=True)
            wanted = {**body.model_dump(exclude_unset=True), "user": user}
            done = await access.feed.request(RIGHTS_SET, who, right=wanted)
        response.status_code = 200 if before is not None else 201
        response.headers["ETag"] = etag_of(done["right"])
        return done["right"]

    @api.delete("/rights/{user}", status_code=204, operation_id="remove_right")
    async def remove_right(user: UserName, request: Request, who: Who = admin) -> Response:
        """Take a user's entry away."""
        async with access.writing():
            kept = await access.fresh(RIGHTS_LIST, who, "rights", "user")
            check_match(request, entry_of(kept, user, "right"))
            await access.feed.request(RIGHTS_REMOVE, who, user=user)
        return Response(status_code=204)

    @api.get("/policies", response_model=page(NamedPolicy), operation_id="list_policies")
    def policies(part: PartOf, who: Who = viewer) -> Any:
        """The policies that orders may name."""
        return page_of(access.state["policies"].values(), part, lambda each: str(each["name"]))

    @api.post(
        "/policies", response_model=answer(NamedPolicy), status_code=201, operation_id="add_policy"
    )
    async def add_policy(body: NewPolicy, response: Response, who: Who = admin) -> Any:
        """Give a policy a name. A name that is taken is refused (409)."""
        policy = body.model_dump(exclude_unset=True, exclude_none=True)
        name = policy.pop("name")
        done = await access.feed.request(POLICY_ADD, who, name=name, policy=policy)
        response.headers["Location"] = f"/api/v1/policies/{name}"
        return done["policy"]

    @api.get("/policies/{policy}", response_model=answer(NamedPolicy), operation_id="show_policy")
    def policy(policy: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One named policy."""
        return cached(request, response, entry_of(access.state["policies"], policy, "policy"))

    @api.delete("/policies/{policy}", status_code=204, operation_id="remove_policy")
    async def remove_policy(policy: str, request: Request, who: Who = admin) -> Response:
        """Remove a named policy. Jobs and reservations keep what they have of it."""
        async with access.writing():
            kept = await access.fresh(POLICY_LIST, who, "policies", "name")
            check_match(request, entry_of(kept, policy, "policy"))
            await access.feed.request(POLICY_REMOVE, who, name=policy)
        return Response(status_code=204)

    return api
