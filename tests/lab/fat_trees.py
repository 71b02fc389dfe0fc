# SPDX-License-Identifier: Apache-2.0
"""Small VLAN fat trees for tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.fabric.topology import Topology

from .conftest import EXACT

__all__ = ["ports_by_vlan", "until_sent", "vbft"]

RATE_BPS = 100_000_000
_FIRST_PORT, _PORTS = 20_000, 64
_SEEN = re.compile(r"(?:vlan (\d+), .*?)?\S+\.(\d+) > \S+\.5600: UDP")


def ports_by_vlan(
    lab: Lab, source: str, target: str, wait_until: Callable[..., None]
) -> dict[int | None, list[int]]:
    """UDP source ports of flows from `source` to `target`, by the VLAN in which they leave.

    None stands for frames without a tag. The hash of a flow says which VLAN that is. Nobody can
    predict it on a kernel datapath, so a packet of each flow is sent, and looked at.

    The packets are so few that they do not make the pair active: its slot table stays, and a stream
    that loads both VLANs alike afterwards gives no reason to change it either.
    """
    wait_until(lambda: not _is_active(lab, source, target), "the pair stays active", timeout_s=20)
    ports = range(_FIRST_PORT, _FIRST_PORT + _PORTS)
    said, errors = lab.run_dir / "ports.txt", lab.run_dir / "ports.log"
    argv = ["tcpdump", "-i", "nic0", "-Q", "out", "-e", "-n", "-l", "--immediate-mode"]
    with said.open("w") as out, errors.open("w") as log:
        capture = lab.popen(source, argv, stdout=out, stderr=log)
    found: dict[int, int | None] = {}

    def all_seen() -> bool:
        for vlan, port in _SEEN.findall(said.read_text()):
            found[int(port)] = int(vlan) if vlan else None
        return found.keys() == set(ports)

    try:
        wait_until(lambda: "listening on" in errors.read_text(), lambda: errors.read_text())
        Stream(
            lab, source, target, pps=40, seconds=_PORTS / 40, size=48, source_ports=ports
        ).result()
        wait_until(all_seen, lambda: f"{found}\n{said.read_text()[-2000:]}")
        assert not EXACT or not _is_active(lab, source, target)
    finally:
        capture.terminate()
        capture.wait()
    by_vlan: dict[int | None, list[int]] = {}
    for port, vlan in found.items():
        by_vlan.setdefault(vlan, []).append(port)
    return by_vlan


def until_sent(lab: Lab, host: str, frames: float, wait_until: Callable[..., None]) -> None:
    """Wait until a host's NIC has sent that many frames more."""

    def sent() -> int:
        return lab.nic_counters(host, "tx_packets")["nic0"]

    start = sent()
    wait_until(
        lambda: sent() >= start + frames,
        lambda: f"{host} has sent {sent() - start} of {frames} frames",
    )


def _is_active(lab: Lab, source: str, target: str) -> bool:
    """Whether a pair has a slot table of its own, since it sends or has sent."""
    pairs = call(lab.controller_socket, "status")["pairs"]
    return any(p["active"] for p in pairs if (p["src"], p["dst"]) == (source, target))


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
