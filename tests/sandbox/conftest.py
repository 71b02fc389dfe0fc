"""Sandboxes for tests:

a private Open vSwitch per module, and helpers to put frames in and see what comes out.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster.sandbox import Sandbox

from .forked import fork


@pytest.fixture(scope="session", autouse=True)
def _sandbox_tier() -> Iterator[None]:
    """These tests need Open vSwitch (no root); without it the whole tier is skipped, and says
    so.
    """
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("the sandbox tier needs Open vSwitch: apt install openvswitch-switch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sandbox, "spawn", staticmethod(fork))
        yield
