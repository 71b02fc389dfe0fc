# SPDX-License-Identifier: Apache-2.0
"""Figure 4's topologies with real iperf3 traffic: goodput, its share of the optimum, weights.

Every client sends TCP streams to the server at the same time; what counts is what the server
received in a window that begins after a warm-up. Each topology has one lab with one controller,
which is told the strategy of each block of runs, and one more lab for each peer: the other ways to
use several links. In packet mode helpers stripe packets; then there are also labs without a
controller and without Open vSwitch on the hosts, one for each strategy.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fair import Optimum, goodput_optimum
from ri2n_lab.bench.fast import await_fast, parts
from ri2n_lab.bench.figure import Figure, Number, Plot, names
from ri2n_lab.bench.meters import Window
from ri2n_lab.bench.peers import Peer, await_whole
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import fig4_row, missing_row, ratios_text, retransmits, summarize
from ri2n_lab.bench.striped import AUTONOMOUS, Autonomous, await_striped, contender, with_plain
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun, NotTogether
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "FIGURES",
    "PING_FIGURES",
    "SERVER",
    "Fig4Settings",
    "clients_of",
    "pair_weights",
    "run_fig4",
    "summarized",
    "total_seconds",
]

# Sent after the window, so that no client has stopped when it ends, even if another began a second
# later.
TAIL_S = 2
# Clients that do not begin together are told to begin again.
ATTEMPTS = 4
LAB_S = 12.0
GROUPS = ("topology", "strategy", "streams")
FIGURES = (
    Figure(
        "total_of_optimum",
        "share of the optimum",
        show=".2f",
        required=True,
        plot=Plot("total", "All clients together", "share of the optimum", (1.0, "optimum")),
    ),
    Figure(
        "worst_share",
        "worst client",
        show=".2f",
        required=True,
        plot=Plot("worst", "The worst client", "share of its fair rate", (1.0, "fair")),
    ),
    Figure("retransmits", "retransmits", required=True),
    Figure(
        "weights",
        "link 1 : link 0",
        combine=None,
        show=ratios_text,
        kind=dict[str, dict[str, Number]],
        required=True,
    ),
    Figure("slots_moved", "slots moved", required=True),
    Figure("switch_drops", "switch drops", show="g", when_measured=True),
    Figure("out_of_order", "out of order", show="g", when_measured=True),
)
PING_FIGURES = (
    Figure("ping_idle_ms", "ping idle", "ms", show="g", when_measured=True),
    Figure("ping_load_ms", "ping under load", "ms", show="g", when_measured=True),
    Figure("ping_load_p99_ms"),
)
PINGER = "B"


@dataclass(frozen=True)
class Fig4Settings:
    """What to run; times in whole seconds.

    `pattern` ping-B: B sends one ping a second, and only the others send bulk. `peers` are names of
    `ri2n_lab.bench.peers.PEERS`; `streams` are numbers of TCP streams per client, each measured by
    itself. `clients` names those that send bulk; empty: all that the pattern lets send. `mode`
    packet: helpers stripe; `plain` hosts have no helper, `autonomous` are strategies that helpers
    follow without a controller. `ping`: B's round trips to A are measured too, idle and under the
    load.
    """

    topologies: list[Topology]
    strategies: list[str]
    mode: str = "flow"
    streams: tuple[int, ...] = (8,)
    seconds: int = 20
    warmup: int = 3
    repeat: int = 3
    pattern: str = "bulk"
    clients: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    autonomous: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    ping: bool = False

    @property
    def beside(self) -> list[str]:
        """Everything that has labs of its own: helpers without a controller, then peers."""
        return [*(f"{AUTONOMOUS}{name}" for name in self.autonomous), *self.peers]

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the numbers in each row."""
        wanted = (*FIGURES, *(PING_FIGURES if self.ping else ()))
        return names(figure for figure in wanted if figure.combine)

    def described(self) -> dict[str, Any]:
        """As JSON, with the topologies whole: a file may change later."""
        return {
            **asdict(self),
            "topologies": [topology.model_dump(mode="json") for topology in self.topologies],
        }


def total_seconds(settings: Fig4Settings) -> float:
    """About how long `run_fig4` takes, for the progress bar."""
    runs = len(settings.streams) * settings.repeat
    one = (LAB_S if settings.strategies else 0.0) + len(settings.strategies) * runs * _run_seconds(
        settings
    )
    return len(settings.topologies) * (one + len(settings.beside) * _peer_seconds(settings))


