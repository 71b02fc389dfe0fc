# SPDX-License-Identifier: Apache-2.0
"""The documentation under `/docs/`, where it is installed. Links of alerts lead there."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

from ri2n_sdn.shipped import documentation

__all__ = ["PATH", "mount"]

PATH = "/docs"
"""Where the documentation is."""

_MISSING = """\
The documentation is not installed with this server. The Debian package ri2n-web has it. In a
checkout, ./dev docs builds it, and the server shows it after its next start. The same pages are
files of the checkout: docs/NAME.md.
"""


def mount(app: FastAPI) -> None:
    """Serve the documentation, for everybody: it says nothing of this cluster."""
    site = documentation()

    @app.get(PATH, include_in_schema=False)
    def begin() -> RedirectResponse:
        return RedirectResponse(f"{PATH}/")

    if site is not None:
        app.mount(PATH, StaticFiles(directory=site, html=True))
        return

    @app.get(PATH + "/{page:path}", include_in_schema=False)
    def missing(page: str) -> PlainTextResponse:
        return PlainTextResponse(_MISSING, 404)
