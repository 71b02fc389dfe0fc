# SPDX-License-Identifier: Apache-2.0
"""The loads of `ri2n bench helper`: streams, round trips, short connections, small UDP packets."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from ri2n_lab.bench.awake import cpus_awake
from ri2n_lab.bench.helper_plan import WARMUP_S, Load
from ri2n_lab.bench.meters import Pings
from ri2n_lab.bench.own_cpu import OwnCpu
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.stream import CLIENT
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun
from ri2n_sdn.errors import NotAvailable

__all__ = ["End", "percentiles"]

# Below 10 ms ping does not sleep in between, and takes a CPU from what it measures.
PING_INTERVAL_S = 0.02
REQUEST_PAUSE_S = 0.002
PERCENTILE = 0.99
# With it, the frame of an IPv4 packet has the least length that Ethernet knows, 64 bytes.
UDP_BYTES = 18
UDP_PORT = 5401
FIRST_PORTS = (5201, 5251)  # for one way, and for the other one
LIMIT_S = 60.0
MODULE = "ri2n_lab.bench.helper_ends"

Json = dict[str, Any]


class End:
    """The client's end of a lab, with a server at the other end; `measure` runs a load."""

    def __init__(
        self,
        lab: Lab,
        address: str,
        prefix: Sequence[str],
        udp: bool,
        wait_ready: Callable[[], None],
    ) -> None:
        """`address` is the server's, `prefix` are words before each program that uses TCP.

        `udp`: whether anything but TCP uses all that the contender offers. `wait_ready` returns
        when the contender carries traffic as it should.
        """
        self.wait_ready = wait_ready
        self._lab, self._address, self._prefix, self._udp = lab, address, list(prefix), udp
        self._answers = lab.popen(
            SERVER, self._program("answer"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._answers.stdout is not None
        said = self._answers.stdout.readline()
        if said != b"listening\n":
            raise NotAvailable(f"no server on {SERVER}: {said.decode(errors='replace').strip()}")

    def why_not(self, load: Load) -> str | None:
        """Why a load cannot be measured, in one sentence; None: it can."""
        if load.kind == "packets" and not self._udp:
            return "it carries nothing but TCP"
        if load.awake:
            with cpus_awake() as awake:
                return None if awake else "this machine's CPUs cannot be kept awake"
        return None

    def measure(self, load: Load, seconds: int) -> tuple[Json, Json]:
        """(the figures, what they were computed from) of a load that can be measured."""
        if load.kind == "streams":
            return self._streams(load.streams, load.both_ways, seconds)
        run = {
            "ping": self._pings,
            "request": self._requests,
            "connections": self._connections,
            "packets": self._packets,
        }[load.kind]
        with cpus_awake() if load.awake else nullcontext():
            return run(seconds)

    # ---- streams

    def _streams(self, streams: int, both_ways: bool, seconds: int) -> tuple[Json, Json]:
        runs: list[IperfRun] = []
        try:
            for reverse in (False, True) if both_ways else (False,):
                runs.append(
                    IperfRun(
                        self._lab,
                        SERVER,
                        [CLIENT],
                        streams=streams,
                        seconds=WARMUP_S + seconds + (1 if reverse or not both_ways else 2),
                        first_port=FIRST_PORTS[reverse],
                        prefix=self._prefix,
                        addresses={CLIENT: self._address},
                        reverse=reverse,
                    )
                )
            start_s = runs[-1].start_s + WARMUP_S
            time.sleep(max(0.0, start_s - time.monotonic()))  # the schedule of the measurement
            cpu = self._cpu()
            time.sleep(max(0.0, start_s + seconds - time.monotonic()))
            cpu_s, foreign = cpu.seconds()
            results = [
                run.results(skip_s=start_s - run.start_s, window_s=seconds)[CLIENT] for run in runs
            ]
        finally:
            for run in runs:
                run.stop()
        goodput_bps = sum(result.goodput_bps for result in results)
        gbit = goodput_bps * seconds / 1e9
        row = {
            "goodput_bps": round(goodput_bps),
            "cpu_s_per_gbit": round(cpu_s / gbit, 4) if gbit else None,
            "retransmits": sum(result.retransmits for result in results),
            "foreign_cpus": round(foreign, 3),
        }
        reports = [[result.client_report, result.server_report] for result in results]
        return row, {
            "iperf3": reports,
            "each_way_bps": [round(each.goodput_bps) for each in results],
        }

    # ---- round trips

    def _pings(self, seconds: int) -> tuple[Json, Json]:
        sent = Pings(self._lab, CLIENT, self._address, PING_INTERVAL_S)
        try:
            cpu = self._cpu()
            time.sleep(seconds)  # the length of the measurement
            _, foreign = cpu.seconds()
            times_us = [each * 1000 for each in sent.times_ms()]
        finally:
            sent.stop()
        return {**percentiles(times_us), "foreign_cpus": round(foreign, 3)}, {
            "pings": len(times_us)
        }

    def _requests(self, seconds: int) -> tuple[Json, Json]:
        cpu = self._cpu()
        found = self._ask("requests", seconds, REQUEST_PAUSE_S)
        _, foreign = cpu.seconds()
        times_us = found["times_us"]
        row = {**percentiles(times_us), "foreign_cpus": round(foreign, 3)}
        return row, {"requests": len(times_us)}

    # ---- rates

    def _connections(self, seconds: int) -> tuple[Json, Json]:
        cpu = self._cpu()
        found = self._ask("connections", seconds)
        cpu_s, foreign = cpu.seconds()
        return _rate(found["count"], found["seconds"], cpu_s, foreign), found

    def _packets(self, seconds: int) -> tuple[Json, Json]:
        """As many small packets as iperf3 can send; those count that arrive."""
        argv = ["iperf3", "-s", "-1", "-J", "-p", str(UDP_PORT)]
        server = self._lab.popen(SERVER, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            self._await_server()
            argv = ["iperf3", "-c", self._address, "-p", str(UDP_PORT), "-J", "-u", "-b", "0"]
            argv += ["-l", str(UDP_BYTES), "-t", str(seconds)]
            cpu = self._cpu()
            sent = self._lab.exec(CLIENT, argv, check=False, timeout_s=seconds + LIMIT_S).stdout
            cpu_s, foreign = cpu.seconds()
            output, _ = server.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise NotAvailable("iperf3's server does not end") from None
        finally:
            with suppress(ProcessLookupError):
                server.kill()
            server.wait()
        try:
            report = json.loads(output)
            total = report["end"]["sum"]
            count = int(total["packets"]) - int(total["lost_packets"])
            length_s = float(total["seconds"])
        except (ValueError, KeyError):
            words = " ".join(output.decode(errors="replace").split())
            raise NotAvailable(f"iperf3 failed: {words[-200:] or sent[-200:]}") from None
        raw = {"packets": total["packets"], "lost": total["lost_packets"], "seconds": length_s}
        return _rate(count, length_s, cpu_s, foreign), raw

    def _await_server(self) -> None:
        deadline_s = time.monotonic() + 10.0
        while f":{UDP_PORT} " not in self._lab.exec(SERVER, ["ss", "-Hltn"]).stdout:
            if time.monotonic() > deadline_s:
                raise NotAvailable(f"iperf3 does not listen on {SERVER}")
            time.sleep(0.02)

    # ---- programs

    def _cpu(self) -> OwnCpu:
        places = ("sw", "mgmt", *self._lab.hosts)
        return OwnCpu(self._lab.namespace(place) for place in places)

    def _program(self, word: str, *more: object) -> list[str]:
        argv = [*self._prefix, sys.executable, "-m", MODULE, word, self._address]
        return [*argv, *map(str, more)]

    def _ask(self, word: str, *more: object) -> Json:
        done = self._lab.exec(CLIENT, self._program(word, *more), check=False, timeout_s=LIMIT_S)
        try:
            found: Json = json.loads(done.stdout)
        except ValueError:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise NotAvailable(f"{word}: {words[-1] if words else 'no word'}") from None
        return found


def _rate(count: int, seconds: float, cpu_s: float, foreign: float) -> Json:
    return {
        "per_s": round(count / seconds, 1) if seconds else None,
        "cpu_us_each": round(cpu_s / count * 1e6, 2) if count else None,
        "foreign_cpus": round(foreign, 3),
    }


def percentiles(times_us: Sequence[float]) -> Json:
    """Median and 99th percentile; NotAvailable without any."""
    if not times_us:
        raise NotAvailable("nothing was answered")
    ordered = sorted(times_us)
    return {
        "median_us": round(statistics.median(ordered), 2),
        "p99_us": round(ordered[min(len(ordered) - 1, int(len(ordered) * PERCENTILE))], 2),
    }
