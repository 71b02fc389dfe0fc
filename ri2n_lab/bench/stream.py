# SPDX-License-Identifier: Apache-2.0
"""One stream between two hosts over several links: its share of their sum, order and cost.

TCP sends as fast as it can; UDP sends 0.9 of what TCP could at most, so that nothing needs to be
lost. Every set of links is a lab of its own, for each contender: strategies of helpers that the
controller tells, helpers without a controller, peers. With `busy` every CPU has a program that
spins, services have the priorities that they have on a host, and all are measured by plain TCP over
one link.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from ri2n_lab.bench import helper_counts, priorities
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fair import GOODPUT_RATIO
from ri2n_lab.bench.fast import PACKET, await_fast, parts
from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.bench.helper_counts import HelperCounts
from ri2n_lab.bench.meters import Window
from ri2n_lab.bench.one_link import ONE_LINK, OneLink, with_shares
from ri2n_lab.bench.peers import Peer, await_whole
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import missing_row, retransmits, summarize
from ri2n_lab.bench.spinners import Spinners
from ri2n_lab.bench.striped import AUTONOMOUS, Autonomous, await_striped, contender
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "BESIDE_S",
    "CLIENT",
    "CONGESTION_CONTROLS",
    "FIGURES",
    "PROTOCOLS",
    "StreamSettings",
    "parse_links",
    "run_stream",
    "summarized",
    "together",
    "topology_of",
    "total_seconds",
    "udp_rate",
]

CLIENT = "B"
PROTOCOLS = ("tcp", "udp")
CONGESTION_CONTROLS = ("cubic", "bbr", "reno")
MAX_LINKS = 8
MAX_MBPS = 100_000
UDP_SHARE = 0.9
# Fits into one frame, with its own heads and those of the helper.
UDP_BYTES = 1400
WARMUP_S = 2
TAIL_S = 1
LAB_S = 12.0
BESIDE_S = 60
"""On busy CPUs, what is beside the helpers is measured for no longer.

It has a rate, and no deaths that have to be waited for.
"""

GROUPS = ("links_mbps", "strategy", "peer", "proto", "cc")
FIGURES = (
    Figure("goodput_bps", "goodput", "Mbit/s", show=".1f", scale=1e-6, required=True),
    Figure("of_sum", "of the sum", show=".3f", required=True),
    Figure("retransmits", "retransmits", required=True),
    Figure("lost", "lost", required=True),
    Figure("sent", "of", required=True),
    Figure("out_of_order", "out of order", required=True),
    Figure("switch_drops", "switch drops", required=True),
    Figure("sender_late_ms", kind=None),
    Figure("of_links", "of one link's plain TCP x links", show=".3f", when_measured=True),
    *helper_counts.FIGURES,
)

Json = dict[str, Any]


@dataclass(frozen=True)
class StreamSettings:
    """What to run; `links` are the rates in Mbit/s of each set of links, as texts like `100,50`.

    `ccs` are congestion controls, for TCP alone. `peers` are names of `ri2n_lab.bench.peers.PEERS`,
    `autonomous` strategies that helpers follow without a controller. `mode` is PACKET or
    PACKET_FAST. `busy`: beside programs that spin on all CPUs.
    """

    links: tuple[str, ...]
    strategies: list[str]
    protos: tuple[str, ...] = ("tcp",)
    ccs: tuple[str, ...] = ("cubic",)
    seconds: int = 20
    repeat: int = 1
    peers: tuple[str, ...] = ()
    autonomous: tuple[str, ...] = ()
    busy: bool = False
    mode: str = PACKET

    @property
    def beside(self) -> list[str]:
        """Everything that has labs of its own: helpers without a controller, then peers."""
        return [*(f"{AUTONOMOUS}{name}" for name in self.autonomous), *self.peers]

    @property
    def streams(self) -> list[tuple[str, str | None]]:
        """(protocol, congestion control) of each stream."""
        return [
            (proto, cc) for proto in self.protos for cc in (self.ccs if proto == "tcp" else (None,))
        ]

    def described(self) -> Json:
        """As JSON."""
        return asdict(self)


def parse_links(text: str) -> tuple[int, ...]:
    """The rates in Mbit/s of one set of links, `100,50`; BadInput for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_MBPS for word in words):
        raise BadInput(f"--links {text}: must be rates in Mbit/s with commas, each 1 to {MAX_MBPS}")
    if len(words) > MAX_LINKS:
        raise BadInput(f"--links {text}: {len(words)} links, at most {MAX_LINKS}")
    return tuple(int(word) for word in words)


