# SPDX-License-Identifier: Apache-2.0
"""How soon others use what a client leaves when it stops, and it gets it back when it begins.

All clients send one TCP stream each; the server counts what came every 10 ms. The cost of computing
must not show in such figures: in virtual time they are exact, on a busy machine they are not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fair import goodput_optimum
from ri2n_lab.bench.fig4 import clients_of
from ri2n_lab.bench.figure import Figure, names, spread, spread_text
from ri2n_lab.bench.peers import Peer, await_whole
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import missing_row, summarize
from ri2n_lab.bench.striped import AUTONOMOUS, await_striped, contender
from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "FIGURES",
    "DemandSettings",
    "Samples",
    "held_from",
    "judge",
    "run_demand",
    "summarized",
    "total_seconds",
]

FIRST_PORT = 5800
LAB_S = 12.0
STOPPED_SHARE = 0.95
"""Of the links, what the others must have when one stops."""

AGAIN_SHARE = 0.9
"""Of its max-min fair rate, what every client must have when it sends again."""

# Rates are means over so long: single bins of 10 ms hold too few frames to judge by.
SPAN_S = 0.05
# What falls below again within so long did not hold.
HOLD_S = 0.5
# A segment that TCP sends again holds up all behind it for about a round trip, and then all are
# delivered at once: no change of a share, so what follows is judged over longer means.
STEADY_S = 0.2
GROUPS = ("topology", "strategy")


def _when(times_ms: Sequence[float | None]) -> str:
    """The repeats' times, and in how many of them it never happened."""
    never = sum(each is None for each in times_ms)
    if times_ms and never == len(times_ms):
        return "never"
    text = spread_text(spread(times_ms), ".0f")
    return f"{text}, {never} of {len(times_ms)} never" if never else text


