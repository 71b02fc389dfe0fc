# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: what Prometheus reads. It costs the web process alone, never the controller."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as TEXT
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from ri2n_sdn import __version__
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.metrics import FAMILIES, Family, Own
from ri2n_sdn.contract.sample import is_old
from ri2n_sdn.web.auth import Auth, Denied
from ri2n_sdn.web.feed import Feed

__all__ = ["families", "mount", "page", "table"]

# One scrape serves all that come within this time, however many Prometheus servers there are.
_KEPT_S = 1.0
_GZIP_LEVEL = 1


def families(state: Documents, own: Own) -> Iterator[Metric]:
    """The metrics of a state, as the operation `watch` gives it, and of the web process.

    While the controller is away, the state is old: then there are only those of the web process, so
    that nobody takes old values for new ones. For the same reason, a controller that stands by does
    not have those that the one in charge measures, and one whose rounds have stopped does not have
    those that rounds read.
    """
    in_charge = state["controller"].get("in_charge") is not False
    old = is_old(state, own.now_s)
    known = {**state, "own": vars(own)}
    for family in FAMILIES:
        if (
            (own.connected or family.web)
            and (in_charge or not family.charge)
            and not (old and family.sampled)
        ):
            yield _metric(family, known)


def page(metrics: Iterable[Metric], openmetrics: bool) -> bytes:
    """The text of metrics, in the format of OpenMetrics 1.0 or in that of Prometheus 0.0.4."""
    found = list(metrics)

    class Registry:
        def collect(self) -> Iterable[Metric]:
            return found

    generate = generate_openmetrics if openmetrics else generate_latest
    return generate(Registry())  # type: ignore[arg-type, no-any-return, unused-ignore]


def table() -> str:
    """The families as a table in Markdown, for docs/metrics.md."""
    rows = ["| name | type | labels | series | what it is |", "| --- | --- | --- | --- | --- |"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(
            f"| `{family.full_name}` | {family.kind} | {labels} | {family.bound} | {family.about} |"
        )
    return "\n".join(rows) + "\n"


def mount(app: FastAPI, feed: Feed, auth: Auth, certificate_ends_s: float | None = None) -> None:
    """Serve `/metrics` to everybody who may see something.

    `certificate_ends_s` is when the certificate of the web process ends; None when it has none.
    """
    scrapes = _Scrapes(feed, certificate_ends_s)

    async def metrics(request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        try:
            auth.who_of_bearer(request.headers.get("authorization"), address)
        except Denied as error:
            wanted = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            return Response(f"{error.detail}\n", error.status, wanted, "text/plain; charset=utf-8")
        openmetrics = accepts(request.headers.get("accept"), "application/openmetrics-text")
        body = await scrapes.body(openmetrics)
        headers = {"Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
        if accepts(request.headers.get("accept-encoding"), "gzip"):
            body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
        return Response(body, 200, headers, OPENMETRICS if openmetrics else TEXT)

    app.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False)


def accepts(header: str | None, wanted: str) -> bool:
    """Whether a header such as `Accept` names `wanted`, and not with the quality 0."""
    for part in (header or "").lower().split(","):
        name, *options = (each.strip() for each in part.split(";"))
        if name == wanted:
            return not any(option.replace(" ", "") in _REFUSED for option in options)
    return False


_REFUSED = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


class _Scrapes:
    """Makes pages in a thread, one at a time, so that no browser waits for a scrape."""

    def __init__(self, feed: Feed, certificate_ends_s: float | None) -> None:
        self._feed, self._certificate_ends_s = feed, certificate_ends_s
        self._turn = asyncio.Lock()
        self._process = ProcessCollector(registry=None)
        self._made: dict[bool, tuple[float, bytes]] = {}

    async def body(self, openmetrics: bool) -> bytes:
        """The page in one of the formats."""
        async with self._turn:
            made_s, body = self._made.get(openmetrics, (-_KEPT_S, b""))
            if time.monotonic() - made_s < _KEPT_S:
                return body
            feed = self._feed
            own = Own(
                time.time(),
                feed.connected,
                feed.since_s,
                feed.heard_s,
                __version__,
                dict(feed.counters),
                self._certificate_ends_s,
            )
            # The state is never changed in place, so another thread may read it.
            body = await asyncio.to_thread(self._page, feed.state, own, openmetrics)
            self._made[openmetrics] = time.monotonic(), body
            return body

    def _page(self, state: Documents, own: Own, openmetrics: bool) -> bytes:
        return page([*families(state, own), *self._process.collect()], openmetrics)


def _metric(family: Family, state: Mapping[str, Any]) -> Metric:
    metric = Metric(family.name, family.about, family.kind)
    names, full_name = family.labels, family.full_name
    for labels, value in family.values(state):
        if family.kind != "histogram":
            named = dict(zip(names, map(_sendable, labels), strict=True))
            metric.add_sample(full_name, named, value)
        elif labels[0] in ("count", "sum"):
            metric.add_sample(f"{full_name}_{labels[0]}", {}, value)
        else:
            metric.add_sample(f"{full_name}_bucket", {"le": labels[0]}, value)
    return metric


def _sendable(label: object) -> str:
    """The value of a label, such that no scraper refuses the whole page because of it.

    Values come from hosts. The controller makes them printable; this is for one that does not.
    """
    text = str(label)
    if text.isprintable():
        return text
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
