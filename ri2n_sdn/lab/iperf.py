"""iperf3 between hosts of a lab: goodput as the server saw it over a fixed window, retransmits from the client."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.lab.lab import Lab

__all__ = ["IperfResult", "IperfRun", "measure", "window_goodput_bps"]

START_TIMEOUT_S = 10.0
CONGESTION_CONTROL = "cubic"


@dataclass(frozen=True)
class IperfResult:
    """One client's transfer. `intervals_bps` is the server's goodput second by second, from the first."""

    client: str
    server: str
    streams: int
    goodput_bps: float
    retransmits: int
    intervals_bps: list[float]
    client_report: dict[str, Any]  # iperf3's own JSON, both sides
    server_report: dict[str, Any]


class IperfRun:
    """TCP from several clients to one server host, all started together; `results` waits, `stop` ends it early."""

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
    ) -> None:
        """Start it. Each client has a server process and port of its own; `rate_bps` limits each stream.

        NotAvailable when iperf3 is missing or a server does not start.
        """
        if shutil.which("iperf3") is None:
            raise NotAvailable("iperf3 is missing: apt install iperf3")
        self.server, self.clients, self.streams, self.seconds = server, list(clients), streams, seconds
        self._folder = lab.run_dir
        self._first_port = first_port
        self._children: list[subprocess.Popen[Any]] = []
        ports = range(first_port, first_port + len(clients))
        for port in ports:
            self._start(lab, server, ["iperf3", "-s", "-1", "-J", "-i", "1", "-p", str(port)], f"server-{port}")
        self._await_listening(lab, set(ports))
        address = lab.address6(server) if ipv6 else lab.address(server)
        for client, port in zip(self.clients, ports, strict=True):
            argv = ["iperf3", "-c", address, "-p", str(port), "-J", "-i", "1", "-t", f"{seconds:g}"]
            argv += ["-P", str(streams), "-C", CONGESTION_CONTROL]
            argv += ["-b", str(rate_bps)] if rate_bps else []
            self._start(lab, client, argv, f"client-{port}")
        self.start_s = time.monotonic()

    def results(self, *, skip_s: float = 3.0, window_s: float | None = None) -> dict[str, IperfResult]:
        """Wait for the end; per client, goodput over the `window_s` after the first `skip_s` (default: the rest).

        NotAvailable with iperf3's own words when a transfer failed.
        """
        found = {}
        for index, client in enumerate(self.clients):
            port = self._first_port + index
            sender = self._report(len(self.clients) + index, f"client-{port}")
            receiver = self._report(index, f"server-{port}")
            intervals = [float(each["sum"]["bits_per_second"]) for each in receiver["intervals"]]
            found[client] = IperfResult(
                client=client,
                server=self.server,
                streams=self.streams,
                goodput_bps=window_goodput_bps(receiver, skip_s, window_s or self.seconds - skip_s),
                retransmits=int(sender["end"]["sum_sent"].get("retransmits", 0)),
                intervals_bps=intervals,
                client_report=sender,
                server_report=receiver,
            )
        return found

    def stop(self) -> None:
        """End it now; there will be no results."""
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
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            lines = lab.exec(self.server, ["ss", "-Hltn"]).stdout.splitlines()
            if ports <= {int(line.split()[3].rpartition(":")[2]) for line in lines}:
                return
            servers = zip(sorted(ports), self._children, strict=True)
            dead = next((port for port, child in servers if child.poll() is not None), None)
            if dead is not None or time.monotonic() > deadline:
                text = self._path(f"server-{dead or min(ports)}").read_text(errors="replace")
                self.stop()
                raise NotAvailable(f"iperf3 does not listen on {self.server}: {' '.join(text.split())[-200:]}")
            time.sleep(0.02)

    def _report(self, index: int, label: str) -> dict[str, Any]:
        try:
            self._children[index].wait(self.seconds + 30)
        except subprocess.TimeoutExpired:
            self.stop()
            raise NotAvailable(f"iperf3 {label} did not end {self.seconds + 30:g} s after its start") from None
        text = self._path(label).read_text(errors="replace")
        try:
            report: dict[str, Any] = json.loads(text)
        except ValueError:
            raise NotAvailable(f"iperf3 {label} failed: {' '.join(text.split())[-200:]}") from None
        if "error" in report:
            raise NotAvailable(f"iperf3 {label} failed: {report['error']}")
        return report


def measure(
    lab: Lab, server: str, clients: list[str], *, skip_s: float = 3.0, window_s: float = 10.0, **options: Any
) -> dict[str, IperfResult]:
    """Run TCP from all `clients` to `server` and return each one's goodput over the window after `skip_s`.

    `options` are IperfRun's. The transfer lasts a second longer than the window, so that no client's end is in it.
    """
    run = IperfRun(lab, server, clients, seconds=skip_s + window_s + 1.0, **options)
    return run.results(skip_s=skip_s, window_s=window_s)


def window_goodput_bps(server_report: dict[str, Any], skip_s: float, window_s: float) -> float:
    """Goodput in bit/s of a server's report, over `window_s` after `skip_s`, from the server's own intervals.

    Intervals that lie partly in the window count by that part. (iperf3's totals, and `-O`, use other windows at the
    two sides.)
    """
    total_bits, covered_s = 0.0, 0.0
    for interval in server_report["intervals"]:
        entry = interval["sum"]
        overlap_s = min(entry["end"], skip_s + window_s) - max(entry["start"], skip_s)
        if overlap_s > 0:
            total_bits += entry["bits_per_second"] * overlap_s
            covered_s += overlap_s
    if covered_s < window_s * 0.9:
        raise NotAvailable(f"iperf3 reported {covered_s:.1f} s of the {window_s:g} s to be measured")
    return total_bits / covered_s
