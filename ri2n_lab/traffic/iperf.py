# SPDX-License-Identifier: Apache-2.0
"""Run iperf3 between hosts of a lab.

The goodput is what the server counted in a fixed window; retransmits are from the client.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["MAX_LATE_S", "IperfResult", "IperfRun", "NotTogether", "measure", "window_goodput_bps"]

START_TIMEOUT_S = 10.0
CONGESTION_CONTROL = "cubic"
MAX_LATE_S = 1.5
"""How many seconds after the others a client may begin.

A client whose first packet full queues have lost sends it again after 1 s.
"""

BATCH_READS = "RI2N_BATCH_READS"
"""The environment variable that names a library for iperf3 servers in virtual time.

With the library (kernel/batch-reads.c), servers are woken less often than for every frame.
"""


class NotTogether(NotAvailable):
    """A client began so long after the others that there is no window in which all have sent."""


@dataclass(frozen=True)
class IperfResult:
    """The result of one client's transfer.

    `goodput_bps` is the goodput in the window, in bit/s; `intervals_bps` are the server's figures
    for each second, from the first.
    """

    client: str
    server: str
    streams: int
    goodput_bps: float
    retransmits: int
    intervals_bps: list[float]
    client_report: dict[str, Any]  # iperf3's own JSON, both sides
    server_report: dict[str, Any]


class IperfRun:
    """A running iperf3, with TCP from several clients to one server host, all started together.

    `results` waits for the end, `stop` ends it early.
    """

    def __init__(
        self,
        lab: Lab,
        server: str,
        clients: list[str],
        *,
        streams: int = 8,
        seconds: float = 13.0,
        first_port: int = 5201,
        ipv6: bool = False,
        rate_bps: int | None = None,
        prefix: Sequence[str] = (),
        addresses: Mapping[str, str] | None = None,
        congestion: str = CONGESTION_CONTROL,
        reverse: bool = False,
    ) -> None:
        """Start the transfer. Each client has a server process and port of its own.

        * `streams`: TCP connections per client.
        * `rate_bps`: limits each stream.
        * `prefix`: words before iperf3 at both ends (`mptcpize run`).
        * `addresses`: the address at which each client reaches the server; by default the server's
          own.
        * `congestion`: the congestion control of all streams.
        * `reverse`: the server sends, over connections that the clients open.

        Raises NotAvailable when iperf3 is missing or a server does not start.
        """
        if shutil.which("iperf3") is None:
            raise NotAvailable("iperf3 is missing: apt install iperf3")
        self.server, self.clients = server, list(clients)
        self.streams, self.seconds = streams, seconds
        self._folder, self._reverse = lab.run_dir, reverse
        self._first_port = first_port
        self._children: list[subprocess.Popen[Any]] = []
        ports = range(first_port, first_port + len(clients))
        for port in ports:
            # The library is not loaded with a prefix: MPTCP's own wrapper is loaded the same way,
            # and MPTCP's sockets do not have the option. Nor is it loaded for a single stream,
            # whose figures would change over links that reorder: bonding's share of two links rose
            # from .94 to .96, as fewer acknowledgements were sent.
            library = os.environ.get(BATCH_READS) if streams > 1 and not prefix else None
            before = ["env", f"LD_PRELOAD={library}"] if library else list(prefix)
            argv = [*before, "iperf3", "-s", "-1", "-J", "-i", "1", "-p", str(port)]
            self._start(lab, server, argv, f"server-{port}")
        self._await_listening(lab, set(ports))
        default = lab.address6(server) if ipv6 else lab.address(server)
        for client, port in zip(self.clients, ports, strict=True):
            address = (addresses or {}).get(client, default)
            argv = [*prefix, "iperf3", "-c", address, "-p", str(port), "-J", "-i", "1"]
            argv += ["-t", f"{seconds:g}", "-P", str(streams), "-C", congestion]
            argv += ["-b", str(rate_bps)] if rate_bps else []
            argv += ["-R"] if reverse else []
            self._start(lab, client, argv, f"client-{port}")
        self.start_s = time.monotonic()

    def results(
        self, *, skip_s: float = 3.0, window_s: float | None = None
    ) -> dict[str, IperfResult]:
        """Wait for the end, and return the result of each client.

        The window begins `skip_s` seconds after the last client has begun, so that it is the same
        time for all, and lasts `window_s` seconds (None: the rest of the transfer). Raises
        NotTogether when the last client began more than MAX_LATE_S seconds after the first,
        NotAvailable, with iperf3's message, when a transfer failed.
        """
        results = {}
        reports = {}
        for index, client in enumerate(self.clients):
            port = self._first_port + index
            sender = self._report(len(self.clients) + index, f"client-{port}")
            reports[client] = (sender, self._report(index, f"server-{port}"))
        began_s = {
            client: self._path(f"server-{self._first_port + index}").stat().st_mtime
            - _length_s(reports[client][1])
            for index, client in enumerate(self.clients)
        }
        last_s = max(began_s.values())
        if last_s - min(began_s.values()) > MAX_LATE_S:
            late = max(began_s, key=lambda client: began_s[client])
            raise NotTogether(
                f"iperf3 on {late} began {last_s - min(began_s.values()):.1f} s after the first "
                "client"
            )
        for client, (at_client, at_server) in reports.items():
            sender, receiver = (at_server, at_client) if self._reverse else (at_client, at_server)
            intervals = [
                float(interval["sum"]["bits_per_second"]) for interval in receiver["intervals"]
            ]
            results[client] = IperfResult(
                client=client,
                server=self.server,
                streams=self.streams,
                goodput_bps=window_goodput_bps(
                    receiver, skip_s + last_s - began_s[client], window_s or self.seconds - skip_s
                ),
                retransmits=int(sender["end"]["sum_sent"].get("retransmits", 0)),
                intervals_bps=intervals,
                client_report=at_client,
                server_report=at_server,
            )
        return results

    @property
    def ended(self) -> bool:
        """Whether one of its programs has ended."""
        return any(child.poll() is not None for child in self._children)

    def stop(self) -> None:
        """End the transfer now; there will be no results."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def _start(self, lab: Lab, host: str, argv: list[str], label: str) -> None:
        with self._path(label).open("wb") as output:
            self._children.append(lab.popen(host, argv, stdout=output, stderr=subprocess.STDOUT))

    def _path(self, label: str) -> Path:
        return self._folder / f"iperf-{label}.json"

    def _await_listening(self, lab: Lab, ports: set[int]) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            lines = lab.exec(self.server, ["ss", "-Hltn"]).stdout.splitlines()
            if ports <= {int(line.split()[3].rpartition(":")[2]) for line in lines}:
                return
            servers = zip(sorted(ports), self._children, strict=True)
            dead = next((port for port, child in servers if child.poll() is not None), None)
            if dead is not None or time.monotonic() > deadline_s:
                text = self._path(f"server-{dead or min(ports)}").read_text(errors="replace")
                self.stop()
                raise NotAvailable(
                    f"iperf3 does not listen on {self.server}: {' '.join(text.split())[-200:]}"
                )
            time.sleep(0.02)

    def _report(self, index: int, label: str) -> dict[str, Any]:
        try:
            self._children[index].wait(self.seconds + 30)
        except subprocess.TimeoutExpired:
            self.stop()
            raise NotAvailable(
                f"iperf3 {label} did not end {self.seconds + 30:g} s after its start"
            ) from None
        text = self._path(label).read_text(errors="replace")
        try:
            report: dict[str, Any] = json.loads(text)
        except ValueError:
            words = " ".join(text.split())
            raise NotAvailable(f"iperf3 {label} failed: {words[:200]} ... {words[-200:]}") from None
        if "error" in report:
            raise NotAvailable(f"iperf3 {label} failed: {report['error']}")
        return report