def topology_of(links: str) -> Topology:
    """Two hosts with these links, each over a switch of its own."""
    rates = parse_links(links)
    nics = [
        {"name": f"eth{index}", "switch": f"s{index}", "rate_bps": rate * 1_000_000}
        for index, rate in enumerate(rates)
    ]
    return Topology.model_validate(
        {
            "name": "stream",
            "description": f"two hosts, links of {', '.join(map(str, rates))} Mbit/s",
            "switches": {f"s{index}": {} for index in range(len(rates))},
            "hosts": {SERVER: {"nics": nics}, CLIENT: {"nics": nics}},
        }
    )


def sum_bps(links: str) -> float:
    """The most that TCP could carry over all of these links, in bit/s."""
    return sum(parse_links(links)) * 1e6 * GOODPUT_RATIO


def udp_rate(links: str) -> float:
    """Packets of UDP_BYTES a second that are 0.9 of that."""
    return UDP_SHARE * sum_bps(links) / 8 / UDP_BYTES


def total_seconds(settings: StreamSettings) -> float:
    """About how long `run_stream` takes, for the progress bar."""
    ours = len(settings.strategies) + len(settings.autonomous)
    others = len(settings.peers) + _compares(settings)
    labs = len(settings.beside) + bool(settings.strategies) + _compares(settings)
    runs_s = ours * _run_seconds(settings) + others * _run_seconds(_beside(settings))
    return len(settings.links) * (LAB_S * labs + len(settings.streams) * settings.repeat * runs_s)


def _compares(settings: StreamSettings) -> bool:
    """Whether plain TCP over one link is measured besides."""
    return settings.busy and "tcp" in settings.protos


def _beside(settings: StreamSettings) -> StreamSettings:
    """The settings of what is measured beside the helpers."""
    return replace(settings, seconds=min(settings.seconds, BESIDE_S)) if settings.busy else settings


def _run_seconds(settings: StreamSettings) -> float:
    return WARMUP_S + settings.seconds + TAIL_S + 2.0


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows."""
    return summarize(together(rows), GROUPS, FIGURES)


def together(rows: list[Json]) -> list[Json]:
    """The rows with their share of what plain TCP had over one link, which no row knows alone."""
    return with_shares(rows, {row["links_mbps"]: parse_links(row["links_mbps"]) for row in rows})


def run_stream(settings: StreamSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run.

    Labs are removed also when it is interrupted.
    """
    for links in settings.links:
        topology_of(links)  # before the first lab is built
    for links in settings.links:
        if _compares(settings):
            _run_beside(
                OneLink(), links, replace(_beside(settings), protos=("tcp",)), report, progress
            )
        if settings.strategies:
            _run_strategies(links, settings, report, progress)
        for name in settings.beside:
            one = contender(name)
            own = settings if isinstance(one, Autonomous) else _beside(settings)
            _run_beside(one, links, own, report, progress)
    report.replace(together(report.rows), report.document["raw"], report.document["summary"])
    report.finish()


