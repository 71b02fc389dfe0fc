# SPDX-License-Identifier: Apache-2.0
"""Run iperf3 between many pairs of a lab's hosts at once.

All receivers count in the same window.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ri2n_lab.traffic.bulk import PhaseResult
from ri2n_lab.traffic.iperf import (
    CONGESTION_CONTROL,
    MAX_LATE_S,
    START_TIMEOUT_S,
    NotTogether,
    window_goodput_bps,
)
from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["IperfPairs"]

FIRST_PORT = 5301
INTERVAL_S = "0.5"
TAIL_S = 2.0  # so that no client has stopped when the window of the last one ends
END_TIMEOUT_S = 60.0


class IperfPairs:
    """A server and a client of iperf3 for each pair, all at once.

    `result` waits for the end, `stop` ends it early.
    """

    def __init__(
        self,
        lab: Lab,
        pairs: Sequence[tuple[str, str]],
        *,
        warmup_s: float,
        window_s: float,
        streams: int = 1,
        first_port: int = FIRST_PORT,
        prefix: Sequence[str] = (),
    ) -> None:
        """Start `streams` TCP connections for each pair (sender, receiver).

        Runs at the same time need ports of their own, from `first_port` on; `prefix` are words
        before iperf3 at both ends. Raises NotAvailable when iperf3 is missing or a server does not
        start.
        """
        if shutil.which("iperf3") is None:
            raise NotAvailable("iperf3 is missing: apt install iperf3")
        self._lab, self._pairs = lab, list(pairs)
        self._warmup_s, self._window_s = warmup_s, window_s
        self._first_port, self._prefix = first_port, tuple(prefix)
        self._children: dict[str, subprocess.Popen[Any]] = {}
        self._length_s = warmup_s + window_s + TAIL_S
        ports = self._ports
        for (_, receiver), port in zip(self._pairs, ports, strict=True):
            self._start(receiver, f"server-{port}", ["-s", "-1", "-p", str(port)])
        for (_, receiver), port in zip(self._pairs, ports, strict=True):
            self._await_listening(receiver, port)
        options = ["-t", f"{self._length_s:g}", "-P", str(streams), "-C", CONGESTION_CONTROL]
        for (sender, receiver), port in zip(self._pairs, ports, strict=True):
            self._start(
                sender, f"client-{port}", ["-c", lab.address(receiver), "-p", str(port), *options]
            )

    def result(self) -> PhaseResult:
        """Wait for the end, and return what every receiver got in the window.

        The window begins `warmup_s` seconds after the last client has begun. Raises NotTogether
        when the last client began more than MAX_LATE_S seconds after the first, NotAvailable, with
        iperf3's message, when a transfer failed.
        """
        reports = {label: self._report(label) for label in self._children}
        ports = self._ports
        # A server writes its report right after it has received everything, so the report's time
        # tells when it began.
        began_s = {
            port: self._path(f"server-{port}").stat().st_mtime
            - reports[f"server-{port}"]["intervals"][-1]["sum"]["end"]
            for port in ports
        }
        last_s = max(began_s.values())
        if last_s - min(began_s.values()) > MAX_LATE_S:
            raise NotTogether(
                f"a client of iperf3 began {last_s - min(began_s.values()):.1f} s after the first"
            )
        received, retransmits = {}, 0
        for pair, port in zip(self._pairs, ports, strict=True):
            skip_s = self._warmup_s + last_s - began_s[port]
            rate_bps = window_goodput_bps(reports[f"server-{port}"], skip_s, self._window_s)
            received[pair] = round(rate_bps * self._window_s / 8)
            retransmits += sum(
                int(interval["sum"].get("retransmits", 0))
                for interval in reports[f"client-{port}"]["intervals"]
                if skip_s <= interval["sum"]["start"] < skip_s + self._window_s
            )
        return PhaseResult(self._window_s, received, retransmits)

    def stop(self) -> None:
        """End the transfers now; there will be no result."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
            child.wait()

    @property
    def _ports(self) -> range:
        return range(self._first_port, self._first_port + len(self._pairs))

    def _start(self, host: str, label: str, options: list[str]) -> None:
        with self._path(label).open("wb") as output:
            argv = [*self._prefix, "iperf3", *options, "-J", "-i", INTERVAL_S]
            self._children[label] = self._lab.popen(
                host, argv, stdout=output, stderr=subprocess.STDOUT
            )

    def _path(self, label: str) -> Path:
        return self._lab.run_dir / f"iperf-{label}.json"

    def _await_listening(self, host: str, port: int) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._lab.exec(host, ["ss", "-Hltn", f"sport = :{port}"]).stdout.strip():
            if self._children[f"server-{port}"].poll() is not None or time.monotonic() > deadline_s:
                words = " ".join(self._path(f"server-{port}").read_text(errors="replace").split())
                self.stop()
                raise NotAvailable(f"iperf3 does not listen on {host}: {words[-200:]}")
            time.sleep(0.02)

    def _report(self, label: str) -> dict[str, Any]:
        try:
            self._children[label].wait(self._length_s + END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.stop()
            raise NotAvailable(f"iperf3 {label} did not end") from None
        text = self._path(label).read_text(errors="replace")
        try:
            report: dict[str, Any] = json.loads(text)
        except ValueError:
            raise NotAvailable(f"iperf3 {label} failed: {' '.join(text.split())[-200:]}") from None
        if "error" in report:
            raise NotAvailable(f"iperf3 {label} failed: {report['error']}")
        return report