def _length_s(server_report: dict[str, Any]) -> float:
    """How many seconds a server has received.

    It writes its report right afterwards, so the report's time less this is when it began.
    """
    return max(
        (float(interval["sum"]["end"]) for interval in server_report["intervals"]), default=0.0
    )


def measure(
    lab: Lab,
    server: str,
    clients: list[str],
    *,
    skip_s: float = 3.0,
    window_s: float = 10.0,
    **options: Any,
) -> dict[str, IperfResult]:
    """Run TCP from all `clients` to `server`, and return each client's result.

    `skip_s` and `window_s` are those of `IperfRun.results`; `options` are those of `IperfRun`. The
    transfer ends two seconds after the window, so that no client's end is in the window.
    """
    run = IperfRun(lab, server, clients, seconds=skip_s + window_s + 2.0, **options)
    return run.results(skip_s=skip_s, window_s=window_s)


def window_goodput_bps(server_report: dict[str, Any], skip_s: float, window_s: float) -> float:
    """The goodput in bit/s of a server's report, over `window_s` seconds after `skip_s` seconds.

    It is computed from the server's own intervals; of an interval that is partly in the window,
    that part counts. (iperf3's totals, and `-O`, use different windows at the two ends.) Raises
    NotAvailable when the intervals cover less than 0.9 of the window.
    """
    total_bits, covered_s = 0.0, 0.0
    for interval in server_report["intervals"]:
        entry = interval["sum"]
        overlap_s = min(entry["end"], skip_s + window_s) - max(entry["start"], skip_s)
        if overlap_s > 0:
            total_bits += entry["bits_per_second"] * overlap_s
            covered_s += overlap_s
    if covered_s < window_s * 0.9:
        raise NotAvailable(
            f"iperf3 reported {covered_s:.1f} s of the {window_s:g} s to be measured"
        )
    return total_bits / covered_s
