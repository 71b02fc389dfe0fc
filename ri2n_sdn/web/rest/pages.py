# SPDX-License-Identifier: Apache-2.0
"""Pages of long lists: which part of a list an answer has, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, Field

__all__ = ["Descending", "Page", "PartOf", "page_of", "text_filter"]

MAX_LIMIT = 500
"""A page has so many entries at most."""

MAX_OFFSET = 10**9

ItemT = TypeVar("ItemT")


class Page(BaseModel, Generic[ItemT]):
    """A part of a list."""

    items: list[ItemT] = Field(description="the entries of this page")
    total: int = Field(description="how many entries fit the question, on all pages together")
    offset: int = Field(description="how many entries come before this page")
    limit: int = Field(description="the largest number of entries of this page")


@dataclass(frozen=True)
class Part:
    """Which part of a list is wanted, by which request, and the answer to it."""

    offset: int
    limit: int
    request: Request
    response: Response

    def page(self, items: list[Any], total: int) -> dict[str, Any]:
        """The document of a `Page` with these of `total` entries.

        The answer gets the header `Link` (RFC 8288) with the other pages. Addresses are without
        scheme and host, which a proxy may change.
        """
        last = max(0, (total - 1) // self.limit * self.limit)
        offsets = {"first": 0, "last": last}
        if self.offset > 0:
            offsets["prev"] = max(0, self.offset - self.limit)
        if self.offset + self.limit < total:
            offsets["next"] = self.offset + self.limit
        links = (f'<{self._address(offset)}>; rel="{name}"' for name, offset in offsets.items())
        self.response.headers["Link"] = ", ".join(links)
        return {"items": items, "total": total, "offset": self.offset, "limit": self.limit}

    def _address(self, offset: int) -> str:
        asked = parse_qsl(self.request.scope["query_string"].decode("latin-1"), True)
        query = [(key, value) for key, value in asked if key not in ("offset", "limit")]
        query += [("offset", str(offset)), ("limit", str(self.limit))]
        return f"{quote(self.request.url.path)}?{urlencode(query)}"


def _part(
    request: Request,
    response: Response,
    offset: Annotated[
        int, Query(ge=0, le=MAX_OFFSET, description="leave out so many entries first")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="so many entries at most")] = 100,
) -> Part:
    return Part(offset, limit, request, response)


PartOf = Annotated[Part, Depends(_part)]
"""The parameters `offset` and `limit` of a route."""

Descending = Annotated[bool, Query(description="the other way round")]
"""The parameter of a route that sorts by something."""


def page_of(
    items: Iterable[ItemT],
    part: Part,
    order: Callable[[ItemT], Any] | None = None,
    descending: bool = False,
) -> dict[str, Any]:
    """The document of a `Page`. `order` is the key to sort by; None leaves the order as it is."""
    listed = list(items)
    if order is not None:
        listed.sort(key=order, reverse=descending)
    elif descending:
        listed.reverse()
    return part.page(listed[part.offset : part.offset + part.limit], len(listed))


def text_filter(text: str | None) -> Callable[..., bool]:
    """Whether one of some values has a text in it, whatever its case; any does without a text."""
    wanted = (text or "").casefold()

    def fits(*values: object) -> bool:
        return not wanted or any(
            wanted in str(value).casefold() for value in values if value is not None
        )

    return fits
