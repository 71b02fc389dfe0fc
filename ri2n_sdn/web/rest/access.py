# SPDX-License-Identifier: Apache-2.0
"""What every route needs: who asks, whether they may, the state, and requests to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from ri2n_sdn.contract.choices import Role
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.operations import Operation
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.web.auth import ANONYMOUS, Auth, Denied
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.rest.limits import Buckets, address_of
from ri2n_sdn.web.rest.problem import Fault, ProblemError
from ri2n_sdn.web.who import Who

__all__ = ["Access", "entry_of", "name_of"]

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
    """The dependencies of the routes of one application."""

    feed: Feed
    auth: Auth
    buckets: Buckets
    queries: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def needs(self, role: Role) -> Any:
        """The dependency that answers who asks, and refuses those with a smaller role."""

        async def speaker(
            request: Request, _scheme: Annotated[object, Depends(_BEARER)] = None
        ) -> Who:
            who = self.who(request)
            if who == ANONYMOUS and not who.may(role):
                raise Denied(401, f"this needs a token with the role {role}")
            Auth.need(who, role)
            self._check_query(request)
            return who

        return Depends(speaker)

    def who(self, request: Request) -> Who:
        """Who asks. Raises Denied, and ProblemError when that one asks too often."""
        client = request.client.host if request.client is not None else "127.0.0.1"
        who = self.auth.who_of_bearer(request.headers.get("authorization"), client)
        wait_s = self.buckets.wait_s(name_of(request, who))
        if wait_s:
            raise ProblemError(
                429,
                "too_many_requests",
                f"too many requests of {who.name}: wait {wait_s} s",
                {"Retry-After": str(wait_s)},
            )
        return who

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Have the turn to change something: from reading what is replaced until that is done.

        So no two clients of this process replace the same thing at once. Raises NotAvailable when
        others have their turns for TURN_S: their clients wait for a controller that does not
        answer, and a change must not be made long after who asked for it has given up.
        """
        try:
            await asyncio.wait_for(self._changing.acquire(), TURN_S)
        except (TimeoutError, asyncio.TimeoutError):
            raise NotAvailable(
                "other changes wait for the controller, which does not answer; nothing was changed"
            ) from None
        try:
            yield
        finally:
            self._changing.release()

    @property
    def state(self) -> Documents:
        """What is known now. Raises NotAvailable while the controller does not answer."""
        if not self.feed.connected:
            raise refusal("controller_away", why=self.feed.why or "the controller does not answer")
        return self.feed.state

    async def fresh(self, op: Operation[Any], who: Who, part: str, key: str) -> dict[str, Any]:
        """What the controller lists at this moment, by `key`; the state may be older."""
        return {str(each.get(key)): each for each in await self.listed(op, who, part)}

    async def listed(
        self, op: Operation[Any], who: Who, part: str, **arguments: object
    ) -> list[Any]:
        """The documents that an answer of the controller has in a list. Raises NotAvailable."""
        found = (await self.feed.request(op, who, **arguments)).get(part)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise refusal("answer_wrong")
        return found

    def _check_query(self, request: Request) -> None:
        """Refuse a query with a parameter that the route does not have."""
        route = request.scope.get("route")
        known = self.queries.get((getattr(route, "path", ""), request.method))
        if known is None:
            return
        unknown = [key for key in request.query_params if key not in known]
        if unknown:
            faults = [Fault(where=f"query.{key[:60]}", what="unknown parameter") for key in unknown]
            detail = "; ".join(f"{fault.where}: {fault.what}" for fault in faults[:3])
            raise ProblemError(422, "request_wrong", detail, faults=faults[:20])


def name_of(request: Request, who: Who) -> str:
    """What counts as one asker: a token, or an address without one."""
    return f"token {who.name}" if who != ANONYMOUS else address_of(request.scope)


def entry_of(part: Mapping[str, Any], name: str, what: str) -> Any:
    """The entry of a part of the state. Raises BadInput when there is none (404)."""
    found = part.get(name)
    if found is None:
        raise refusal(f"no_such_{what}", name=name[:130])
    return found
