# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document: complete, so that every answer a client can get is in it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ri2n_sdn.web.rest.problem import MEDIA_TYPE, Problem

__all__ = ["PREFIX", "document", "fields_of"]

PREFIX = "/api/v1"
"""Where the interface is."""

ABOUT = """\
Reads and steers a cluster of RI2N. All times are Unix times in seconds, all rates are in bit/s.

**Who may do what.** Without a token, everybody on this machine may read, unless the server was
started with `--require-tokens`. With a token (`ri2n token add NAME --role ROLE`), send
`Authorization: Bearer TOKEN`. A `viewer` reads. A `user` also begins, moves and ends own jobs and
makes own reservations. An `admin` does everything.

**Errors** are `application/problem+json` (RFC 9457): `detail` is one sentence, and `errors` names
each part of the request that is wrong.

**Lists** are pages of `limit` entries at most, from `offset` on. The header `Link` has the
addresses of the other pages.

**Changes.** What can be replaced has an `ETag`. Send it in `If-Match`: if somebody else was faster,
the answer is 412 and nothing is changed; without it, 428. `If-Match: *` replaces whatever is there.

**Limits.** Who asks too often gets 429 and `Retry-After`. A server that is about to end, or that
does not reach the controller, answers 503.
"""

_TAGS = (
    ("fabric", "Hosts, NICs, networks, switches and cables."),
    ("pairs", "Pairs of hosts: paths, weights, and why a flow goes where it goes."),
    ("jobs", "Jobs and reservations."),
    ("rights", "What users may ask for, and named policies."),
    ("state", "The controller, faults, events and checks."),
    ("control", "Strategy, parameters, and who has changed what."),
    ("vlans", "Path tables of programs, on switches with VLANs."),
    ("tokens", "Tokens."),
    ("live", "Server-sent events."),
    ("health", "Who asks, and whether the server works."),
)

_PROBLEMS = {
    400: "a header or the body cannot be read",
    401: "a token is needed, or this one is not known or has expired",
    403: "the role is too small, or it is somebody else's",
    404: "there is no such thing",
    405: "this method cannot be used here",
    409: "it cannot be done as things are: the name is taken, or there is no room",
    412: "it has changed meanwhile (If-Match, If-None-Match)",
    413: "the body is too long",
    422: "the request is wrong; `errors` says where",
    428: "If-Match is missing",
    429: "too many requests; `Retry-After` says when to try again",
    503: "the controller does not answer; `Retry-After` says when to try again",
}
_OPEN = ("health", "ready")
_ADMINS = ("/audit", "/tokens")
_ETAG = {"description": "names this version of the document", "schema": {"type": "string"}}
_LINK = {
    "description": "the first, previous, next and last page, as far as there are such (RFC 8288)",
    "schema": {"type": "string"},
}
_RETRY = {"description": "seconds", "schema": {"type": "integer", "minimum": 0}}
_ENTITY_TAGS = r'^(\*|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$'
_MATCH, _NONE_MATCH = (
    {
        "name": name,
        "in": "header",
        "required": False,
        "description": about,
        "schema": {"type": "string", "maxLength": 1000, "pattern": _ENTITY_TAGS},
    }
    for name, about in (
        ("If-Match", "the ETag of what is changed, or `*`; needed to replace something"),
        ("If-None-Match", "the ETag of what is known already: 304 when it is the same"),
    )
)


# To make it takes as long as to build an application, and tests build many.
_MADE: dict[str, Any] = {}


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application of `rest`. All of them have the same routes."""
    if not _MADE:
        made = get_openapi(
            title="RI2N",
            version=app.version,
            summary="The cluster's network, for scripts",
            description=ABOUT,
            routes=app.routes,
            tags=[{"name": name, "description": about} for name, about in _TAGS],
            servers=[{"url": PREFIX}],
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _complete(path, method, operation)
        _MADE.update(made)
    return _MADE


def fields_of(made: dict[str, Any]) -> dict[tuple[str, str], dict[str, str]]:
    """Of each route, by path and method: what a request may say, and where, as `query` or `body`.

    What the controller says of a field begins with the field's name. So it can be told where it is.
    """
    schemas = made["components"]["schemas"]
    found = {}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            fields = {each["name"]: each["in"] for each in operation.get("parameters", ())}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                name = body["schema"]["$ref"].rpartition("/")[2]
                fields |= dict.fromkeys(schemas[name]["properties"], "body")
            found[path, method.upper()] = fields
    return found


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add the answers, headers and parameters that FastAPI does not know of."""
    answers, name = operation["responses"], operation["operationId"]
    changes, puts = method != "get", method == "put"
    of_one = "{" in path or path == "/strategy"
    replaces = changes and of_one
    shows = not changes and of_one and not path.endswith("/history")
    shows = shows and not path.startswith(("/pairs/", "/faults/"))
    if name not in _OPEN and not changes and not path.startswith(_ADMINS):
        # Also without a token, on this machine, unless the server requires one.
        operation["security"] = [*operation["security"], {}]
    if name in _OPEN:
        statuses = {429} | ({503} if name == "ready" else set())
        answers.pop("422", None)
    else:
        statuses = {401, 403, 422, 429, 503}
    if "{" in path or path in ("/pairs", "/paths", "/weights", "/explain"):
        statuses.add(404)
    if changes:
        statuses |= {409, 413}
    if "requestBody" in operation:
        statuses.add(400)
    if path == "/check" or path.startswith("/vlan-tables"):
        statuses.add(409)
    if replaces:
        statuses |= {400, 412, 428} if puts else {400, 412}
        operation.setdefault("parameters", []).append(_MATCH)
    if shows:
        statuses.add(400)
        operation.setdefault("parameters", []).append(_NONE_MATCH)
        answers["304"] = {
            "description": "the client has this version already",
            "headers": {"ETag": _ETAG},
        }
    if {"offset", "limit"} <= {each["name"] for each in operation.get("parameters", ())}:
        answers["200"].setdefault("headers", {})["Link"] = _LINK
    if shows or puts or name == "move_job_back":
        for shown in {"200", "201"} & answers.keys():
            answers[shown].setdefault("headers", {})["ETag"] = _ETAG
    if method == "post" and "201" in answers:
        answers["201"].setdefault("headers", {})["Location"] = {
            "description": "where it is",
            "schema": {"type": "string"},
        }
    for status in sorted(statuses):
        answers[str(status)] = {
            "description": _PROBLEMS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            **({"headers": {"Retry-After": _RETRY}} if status in (429, 503) else {}),
        }
