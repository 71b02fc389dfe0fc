"""REST under `/api/v1`: what scripts read and change."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request

from ri2n_sdn import __version__
from ri2n_sdn.web.auth import Auth, Denied
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.settings import WebSettings
from ri2n_sdn.web.who import Who

__all__ = ["router"]


def router(feed: Feed, auth: Auth, settings: WebSettings) -> APIRouter:
    """The routes of `/api/v1`."""
    made = APIRouter(prefix="/api/v1")

    def who_asks(request: Request) -> Who:
        client = request.client.host if request.client is not None else ""
        try:
            return auth.who_of_bearer(request.headers.get("authorization"), client)
        except Denied as error:
            raise HTTPException(error.status, error.detail) from None

    asks = Depends(who_asks)

    @made.get("/state")
    async def state(who: Who = asks) -> dict[str, Any]:
        return {
            "version": __version__,
            "connected": feed.connected,
            "why": feed.why,
            "role": who.role,
            "controller": feed.state["controller"],
            "hosts": feed.state["hosts"],
        }

    return made
