# SPDX-License-Identifier: Apache-2.0
"""Count the unicast frames that switches have flooded to hosts that they were not for."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["flooded_frames", "parse_flooded"]

BRIDGE = "br-ri2n"
RECEIVING_TABLE = 1
NOT_FOR_ME = (196, 186, 185)
"""Priorities of the receiving table's rows that drop such frames.

They drop helpers' frames for others, frames for the host's own other NIC, and frames between other
NICs.
"""


def flooded_frames(lab: Lab) -> dict[str, int]:
    """How many frames for another NIC each managed host has received since its rows were made.

    A switch floods frames whose address it does not know, and these are the copies. A frame that it
    forwards arrives only where it belongs. This works on both datapaths. Frames that no managed
    host sent are not counted.
    """

    def count(host: str) -> int:
        # Without this, the rows do not count the packets of the last half second yet.
        lab.appctl(host, "revalidator/wait")
        return parse_flooded(lab.ofctl(host, "dump-flows", BRIDGE, f"table={RECEIVING_TABLE}"))

    hosts = lab.topology.managed_hosts()
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        return dict(zip(hosts, pool.map(count, hosts), strict=True))


def parse_flooded(text: str) -> int:
    """How many packets have hit the rows that drop frames for others.

    `text` is what `ovs-ofctl dump-flows` prints of the receiving table.
    """
    total = 0
    for line in text.splitlines():
        packets = re.search(r"\bn_packets=(\d+)", line)
        priority = re.search(r"\bpriority=(\d+)", line)
        if (
            packets
            and priority
            and int(priority[1]) in NOT_FOR_ME
            and line.rstrip().endswith("actions=drop")
        ):
            total += int(packets[1])
    return total
