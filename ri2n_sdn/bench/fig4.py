"""Figure 4's topologies with real iperf3 traffic: goodput per client, its share of the optimum, weights, retransmits.

Every client sends TCP streams to the server at the same time; what counts is what the server received in a window
that begins after a warm-up. One lab per topology, one controller, which is told the strategy of each block of runs.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_sdn.bench.context import Report
from ri2n_sdn.bench.fair import Optimum, goodput_optimum
from ri2n_sdn.bench.progress import Progress
from ri2n_sdn.bench.ready import start_and_wait
from ri2n_sdn.bench.rows import fig4_row, retransmits, summarize, window_goodput_bps
from ri2n_sdn.cli.client import call
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.lab import Lab

__all__ = ["Fig4Settings", "clients_of", "measure_clients", "pair_weights", "run_fig4", "total_seconds"]

SERVER = "A"
FIRST_PORT = 5201
# Sent after the window, so that no client has stopped when the last one's window ends.
TAIL_S = 1
LAB_S = 12.0
FIGURES = ("total_of_optimum", "worst_share", "retransmits", "slots_moved")


@dataclass(frozen=True)
class Fig4Settings:
    """What to run; times in whole seconds. `pattern` ping-B: B sends one ping a second, only the others send bulk."""

    topologies: list[Topology]
    strategies: list[str]
    mode: str = "flow"
    streams: int = 8
    seconds: int = 20
    warmup: int = 3
    repeat: int = 3
    pattern: str = "bulk"
    congestion: str = "cubic"

    def described(self) -> dict[str, Any]:
        """As JSON, with the topologies whole: a file may change later."""
        return {**asdict(self), "topologies": [topology.model_dump(mode="json") for topology in self.topologies]}


def total_seconds(settings: Fig4Settings) -> float:
    """About how long `run_fig4` takes, for the progress bar."""
    runs = len(settings.strategies) * settings.repeat
    return len(settings.topologies) * (LAB_S + runs * _run_seconds(settings))


def _run_seconds(settings: Fig4Settings) -> float:
    return settings.warmup + settings.seconds + TAIL_S + 2.0


def clients_of(topology: Topology, pattern: str) -> list[str]:
    """The hosts that send bulk: all managed ones but the server (and B, which only pings, in pattern ping-B)."""
    if SERVER not in topology.managed_hosts():
        raise BadInput(f"topology {topology.name}: has no managed host {SERVER}, the server")
    quiet = {SERVER, "B"} if pattern == "ping-B" else {SERVER}
    clients = [host for host in topology.managed_hosts() if host not in quiet]
    if pattern == "ping-B" and "B" not in topology.hosts:
        raise BadInput(f"topology {topology.name}: has no host B, which pattern ping-B needs")
    if not clients:
        raise BadInput(f"topology {topology.name}: nobody is left to send to {SERVER}")
    return clients


def run_fig4(settings: Fig4Settings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run; labs are removed also when it is interrupted."""
    for topology in settings.topologies:  # before the first lab is built
        goodput_optimum(topology, clients_of(topology, settings.pattern), SERVER)
    for topology in settings.topologies:
        progress.say(f"{topology.name}: building the lab")
        with Lab.create(topology) as lab:
            start_and_wait(lab, settings.strategies[0])
            progress.done(LAB_S)
            for row, raw in _runs(lab, topology, settings, progress):
                report.add(row, raw, summarize([*report.rows, row], ("topology", "strategy"), FIGURES))
    report.finish()


def _runs(
    lab: Lab, topology: Topology, settings: Fig4Settings, progress: Progress
) -> Iterator[tuple[dict[str, Any], object]]:
    clients = clients_of(topology, settings.pattern)
    optimum = goodput_optimum(topology, clients, SERVER)
    for strategy in settings.strategies:
        call(lab.controller_socket, "strategy", name=strategy)
        for repeat in range(1, settings.repeat + 1):
            progress.say(f"{topology.name} {strategy} {repeat}/{settings.repeat}")
            lab.wait_ready(30)
            row, raw = _one_run(lab, clients, settings, optimum)
            progress.done(_run_seconds(settings))
            key = {"topology": topology.name, "strategy": strategy, "mode": settings.mode}
            yield {**key, "streams": settings.streams, "repeat": repeat, **row}, {**key, **raw}


