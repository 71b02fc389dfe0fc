# SPDX-License-Identifier: Apache-2.0
"""A feed whose requests a real controller's interface answers, in this process and at once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.watching import Collector
from ri2n_sdn.contract.operations import Answer, Operation
from ri2n_sdn.contract.refusals import error_of
from ri2n_sdn.web.who import Who
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.web_state import FakeFeed

__all__ = ["RealFeed", "controller"]


class RealFeed(FakeFeed):
    """A feed of a controller with the hosts A and B. `asked` has all requests."""

    def __init__(self, api: LocalApi) -> None:
        self.api = api
        self._collector = Collector(api._cluster, api._tokens)
        super().__init__(self._now())

    def _now(self) -> Any:
        state = self._collector.collect()
        del state["tokens"]
        return state

    def refresh(self) -> None:
        """Take over the controller's state as it is now."""
        self.state, self.seq = self._now(), self.seq + 1

    async def request(self, op: Operation[Answer], who: Who, **arguments: Any) -> Answer:
        """As Feed; the state is renewed at once."""
        self.asked.append((op.name, who, arguments))
        line = json.dumps({"op": op.name, **arguments, "as": who.said()}).encode()
        answer = json.loads(json.dumps(self.api.answer(line, web=True)))
        self.refresh()
        if not answer.pop("ok"):
            raise error_of(answer)
        return cast(Answer, answer)


@contextmanager
def controller(config: ClusterConfig | None = None) -> Iterator[RealFeed]:
    """A controller with two hosts, and its feed."""
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()}, config or ClusterConfig())
    for number, member in enumerate(cluster.members.values(), 1):
        member.addresses = (f"10.77.0.{number}",)
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        cluster.socket_path = Path(folder) / "controller.sock"
        api = LocalApi(cluster)
        try:
            yield RealFeed(api)
        finally:
            api.close()
