"""Errors as RFC 9457 wants them: `application/problem+json`, one plain sentence each."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from ri2n_sdn.contract.printing import cut, printable
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.auth import Denied

__all__ = [
    "MEDIA_TYPE",
    "Fault",
    "Problem",
    "ProblemError",
    "add_handlers",
    "answer",
    "faults_in",
    "status_of_refusal",
]

_LOG = logging.getLogger("ri2n.rest")

MEDIA_TYPE = "application/problem+json"
"""The content type of every error."""

RETRY_S = 2
"""After so many seconds a client may try again when the controller does not answer."""

_METHODS = ("GET", "POST", "PUT", "DELETE")
_MAX_FAULTS = 20
_MAX_TEXT = 300


class Fault(BaseModel):
    """One part of a request that is wrong."""

    where: str = Field(description="the place, as `query.limit` or `body.hosts.0`")
    what: str = Field(description="what is wrong with it")


class Problem(BaseModel):
    """Why a request was not carried out (RFC 9457)."""

    type: str = Field(
        default="about:blank", description="always `about:blank`: the status says it all"
    )
    title: str = Field(default="", description="the name of the status")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong, in one sentence")
    errors: list[Fault] = Field(
        default_factory=list,
        description="each part that is wrong (422), as far as it is one part",
    )


class ProblemError(Exception):
    """A request that is not carried out: the status and the sentence of the answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.faults = status, detail, headers, faults


def answer(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    faults: Sequence[Fault] = (),
) -> JSONResponse:
    """The answer with a problem. Characters that are not printable do not get into it."""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    problem = Problem(
        title=title, status=status, detail=_line(detail), errors=[_safe(each) for each in faults]
    )
    headers = dict(headers or {})
    if status == HTTPStatus.UNAUTHORIZED:
        headers.setdefault("WWW-Authenticate", 'Bearer realm="ri2n"')
    return JSONResponse(problem.model_dump(), status, headers, MEDIA_TYPE)


# The controller says in words why it refuses. These parts of its sentences are what the statuses
# follow from; `test_rest_refusals.py` asks a real controller for each of them.
_REFUSALS: Sequence[tuple[int, Sequence[str]]] = (
    (500, ("internal error",)),
    (503, ("you have too many open connections",)),
    (403, ("needs the role", "only root may change", ", and you are ")),
    (409, ("refused: ", " already", "another check is running")),
    (409, ("declares no links between switches", "it was begun on its hosts")),
    (409, ("is an order, so it has no other policy", "has the policy that its hosts declare")),
    (
        404,
        ("no such job", "no such reservation", "no such token", "no such policy", "has no entry"),
    ),
    (404, ("no such host",)),
)


# A sentence on one part of a request. The controller begins it with a key, a route with the place.
_OF_A_KEY = re.compile(r"(?P<key>[a-z_]+)(?P<rest>(?:[.\[][\w.\]]+)?): (?P<what>.+)", re.DOTALL)
_OF_A_PLACE = re.compile(r"(?P<where>(?:body|query|path)(?:\.\w+)+): (?P<what>.+)", re.DOTALL)


def faults_in(words: str, fields: Mapping[str, str]) -> list[Fault]:
    """The part of a request that a sentence says is wrong, if it is one part.

    `fields` are the keys that the request may have, and where: `body`, `query` or `path`.
    """
    if found := _OF_A_PLACE.match(words):
        return [Fault(where=found["where"], what=found["what"])]
    found = _OF_A_KEY.match(words)
    if found is None or found["key"] not in fields:
        return []
    where = f"{fields[found['key']]}.{found['key']}{found['rest']}"
    return [Fault(where=where, what=found["what"])]


def status_of_refusal(words: str) -> int:
    """The status for a request that the controller refuses, by its words: 422 unless they fit."""
    for status, parts in _REFUSALS:
        if any(part in words for part in parts):
            return status
    return 422


def add_handlers(app: FastAPI) -> None:
    """Let an application answer every error with a problem."""

    async def of_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        detail = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = f"{_shown(request.url.path)}: there is nothing here; see /api/v1/docs"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = _methods(app, request)
            headers["Allow"] = ", ".join(allowed)
            detail = f"{request.method}: only {headers['Allow']} can be done here"
        return answer(error.status_code, detail, headers)

    async def of_request(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        faults = [
            Fault(where=_where(each.get("loc", ())), what=_line(str(each.get("msg", ""))))
            for each in error.errors()[:_MAX_FAULTS]
        ]
        detail = "; ".join(f"{fault.where}: {fault.what}" for fault in faults[:3])
        return answer(422, detail or "the request is wrong", None, faults)

    async def of_problem(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ProblemError)
        faults = error.faults
        if error.status == 422 and not faults:
            faults = faults_in(error.detail, {})
        return answer(error.status, error.detail, error.headers, faults)

    async def of_denied(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Denied)
        return answer(error.status, error.detail)

    async def of_refusal(request: Request, error: Exception) -> JSONResponse:
        status, words = status_of_refusal(str(error)), str(error)
        faults = faults_in(words, _fields(request)) if status == 422 else []
        return answer(status, words, _later(status), faults)

    async def of_absence(request: Request, error: Exception) -> JSONResponse:
        return answer(503, str(error), _later(503))

    async def of_stranger(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ResponseValidationError)
        # The places alone: what stands there may be a secret.
        places = sorted({_where(each.get("loc", ())) for each in error.errors()})[:3]
        _LOG.error(
            "%s: the controller's answer makes no sense (%s); is it of another version?",
            *(ascii(request.url.path)[1:-1], ", ".join(places)),
        )
        return answer(503, "the controller's answer makes no sense; see the log", _later(503))

    async def of_anything(request: Request, error: Exception) -> JSONResponse:
        return answer(500, f"internal error: {type(error).__name__}; see the log of ri2n web")

    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_request)
    app.add_exception_handler(ResponseValidationError, of_stranger)
    app.add_exception_handler(ProblemError, of_problem)
    app.add_exception_handler(Denied, of_denied)
    app.add_exception_handler(BadInput, of_refusal)
    app.add_exception_handler(NotAvailable, of_absence)
    app.add_exception_handler(Exception, of_anything)


def _fields(request: Request) -> Mapping[str, str]:
    """What the route of a request takes, and where."""
    known: Mapping[tuple[str, str], Mapping[str, str]] = request.app.state.fields
    path = getattr(request.scope.get("route"), "path", "")
    return known.get((path, request.method), {})


def _later(status: int) -> dict[str, str]:
    return {"Retry-After": str(RETRY_S)} if status == 503 else {}


def _methods(app: FastAPI, request: Request) -> list[str]:
    """The methods of all routes with the path of a request."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in app.router.routes)
    ]


def _where(place: Sequence[object]) -> str:
    return ".".join(_shown(str(part)) for part in place) or "request"


def _shown(text: str) -> str:
    """A text of somebody else's: ASCII, and cut when it is long."""
    return cut(ascii(text)[1:-1], 80)


def _safe(fault: Fault) -> Fault:
    return Fault(where=_shown(fault.where), what=_line(fault.what))


def _line(text: str) -> str:
    return cut(printable(text, None), _MAX_TEXT)
