# SPDX-License-Identifier: Apache-2.0
"""Routes by which the controller is steered: strategy, parameters, VLAN tables and tokens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from ri2n_sdn.contract.answers import Parameter, VlanTable
from ri2n_sdn.contract.documents import NewToken, Token
from ri2n_sdn.contract.operations import (
    PARAMETERS,
    PARAMETERS_SET,
    TOKEN_ADD,
    TOKEN_LIST,
    TOKEN_REMOVE,
    VLAN_TABLE,
    VLAN_TABLES,
)
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.auth import new_token
from ri2n_sdn.web.rest.access import Access, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import cached, check_match, etag_of
from ri2n_sdn.web.rest.job_models import ParameterValue, StrategyName, TokenOrder, VlanRows
from ri2n_sdn.web.rest.models import Strategy
from ri2n_sdn.web.rest.pages import PartOf, page_of
from ri2n_sdn.web.rest.problem import Fault, ProblemError
from ri2n_sdn.web.who import Who

__all__ = ["router"]

_OWNER = Annotated[str, Path(min_length=1, max_length=64, description="the program's name")]


def router(access: Access) -> APIRouter:
    """The routes."""
    api = APIRouter()
    for each in (_parameters, _vlans, _tokens):
        api.include_router(each(access))
    return api


def _parameters(access: Access) -> APIRouter:
    api = APIRouter(tags=["control"])
    viewer: Who = access.needs("viewer")
    admin: Who = access.needs("admin")

    async def parameters_of(who: Who) -> dict[str, Parameter]:
        return await access.fresh(PARAMETERS, who, "parameters", "name")

    async def change(
        name: str,
        value: Any,
        request: Request,
        who: Who,
        of: Any = lambda found: found,
        key: str = "value",
    ) -> Any:
        """Set a parameter, and return the document that `of` makes of it.

        `key` is where the value stands in the body.
        """
        async with access.writing():
            before = entry_of(await parameters_of(who), name, "parameter")
            check_match(request, of(before), needed=True)
            if not before["live"]:
                raise refusal("parameter_not_live", name=name)
            try:
                done = await access.feed.request(PARAMETERS_SET, who, name=name, value=value)
            except BadInput as error:
                if error.kind != "bad_input":
                    raise
                fault = Fault(where=f"body.{key}", what=str(error))
                raise ProblemError(422, error.code, str(error), faults=[fault]) from None
        return of({**before, "value": done["value"]})

    @api.get("/strategy", response_model=Strategy, operation_id="show_strategy")
    async def strategy(request: Request, response: Response, who: Who = viewer) -> Any:
        """How weights are computed, and the choices that there are."""
        return cached(request, response, _strategy((await parameters_of(who))["strategy"]))

    @api.put("/strategy", response_model=Strategy, operation_id="set_strategy")
    async def set_strategy(
        body: StrategyName, request: Request, response: Response, who: Who = admin
    ) -> Any:
        """Compute weights in another way from now on, until the controller starts again."""
        after = await change("strategy", body.name, request, who, _strategy, "name")
        response.headers["ETag"] = etag_of(after)
        return after

    @api.get("/parameters", response_model=page(Parameter), operation_id="list_parameters")
    async def parameters(part: PartOf, who: Who = viewer) -> Any:
        """The numbers by which the controller works, with their ranges."""
        return page_of((await parameters_of(who)).values(), part)

    @api.get("/parameters/{name}", response_model=answer(Parameter), operation_id="show_parameter")
    async def parameter(name: str, request: Request, response: Response, who: Who = viewer) -> Any:
        """One parameter."""
        return cached(request, response, entry_of(await parameters_of(who), name, "parameter"))

    @api.put("/parameters/{name}", response_model=answer(Parameter), operation_id="set_parameter")
    async def set_parameter(
        name: str, body: ParameterValue, request: Request, response: Response, who: Who = admin
    ) -> Any:
        """Change a parameter from the next round on, until the controller starts again."""
        after = await change(name, body.value, request, who)
        response.headers["ETag"] = etag_of(after)
        return after

    return api


def _vlans(access: Access) -> APIRouter:
    api = APIRouter(tags=["vlans"])
    viewer: Who = access.needs("viewer")
    admin: Who = access.needs("admin")

    async def tables(who: Who, owner: str | None = None) -> dict[str, VlanTable]:
        asked = {} if owner is None else {"owner": owner}
        found: list[VlanTable] = await access.listed(VLAN_TABLES, who, "tables", **asked)
        return {each["owner"]: {**each, "rows": each.get("rows", [])} for each in found}

    @api.get("/vlan-tables", response_model=page(VlanTable), operation_id="list_vlan_tables")
    async def list_tables(part: PartOf, who: Who = viewer) -> Any:
        """The path tables of programs, the newest last; without their rows."""
        return page_of((await tables(who)).values(), part)

    @api.get(
        "/vlan-tables/{owner}",
        response_model=answer(VlanTable),
        operation_id="show_vlan_table",
    )
    async def table(owner: _OWNER, request: Request, response: Response, who: Who = viewer) -> Any:
        """One program's path table, with its rows."""
        found = entry_of(await tables(who, owner), owner, "table")
        return cached(request, response, found)

    @api.put(
        "/vlan-tables/{owner}",
        response_model=answer(VlanTable),
        operation_id="set_vlan_table",
        responses={201: {"model": answer(VlanTable), "description": "there was no table before"}},
    )
    async def set_table(
        owner: _OWNER, body: VlanRows, request: Request, response: Response, who: Who = admin
    ) -> Any:
        """Set a program's path table. To replace one needs its ETag in If-Match."""
        async with access.writing():
            before = (await tables(who, owner)).get(owner)
            check_match(request, before, needed=True)
            await access.feed.request(VLAN_TABLE, who, owner=owner, pairs=body.rows)
            after = entry_of(await tables(who, owner), owner, "table")
        response.status_code = 200 if before is not None else 201
        response.headers["ETag"] = etag_of(after)
        return after

    @api.delete("/vlan-tables/{owner}", status_code=204, operation_id="remove_vlan_table")
    async def remove_table(owner: _OWNER, request: Request, who: Who = admin) -> Response:
        """Clear a program's path table. Its pairs get the VLANs of older tables, or their own."""
        async with access.writing():
            check_match(request, entry_of(await tables(who, owner), owner, "table"))
            await access.feed.request(VLAN_TABLE, who, owner=owner, pairs=[])
        return Response(status_code=204)

    return api


