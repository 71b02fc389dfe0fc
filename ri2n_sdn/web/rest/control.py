# SPDX-License-Identifier: Apache-2.0
"""Routes by which the controller is steered: strategy, parameters, VLAN tables and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.answers import Parameter, VlanTable
from ri2n_sdn.contract.documents import NewToken, Token
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.auth import new_token
from ri2n_sdn.web.rest.access import Admin, Asked, Kind, Viewer, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.etag import check_match
from ri2n_sdn.web.rest.models import (
    ParameterValue,
    Strategy,
    StrategyName,
    TokenOrder,
    VlanRows,
)
from ri2n_sdn.web.rest.pages import PartOf, page_of
from ri2n_sdn.web.rest.problem import Fault, ProblemError

__all__ = ["control_api", "tokens_api", "vlans_api"]

Owner = Annotated[str, Path(min_length=1, max_length=64, description="the program's name")]

_PARAMETERS = Kind(ops.PARAMETERS, "parameters", "name", "parameter")
_TOKENS = Kind(ops.TOKEN_LIST, "tokens", "name", "token", ops.TOKEN_REMOVE)

control_api = APIRouter(tags=["control"])
vlans_api = APIRouter(tags=["vlans"])
tokens_api = APIRouter(tags=["tokens"])


@control_api.get("/strategy", response_model=Strategy, operation_id="show_strategy")
async def strategy(asked: Viewer) -> Any:
    """How weights are computed, and the choices that there are."""
    return asked.shown(_strategy((await asked.fresh(_PARAMETERS))["strategy"]))


@control_api.put("/strategy", response_model=Strategy, operation_id="set_strategy")
async def set_strategy(body: StrategyName, asked: Admin) -> Any:
    """Compute weights in another way from now on, until the controller starts again."""
    return await _set(asked, "strategy", body.name, _strategy, "name")


@control_api.get("/parameters", response_model=page(Parameter), operation_id="list_parameters")
async def parameters(part: PartOf, asked: Viewer) -> Any:
    """The numbers by which the controller works, with their ranges."""
    return page_of((await asked.fresh(_PARAMETERS)).values(), part)


@control_api.get(
    "/parameters/{name}", response_model=answer(Parameter), operation_id="show_parameter"
)
async def parameter(name: str, asked: Viewer) -> Any:
    """One parameter."""
    return asked.shown(await asked.one(_PARAMETERS, name))


@control_api.put(
    "/parameters/{name}", response_model=answer(Parameter), operation_id="set_parameter"
)
async def set_parameter(name: str, body: ParameterValue, asked: Admin) -> Any:
    """Change a parameter from the next round on, until the controller starts again."""
    return await _set(asked, name, body.value)


@vlans_api.get("/vlan-tables", response_model=page(VlanTable), operation_id="list_vlan_tables")
async def list_tables(part: PartOf, asked: Viewer) -> Any:
    """The path tables of programs, the newest last; without their rows."""
    return page_of((await _tables(asked)).values(), part)


@vlans_api.get(
    "/vlan-tables/{owner}", response_model=answer(VlanTable), operation_id="show_vlan_table"
)
async def table(owner: Owner, asked: Viewer) -> Any:
    """One program's path table, with its rows."""
    return asked.shown(entry_of(await _tables(asked, owner), owner, "table"))


@vlans_api.put(
    "/vlan-tables/{owner}",
    response_model=answer(VlanTable),
    operation_id="set_vlan_table",
    responses={201: {"model": answer(VlanTable), "description": "there was no table before"}},
)
async def set_table(owner: Owner, body: VlanRows, asked: Admin) -> Any:
    """Set a program's path table. To replace one needs its ETag in If-Match."""
    async with asked.writing():
        before = (await _tables(asked, owner)).get(owner)
        check_match(asked.http, before, needed=True)
        await asked.request(ops.VLAN_TABLE, owner=owner, pairs=body.rows)
        after = entry_of(await _tables(asked, owner), owner, "table")
    return asked.changed(after, new=before is None)


@vlans_api.delete("/vlan-tables/{owner}", status_code=204, operation_id="remove_vlan_table")
async def remove_table(owner: Owner, asked: Admin) -> Response:
    """Clear a program's path table. Its pairs get the VLANs of older tables, or their own."""
    async with asked.writing():
        check_match(asked.http, entry_of(await _tables(asked, owner), owner, "table"))
        await asked.request(ops.VLAN_TABLE, owner=owner, pairs=[])
    return Response(status_code=204)


@tokens_api.get("/tokens", response_model=page(Token), operation_id="list_tokens")
async def tokens(part: PartOf, asked: Admin) -> Any:
    """The tokens. Nobody can read their texts."""
    return page_of(await asked.listed(ops.TOKEN_LIST, "tokens"), part)


@tokens_api.post(
    "/tokens", response_model=answer(NewToken), status_code=201, operation_id="add_token"
)
async def add_token(body: TokenOrder, asked: Admin) -> Any:
    """Make a token. The answer has its text, which is shown only this once."""
    text, digest = new_token()
    wanted = body.model_dump(exclude_unset=True, exclude_none=True)
    done = await asked.request(ops.TOKEN_ADD, hash=digest, **wanted)
    asked.response.headers["Location"] = f"/api/v1/tokens/{body.name}"
    asked.response.headers["Cache-Control"] = "no-store"
    return {**done["token"], "token": text}


@tokens_api.get("/tokens/{name}", response_model=answer(Token), operation_id="show_token")
async def token(name: str, asked: Admin) -> Any:
    """One token."""
    return asked.shown(await asked.one(_TOKENS, name))


@tokens_api.delete("/tokens/{name}", status_code=204, operation_id="remove_token")
async def remove_token(name: str, asked: Admin) -> Response:
    """Remove a token. Whoever uses it is refused from now on."""
    return await asked.remove(_TOKENS, name)


async def _set(
    asked: Asked,
    name: str,
    value: Any,
    of: Callable[[Any], Any] = lambda found: found,
    key: str = "value",
) -> Any:
    """Set a parameter, and answer with the document that `of` makes of it.

    `key` is where the value stands in the body.
    """
    async with asked.writing():
        before = await asked.one(_PARAMETERS, name)
        check_match(asked.http, of(before), needed=True)
        if not before["live"]:
            raise refusal("parameter_not_live", name=name)
        try:
            done = await asked.request(ops.PARAMETERS_SET, name=name, value=value)
        except BadInput as error:
            if error.kind != "bad_input":
                raise
            fault = Fault(where=f"body.{key}", what=str(error))
            raise ProblemError(422, error.code, str(error), faults=[fault]) from None
    return asked.changed(of({**before, "value": done["value"]}))


def _strategy(parameter: Parameter) -> dict[str, Any]:
    """The document of a `Strategy`."""
    return {"name": parameter["value"], "choices": parameter["choices"]}


async def _tables(asked: Asked, owner: str | None = None) -> dict[str, VlanTable]:
    wanted = {} if owner is None else {"owner": owner}
    found: list[VlanTable] = await asked.listed(ops.VLAN_TABLES, "tables", **wanted)
    return {each["owner"]: {**each, "rows": each.get("rows", [])} for each in found}
