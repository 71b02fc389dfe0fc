# SPDX-License-Identifier: Apache-2.0
"""Linux bonding in a lab's hosts: one bond of all NICs, with the host's address on it."""

from __future__ import annotations

import json
from typing import Any

from ri2n_lab.bench.peers.base import clear_address, kernel_lacks, tune
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import ip_batch

__all__ = ["BOND", "bond_hosts", "lacks_bonding", "members"]

BOND = "bond-peer"
MIIMON_MS = 100


def lacks_bonding() -> str | None:
    """Why bonds cannot be made here; None when they can."""
    return "this kernel has no bonding driver" if kernel_lacks("bond") else None


def bond_hosts(lab: Lab, options: str) -> None:
    """Make the NICs of each managed host one bond with `options`, and give it the host's address.

    `options` are as of `ip link add type bond`. Queueing disciplines and offloads stay with the
    NICs.
    """
    for host in lab.topology.managed_hosts():
        tune(lab, host)
        clear_address(lab, host)
        lines = [f"link add {BOND} type bond {options} miimon {MIIMON_MS}"]
        for nic in lab.topology.hosts[host].nics:
            lines += [f"link set {nic.name} down", f"link set {nic.name} master {BOND}"]
        lines += [f"link set {BOND} up", f"addr add {lab.address(host)}/24 brd + dev {BOND}"]
        ip_batch(lines, lab.namespace(host))


def members(lab: Lab, host: str) -> dict[str, dict[str, Any]]:
    """The state of each NIC in its bond, as the kernel tells it (`ip -details -json link`)."""
    links = json.loads(
        lab.exec(host, ["ip", "-details", "-json", "link", "show", "master", BOND]).stdout
    )
    return {link["ifname"]: link["linkinfo"]["info_slave_data"] for link in links}
