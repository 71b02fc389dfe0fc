# SPDX-License-Identifier: Apache-2.0
"""Routes of pairs of hosts: their paths and weights, and why a flow takes which path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from ri2n_sdn.contract.answers import Explanation, Pair, Path
from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.contract.operations import EXPLAIN, PAIRS
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.web.rest.access import Asked, Viewer, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.models import Weights
from ri2n_sdn.web.rest.pages import Page, PartOf

__all__ = ["api"]

HostName = Annotated[str, Query(max_length=64, description="the name of a host")]
End = Annotated[str | None, Query(max_length=64, description="the name of a host")]
EitherEnd = Annotated[str | None, Query(max_length=64, description="either end")]
_PATHS = list.__class_getitem__(answer(Path))
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
_PROTOCOL = r"^(tcp|udp|icmp|25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})$"
_ADDRESS = r"^[0-9a-fA-F.:]{2,45}$"

api = APIRouter(tags=["pairs"])


@api.get("/pairs", response_model=page(Pair), operation_id="list_pairs")
async def pairs(
    part: PartOf,
    asked: Viewer,
    host: EitherEnd = None,
    src: End = None,
    dst: End = None,
    active: Annotated[
        bool | None,
        Query(description="only pairs with a slot table of their own, or only the others"),
    ] = True,
    everyone: Annotated[
        bool, Query(alias="all", description="active pairs and the others")
    ] = False,
    sort: Annotated[Literal["rate", "src", "dst"], Query()] = "rate",
    descending: Annotated[
        bool | None, Query(description="omitted: the highest rate, or the first name, first")
    ] = None,
) -> Any:
    """Pairs of hosts, the active ones unless `all` or `active=false` asks for others."""
    only = None if everyone else active
    wanted = {"host": host, "src": src, "dst": dst}
    return await _page(asked, part, wanted, active=only, sort=sort, descending=descending)


@api.get("/pairs/{src}/{dst}", response_model=answer(Pair), operation_id="show_pair")
async def pair(src: str, dst: str, asked: Viewer) -> Any:
    """One pair, with its paths."""
    return await _one(asked, src, dst)


@api.get("/paths", response_model=_PATHS, operation_id="list_paths")
async def paths(src: HostName, dst: HostName, asked: Viewer) -> Any:
    """The paths from one host to another, dead ones too."""
    return (await _one(asked, src, dst))["paths"]


@api.get("/weights", response_model=Page[Weights], operation_id="list_weights")
async def weights(
    part: PartOf, asked: Viewer, host: EitherEnd = None, src: End = None, dst: End = None
) -> Any:
    """The weights of the active pairs' paths, the pairs with the highest rates first."""
    wanted = {"host": host, "src": src, "dst": dst}
    found = await _page(asked, part, wanted, active=True, sort="rate")
    strategy = asked.state["controller"].get("strategy", "")
    found["items"] = [_weights(each, strategy) for each in found["items"]]
    return found


@api.get("/explain", response_model=answer(Explanation), operation_id="explain")
async def explain(
    src: HostName,
    dst: HostName,
    asked: Viewer,
    protocol: Annotated[
        str | None,
        Query(
            pattern=_PROTOCOL,
            description="of a flow: `tcp`, `udp`, `icmp`, or the number of another one",
        ),
    ] = None,
    sport: Annotated[int | None, Query(ge=0, le=65535)] = None,
    dport: Annotated[int | None, Query(ge=0, le=65535)] = None,
    src_ip: Annotated[
        str | None, Query(pattern=_ADDRESS, description="needed where the sender has several")
    ] = None,
    dst_ip: Annotated[
        str | None, Query(pattern=_ADDRESS, description="needed where the receiver has several")
    ] = None,
    job: Annotated[str | None, Query(max_length=130, description="of packets of it")] = None,
    dscp: Annotated[int | None, Query(ge=0, le=MAX_DSCP)] = None,
) -> Any:
    """Why a pair, or one flow of it, takes which path: what `ri2n explain` prints.

    With `protocol` it is about a flow, of which `sport` and `dport` are the ports (of ICMP, the
    type and the code). Its addresses are those that the hosts tell (`addresses` of a host). Where a
    host tells none, or several, the answer is 422, and names them.
    """
    entry_of(asked.state["hosts"], src, "host")
    number = None if protocol is None else _PROTOCOLS.get(protocol) or int(protocol)
    ends = {"sport": sport, "dport": dport, "src_ip": src_ip, "dst_ip": dst_ip}
    flow = _given({"protocol": number, **ends})
    if flow and protocol is None:
        raise refusal("protocol_missing", "query.protocol")
    wanted = _given({"flow": flow or None, "job": job, "dscp": dscp})
    return await asked.request(EXPLAIN, src=src, dst=dst, **wanted)


async def _page(
    asked: Asked, part: PartOf, ends: dict[str, str | None], **wanted: object
) -> dict[str, Any]:
    """A page of pairs. `ends` are hosts, which must be known."""
    known = _given(ends)
    hosts = asked.state["hosts"]
    for name in known.values():
        entry_of(hosts, name, "host")
    wanted = {"offset": part.offset, "limit": part.limit, **known, **_given(wanted)}
    found = await asked.request(PAIRS, **wanted)
    return part.page(found["pairs"], found["total"])


async def _one(asked: Asked, src: str, dst: str) -> Pair:
    for name in (src, dst):
        entry_of(asked.state["hosts"], name, "host")
    found = await asked.request(PAIRS, src=src, dst=dst, limit=1)
    if not found["pairs"]:
        raise refusal("no_path", src=src, dst=dst)
    return found["pairs"][0]


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that have a value."""
    return {key: value for key, value in arguments.items() if value is not None}


def _weights(pair: Pair, strategy: str) -> dict[str, Any]:
    return {
        "src": pair["src"],
        "dst": pair["dst"],
        "strategy": strategy,
        "slots": sum(path["slots"] for path in pair["paths"]),
        "weights": pair["paths"],
    }
