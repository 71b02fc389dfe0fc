# SPDX-License-Identifier: Apache-2.0
"""Entity tags: an answer has one, and a change that names one is made to nothing else (RFC 9110).

A tag follows from the document alone. So it is the same in every web process, and after a restart.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from starlette.requests import Request

from ri2n_sdn.web.rest.problem import ProblemError

__all__ = ["check_match", "etag_of", "is_known"]

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
    tag = None if current is None else etag_of(current)

    def problem(status: int, code: str, detail: str) -> ProblemError:
        return ProblemError(status, code, detail, None if tag is None else {"ETag": tag})

    tags = _tags(request, "If-Match")
    if tags is not None:
        if tag is None:
            raise problem(412, "precondition_failed", "If-Match: there is no such document")
        if not {"*", tag} & {name for weak, name in tags if not weak}:
            detail = "If-Match: the document has changed meanwhile; read it again"
            raise problem(412, "precondition_failed", detail)
    elif needed and tag is not None:
        detail = "If-Match: is missing; give the ETag of what you replace, or *"
        raise problem(428, "precondition_missing", detail)
    if tag is not None and is_known(request, tag):
        detail = "If-None-Match: there is such a document"
        raise problem(412, "precondition_failed", detail)


def is_known(request: Request, tag: str) -> bool:
    """Whether a request says that the client has a document with this tag already."""
    tags = _tags(request, "If-None-Match") or ()
    return any(name in ("*", tag) for _, name in tags)


def _tags(request: Request, name: str) -> list[tuple[bool, str]] | None:
    """(whether it is weak, the tag) of each tag of a header; None without it.

    Raises ProblemError.
    """
    values = request.headers.getlist(name)
    if not values:
        return None
    header = ", ".join(values)
    if len(header) > _MAX_HEADER:
        raise ProblemError(400, "header_wrong", f"{name}: is too long")
    tags: list[tuple[bool, str]] = []
    place = 0
    while not tags or place < len(header):
        found = _TAG.match(header, place)
        if found is None:
            detail = f'{name}: must be tags in quotes, as "0123abcd", or *'
            raise ProblemError(400, "header_wrong", detail)
        tags.append((found[1] is not None, found[2]))
        place = found.end()
    return tags