def _run_strategies(
    links: str, settings: StreamSettings, report: Report, progress: Progress
) -> None:
    progress.say(f"{links}: building the lab")
    options = priorities.HELPER_OPTIONS if settings.busy else ()
    with Lab.create(topology_of(links), helper_options=options, **parts(settings.mode)) as lab:
        start_and_wait(lab, settings.strategies[0])
        _describe(lab, links, settings, report)
        progress.done(LAB_S)

        def wait(strategy: str) -> None:
            lab.wait_ready(30)
            await_striped(lab, [CLIENT], SERVER)
            await_fast(lab, [CLIENT], SERVER, strategy=strategy)

        for strategy in settings.strategies:
            call(lab.controller_socket, "strategy", name=strategy)
            key = {"links_mbps": links, "strategy": strategy, "peer": False, "mode": settings.mode}
            for row, raw in _runs(lab, key, settings, progress, partial(wait, strategy)):
                report.add(row, raw, summarized([*report.rows, row]))


def _run_beside(
    peer: Peer, links: str, settings: StreamSettings, report: Report, progress: Progress
) -> None:
    topology = topology_of(links)
    ours = isinstance(peer, Autonomous)
    is_peer = not ours and peer.name != ONE_LINK
    key = {
        "links_mbps": links,
        "strategy": peer.name,
        "peer": is_peer,
        "mode": PACKET if ours else None,
    }
    why_not = peer.why_not(topology, SERVER, [CLIENT]) or peer.lacks()
    if why_not is not None:
        progress.say(f"{links} {peer.name}: {why_not}")
        progress.done(LAB_S + len(settings.streams) * settings.repeat * _run_seconds(settings))
        for proto, cc in settings.streams:
            row = missing_row({**key, "proto": proto, "cc": cc}, why_not, names(FIGURES))
            report.add(row, key, summarized([*report.rows, row]))
        return
    progress.say(f"{links} {peer.name}: building the lab")
    options = priorities.HELPER_OPTIONS if settings.busy and ours else ()
    with Lab.create(peer.topology(topology), software=peer.software, helper_options=options) as lab:
        peer.set_up(lab)
        _describe(lab, f"{links} {peer.name}", settings, report)
        progress.done(LAB_S)
        wait = partial(await_whole, peer, lab, [CLIENT], SERVER)
        for row, raw in _runs(lab, key, settings, progress, wait, peer):
            report.add(row, raw, summarized([*report.rows, row]))


def _describe(lab: Lab, key: str, settings: StreamSettings, report: Report) -> None:
    if settings.busy:
        priorities.take_over(lab)
        report.describe_lab(lab, key, priorities=priorities.found(lab))
    else:
        report.describe_lab(lab, key)


def _runs(
    lab: Lab,
    key: Json,
    settings: StreamSettings,
    progress: Progress,
    wait: Callable[[], None],
    peer: Peer | None = None,
) -> Iterator[tuple[Json, Json]]:
    """(row, raw data) of every stream over one lab; `wait` returns when the links can be used."""
    for (proto, cc), repeat in product(settings.streams, range(1, settings.repeat + 1)):
        whole = {**key, "proto": proto, "cc": cc}
        what = f"{key['links_mbps']} {key['strategy']} {proto} {cc or ''}".rstrip()
        progress.say(f"{what} {repeat}/{settings.repeat}")
        why_not = _cannot(lab, proto, cc, peer)
        if why_not is not None:
            if repeat == 1:
                yield missing_row(whole, why_not, names(FIGURES)), whole
        else:
            wait()
            links = str(key["links_mbps"])
            with Spinners() if settings.busy else nullcontext() as spinners:
                load = list(os.getloadavg())
                began_s, spun_s = time.monotonic(), spinners.cpu_s() if spinners else 0.0
                measured, raw = (
                    _tcp(lab, links, settings, cc or "cubic", peer)
                    if proto == "tcp"
                    else _udp(lab, links, settings)
                )
                if spinners:
                    took_s = time.monotonic() - began_s
                    each = (spinners.cpu_s() - spun_s) / took_s / len(spinners.cpus)
                    measured |= {
                        "spinners": len(spinners.cpus),
                        "spinner_cpu_share": round(each, 3),
                    }
            raw["load_average"] = [load, list(os.getloadavg())]
            yield {**whole, "repeat": repeat, **measured}, {**whole, "repeat": repeat, **raw}
        progress.done(_run_seconds(settings))


