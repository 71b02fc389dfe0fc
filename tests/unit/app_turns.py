"""What turns of apps on invented hosts need: a clock, channels, and the head of what is sent."""

from __future__ import annotations

from typing import cast

import pytest

from ri2n_sdn.apps import cluster as cluster_module
from ri2n_sdn.apps import codec, discovery, striping
from ri2n_sdn.apps.cluster import Cluster
from tests.unit.fake_hosts import FakeChannel

__all__ = ["PACKET_OUT_HEAD", "Clock", "channel_of", "clock"]

PACKET_OUT_HEAD = len(codec.packet_out(1, b"", 0))


class Clock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s + 5e8


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (cluster_module, discovery, striping):
        monkeypatch.setattr(module, "time", clock)
    return clock


def channel_of(cluster: Cluster, name: str) -> FakeChannel:
    return cast(FakeChannel, cluster.members[name].channel)
