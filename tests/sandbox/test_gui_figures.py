# SPDX-License-Identifier: Apache-2.0
"""What the first page with 1,000 hosts takes in the browser; times are printed, not asserted."""

from __future__ import annotations

import json

import pytest

from .browser import CHROMIUM
from .gui_figures import figures

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"),
]

MAX_BYTES = 100_000_000


def test_a_thousand_hosts_are_little_for_a_browser() -> None:
    found = figures(1000)
    print(json.dumps(found, indent=2))
    assert found["first"]["js_heap_and_buffers_bytes"] < MAX_BYTES
    assert found["first"]["renderer_private_bytes"] < MAX_BYTES
    assert found["first"]["page_bytes"] < 300_000
    assert found["first"]["dom_nodes"] < 6000
    # All rates change twice a second, and what is sent does not grow with the number of hosts.
    assert found["live"]["received_bytes_each_s"] < 40_000
    assert found["live"]["js_heap_growth_bytes"] < 5_000_000
