# SPDX-License-Identifier: Apache-2.0
"""A thousand transfers at once: right checksums, and nothing left behind."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.parallel.many import LINKS

COUNT = 1000
DESCRIPTORS = 2 * COUNT * (LINKS + 4) + 100
"""Of both ends: links, the control connection, two epoll descriptors and an event."""


@pytest.mark.parametrize("how", ["threads", "asyncio"])
def test_a_thousand_concurrent_transfers(how: str) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < DESCRIPTORS:
        pytest.skip(f"needs a hard limit of {DESCRIPTORS} descriptors")
    command = [sys.executable, "-m", "tests.unit.parallel.many", how, str(COUNT)]
    folder = Path(__file__).parents[3]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["right"] == COUNT
    assert result["left"] == {"sessions": 0, "threads": [], "descriptors": {}}
    assert not done.stderr