def _run_seconds(settings: Fig4Settings) -> float:
    return settings.warmup + settings.seconds + TAIL_S + (4.0 if settings.ping else 2.0)


def _peer_seconds(settings: Fig4Settings) -> float:
    return LAB_S + len(settings.streams) * settings.repeat * _run_seconds(settings)


def clients_of(topology: Topology, pattern: str, only: Sequence[str] = ()) -> list[str]:
    """The hosts that send bulk: all managed ones except the server.

    In pattern ping-B also except B, which only pings. `only` takes some of them. Raises BadInput
    when nobody is left, or when `only` names a host that cannot send.
    """
    if SERVER not in topology.managed_hosts():
        raise BadInput(f"topology {topology.name}: has no managed host {SERVER}, the server")
    quiet = {SERVER, "B"} if pattern == "ping-B" else {SERVER}
    clients = [host for host in topology.managed_hosts() if host not in quiet]
    if pattern == "ping-B" and "B" not in topology.hosts:
        raise BadInput(f"topology {topology.name}: has no host B, which pattern ping-B needs")
    for name in only:
        if name not in clients:
            raise BadInput(
                f"--clients: {name} is none of {', '.join(clients)} in topology {topology.name}"
            )
    clients = [host for host in clients if host in (only or clients)]
    if not clients:
        raise BadInput(f"topology {topology.name}: nobody is left to send to {SERVER}")
    return clients


