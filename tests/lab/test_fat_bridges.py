# SPDX-License-Identifier: Apache-2.0
"""Switches that are bridges of the kernel.

They are configured by the files that `ri2n vlan switch-config` writes.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.flooding import flooded_frames
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from tests.waiting import wait_until

from .conftest import EXACT
from .fat_trees import vbft
from .packets import all_reach_each_other, broadcasts_arrive_once, flawless, flawless_streams

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab.create(vbft(2, 2, 1, plain=True, table="spread"), switches="linux-bridge")
    try:
        made.up()
    except NotAvailable as error:
        if "know no VLANs" in str(error) and not EXACT:  # the guest's kernel has VLANs
            pytest.skip(str(error))
        raise
    try:
        made.start_controller()
        made.wait_ready()
        yield made
    finally:
        made.down()


def test_linux_bridges_carry_the_traffic(lab: Lab) -> None:
    all_reach_each_other(lab)
    broadcasts_arrive_once(lab)
    pairs = call(lab.controller_socket, "status")["pairs"]
    assert {path["vlan"] for pair in pairs for path in pair["paths"]} == {None, 102}
    assert all(path["alive"] for pair in pairs for path in pair["paths"])
    before = sum(flooded_frames(lab).values())
    flawless_streams(lab, (("n1", "n2"), ("n2", "n1")), flows=32)
    assert sum(flooded_frames(lab).values()) == before


def received(lab: Lab) -> int:
    """How many frames the NICs of n2 have received."""
    return sum(lab.nic_counters("n2", "rx_packets").values())


def test_the_files_can_be_run_again(lab: Lab) -> None:
    """The files change nothing when they run again: no packet is lost."""
    before = received(lab)
    stream = Stream(lab, "n1", "n2", seconds=2, flows=32)
    wait_until(lambda: received(lab) > before + 100, "no packets come")
    for switch in lab.topology.switches:
        done: subprocess.CompletedProcess[str] = lab.exec(
            "sw", ["bash", str(lab.run_dir / "switches" / f"{switch}.sh")]
        )
        assert done.returncode == 0
    done_s = time.monotonic()
    got = stream.result()
    flawless(got)
    assert not EXACT or got.start_s < done_s < got.end_s, (
        f"the stream ended before: {done_s}, {got}"
    )
