# SPDX-License-Identifier: Apache-2.0
"""Errors as RFC 9457 wants them: `application/problem+json`, one plain sentence each."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from ri2n_sdn.contract.printing import cut, printable
from ri2n_sdn.errors import Ri2nError
from ri2n_sdn.web.auth import Denied

__all__ = [
    "MEDIA_TYPE",
    "STATUSES",
    "Fault",
    "Problem",
    "ProblemError",
    "add_handlers",
    "answer",
    "fields_of_route",
]

_LOG = logging.getLogger("ri2n.rest")

MEDIA_TYPE = "application/problem+json"
"""The content type of every error."""

RETRY_S = 2
"""After so many seconds a client may try again when the controller does not answer."""

_PLACES = ("body", "query", "path")
_METHODS = ("GET", "POST", "PUT", "DELETE")
_HTTP_CODES = {
    400: "body_unreadable",
    401: "token_needed",
    403: "role_too_low",
    404: "no_such_page",
    405: "method_not_allowed",
    503: "controller_away",
}
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
    detail: str = Field(description="what is wrong, in one sentence for people")
    code: str = Field(default="", description="a lasting name for what is wrong, for programs")
    kind: str = Field(default="", description="what can be done about it, as `conflict` or `busy`")
    subject: dict[str, str] = Field(
        default_factory=dict, description='what it is about, by kind, as `{"host": "n1"}`'
    )
    args: dict[str, Any] = Field(
        default_factory=dict, description="what the sentence was made of, by name"
    )
    errors: list[Fault] = Field(
        default_factory=list,
        description="each part that is wrong (422), as far as it is one part",
    )


class ProblemError(Exception):
    """A request that HTTP itself does not let through: status, code and sentence of the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers, self.faults = headers, faults


def answer(error: ProblemError, refused: Ri2nError | None = None) -> JSONResponse:
    """The answer with a problem. Characters that are not printable do not get into its texts.

    `refused` is the refusal that the problem tells of, if it is one.
    """
    problem = Problem(
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=_line(error.detail),
        code=error.code,
        kind="" if refused is None else refused.kind,
        subject={} if refused is None else dict(refused.subject),
        args={} if refused is None else dict(refused.values),
        errors=[Fault(where=_shown(each.where), what=_line(each.what)) for each in error.faults],
    )
    headers = dict(error.headers or {})
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers.setdefault("WWW-Authenticate", 'Bearer realm="ri2n"')
    return JSONResponse(problem.model_dump(), error.status, headers, MEDIA_TYPE)


STATUSES: Mapping[str, int] = {
    "bad_input": 422,
    "not_found": 404,
    "conflict": 409,
    "refused": 403,
    "busy": 503,
    "unavailable": 503,
    "not_in_charge": 503,
    "internal": 500,
}
"""The status of each kind of refusal."""


def faults_of(error: Ri2nError, fields: Mapping[str, str]) -> list[Fault]:
    """The part of a request that a refusal is about, if it is one part of the request.

    `fields` are the keys that the request may have, and where: `body`, `query` or `path`.
    """
    if error.key is None:
        return []
    first, _, rest = error.key.partition(".")
    if first in _PLACES:
        return [Fault(where=error.key, what=error.what)]
    # A part of an object of the controller's request may be a parameter of its own here.
    key = rest if first not in fields and rest in fields else error.key
    place = fields.get(key.partition(".")[0])
    return [] if place is None else [Fault(where=f"{place}.{key}", what=error.what)]


def add_handlers(app: FastAPI) -> None:
    """Let an application answer every error with a problem."""

    async def handler(request: Request, error: Exception) -> JSONResponse:
        refused = error if isinstance(error, Ri2nError) and not isinstance(error, Denied) else None
        return answer(_problem_of(app, request, error), refused)

    for kind in (
        *(HTTPException, RequestValidationError, ResponseValidationError),
        *(ProblemError, Ri2nError, Exception),
    ):
        app.add_exception_handler(kind, handler)


def _problem_of(app: FastAPI, request: Request, error: Exception) -> ProblemError:
    """What an error that a route has raised is to whoever asked."""
    match error:
        case ProblemError():
            return error
        case HTTPException():
            return _of_http(app, request, error)
        case Denied():
            return ProblemError(error.status, _HTTP_CODES[error.status], error.detail)
        case Ri2nError():
            status = STATUSES[error.kind]
            known = fields_of_route(request) or {}
            faults = faults_of(error, known) if status == 422 else []
            code = error.code or error.kind
            return ProblemError(status, code, str(error), _later(status), faults)
        case RequestValidationError():
            faults = [
                Fault(where=_where(each.get("loc", ())), what=_line(str(each.get("msg", ""))))
                for each in error.errors()[:_MAX_FAULTS]
            ]
            detail = "; ".join(f"{fault.where}: {fault.what}" for fault in faults[:3])
            if any(each.get("type") == "json_invalid" for each in error.errors()):
                # Nothing in the request is wrong, because nobody can tell what is in it.
                return ProblemError(400, _HTTP_CODES[400], f"the body is no JSON: {detail}")
            return ProblemError(
                422, "request_wrong", detail or "the request is wrong", None, faults
            )
        case ResponseValidationError():
            # The places alone: what stands there may be a secret.
            places = sorted({_where(each.get("loc", ())) for each in error.errors()})[:3]
            _LOG.error(
                "%s: the controller's answer makes no sense (%s); is it of another version?",
                *(ascii(request.url.path)[1:-1], ", ".join(places)),
            )
            detail = "the controller's answer makes no sense; see the log"
            return ProblemError(503, "answer_wrong", detail, _later(503))
    detail = f"internal error: {type(error).__name__}; see the log of ri2n web"
    return ProblemError(500, "internal_error", detail)


def _of_http(app: FastAPI, request: Request, error: HTTPException) -> ProblemError:
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"{_shown(request.url.path)}: there is nothing here; see /api/v1/docs"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(app, request))
        detail = f"{request.method}: only {headers['Allow']} can be done here"
    code = _HTTP_CODES.get(error.status_code, "http")
    return ProblemError(error.status_code, code, detail, headers)


def fields_of_route(request: Request) -> Mapping[str, str] | None:
    """What the route of a request takes, and where; None when the route is not in the document."""
    known: Mapping[tuple[str, str], Mapping[str, str]] = request.app.state.fields
    path = getattr(request.scope.get("route"), "path", "")
    return known.get((path, request.method))


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


def _line(text: str) -> str:
    return cut(printable(text, None), _MAX_TEXT)