def _cannot(lab: Lab, proto: str, cc: str | None, peer: Peer | None) -> str | None:
    if proto == "udp":
        return None if peer is None or peer.udp else "it carries nothing but TCP"
    known = lab.exec(
        "mgmt", ["cat", "/proc/sys/net/ipv4/tcp_available_congestion_control"]
    ).stdout.split()
    return None if cc in known else f"this kernel has no TCP congestion control {cc}"


def _tcp(
    lab: Lab, links: str, settings: StreamSettings, cc: str, peer: Peer | None
) -> tuple[Json, Json]:
    start_s, end_s = float(WARMUP_S), float(WARMUP_S + settings.seconds)
    addresses = {CLIENT: peer.target(lab, CLIENT, SERVER)} if peer else None
    prefix: Sequence[str] = peer.prefix if peer else ()
    window, counts = Window(lab, SERVER), HelperCounts(lab, CLIENT, SERVER)
    run = IperfRun(
        lab,
        SERVER,
        [CLIENT],
        streams=1,
        seconds=end_s + TAIL_S,
        prefix=prefix,
        addresses=addresses,
        congestion=cc,
    )
    try:
        # The schedule of the measurement.
        time.sleep(max(0.0, run.start_s + start_s - time.monotonic()))
        window.begin()
        counts.begin()
        began_s = time.monotonic()
        time.sleep(max(0.0, run.start_s + end_s - time.monotonic()))
        counted, statuses = counts.end()
        watched_s = time.monotonic() - began_s
        figures = window.end()
        result = run.results(skip_s=start_s, window_s=end_s - start_s)[CLIENT]
    finally:
        run.stop()
    row = {
        "goodput_bps": round(result.goodput_bps),
        "of_sum": round(result.goodput_bps / sum_bps(links), 4),
        "retransmits": retransmits(result.client_report, start_s, end_s),
        "lost": None,
        "sent": None,
        **figures,
        "sender_late_ms": None,
        "of_links": None,
        "seconds": settings.seconds,
        "watched_s": round(watched_s, 1),
        **counted,
    }
    return row, {
        "iperf3": {"client": result.client_report, "server": result.server_report},
        **statuses,
    }


def _udp(lab: Lab, links: str, settings: StreamSettings) -> tuple[Json, Json]:
    window, counts = Window(lab, SERVER), HelperCounts(lab, CLIENT, SERVER)
    window.begin()
    counts.begin()
    began_s = time.monotonic()
    stream = Stream(
        lab, CLIENT, SERVER, pps=udp_rate(links), seconds=float(settings.seconds), size=UDP_BYTES
    )
    result = stream.result()
    counted, statuses = counts.end()
    watched_s = time.monotonic() - began_s
    figures = window.end()
    length_s = result.end_s - result.start_s
    goodput_bps = result.received * UDP_BYTES * 8 / length_s if length_s > 0 else 0.0
    row = {
        "goodput_bps": round(goodput_bps),
        "of_sum": round(goodput_bps / sum_bps(links), 4),
        "retransmits": None,
        "lost": result.lost,
        "sent": result.sent,
        "out_of_order": result.out_of_order,
        "switch_drops": figures["switch_drops"],
        "sender_late_ms": round(result.late_ms, 1),
        "of_links": None,
        "seconds": settings.seconds,
        "watched_s": round(watched_s, 1),
        **counted,
    }
    raw = {
        "latency_ms": result.latency_ms,
        "duplicates": result.duplicates,
        "errors": result.errors,
    }
    return row, {**raw, **statuses}
