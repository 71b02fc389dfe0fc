# SPDX-License-Identifier: Apache-2.0
"""What every request must fulfil, and every answer carries, whoever answers it: an ASGI layer."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ri2n_sdn.addresses import is_loopback
from ri2n_sdn.web.settings import WebSettings

__all__ = ["MAX_BODY_BYTES", "Guard"]

MAX_BODY_BYTES = 256 << 10
"""Longer requests are refused; the longest job needs half of it."""

_BODY_S = 20.0
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

# NiceGUI's pages have scripts in the page, and compile templates in the browser. All files come
# from this process.
_PAGE_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_OTHER_POLICY = "default-src 'none'; frame-ancestors 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), usb=()",
}


class Guard:
    """Refuses requests that no page or script of a user sends, and adds headers to all answers.

    * The header Host must be a name of this process. Otherwise a page of a stranger, whose name
      leads to this address, could read what is here (DNS rebinding).
    * What changes something, and a WebSocket, must not come from a page of another origin. There is
      no CORS.
    * A body has at most MAX_BODY_BYTES, and comes in time.
    """

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(raw=message.setdefault("headers", [])))
            await send(message)

        problem = self._problem(scope, headers)
        if problem is None and scope["type"] == "http":
            receive, problem = await self._whole_body(receive, headers)
        if problem is None:
            await self._app(scope, receive, send_on)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": problem[1]})
        else:
            status, detail = problem
            body = json.dumps({"type": "about:blank", "status": status, "detail": detail})
            refused = Response(body, status, {"Connection": "close"}, "application/problem+json")
            await refused(scope, receive, send_on)

    def _problem(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Why a request is refused: a status and a sentence."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            names = "a name that --host-name gives" if self._settings.host_names else "localhost"
            return 421, f"the header Host does not name this server; use its address or {names}"
        if scope["type"] == "websocket" or scope["method"] in _CHANGING:
            origin = headers.get("origin")
            if origin is None:
                own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
            else:
                own = _host_of(origin) == hosts[0].lower()
            if not own:
                return 403, "a page of another origin must not do this"
        return None

    def _is_own(self, host: str) -> bool:
        """Whether the header Host names this process; the port may be that of a forwarding."""
        try:
            name = urllib.parse.urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name or "@" in host or "/" in host:
            return False
        own = {self._settings.host.lower(), *(each.lower() for each in self._settings.host_names)}
        if name in own or is_loopback(name):
            return True
        return not is_loopback(self._settings.host) and not self._settings.host_names

    async def _whole_body(
        self, receive: Receive, headers: Headers
    ) -> tuple[Receive, tuple[int, str] | None]:
        """Read the body of a request, and return what gives it to the app; or what is wrong."""
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:18]) > MAX_BODY_BYTES:
            return receive, (413, f"the body has more than {MAX_BODY_BYTES} bytes")
        if length == "0" and "transfer-encoding" not in headers:
            return receive, None
        parts: list[bytes] = []
        deadline_s = time.monotonic() + _BODY_S
        try:
            more = True
            while more:
                left_s = deadline_s - time.monotonic()
                message = await asyncio.wait_for(receive(), max(0.0, left_s))
                if message["type"] != "http.request":
                    return _first(message, receive), None
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
                if sum(map(len, parts)) > MAX_BODY_BYTES:
                    return receive, (413, f"the body has more than {MAX_BODY_BYTES} bytes")
        except (TimeoutError, asyncio.TimeoutError):
            return receive, (408, "the body did not come in time")
        return _first({"type": "http.request", "body": b"".join(parts)}, receive), None

    def _add_headers(self, headers: MutableHeaders) -> None:
        page = headers.get("content-type", "").startswith("text/html")
        headers.setdefault("Content-Security-Policy", _PAGE_POLICY if page else _OTHER_POLICY)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("Cache-Control", "no-store")
        if self._settings.tls:
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")


def _host_of(origin: str) -> str | None:
    """The host and port of an origin; None when it has none."""
    try:
        return urllib.parse.urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _first(message: Message, rest: Receive) -> Receive:
    """What gives one message, and then the rest."""
    waiting: list[Message] = [message]

    async def receive() -> Message:
        return waiting.pop() if waiting else await rest()

    return receive
