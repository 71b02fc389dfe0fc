# SPDX-License-Identifier: Apache-2.0
"""The web application without a network: an HTTP client of it, over a feed that a test fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from ri2n_sdn.web.app import build
from ri2n_sdn.web.settings import WebSettings
from tests.unit.web_state import TOKENS, FakeFeed

__all__ = ["bearer", "made_app", "run", "serving"]

Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, in an event loop of its own."""
    return asyncio.run(coroutine)


def bearer(role: str) -> dict[str, str]:
    """The headers of one who has the token of a role."""
    return {"Authorization": f"Bearer {TOKENS[role]}"}


def made_app(feed: FakeFeed, **settings: Any) -> FastAPI:
    """The application. It has no GUI unless `gui=True`, which only one of a process may have."""
    return build(feed, WebSettings(**{"gui": False, **settings}))


@asynccontextmanager
async def serving(
    feed: FakeFeed | FastAPI, *, address: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application that serves `feed`; its requests come from `address`.

    An application in place of the feed is taken as it is. An answer is there when it is whole, so
    a stream of events never is.
    """
    app = feed if isinstance(feed, FastAPI) else made_app(feed, **settings)
    transport = httpx.ASGITransport(app=app, client=(address, 40000))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as client,
    ):
        yield client