def summarized(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The report's summary of these rows."""
    return summarize(
        rows,
        GROUPS,
        (*FIGURES, *(each for each in PING_FIGURES if any(each.name in row for row in rows))),
    )


def run_fig4(settings: Fig4Settings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run.

    Labs are removed also when it is interrupted.
    """
    topologies = [with_plain(topology, settings.plain) for topology in settings.topologies]
    for topology in topologies:  # before the first lab is built
        goodput_optimum(topology, clients_of(topology, settings.pattern, settings.clients), SERVER)
        if settings.ping and PINGER not in topology.hosts:
            raise BadInput(f"topology {topology.name}: has no host {PINGER}, which --ping needs")
    for topology in topologies:
        if settings.strategies:
            progress.say(f"{topology.name}: building the lab")
            with Lab.create(topology, **parts(settings.mode)) as lab:
                start_and_wait(lab, settings.strategies[0])
                report.describe_lab(lab)
                progress.done(LAB_S)
                for row, raw in _runs(lab, topology, settings, progress):
                    report.add(row, raw, summarized([*report.rows, row]))
        for name in settings.beside:
            for row, raw in _peer_rows(contender(name), topology, settings, report, progress):
                report.add(row, raw, summarized([*report.rows, row]))
    report.finish()


def _runs(
    lab: Lab, topology: Topology, settings: Fig4Settings, progress: Progress
) -> Iterator[tuple[dict[str, Any], object]]:
    clients = clients_of(topology, settings.pattern, settings.clients)
    optimum = goodput_optimum(topology, clients, SERVER)
    for strategy in settings.strategies:
        call(lab.controller_socket, "strategy", name=strategy)
        for streams in settings.streams:
            for repeat in range(1, settings.repeat + 1):
                progress.say(
                    f"{topology.name} {strategy}, streams {streams}, {repeat}/{settings.repeat}"
                )
                lab.wait_ready(30)
                await_striped(lab, clients, SERVER)
                await_fast(lab, clients, SERVER, strategy=strategy)
                key = _key(topology, strategy, settings, streams, peer=False)
                row, raw = _one_run(lab, clients, settings, streams, optimum)
                progress.done(_run_seconds(settings))
                yield {**key, "repeat": repeat, **row}, {**key, **raw}


def _peer_rows(
    peer: Peer, topology: Topology, settings: Fig4Settings, report: Report, progress: Progress
) -> Iterator[tuple[dict[str, Any], object]]:
    """The rows of one peer on one topology, measured in a lab of its own.

    A peer that cannot do it has one row for each number of streams, which says why.
    """
    clients = clients_of(topology, settings.pattern, settings.clients)
    why_not = peer.why_not(topology, SERVER, clients) or peer.lacks()
    if why_not is not None:
        progress.say(f"{topology.name} {peer.name}: {why_not}")
        progress.done(_peer_seconds(settings))
        for streams in settings.streams:
            key = _key(
                topology, peer.name, settings, streams, peer=not isinstance(peer, Autonomous)
            )
            yield missing_row(key, why_not, settings.figures, ("clients", "weights")), key
        return
    progress.say(f"{topology.name} {peer.name}: building the lab")
    built = peer.topology(topology)
    optimum = goodput_optimum(built, clients, SERVER)
    with Lab.create(built, software=peer.software) as lab:
        peer.set_up(lab)
        await_whole(peer, lab, clients, SERVER)
        report.describe_lab(lab, f"{topology.name} {peer.name}")
        progress.done(LAB_S)
        for streams in settings.streams:
            for repeat in range(1, settings.repeat + 1):
                progress.say(
                    f"{topology.name} {peer.name}, streams {streams}, {repeat}/{settings.repeat}"
                )
                await_whole(peer, lab, clients, SERVER)
                key = _key(
                    topology, peer.name, settings, streams, peer=not isinstance(peer, Autonomous)
                )
                row, raw = _one_run(lab, clients, settings, streams, optimum, peer)
                progress.done(_run_seconds(settings))
                yield {**key, "repeat": repeat, **row}, {**key, **raw}


def _key(
    topology: Topology, name: str, settings: Fig4Settings, streams: int, *, peer: bool
) -> dict[str, Any]:
    return {
        "topology": topology.name,
        "strategy": name,
        "peer": peer,
        "mode": settings.mode,
        "streams": streams,
    }


def _one_run(
    lab: Lab,
    clients: list[str],
    settings: Fig4Settings,
    streams: int,
    optimum: Optimum,
    peer: Peer | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    for _ in range(ATTEMPTS - 1):
        with suppress(NotTogether):
            return _attempt(lab, clients, settings, streams, optimum, peer)
    return _attempt(lab, clients, settings, streams, optimum, peer)


def _attempt(
    lab: Lab,
    clients: list[str],
    settings: Fig4Settings,
    streams: int,
    optimum: Optimum,
    peer: Peer | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    start_s, end_s = float(settings.warmup), float(settings.warmup + settings.seconds)
    prefix = peer.prefix if peer else ()
    addresses = {client: peer.target(lab, client, SERVER) for client in clients} if peer else None
    moved: list[tuple[float, int]] = []
    weights: list[dict[str, dict[str, float]]] = []

    def watch(now_s: float) -> None:
        if peer is not None:  # nobody to ask
            return
        status = call(lab.controller_socket, "status")
        moved.append((now_s, status["slots_moved"]))
        if now_s >= start_s:
            weights.append(pair_weights(status, clients))

    pinger = None
    address = (
        peer.target(lab, PINGER, SERVER) if peer and PINGER in lab.hosts else lab.address(SERVER)
    )
    window = Window(lab, SERVER, PINGER if settings.ping else None, address)
    if settings.pattern == "ping-B":
        pinger = lab.popen(PINGER, ["ping", "-i", "1", address], stdout=subprocess.DEVNULL)
    length_s = settings.warmup + settings.seconds + TAIL_S
    run = IperfRun(
        lab, SERVER, clients, streams=streams, seconds=length_s, prefix=prefix, addresses=addresses
    )
    begun = False
    try:
        while (now_s := time.monotonic() - run.start_s) < end_s:
            if now_s >= start_s and not begun:
                begun = True
                window.begin()
            watch(now_s)
            due_s = end_s if begun else start_s
            time.sleep(min(1.0, max(0.0, run.start_s + due_s - time.monotonic())))
        watch(end_s)
        figures = window.end()
        results = run.results(skip_s=start_s, window_s=end_s - start_s)
    finally:
        run.stop()
        window.stop()
        if pinger is not None:
            pinger.terminate()
            pinger.wait()
    row = fig4_row(
        {},
        {client: results[client].goodput_bps for client in clients},
        optimum,
        retransmitted=sum(
            retransmits(results[name].client_report, start_s, end_s) for name in clients
        ),
        weights=_mean_weights(weights),
        slots_moved=None if peer else moved[-1][1] - moved[0][1],
    )
    raw = {
        client: {"client": result.client_report, "server": result.server_report}
        for client, result in results.items()
    }
    return {**row, **figures}, {"iperf3": raw, "weights": weights, "optimum": asdict(optimum)}


def pair_weights(status: dict[str, Any], senders: list[str]) -> dict[str, dict[str, float]]:
    """{sender: {`own>peer`: share}} of the pairs that go to the server."""
    return {
        pair["src"]: {
            f"{path['own']}>{path['peer']}": float(path["share"]) for path in pair["paths"]
        }
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
    return {
        sender: {path: round(share, 4) for path, share in shares.items()}
        for sender, shares in sums.items()
    }
