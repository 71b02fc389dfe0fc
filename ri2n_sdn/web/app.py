# SPDX-License-Identifier: Apache-2.0
"""The web application: REST, metrics, the documentation and the GUI, behind one guard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from ri2n_sdn import __version__
from ri2n_sdn.certificates import first_end_s
from ri2n_sdn.web import manual, metrics, rest
from ri2n_sdn.web.auth import Auth
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.guard import Guard
from ri2n_sdn.web.settings import WebSettings

__all__ = ["build"]


def build(feed: Feed, settings: WebSettings) -> FastAPI:
    """The application that serves what `feed` knows. It starts and stops the feed.

    Only one application of a process may have the GUI.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await feed.start()
        try:
            yield
        finally:
            await feed.stop()

    app = FastAPI(
        title="RI2N",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.add_middleware(Guard, settings=settings)
    auth = Auth(feed, settings)
    rest.mount(app, feed, auth, settings)
    metrics.mount(app, feed, auth, first_end_s(settings.tls_cert))
    manual.mount(app)
    if settings.gui:
        from ri2n_sdn.web import gui

        # The GUI takes all paths that are left.
        gui.mount(app, feed, auth, settings)
    return app
