# SPDX-License-Identifier: Apache-2.0
"""Ask the controller's local API until the controller is ready for the whole lab."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = ["await_ready"]

POLL_S = 0.05


def await_ready(topology: Topology, path: Path, log: Path, timeout_s: float) -> dict[str, Any]:
    """Poll the controller's status until the controller is ready, and return that status.

    It is ready when all managed hosts are connected, their networks are known, everything is
    settled and the helpers have links. `path` is the controller's socket. Raises NotAvailable after
    `timeout_s` seconds, with what is missing and the last line of `log`.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            status = call(path, "status")
            missing = _missing(topology, status)
        except (BadInput, NotAvailable) as error:  # the controller refuses while it starts
            status, missing = {}, str(error)
        if not missing:
            return status
        if time.monotonic() > deadline_s:
            raise NotAvailable(
                f"the controller is not ready after {timeout_s:g} s: {missing}{_log_end(log)}"
            )
        time.sleep(POLL_S)


def _missing(topology: Topology, status: dict[str, Any]) -> str:
    """What the controller lacks, in words; empty when it is ready."""
    connected = {host["name"]: host for host in status["hosts"] if host["connected"]}
    absent = [host for host in topology.managed_hosts() if host not in connected]
    if absent:
        return f"not connected: {', '.join(absent)}"
    # A network is found by probes between hosts, so a switch with one managed NIC has none.
    lonely = {switch for switch in topology.switches if len(_managed_on(topology, switch)) < 2}
    unknown = []
    for host in topology.managed_hosts():
        reported = {nic["name"]: nic for nic in connected[host]["nics"]}
        for nic in topology.hosts[host].nics:
            entry = reported.get(nic.name)
            if entry is None or (
                entry["up"] and entry["network"] is None and nic.switch not in lonely
            ):
                unknown.append(f"{host}:{nic.name}")
    if unknown:
        return f"network not known of {', '.join(unknown)}"
    return _missing_of_helpers(status) if status["settled"] else "not settled"


def _missing_of_helpers(status: dict[str, Any]) -> str:
    """Striped pairs whose helpers have reported no usable helper link yet, in words.

    Empty when there is none.
    """
    unlinked = [
        f"{pair['src']} -> {pair['dst']}"
        for pair in status.get("pairs", ())
        if pair.get("striped")
        and not any((path["helper"] or {}).get("usable") for path in pair["paths"])
    ]
    return f"helpers have no link yet: {', '.join(unlinked)}" if unlinked else ""


def _managed_on(topology: Topology, switch: str) -> list[str]:
    """The host of each managed NIC on a switch: a host is named once per NIC."""
    return [host for host, _ in topology.nics_on(switch) if topology.hosts[host].managed]


def _log_end(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"; {log}: {lines[-1]}" if lines else ""
