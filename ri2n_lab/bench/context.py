# SPDX-License-Identifier: Apache-2.0
"""What a measurement was made on; without it a figure cannot be compared with another."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import CONGESTION_CONTROL
from ri2n_sdn import __version__

__all__ = ["FORMAT", "Report", "machine_context"]

FORMAT = 1
"""Version of the JSON files that `ri2n bench` writes; changes when a key changes its meaning."""


def machine_context() -> dict[str, Any]:
    """Kernel, CPUs, load, program versions and congestion control of this machine, now."""
    return {
        "ri2n": __version__,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "ovs": _version(["ovs-vswitchd", "--version"]),
        "iperf3": _version(["iperf3", "--version"]),
        "default_congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "default_qdisc": _read("/proc/sys/net/core/default_qdisc"),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class Report:
    """One JSON file that grows row by row, so that nothing is lost when the run is interrupted."""

    def __init__(self, kind: str, path: Path | None, settings: dict[str, Any]) -> None:
        """`path` None keeps it in memory.

        A file that cannot be written raises OSError here, not after the run.
        """
        self.path = path
        self.document: dict[str, Any] = {
            "format": FORMAT,
            "kind": kind,
            "complete": False,
            "command": _command(),
            "settings": settings,
            "context": machine_context(),
            "rows": [],
            "summary": [],
            "raw": [],
        }
        self._write()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        rows: list[dict[str, Any]] = self.document["rows"]
        return rows

    def describe_lab(self, lab: Lab, key: str | None = None, **more: Any) -> None:
        """Add what the lab's hosts run on: datapath, congestion control, queues, offloads, `more`.

        It goes under `key`, by default the topology's name.
        """
        host = lab.topology.managed_hosts()[0]
        qdiscs = {
            name: lab.exec(name, ["tc", "qdisc", "show"]).stdout.splitlines()
            for name in ("sw", host)
        }
        nic = lab.topology.hosts[host].nics[0].name
        self.document["context"].setdefault("labs", {})[key or lab.topology.name] = {
            "topology": lab.topology.description,
            "datapath": lab.datapath,
            "congestion_control": CONGESTION_CONTROL,
            "qdiscs": qdiscs,
            "offloads": lab.exec(host, ["ethtool", "-k", nic]).stdout.splitlines(),
            # What is random is the kernel's and OVS's (ports, timing); nothing of ours draws a
            # number.
            "seed": None,
            **more,
        }
        self._write()

    def describe(self, **more: Any) -> None:
        """Add more to the context."""
        self.document["context"] |= more
        self._write()

    def add(self, row: dict[str, Any], raw: object, summary: list[dict[str, Any]]) -> None:
        """Add a row, what it was computed from, and the summary of all rows so far."""
        self.document["rows"].append(row)
        self.document["raw"].append(raw)
        self.document["summary"] = summary
        self._write()

    def replace(
        self, rows: list[dict[str, Any]], raw: list[Any], summary: list[dict[str, Any]]
    ) -> None:
        """Replace all rows, which may stand in another order than they were measured in."""
        self.document |= {"rows": rows, "raw": raw, "summary": summary}
        self._write()

    def finish(self) -> None:
        """Mark the report as complete."""
        self.document["complete"] = True
        self.document["context"]["load_average_at_end"] = list(os.getloadavg())
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        draft = self.path.with_name(self.path.name + ".part")
        draft.write_text(json.dumps(self.document, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)


def _command() -> str | None:
    """The command line of this process, if it is `ri2n` and not a program that uses the bench."""
    return (
        shlex.join(["ri2n", *sys.argv[1:]])
        if Path(sys.argv[0]).name in ("ri2n", "main.py")
        else None
    )


def _version(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return match.group(0) if match else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None
