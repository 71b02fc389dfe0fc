# SPDX-License-Identifier: Apache-2.0
"""What turns of apps on invented hosts need: a clock, channels, and the head of what is sent."""

from __future__ import annotations

from types import ModuleType
from typing import cast

import pytest

from ri2n_sdn.apps import cluster as cluster_module
from ri2n_sdn.apps import codec, discovery, striping
from ri2n_sdn.apps.cluster import Cluster
from tests.unit.fake_hosts import FakeChannel

__all__ = ["PACKET_OUT_HEAD", "Clock", "channel_of", "clock", "replace_time"]

PACKET_OUT_HEAD = len(codec.packet_out(1, b"", 0))


class Clock:
    """Replaces the module `time`; a test says how late it is."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s + 5e8


def replace_time(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Clock:
    """Give these modules a clock in place of `time`, and return it."""
    made = Clock()
    for module in modules:
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return replace_time(monkeypatch, cluster_module, discovery, striping)


def channel_of(cluster: Cluster, name: str) -> FakeChannel:
    return cast(FakeChannel, cluster.members[name].channel)
