"""What Prometheus reads at `/metrics`."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from ri2n_sdn.web.auth import Auth, Denied
from ri2n_sdn.web.feed import Feed

__all__ = ["mount"]


def mount(app: FastAPI, feed: Feed, auth: Auth) -> None:
    """Add `/metrics` to an application."""
    registry = CollectorRegistry()
    connected = Gauge(
        "ri2n_controller_connected", "Whether the controller can be reached.", registry=registry
    )

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        client = request.client.host if request.client is not None else ""
        try:
            auth.who_of_bearer(request.headers.get("authorization"), client)
        except Denied as error:
            return Response(f"{error.detail}\n", error.status, media_type="text/plain")
        connected.set(feed.connected)
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