FIGURES = (
    Figure(
        "others_have_it_ms",
        f"it stops: others have {STOPPED_SHARE:g} of the links after",
        "ms",
        show=_when,
        required=True,
    ),
    Figure(
        "all_fair_ms",
        f"it begins: all within {1 - AGAIN_SHARE:.0%} of fair after",
        "ms",
        show=_when,
        required=True,
    ),
    Figure("others_after_stop", "after it stopped, the others", show=".3f", required=True),
    Figure("worst_after_start", "after it began, the worst", show=".3f", required=True),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class DemandSettings:
    """What to run; times in seconds.

    All clients send for `before_s`, all but `stops` for `pause_s`, and all for `after_s` again.
    """

    topology: Topology
    strategies: list[str]
    stops: str = "B"
    before_s: int = 4
    pause_s: int = 3
    after_s: int = 4
    repeat: int = 1
    autonomous: tuple[str, ...] = ()

    @property
    def beside(self) -> list[str]:
        """The names of helpers without a controller, each of which has labs of its own."""
        return [f"{AUTONOMOUS}{name}" for name in self.autonomous]

    @property
    def seconds(self) -> int:
        """The length of one run."""
        return self.before_s + self.pause_s + self.after_s

    def described(self) -> Json:
        """As JSON, with the topology whole."""
        return {**asdict(self), "topology": self.topology.model_dump(mode="json")}


@dataclass(frozen=True)
class Samples:
    """What the server counted: bit/s of each client, in bins of `bin_s` from `start_s` on."""

    bin_s: float
    start_s: float
    rates_bps: Mapping[str, Sequence[float]]
    accepted_s: Mapping[str, Sequence[float]]

    @classmethod
    def of(cls, counted: Json, clients: Mapping[int, str]) -> Samples:
        """Samples from what sampled.py prints; `clients` are the hosts by their ports."""
        found = {clients[int(port)]: entry for port, entry in counted["clients"].items()}
        bin_s = counted["bin_s"]
        rates = {
            name: [count * 8 / bin_s for count in entry["bytes"]] for name, entry in found.items()
        }
        return cls(
            bin_s,
            counted["start_s"],
            rates,
            {name: entry["accepted_s"] for name, entry in found.items()},
        )

    def index(self, at_s: float) -> int:
        """The bin of this moment."""
        return int((at_s - self.start_s) / self.bin_s)


def held_from(
    enough: Sequence[bool], steady: Sequence[bool], first: int, last: int, hold: int
) -> int | None:
    """The first of the bins `first` .. `last` that is enough and begins `hold` steady bins.

    None when there is no such bin, or fewer than `hold` bins are left.
    """
    for index in range(first, last - hold + 2):
        if enough[index] and all(steady[index : index + hold]):
            return index
    return None


def judge(
    samples: Samples, stops: str, total_bps: float, fair_bps: Mapping[str, float], pause_s: float
) -> Json:
    """The row of one run.

    `total_bps` is what the others could get alone, `fair_bps` the max-min fair rates of all
    clients. `others_have_it_ms`: from the last byte of the client that stops until the others
    together have 0.95 of what they could. `all_fair_ms`: from when it begins again (its connection
    is there) until every client has 0.9 of its fair rate. Both are judged over the 50 ms that
    follow, and for half a second over the 200 ms that follow; None when that never happened.
    `others_after_stop` and `worst_after_start` are the shares over the rest of the phases.
    """
    bins = min(map(len, samples.rates_bps.values()))
    span, steady, hold = (round(each / samples.bin_s) for each in (SPAN_S, STEADY_S, HOLD_S))
    again_s = samples.accepted_s[stops][1]
    again = samples.index(again_s)
    quiet = [index for index in range(again) if samples.rates_bps[stops][index] > 0]
    stop = quiet[-1] + 1 if quiet else 0
    others = [name for name in samples.rates_bps if name != stops]
    end = bins - round(1.0 / samples.bin_s)  # the last second is for streams to end in

    def mean(name: str, index: int, width: int) -> float:
        part = samples.rates_bps[name][index : index + width]
        return sum(part) / max(1, len(part))

    def enough(width: int) -> list[bool]:
        return [
            sum(mean(name, index, width) for name in others) >= STOPPED_SHARE * total_bps
            for index in range(bins)
        ]

    def fair(width: int) -> list[bool]:
        least = {name: AGAIN_SHARE * rate for name, rate in fair_bps.items()}
        return [
            all(mean(name, index, width) >= rate for name, rate in least.items())
            for index in range(bins)
        ]

    # No mean may reach over the end of its phase.
    freed = held_from(enough(span), enough(steady), stop, again - steady, hold)
    shared = held_from(fair(span), fair(steady), again, end - steady, hold)
    middle, late = stop + (again - stop) // 3, again + (end - again) // 3
    return {
        "others_have_it_ms": None
        if freed is None
        else round((freed - stop) * samples.bin_s * 1000),
        "all_fair_ms": None if shared is None else round((shared - again) * samples.bin_s * 1000),
        "others_after_stop": round(
            sum(mean(name, middle, again - middle) for name in others) / total_bps, 4
        ),
        "worst_after_start": round(
            min(mean(name, late, end - late) / rate for name, rate in fair_bps.items()), 4
        ),
        "paused_s": round((again - stop) * samples.bin_s, 2),
        "planned_pause_s": pause_s,
    }


def total_seconds(settings: DemandSettings) -> float:
    """About how long `run_demand` takes, for the progress bar."""
    labs = len(settings.beside) + bool(settings.strategies)
    runs = (len(settings.strategies) + len(settings.beside)) * settings.repeat
    return LAB_S * labs + runs * (settings.seconds + 3.0)


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows."""
    return summarize(rows, GROUPS, FIGURES)


def run_demand(settings: DemandSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run.

    Labs are removed also when it is interrupted.
    """
    topology = settings.topology
    clients = clients_of(topology, "bulk")
    if settings.stops not in clients or len(clients) < 2:
        raise BadInput(
            f"--stops {settings.stops}: must be one of several clients, {', '.join(clients)}"
        )
    if settings.strategies:
        progress.say("building the lab")
        with Lab.create(topology, helpers=True) as lab:
            start_and_wait(lab, settings.strategies[0])
            report.describe_lab(lab)
            progress.done(LAB_S)
            for strategy in settings.strategies:
                call(lab.controller_socket, "strategy", name=strategy)

                def wait() -> None:
                    lab.wait_ready(30)
                    await_striped(lab, clients, SERVER)

                _add_rows(lab, strategy, settings, wait, report, progress)
    for name in settings.beside:
        _run_alone(contender(name), clients, settings, report, progress)
    report.finish()


def _run_alone(
    peer: Peer, clients: list[str], settings: DemandSettings, report: Report, progress: Progress
) -> None:
    topology = settings.topology
    why_not = peer.why_not(topology, SERVER, clients) or peer.lacks()
    if why_not is not None:
        row = missing_row(
            {"topology": topology.name, "strategy": peer.name}, why_not, names(FIGURES)
        )
        report.add(row, {}, summarized([*report.rows, row]))
        return
    progress.say(f"{peer.name}: building the lab")
    with Lab.create(topology, software=peer.software) as lab:
        peer.set_up(lab)
        report.describe_lab(lab, f"{topology.name} {peer.name}")
        progress.done(LAB_S)
        _add_rows(
            lab,
            peer.name,
            settings,
            partial(await_whole, peer, lab, clients, SERVER),
            report,
            progress,
        )


def _add_rows(
    lab: Lab,
    name: str,
    settings: DemandSettings,
    wait: Callable[[], None],
    report: Report,
    progress: Progress,
) -> None:
    topology = settings.topology
    clients = clients_of(topology, "bulk")
    others = [client for client in clients if client != settings.stops]
    total_bps = goodput_optimum(topology, others, SERVER).total_bps
    fair_bps = goodput_optimum(topology, clients, SERVER).fair_bps
    for repeat in range(1, settings.repeat + 1):
        progress.say(f"{name} {repeat}/{settings.repeat}")
        wait()
        samples = _run(lab, clients, settings)
        key = {
            "topology": topology.name,
            "strategy": name,
            "peer": False,
            "mode": "packet",
            "repeat": repeat,
        }
        row = {
            **key,
            "stops": settings.stops,
            **judge(samples, settings.stops, total_bps, fair_bps, settings.pause_s),
        }
        report.add(row, {**key, **asdict(samples)}, summarized([*report.rows, row]))
        progress.done(settings.seconds + 3.0)


def _run(lab: Lab, clients: list[str], settings: DemandSettings) -> Samples:
    ports = {FIRST_PORT + index: client for index, client in enumerate(clients)}
    module = [
        sys.executable,
        "-m",
        "ri2n_lab.bench.sampled",
        "--seconds",
        str(settings.seconds + 1),
    ]
    words = [word for port in ports for word in ("--port", str(port))]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    receiver = lab.popen(SERVER, [*module, *words], **pipes)
    senders: list[subprocess.Popen[Any]] = []

    def send(port: int, client: str, seconds: float) -> None:
        argv = [
            sys.executable,
            "-m",
            "ri2n_lab.bench.tcp_stall",
            "send",
            "--address",
            lab.address(SERVER),
        ]
        senders.append(lab.popen(client, [*argv, "--port", str(port), "--seconds", f"{seconds:g}"]))

    try:
        assert receiver.stdout is not None
        if not receiver.stdout.readline():
            raise NotAvailable(
                f"the receiver did not start: {' '.join(receiver.communicate()[1].split())[-200:]}"
            )
        start_s = time.monotonic()
        for port, client in ports.items():
            send(port, client, settings.before_s if client == settings.stops else settings.seconds)
        # The schedule of the experiment.
        time.sleep(max(0.0, start_s + settings.before_s + settings.pause_s - time.monotonic()))
        port = next(port for port, client in ports.items() if client == settings.stops)
        send(port, settings.stops, settings.after_s)
        output, errors = receiver.communicate(timeout=settings.seconds + 30)
    finally:
        for process in (*senders, receiver):
            if process.poll() is None:
                process.kill()
            process.wait()
    try:
        samples = Samples.of(json.loads(output.splitlines()[-1]), ports)
    except (ValueError, IndexError):
        raise NotAvailable(f"the receiver failed: {' '.join(errors.split())[-200:]}") from None
    if len(samples.accepted_s[settings.stops]) != 2:
        raise NotAvailable(
            f"{settings.stops} connected {len(samples.accepted_s[settings.stops])} times, not twice"
        )
    return samples