def _tokens(access: Access) -> APIRouter:
    api = APIRouter(tags=["tokens"])
    admin: Who = access.needs("admin")

    @api.get("/tokens", response_model=page(Token), operation_id="list_tokens")
    async def tokens(part: PartOf, who: Who = admin) -> Any:
        """The tokens. Nobody can read their texts."""
        return page_of(await access.listed(TOKEN_LIST, who, "tokens"), part)

    @api.post("/tokens", response_model=answer(NewToken), status_code=201, operation_id="add_token")
    async def add_token(body: TokenOrder, response: Response, who: Who = admin) -> Any:
        """Make a token. The answer has its text, which is shown only this once."""
        text, digest = new_token()
        asked = body.model_dump(exclude_unset=True, exclude_none=True)
        done = await access.feed.request(TOKEN_ADD, who, hash=digest, **asked)
        response.headers["Location"] = f"/api/v1/tokens/{body.name}"
        response.headers["Cache-Control"] = "no-store"
        return {**done["token"], "token": text}

    @api.get("/tokens/{name}", response_model=answer(Token), operation_id="show_token")
    async def token(name: str, request: Request, response: Response, who: Who = admin) -> Any:
        """One token."""
        kept = await access.fresh(TOKEN_LIST, who, "tokens", "name")
        return cached(request, response, entry_of(kept, name, "token"))

    @api.delete("/tokens/{name}", status_code=204, operation_id="remove_token")
    async def remove_token(name: str, request: Request, who: Who = admin) -> Response:
        """Remove a token. Whoever uses it is refused from now on."""
        async with access.writing():
            kept = await access.fresh(TOKEN_LIST, who, "tokens", "name")
            check_match(request, entry_of(kept, name, "token"))
            await access.feed.request(TOKEN_REMOVE, who, name=name)
        return Response(status_code=204)

    return api


def _strategy(parameter: Parameter) -> dict[str, Any]:
    """The document of a `Strategy`."""
    return {"name": parameter["value"], "choices": parameter["choices"]}
