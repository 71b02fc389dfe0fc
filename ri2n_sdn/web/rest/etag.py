# SPDX-License-Identifier: Apache-2.0
"""Entity tags: an answer has one, and a change that names one is made to nothing else (RFC 9110).

A tag follows from the document alone. So it is the same in every web process, and after a restart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ri2n_sdn.web.rest.problem import ProblemError

__all__ = ["cached", "check_match", "etag_of"]

_TAG = re.compile(r'\s*(W/)?("[\x21\x23-\x7e]*"|\*)\s*(?:,|$)')
_TAG_BYTES = 12
_MAX_HEADER = 2048


def etag_of(document: Any) -> str:
    """The strong tag of a JSON document, in quotes."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_TAG_BYTES)
    return f'"{digest.hexdigest()}"'


def check_match(request: Request, current: Any | None, *, needed: bool = False) -> None:
    """Raise ProblemError when a request may not change a document as it is now.

    `current` None: there is no document. A request with `If-Match` means a document with one of
    its tags, or any with `*`: otherwise 412. With `needed`, a request without it may not replace a
    document (428): whoever wants to do so regardless says `If-Match: *`. `If-None-Match: *` means
    that there must be none.
    """
    header = _header(request, "if-match")
    if header is not None:
        wanted = [tag for weak, tag in _tags(header, "If-Match") if not weak]
        if current is None:
            raise ProblemError(412, "precondition_failed", "If-Match: there is no such document")
        if "*" not in wanted and etag_of(current) not in wanted:
            raise ProblemError(
                412,
                "precondition_failed",
                "If-Match: the document has changed meanwhile; read it again",
                _tag(current),
            )
    elif needed and current is not None:
        raise ProblemError(
            428,
            "precondition_missing",
            "If-Match: is missing; give the ETag of what you replace, or *",
            _tag(current),
        )
    unless = _header(request, "if-none-match")
    if unless is not None and current is not None:
        unwanted = [tag for _, tag in _tags(unless, "If-None-Match")]
        if "*" in unwanted or etag_of(current) in unwanted:
            detail = "If-None-Match: there is such a document"
            raise ProblemError(412, "precondition_failed", detail, _tag(current))


def cached(request: Request, response: Response, document: Any) -> Any:
    """The answer with a document and its tag: 304 when the client has it already."""
    tag = etag_of(document)
    response.headers["ETag"] = tag
    header = _header(request, "if-none-match")
    if header is not None and {"*", tag} & {each for _, each in _tags(header, "If-None-Match")}:
        return Response(status_code=304, headers={"ETag": tag})
    return document


def _tag(document: Any) -> dict[str, str]:
    return {"ETag": etag_of(document)}


def _header(request: Request, name: str) -> str | None:
    values = request.headers.getlist(name)
    return ", ".join(values) if values else None


def _tags(header: str, name: str) -> Iterator[tuple[bool, str]]:
    """(whether it is weak, the tag) of each tag. Raises ProblemError."""
    place = 0
    if len(header) > _MAX_HEADER:
        raise ProblemError(400, "header_wrong", f"{name}: is too long")
    while True:
        found = _TAG.match(header, place)
        if found is None:
            detail = f'{name}: must be tags in quotes, as "0123abcd", or *'
            raise ProblemError(400, "header_wrong", detail)
        yield found[1] is not None, found[2]
        place = found.end()
        if place >= len(header):
            return
