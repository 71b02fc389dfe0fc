# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the sandbox tier: tests start controllers as forks, in a private Open vSwitch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster.sandbox import Sandbox

from .forked import fork


@pytest.fixture(scope="session", autouse=True)
def _sandbox_tier() -> Iterator[None]:
    """Skip the whole tier, with a message, without Open vSwitch, which its tests need (no root)."""
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("the sandbox tier needs Open vSwitch: apt install openvswitch-switch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sandbox, "spawn", staticmethod(fork))
        yield
