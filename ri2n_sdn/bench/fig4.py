"""Figure 4's topologies with real iperf3 traffic: goodput per client, its share of the optimum, weights, retransmits.

Every client sends TCP streams to the server at the same time; what counts is what the server received in a window
that begins after a warm-up. One lab per topology, one controller, which is told the strategy of each block of runs.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_sdn.bench.context import Report
from ri2n_sdn.bench.fair import Optimum, goodput_optimum
from ri2n_sdn.bench.progress import Progress
from ri2n_sdn.bench.ready import start_and_wait
from ri2n_sdn.bench.rows import fig4_row, retransmits, summarize
from ri2n_sdn.cli.client import call
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.iperf import IperfRun

__all__ = ["Fig4Settings", "clients_of", "pair_weights", "run_fig4", "total_seconds"]

SERVER = "A"
# Sent after the window, so that no client has stopped when the last one's window ends.
TAIL_S = 1
LAB_S = 12.0
FIGURES = ("total_of_optimum", "worst_share", "retransmits", "slots_moved")


@dataclass(frozen=True)
class Fig4Settings:
    """What to run; times in whole seconds. `pattern` ping-B: B sends one ping a second, only the others send bulk.

    `clients` names those that send bulk; empty: all that the pattern lets send.
    """

    topologies: list[Topology]
    strategies: list[str]
    mode: str = "flow"
    streams: int = 8
    seconds: int = 20
    warmup: int = 3
    repeat: int = 3
    pattern: str = "bulk"
    clients: tuple[str, ...] = ()

    def described(self) -> dict[str, Any]:
        """As JSON, with the topologies whole: a file may change later."""
        return {**asdict(self), "topologies": [topology.model_dump(mode="json") for topology in self.topologies]}


def total_seconds(settings: Fig4Settings) -> float:
    """About how long `run_fig4` takes, for the progress bar."""
    runs = len(settings.strategies) * settings.repeat
    return len(settings.topologies) * (LAB_S + runs * _run_seconds(settings))


def _run_seconds(settings: Fig4Settings) -> float:
    return settings.warmup + settings.seconds + TAIL_S + 2.0


def clients_of(topology: Topology, pattern: str, only: Sequence[str] = ()) -> list[str]:
    """The hosts that send bulk: all managed ones but the server (and B, which only pings, in pattern ping-B).

    `only` takes some of them. Raises BadInput when that leaves nobody, or names a host that cannot send.
    """
    if SERVER not in topology.managed_hosts():
        raise BadInput(f"topology {topology.name}: has no managed host {SERVER}, the server")
    quiet = {SERVER, "B"} if pattern == "ping-B" else {SERVER}
    clients = [host for host in topology.managed_hosts() if host not in quiet]
    if pattern == "ping-B" and "B" not in topology.hosts:
        raise BadInput(f"topology {topology.name}: has no host B, which pattern ping-B needs")
    for name in only:
        if name not in clients:
            raise BadInput(f"--clients: {name} is none of {', '.join(clients)} in topology {topology.name}")
    clients = [host for host in clients if host in (only or clients)]
    if not clients:
        raise BadInput(f"topology {topology.name}: nobody is left to send to {SERVER}")
    return clients


def run_fig4(settings: Fig4Settings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run; labs are removed also when it is interrupted."""
    for topology in settings.topologies:  # before the first lab is built
        goodput_optimum(topology, clients_of(topology, settings.pattern, settings.clients), SERVER)
    for topology in settings.topologies:
        progress.say(f"{topology.name}: building the lab")
        with Lab.create(topology) as lab:
            start_and_wait(lab, settings.strategies[0])
            report.describe_lab(lab)
            progress.done(LAB_S)
            for row, raw in _runs(lab, topology, settings, progress):
                report.add(row, raw, summarize([*report.rows, row], ("topology", "strategy"), FIGURES))
    report.finish()


def _runs(
    lab: Lab, topology: Topology, settings: Fig4Settings, progress: Progress
) -> Iterator[tuple[dict[str, Any], object]]:
    clients = clients_of(topology, settings.pattern, settings.clients)
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

    length_s = settings.warmup + settings.seconds + TAIL_S
    run = IperfRun(lab, SERVER, clients, streams=settings.streams, seconds=length_s)
    try:
        while (now_s := time.monotonic() - run.start_s) < end_s:
            watch(now_s)
            time.sleep(min(1.0, max(0.0, run.start_s + end_s - time.monotonic())))
        watch(end_s)
        results = run.results(skip_s=start_s, window_s=end_s - start_s)
    finally:
        run.stop()
        if pinger is not None:
            pinger.terminate()
            pinger.wait()
    row = fig4_row(
        {},
        {client: results[client].goodput_bps for client in clients},
        optimum,
        retransmitted=sum(retransmits(results[name].client_report, start_s, end_s) for name in clients),
        weights=_mean_weights(weights),
        slots_moved=moved[-1][1] - moved[0][1],
    )
    raw = {
        client: {"client": result.client_report, "server": result.server_report} for client, result in results.items()
    }
    return row, {"iperf3": raw, "weights": weights, "optimum": asdict(optimum)}


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
