# SPDX-License-Identifier: Apache-2.0
"""REST under `/api/v1`: what scripts read and change, with an OpenAPI document and its page.

The routes call the controller's operations, as the commands of `ri2n` do. What the web process
knows already, because it watches the controller, is read from there.
"""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from ri2n_sdn import __version__
from ri2n_sdn.web.auth import Auth
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.rest import (
    about,
    control,
    docs_page,
    fabric,
    jobs,
    pairs,
    rights,
    streams,
)
from ri2n_sdn.web.rest.access import Access
from ri2n_sdn.web.rest.document import PREFIX, document, fields_of
from ri2n_sdn.web.rest.hub import Hub
from ri2n_sdn.web.rest.limits import AddressLimit, Buckets
from ri2n_sdn.web.rest.problem import add_handlers
from ri2n_sdn.web.settings import WebSettings

__all__ = ["application", "mount", "openapi"]

PROBES = ("/health", "/ready")
"""The paths that also answer without the prefix."""

# A machine may have several users and tokens, so an address may ask more often than a token.
_ADDRESS_TIMES = 4
_BURST_S = 4


def mount(app: FastAPI, feed: Feed, auth: Auth, settings: WebSettings) -> None:
    """Put the interface under `/api/v1` of an application."""
    mount = Mount(PREFIX, application(feed, auth, settings))
    # A line end in a path is nothing that Starlette expects, and another page would answer.
    mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
    app.router.routes.append(mount)
    for probe in PROBES:
        app.router.routes.append(Route(probe, _Probe(mount, probe)))


class _Probe:
    """The answer of a path below `/api/v1`, for those who ask without that prefix.

    Watchdogs and load balancers often look for `/health` there, and take a redirection for an
    answer.
    """

    def __init__(self, mount: Mount, path: str) -> None:
        self._mount, self._path = mount, f"{PREFIX}{path}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        there = {**scope, "path": self._path, "raw_path": self._path.encode()}
        _, found = self._mount.matches(there)
        await self._mount.handle({**there, **found}, receive, send)


def openapi() -> dict[str, Any]:
    """The OpenAPI document, without a controller; for a reference."""
    settings = WebSettings()
    feed = Feed(settings.controller_socket)
    return document(application(feed, Auth(feed, settings), settings))


def application(feed: Feed, auth: Auth, settings: WebSettings) -> FastAPI:
    """The interface, whose paths begin behind `/api/v1`. Its errors are all problems."""
    per_s = settings.requests_per_s
    app = FastAPI(
        title="RI2N",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(
        AddressLimit,
        buckets=Buckets(per_s * _ADDRESS_TIMES, per_s * _ADDRESS_TIMES * _BURST_S),
    )
    add_handlers(app)
    # Streams come first: /events/stream is no event.
    for routes in (
        *(streams.api, about.state_api, about.audit_api, about.health_api, fabric.api, pairs.api),
        *(jobs.api, rights.api, control.control_api, control.vlans_api, control.tokens_api),
    ):
        app.include_router(routes)
    app.include_router(docs_page.router())
    app.state.access = Access(feed, auth, Buckets(per_s, per_s * _BURST_S), Hub(feed))

    @app.get("/openapi.json", include_in_schema=False)
    def whole() -> JSONResponse:
        return JSONResponse(document(app))

    app.state.fields = fields_of(document(app))
    setattr(app, "openapi", lambda: document(app))  # noqa: B010 (mypy: a method)
    return app
