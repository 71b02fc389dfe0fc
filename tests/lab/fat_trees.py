"""Small VLAN fat trees for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ri2n_lab.cluster import Lab
from ri2n_sdn.fabric.topology import Topology

__all__ = ["until_sent", "vbft"]

RATE_BPS = 100_000_000


def until_sent(lab: Lab, host: str, frames: float, wait_until: Callable[..., None]) -> None:
    """Wait until a host's NIC has sent that many frames more."""

    def sent() -> int:
        return int(lab.exec(host, ["cat", "/sys/class/net/nic0/statistics/tx_packets"]).stdout)

    start = sent()
    wait_until(
        lambda: sent() >= start + frames,
        lambda: f"{host} has sent {sent() - start} of {frames} frames",
    )


def vbft(leaves: int, uppers: int, per_leaf: int, *, plain: bool = False, **vlans: Any) -> Topology:
    """VBFT(leaves, uppers) with hosts n1, n2, ....

    `plain` adds the host R, without Open vSwitch, to the first leaf.
    """
    switches: dict[str, Any] = {}
    for i in range(1, leaves + 1):
        cables = [
            {"to": f"up{j}", "port": 20 + j, "rate_bps": RATE_BPS} for j in range(1, uppers + 1)
        ]
        switches[f"leaf{i}"] = {"links": cables}
    for j in range(1, uppers + 1):
        cables = [{"to": f"leaf{i}", "port": i, "rate_bps": RATE_BPS} for i in range(1, leaves + 1)]
        switches[f"up{j}"] = {"links": cables}
    hosts: dict[str, Any] = {
        f"n{n}": {
            "nics": [
                {"name": "nic0", "switch": f"leaf{(n - 1) // per_leaf + 1}", "rate_bps": RATE_BPS}
            ]
        }
        for n in range(1, leaves * per_leaf + 1)
    }
    if plain:
        nic = {"name": "eth0", "switch": "leaf1", "rate_bps": RATE_BPS}
        hosts["R"] = {"managed": False, "nics": [nic]}
    name = f"vbft-{leaves}-{uppers}"
    return Topology.model_validate(
        {"name": name, "switches": switches, "hosts": hosts, "vlans": vlans}
    )
