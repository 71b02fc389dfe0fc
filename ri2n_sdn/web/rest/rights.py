# SPDX-License-Identifier: Apache-2.0
"""Routes of what users may ask for: rights, and named policies."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.documents import NamedPolicy, Right
from ri2n_sdn.web.rest.access import Admin, Kind, Viewer, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import check_match
from ri2n_sdn.web.rest.models import NewPolicy, RightBody
from ri2n_sdn.web.rest.pages import PartOf, page_of

__all__ = ["api"]

UserName = Annotated[str, Path(max_length=65, description="a user's name, or `*` for all others")]

_RIGHTS = Kind(ops.RIGHTS_LIST, "rights", "user", "right", ops.RIGHTS_REMOVE)
_POLICIES = Kind(ops.POLICY_LIST, "policies", "name", "policy", ops.POLICY_REMOVE)

api = APIRouter(tags=["rights"])


@api.get("/rights", response_model=page(Right), operation_id="list_rights")
def rights(part: PartOf, asked: Viewer) -> Any:
    """What users may ask for. Without any entry, everybody may ask for everything."""
    return page_of(asked.state["rights"].values(), part, lambda each: str(each["user"]))


@api.get("/rights/{user}", response_model=answer(Right), operation_id="show_right")
def right(user: UserName, asked: Viewer) -> Any:
    """What one user may ask for."""
    return asked.shown(entry_of(asked.state["rights"], user, "right"))


@api.put(
    "/rights/{user}",
    response_model=answer(Right),
    operation_id="set_right",
    responses={201: {"model": answer(Right), "description": "there was no entry before"}},
)
async def set_right(user: UserName, body: RightBody, asked: Admin) -> Any:
    """Set what a user may ask for. To replace an entry needs its ETag in If-Match."""
    async with asked.writing():
        before = (await asked.fresh(_RIGHTS)).get(user)
        check_match(asked.http, before, needed=True)
        wanted = {**body.model_dump(exclude_unset=True), "user": user}
        done = await asked.request(ops.RIGHTS_SET, right=wanted)
    return asked.changed(done["right"], new=before is None)


@api.delete("/rights/{user}", status_code=204, operation_id="remove_right")
async def remove_right(user: UserName, asked: Admin) -> Response:
    """Take a user's entry away."""
    return await asked.remove(_RIGHTS, user)


@api.get("/policies", response_model=page(NamedPolicy), operation_id="list_policies")
def policies(part: PartOf, asked: Viewer) -> Any:
    """The policies that orders may name."""
    return page_of(asked.state["policies"].values(), part, lambda each: str(each["name"]))


@api.post(
    "/policies", response_model=answer(NamedPolicy), status_code=201, operation_id="add_policy"
)
async def add_policy(body: NewPolicy, asked: Admin) -> Any:
    """Give a policy a name. A name that is taken is refused (409)."""
    policy = body.model_dump(exclude_unset=True, exclude_none=True)
    name = policy.pop("name")
    done = await asked.request(ops.POLICY_ADD, name=name, policy=policy)
    asked.response.headers["Location"] = f"/api/v1/policies/{name}"
    return done["policy"]


@api.get("/policies/{policy}", response_model=answer(NamedPolicy), operation_id="show_policy")
def policy(policy: str, asked: Viewer) -> Any:
    """One named policy."""
    return asked.shown(entry_of(asked.state["policies"], policy, "policy"))


@api.delete("/policies/{policy}", status_code=204, operation_id="remove_policy")
async def remove_policy(policy: str, asked: Admin) -> Response:
    """Remove a named policy. Jobs and reservations keep what they have of it."""
    return await asked.remove(_POLICIES, policy)
