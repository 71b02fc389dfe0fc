# SPDX-License-Identifier: Apache-2.0
"""What every route needs: who asks, whether they may, the state, and requests to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Request, Response
from fastapi.security import HTTPBearer

from ri2n_sdn.contract.choices import Role
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.operations import Answer, Operation
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.web.auth import ANONYMOUS, Auth, Denied
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.rest.etag import check_match, etag_of, is_known
from ri2n_sdn.web.rest.hub import Hub
from ri2n_sdn.web.rest.limits import Buckets, address_of
from ri2n_sdn.web.rest.problem import Fault, ProblemError, fields_of_route
from ri2n_sdn.web.who import Who

__all__ = ["Access", "Admin", "Asked", "Kind", "User", "Viewer", "entry_of"]

TURN_S = 10.0
"""A change waits so long for other changes at most."""

# The scheme is in the OpenAPI document because of this. `Auth` reads the header itself.
_BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of `ri2n token add NAME --role ROLE`.",
)


@dataclass
class Access:
    """What the routes of one application share; it is the application's `state.access`."""

    feed: Feed
    auth: Auth
    buckets: Buckets
    hub: Hub
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def state(self) -> Documents:
        """What is known now. Raises NotAvailable while the controller does not answer."""
        if not self.feed.connected:
            raise refusal("controller_away", why=self.feed.why or "the controller does not answer")
        return self.feed.state


class Kind(NamedTuple):
    """Documents that the controller lists, each under a name of its own.

    * `lists`: the operation whose answer has them in a list under `part`.
    * `key`: the key of their names, also in the request `removes`, which removes one.
    * `what`: one of them, as in the refusal `no_such_...`.
    """

    lists: Operation[Any]
    part: str
    key: str
    what: str
    removes: Operation[Any] | None = None


@dataclass(frozen=True)
class Asked:
    """A request of somebody who may make it, and what is needed to answer it."""

    access: Access
    who: Who
    http: Request
    response: Response

    @property
    def name(self) -> str:
        """What counts as one asker: a token, or an address without one."""
        return f"token {self.who.name}" if self.who != ANONYMOUS else address_of(self.http.scope)

    @property
    def state(self) -> Documents:
        """What is known now; the answer's header `Age` says how old that is.

        Raises NotAvailable while the controller does not answer.
        """
        known = self.access.state
        age_s = self.access.feed.age_s
        if age_s is not None:
            self.response.headers["Age"] = str(int(age_s))
        return known

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Have the turn to change something: from reading what is replaced until that is done.

        So no two clients of this process replace the same thing at once. Raises NotAvailable when
        others have their turns for TURN_S: their clients wait for a controller that does not
        answer, and a change must not be made long after who asked for it has given up.
        """
        try:
            await asyncio.wait_for(self.access.changing.acquire(), TURN_S)
        except (TimeoutError, asyncio.TimeoutError):
            raise NotAvailable(
                "other changes wait for the controller, which does not answer; nothing was changed"
            ) from None
        try:
            yield
        finally:
            self.access.changing.release()

    async def request(self, op: Operation[Answer], **arguments: object) -> Answer:
        """The controller's answer to a request in the name of who asks (`Feed.request`)."""
        return await self.access.feed.request(op, self.who, **arguments)

    async def listed(self, op: Operation[Any], part: str, **arguments: object) -> list[Any]:
        """The documents that an answer of the controller has in a list. Raises NotAvailable."""
        found = (await self.request(op, **arguments)).get(part)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise refusal("answer_wrong")
        return found

    async def fresh(self, kind: Kind) -> dict[str, Any]:
        """What the controller lists at this moment, by name; the state may be older."""
        found = await self.listed(kind.lists, kind.part)
        return {str(each.get(kind.key)): each for each in found}

    async def one(self, kind: Kind, name: str) -> Any:
        """What the controller lists at this moment under a name. Raises BadInput (404)."""
        return entry_of(await self.fresh(kind), name, kind.what)

    def shown(self, document: Any) -> Any:
        """The answer with a document and its tag: 304 when the client has it already."""
        tag = etag_of(document)
        if is_known(self.http, tag):
            age = {key: value for key, value in self.response.headers.items() if key == "age"}
            return Response(status_code=304, headers={"ETag": tag, **age})
        self.response.headers["ETag"] = tag
        return document

    def changed(self, document: Any, *, new: bool = False) -> Any:
        """The answer with a document as it is after a change, and its tag; 201 when it is new."""
        if new:
            self.response.status_code = 201
        self.response.headers["ETag"] = etag_of(document)
        return document

    async def remove(self, kind: Kind, name: str) -> Response:
        """Have the controller remove a document, if it is one that the request means (RFC 9110)."""
        assert kind.removes is not None
        async with self.writing():
            check_match(self.http, await self.one(kind, name))
            await self.request(kind.removes, **{kind.key: name})
        return Response(status_code=204)


def _needs(role: Role) -> Any:
    """The dependency that makes an `Asked`.

    It refuses those with a smaller role, those who ask too often, and unknown parameters.
    """

    async def asked(
        request: Request, response: Response, _scheme: Annotated[object, Depends(_BEARER)] = None
    ) -> Asked:
        access: Access = request.app.state.access
        client = request.client.host if request.client is not None else "127.0.0.1"
        who = access.auth.who_of_bearer(request.headers.get("authorization"), client)
        made = Asked(access, who, request, response)
        if wait_s := access.buckets.wait_s(made.name):
            detail = f"too many requests of {who.name}: wait {wait_s} s"
            raise ProblemError(429, "too_many_requests", detail, {"Retry-After": str(wait_s)})
        if not who.may(role):
            if who == ANONYMOUS:
                raise Denied(401, f"this needs a token with the role {role}")
            raise Denied(403, f"this needs the role {role}, and {who.name} is {who.role}")
        _check_query(request)
        return made

    return Depends(asked)


Viewer = Annotated[Asked, _needs("viewer")]
User = Annotated[Asked, _needs("user")]
Admin = Annotated[Asked, _needs("admin")]
"""The parameter of a route that those with this role may use."""


def entry_of(part: Mapping[str, Any], name: str, what: str) -> Any:
    """The entry of a part of the state. Raises BadInput when there is none (404)."""
    found = part.get(name)
    if found is None:
        raise refusal(f"no_such_{what}", name=name[:130])
    return found


def _check_query(request: Request) -> None:
    """Refuse a query with a parameter that the route does not have."""
    known = fields_of_route(request)
    if known is None:
        return
    unknown = [key for key in request.query_params if known.get(key) != "query"]
    if unknown:
        faults = [Fault(where=f"query.{key[:60]}", what="unknown parameter") for key in unknown]
        detail = "; ".join(f"{fault.where}: {fault.what}" for fault in faults[:3])
        raise ProblemError(422, "request_wrong", detail, faults=faults[:20])
