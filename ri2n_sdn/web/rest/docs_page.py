# SPDX-License-Identifier: Apache-2.0
"""The page that shows the OpenAPI document, in Swagger UI, with files of this machine.

The files of Swagger UI come with the package `fastapi_offline`. Nothing of its code is used, and
its folder is looked for when the page is asked for.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

__all__ = ["VIEWER", "router"]

VIEWER = ("swagger-ui-bundle.js", "swagger-ui.css")
"""The files of the viewer, which stand beside the page."""

_OWN = {
    "docs": "docs.html",
    "docs.js": "docs.js",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
# No script or style in the page itself, and nothing from elsewhere. Pictures of the viewer are in
# its style sheet, as data.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A browser asks whether it has the newest version. The viewer has 1.5 MB, and does not change while
# the server runs, so a browser asks for it once a day.
_OWN_CACHE, _VIEWER_CACHE = "no-cache", "public, max-age=86400"


def router() -> APIRouter:
    """The page at `/docs`, and its files beside it."""
    api = APIRouter(include_in_schema=False)

    def add(path: str, of: Path | None, cache_control: str) -> None:
        @api.get(f"/{path}")
        def file() -> Response:
            found = of if of is not None else _viewer() / path
            if not found.is_file():
                raise HTTPException(404)
            headers = {"Content-Security-Policy": _POLICY, "Cache-Control": cache_control}
            return FileResponse(found, headers=headers, media_type=_TYPES[found.suffix])

    folder: Any = files("ri2n_sdn.web.rest") / "static"
    for path, name in _OWN.items():
        add(path, Path(folder / name), _OWN_CACHE)
    for name in VIEWER:
        add(name, None, _VIEWER_CACHE)
    return api


@cache
def _viewer() -> Path:
    """The folder of the viewer's files. Without the package, a folder that is not there."""
    spec = find_spec("fastapi_offline")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(folders[0] if folders else "fastapi_offline") / "static"
