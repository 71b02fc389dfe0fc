# SPDX-License-Identifier: Apache-2.0
"""The page that shows the OpenAPI document. All its files are here, so it works offline."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

__all__ = ["router"]

_TYPES = {
    "docs.html": "text/html; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
    "docs.css": "text/css; charset=utf-8",
}
# No script or style in the page itself, and nothing from elsewhere.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def router() -> APIRouter:
    """The page at `/docs`, and its two files beside it."""
    api = APIRouter(include_in_schema=False)
    folder = files("ri2n_sdn.web.rest") / "static"
    texts = {name: (folder / name).read_bytes() for name in _TYPES}

    def add(path: str, name: str) -> None:
        @api.get(path)
        def file() -> Response:
            headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
            return Response(texts[name], headers=headers, media_type=_TYPES[name])

    add("/docs", "docs.html")
    add("/docs.js", "docs.js")
    add("/docs.css", "docs.css")
    return api
