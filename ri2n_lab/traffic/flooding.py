"""How many unicast frames switches have flooded: those that came to hosts which they were not
for.
"""

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
"""Priorities of the receiving table's rows that drop such frames: helpers' frames for others, those
for the host's own other NIC, and those between other NICs.
"""


def flooded_frames(lab: Lab) -> dict[str, int]:
    """Of each host with the controller's rows: frames for another NIC that came in, since the rows
    were made.

    A switch floods what it has no address for, so these are its copies; what it forwards comes only
    where it belongs. Works on both datapaths. Frames that no managed host sent are not counted.
    """

    def count(host: str) -> int:
        lab.appctl(host, "revalidator/wait")  # or the last half second's are not in the rows yet
        return parse_flooded(lab.ofctl(host, "dump-flows", BRIDGE, f"table={RECEIVING_TABLE}"))

    hosts = lab.topology.managed_hosts()
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        return dict(zip(hosts, pool.map(count, hosts), strict=True))


def parse_flooded(text: str) -> int:
    """The packets of the rows that drop frames for others, of what `ovs-ofctl dump-flows`
    prints.
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