def _one_run(
    lab: Lab, clients: list[str], settings: Fig4Settings, optimum: Optimum
) -> tuple[dict[str, Any], dict[str, Any]]:
    start_s, end_s = float(settings.warmup), float(settings.warmup + settings.seconds)
    pinger = None
    if settings.pattern == "ping-B":
        pinger = lab.popen("B", ["ping", "-i", "1", lab.address(SERVER)], stdout=subprocess.DEVNULL)
    moved: list[tuple[float, int]] = []
    weights: list[dict[str, dict[str, float]]] = []

    def watch(now_s: float) -> None:
        status = call(lab.controller_socket, "status")
        moved.append((now_s, status["slots_moved"]))
        if now_s >= start_s:
            weights.append(pair_weights(status, clients))

    try:
        reports = measure_clients(
            lab, clients, settings.streams, settings.warmup + settings.seconds + TAIL_S, settings.congestion, watch
        )
    finally:
        if pinger is not None:
            pinger.terminate()
            pinger.wait()
    goodput = {name: window_goodput_bps(reports[name]["server"], start_s, end_s) for name in clients}
    row = fig4_row(
        {},
        goodput,
        optimum,
        retransmitted=sum(retransmits(reports[name]["client"], start_s, end_s) for name in clients),
        weights=_mean_weights(weights),
        slots_moved=moved[-1][1] - moved[0][1] if moved else 0,
    )
    return row, {"iperf3": reports, "weights": weights, "optimum": asdict(optimum)}


def measure_clients(
    lab: Lab,
    clients: list[str],
    streams: int,
    seconds: int,
    congestion: str,
    watch: Callable[[float], None],
    tick_s: float = 1.0,
) -> dict[str, dict[str, Any]]:
    """iperf3 from all clients to the server at once; returns {client: {"client": JSON, "server": JSON}}.

    `watch` is called every `tick_s` with the seconds since the clients started. Raises NotAvailable when an iperf3
    does not start or does not end.
    """
    servers: dict[str, subprocess.Popen[str]] = {}
    senders: dict[str, subprocess.Popen[str]] = {}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ports = {client: FIRST_PORT + index for index, client in enumerate(clients)}
    try:
        for client, port in ports.items():
            servers[client] = lab.popen(SERVER, ["iperf3", "-s", "-1", "-J", "-p", str(port)], **pipes)
        _wait_listening(lab, set(ports.values()))
        for client, port in ports.items():
            senders[client] = lab.popen(
                client,
                [
                    *("iperf3", "-J", "-c", lab.address(SERVER), "-p", str(port)),
                    *("-P", str(streams), "-t", str(seconds), "-C", congestion),
                ],
                **pipes,
            )
        started = time.monotonic()
        while (now_s := time.monotonic() - started) < seconds:
            watch(now_s)
            time.sleep(max(0.0, min(tick_s - (time.monotonic() - started - now_s), seconds - now_s)))
        return {
            client: {
                "client": _finish(senders[client], f"iperf3 client {client}"),
                "server": _finish(servers[client], f"iperf3 server of {client}"),
            }
            for client in clients
        }
    finally:
        for process in (*senders.values(), *servers.values()):
            if process.poll() is None:
                process.kill()
                process.wait()


def pair_weights(status: dict[str, Any], senders: list[str]) -> dict[str, dict[str, float]]:
    """{sender: {`own>peer`: share}} of the pairs that go to the server."""
    return {
        pair["src"]: {f"{path['own']}>{path['peer']}": float(path["share"]) for path in pair["paths"]}
        for pair in status["pairs"]
        if pair["dst"] == SERVER and pair["src"] in senders
    }


def _mean_weights(samples: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    sums: dict[str, dict[str, float]] = {}
    for sample in samples:
        for sender, shares in sample.items():
            for path, share in shares.items():
                sums.setdefault(sender, {}).setdefault(path, 0.0)
                sums[sender][path] += share / len(samples)
    return {sender: {path: round(share, 4) for path, share in shares.items()} for sender, shares in sums.items()}


def _wait_listening(lab: Lab, ports: set[int], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        listening = lab.exec(SERVER, ["ss", "-Htln"]).stdout
        if all(f":{port} " in listening for port in ports):
            return
        if time.monotonic() > deadline:
            raise NotAvailable(f"iperf3 does not listen in {SERVER} after {timeout_s:g} s: is iperf3 installed?")
        time.sleep(0.05)


def _finish(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{name} did not end; is the machine overloaded?") from None
    try:
        document: dict[str, Any] = json.loads(output)
    except ValueError:
        raise NotAvailable(f"{name} printed no JSON: {' '.join((errors or output).split())[:200]}") from None
    return document
