# SPDX-License-Identifier: Apache-2.0
"""How often somebody may ask: a bucket per token and per address, in bounded memory.

A bucket holds `burst` requests and is filled up at `per_s`. Whoever finds it empty gets 429, with
the seconds after which there is one request in it again.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from ri2n_sdn.addresses import crowd_of
from ri2n_sdn.contract.bucket import TokenBucket
from ri2n_sdn.web.rest.problem import ProblemError, answer

__all__ = ["AddressLimit", "Buckets", "address_of"]

MAX_BUCKETS = 4096
"""So many are remembered, those that were used last."""


class Buckets:
    """The buckets of all who ask, by name."""

    def __init__(
        self,
        per_s: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_BUCKETS,
    ) -> None:
        """`per_s` requests a second in the long run, and `burst` at once. `most` are kept."""
        self._per_s, self._burst, self._clock, self._most = per_s, burst, clock, most
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, name: str) -> int:
        """Take one request out of a bucket: 0, or after how many seconds there is one again."""
        now_s = self._clock()
        bucket = self._buckets.pop(name, None) or TokenBucket(self._per_s, self._burst)
        self._buckets[name] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0 if bucket.take(now_s) else max(1, math.ceil(bucket.missing_s()))


class AddressLimit:
    """Stands before an application: takes each request out of the bucket of its address."""

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        self._app, self._buckets = app, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with 429."""
        wait_s = self._buckets.wait_s(address_of(scope)) if scope["type"] == "http" else 0
        if not wait_s:
            await self._app(scope, receive, send)
            return
        detail = f"too many requests from your address: wait {wait_s} s"
        problem = ProblemError(429, "too_many_requests", detail, {"Retry-After": str(wait_s)})
        await answer(problem)(scope, receive, send)


def address_of(scope: Scope) -> str:
    """What stands for the address of a client: all addresses of an IPv6 network are one."""
    client = scope.get("client")
    return crowd_of(client[0]) if client else "unix"
