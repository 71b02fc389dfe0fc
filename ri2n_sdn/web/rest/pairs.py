# SPDX-License-Identifier: Apache-2.0
"""Routes of pairs of hosts: their paths and weights, and why a flow takes which path."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from ri2n_sdn.contract.answers import Explanation, Pair, Path
from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.contract.operations import EXPLAIN, PAIRS
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.web.rest.access import Access, entry_of
from ri2n_sdn.web.rest.answers import answer, page
from ri2n_sdn.web.rest.models import Weights
from ri2n_sdn.web.rest.pages import Page, PartOf
from ri2n_sdn.web.who import Who

__all__ = ["router"]

HostName = Annotated[str, Query(max_length=64, description="the name of a host")]
End = Annotated[str | None, Query(max_length=64, description="the name of a host")]
EitherEnd = Annotated[str | None, Query(max_length=64, description="either end")]
_PATHS = list.__class_getitem__(answer(Path))
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
_PROTOCOL = r"^(tcp|udp|icmp|25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})$"
_ADDRESS = r"^[0-9a-fA-F.:]{2,45}$"


def router(access: Access) -> APIRouter:
    """The routes."""
    api = APIRouter(tags=["pairs"])
    viewer: Who = access.needs("viewer")

    async def page_of_pairs(who: Who, part: PartOf, **wanted: Any) -> dict[str, Any]:
        for key in ("host", "src", "dst"):
            if wanted.get(key) is not None:
                entry_of(access.state["hosts"], wanted[key], "host")
        asked = {key: value for key, value in wanted.items() if value is not None}
        found = await access.feed.request(PAIRS, who, offset=part.offset, limit=part.limit, **asked)
        return part.page(found["pairs"], found["total"])

    async def one(who: Who, src: str, dst: str) -> Pair:
        for name in (src, dst):
            entry_of(access.state["hosts"], name, "host")
        found = await access.feed.request(PAIRS, who, src=src, dst=dst, limit=1)
        if not found["pairs"]:
            raise refusal("no_path", src=src, dst=dst)
        return found["pairs"][0]

    @api.get("/pairs", response_model=page(Pair), operation_id="list_pairs")
    async def pairs(
        part: PartOf,
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
        who: Who = viewer,
    ) -> Any:
        """Pairs of hosts, the active ones unless `all` or `active=false` asks for others."""
        return await page_of_pairs(
            who,
            part,
            host=host,
            src=src,
            dst=dst,
            active=None if everyone else active,
            sort=sort,
            descending=descending,
        )

    @api.get("/pairs/{src}/{dst}", response_model=answer(Pair), operation_id="show_pair")
    async def pair(src: str, dst: str, who: Who = viewer) -> Any:
        """One pair, with its paths."""
        return await one(who, src, dst)

    @api.get("/paths", response_model=_PATHS, operation_id="list_paths")
    async def paths(src: HostName, dst: HostName, who: Who = viewer) -> Any:
        """The paths from one host to another, dead ones too."""
        return (await one(who, src, dst))["paths"]

    @api.get("/weights", response_model=Page[Weights], operation_id="list_weights")
    async def weights(
        part: PartOf,
        host: EitherEnd = None,
        src: End = None,
        dst: End = None,
        who: Who = viewer,
    ) -> Any:
        """The weights of the active pairs' paths, the pairs with the highest rates first."""
        found = await page_of_pairs(
            who, part, host=host, src=src, dst=dst, active=True, sort="rate"
        )
        strategy = access.state["controller"].get("strategy", "")
        found["items"] = [_weights(each, strategy) for each in found["items"]]
        return found

    @api.get("/explain", response_model=answer(Explanation), operation_id="explain")
    async def explain(
        src: HostName,
        dst: HostName,
        protocol: Annotated[
            str | None,
            Query(
                pattern=_PROTOCOL,
                description="of a flow: `tcp`, `udp`, `icmp`, or the number of another one",
            ),
        ] = None,
        sport: Annotated[int | None, Query(ge=0, le=65535)] = None,
        dport: Annotated[int | None, Query(ge=0, le=65535)] = None,
        src_ip: Annotated[str | None, Query(pattern=_ADDRESS)] = None,
        dst_ip: Annotated[str | None, Query(pattern=_ADDRESS)] = None,
        job: Annotated[str | None, Query(max_length=130, description="of packets of it")] = None,
        dscp: Annotated[int | None, Query(ge=0, le=MAX_DSCP)] = None,
        who: Who = viewer,
    ) -> Any:
        """Why a pair, or one flow of it, takes which path: what `ri2n explain` prints.

        With `protocol` it is about a flow, of which `sport` and `dport` are the ports (of ICMP, the
        type and the code). The addresses of the hosts are known, as a rule.
        """
        entry_of(access.state["hosts"], src, "host")
        flow = {
            key: value
            for key, value in (
                ("protocol", None if protocol is None else _number_of(protocol)),
                *(("sport", sport), ("dport", dport)),
                *(("src_ip", src_ip), ("dst_ip", dst_ip)),
            )
            if value is not None
        }
        if flow and protocol is None:
            raise refusal("protocol_missing", "query.protocol")
        asked: dict[str, Any] = {"src": src, "dst": dst}
        asked |= {"flow": flow} if flow else {}
        asked |= {key: value for key, value in (("job", job), ("dscp", dscp)) if value is not None}
        return await access.feed.request(EXPLAIN, who, **asked)

    return api


def _number_of(protocol: str) -> int:
    return _PROTOCOLS.get(protocol) or int(protocol)


def _weights(pair: Pair, strategy: str) -> dict[str, Any]:
    return {
        "src": pair["src"],
        "dst": pair["dst"],
        "strategy": strategy,
        "slots": sum(path["slots"] for path in pair["paths"]),
        "weights": pair["paths"],
    }
