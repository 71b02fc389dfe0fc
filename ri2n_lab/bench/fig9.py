# SPDX-License-Identifier: Apache-2.0
"""Figure 9 of the paper: how soon weights follow when links are cut and given back.

Topology e is under full load; links are cut in turn (e -> f -> h) and given back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fig4 import SERVER, clients_of, pair_weights
from ri2n_lab.bench.figure import Figure, Number
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import ratios_text, settle_time_s
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun, window_goodput_bps
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology

__all__ = ["FIGURES", "PHASES", "Fig9Settings", "run_fig9", "total_seconds"]


def _settled(times_s: Sequence[float | None]) -> str:
    """The time of a phase in seconds, or never."""
    return " ".join("never" if each is None else f"{each:.2f}" for each in times_s)


def _goodput(by_client: Sequence[Mapping[str, float] | None]) -> str:
    """The goodput of each client in Mbit/s."""
    rates = [item for each in by_client if each for item in sorted(each.items())]
    return ", ".join(f"{client} {rate_bps / 1e6:.1f}" for client, rate_bps in rates) or "-"


POLL_S = 0.1
LAB_S = 12.0
LINK = "eth1"
FIGURES = (
    Figure("settle_s", "settled after", "s", combine=None, show=_settled, required=True),
    Figure("settle_hbspan", "in HBSPANs", combine=None, show=".1f", required=True),
    Figure("hbspan_s", "HBSPAN", "s", combine=None, show="g", kind=Number, required=True),
    Figure(
        "weights",
        "link 1 : link 0",
        combine=None,
        show=ratios_text,
        kind=dict[str, dict[str, Number]],
        required=True,
    ),
    Figure(
        "goodput_bps",
        "goodput",
        "Mbit/s",
        combine=None,
        show=_goodput,
        kind=dict[str, Number],
        required=True,
    ),
)
# (name, what is done at its start, to which host)
PHASES = [
    ("e: all links", None, None),
    ("f: B lost link 1", "cut", "B"),
    ("h: D lost link 1", "cut", "D"),
    ("f: D has link 1 again", "restore", "D"),
    ("e: B has link 1 again", "restore", "B"),
]


@dataclass(frozen=True)
class Fig9Settings:
    """What to run; the paper's phases are 60 s long, HBSPAN 2 s."""

    topology: Topology
    strategy: str = "max_min"
    streams: int = 8
    phase_s: int = 15

    def described(self) -> dict[str, Any]:
        """As JSON, with the topology whole."""
        return {**asdict(self), "topology": self.topology.model_dump(mode="json")}


def total_seconds(settings: Fig9Settings) -> float:
    """About how long `run_fig9` takes, for the progress bar."""
    return LAB_S + len(PHASES) * settings.phase_s + 3


def run_fig9(settings: Fig9Settings, report: Report, progress: Progress) -> None:
    """Run all phases under one load.

    Rows {phase, settle_s, settle_hbspan, hbspan_s, weights, goodput_bps}.
    """
    topology = settings.topology
    for host in ("B", "D"):
        if host not in topology.hosts or LINK not in [
            nic.name for nic in topology.hosts[host].nics
        ]:
            raise BadInput(
                f"topology {topology.name}: figure 9 cuts {host}'s NIC {LINK}, which is not there"
            )
    clients = clients_of(topology, "bulk")
    progress.say("building the lab")
    with Lab.create(topology) as lab:
        start_and_wait(lab, settings.strategy)
        report.describe_lab(lab)
        progress.done(LAB_S)
        load_s = len(PHASES) * settings.phase_s + 2
        run = IperfRun(lab, SERVER, clients, streams=settings.streams, seconds=load_s)
        phases: list[tuple[str, float, float, list[dict[str, Any]]]] = []
        try:
            for name, action, cut_host in PHASES:
                progress.say(name)
                began_s = time.monotonic()
                if action == "cut":
                    lab.fault("nic_down", host=cut_host, nic=LINK)
                elif action == "restore":
                    lab.restore("nic_down", host=cut_host, nic=LINK)
                phases.append(
                    (
                        name,
                        began_s,
                        began_s + settings.phase_s,
                        _watch(lab, clients, began_s, settings),
                    )
                )
                progress.done(settings.phase_s)
            results = run.results(skip_s=0, window_s=load_s - 1)
        finally:
            run.stop()
        for name, began_s, ended_s, samples in phases:
            # The second half of the phase: after the change has settled.
            skip_s = (began_s + ended_s) / 2 - run.start_s
            goodput = {
                client: round(
                    window_goodput_bps(result.server_report, skip_s, settings.phase_s / 2)
                )
                for client, result in results.items()
            }
            row = _row(name, began_s, samples, goodput)
            report.add(row, {"phase": name, "began_s": began_s, "samples": samples}, [])
    report.finish()


def _watch(
    lab: Lab, clients: list[str], began_s: float, settings: Fig9Settings
) -> list[dict[str, Any]]:
    samples = []
    while (now_s := time.monotonic()) < began_s + settings.phase_s:
        status = call(lab.controller_socket, "status")
        weights = pair_weights(status, clients)
        samples.append({"time_s": now_s, "hbspan_s": status["hbspan_s"], "weights": weights})
        time.sleep(POLL_S)
    return samples


def _row(
    phase: str, began_s: float, samples: list[dict[str, Any]], goodput_bps: dict[str, int]
) -> dict[str, Any]:
    flat = [
        (
            sample["time_s"],
            {
                f"{host}:{path}": share
                for host, paths in sample["weights"].items()
                for path, share in paths.items()
            },
        )
        for sample in samples
    ]
    settle_s = settle_time_s(flat, began_s)
    hbspan_s = samples[0]["hbspan_s"]
    return {
        "phase": phase,
        "settle_s": None if settle_s is None else round(settle_s, 2),
        "settle_hbspan": None if settle_s is None else round(settle_s / hbspan_s, 2),
        "hbspan_s": hbspan_s,
        "weights": samples[-1]["weights"],
        "goodput_bps": goodput_bps,
    }
