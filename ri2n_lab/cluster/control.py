"""Ask the controller's local API until it has the whole lab in hand."""

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
    """Poll the status until all managed hosts are connected, their networks known, all settled,
    helpers linked.

    NotAvailable with what is missing and the log's last line after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            status = call(path, "status")
            missing = _missing(topology, status)
        except (BadInput, NotAvailable) as error:  # it refuses while it starts
            status, missing = {}, str(error)
        if not missing:
            return status
        if time.monotonic() > deadline:
            raise NotAvailable(
                f"the controller is not ready after {timeout_s:g} s: {missing}{_log_end(log)}"
            )
        time.sleep(POLL_S)


def _missing(topology: Topology, status: dict[str, Any]) -> str:
    """What the controller lacks, in words; empty when nothing."""
    known = {host["name"]: host for host in status["hosts"] if host["connected"]}
    absent = [host for host in topology.managed_hosts() if host not in known]
    if absent:
        return f"not connected: {', '.join(absent)}"
    lonely = {switch for switch in topology.switches if len(_managed_on(topology, switch)) < 2}
    unknown = []
    for host in topology.managed_hosts():
        seen = {nic["name"]: nic for nic in known[host]["nics"]}
        for nic in topology.hosts[host].nics:
            entry = seen.get(nic.name)
            if entry is None or (
                entry["up"] and entry["network"] is None and nic.switch not in lonely
            ):
                unknown.append(f"{host}:{nic.name}")
    if unknown:
        return f"network not known of {', '.join(unknown)}"
    return _missing_of_helpers(status) if status["settled"] else "not settled"


def _missing_of_helpers(status: dict[str, Any]) -> str:
    """Pairs that are striped but whose helpers have reported no usable link yet, in words.

    Empty when none.
    """
    apart = [
        f"{pair['src']} -> {pair['dst']}"
        for pair in status.get("pairs", ())
        if pair.get("striped")
        and not any((path["helper"] or {}).get("usable") for path in pair["paths"])
    ]
    return f"helpers have no link yet: {', '.join(apart)}" if apart else ""


def _managed_on(topology: Topology, switch: str) -> list[str]:
    return [host for host, _ in topology.nics_on(switch) if topology.hosts[host].managed]


def _log_end(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"; {log}: {lines[-1]}" if lines else ""
