# SPDX-License-Identifier: Apache-2.0
"""What the controller says of live traffic: all figures agree, and fair is what a program says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import pytest

from ri2n_lab.bench.fair import GOODPUT_RATIO, goodput_optimum
from ri2n_lab.bench.vbft import rescaled
from ri2n_lab.traffic.iperf import IperfRun
from ri2n_sdn.client import Watch, call
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.weights.windows import WINDOW_S

from .conftest import PATIENCE_S, TOPOLOGIES, controlled

CLIENTS = ("B", "C", "D")
STATES = 15
RATE_BPS = 20_000_000
"""Also a machine with little CPU fills such links, all of the time."""


def _limited(watch: Watch, strategy: str) -> Iterator[Documents]:
    """States under a strategy in which a link limits every client, each of another sample.

    What is fair is a mean over the window of rates, so a link has limited all of them for so long.
    """
    sampled_s, since_s = 0.0, 0.0
    deadline_s = time.monotonic() + PATIENCE_S
    for state in watch:
        about = state["controller"]
        assert time.monotonic() < deadline_s, (about, state.get("fair"))
        now_s = about.get("sampled_s", 0.0)
        if now_s <= sampled_s or about["strategy"] != strategy:
            continue
        sampled_s = now_s
        if state.get("fair", {}).keys() != set(CLIENTS):
            since_s = 0.0
            continue
        since_s = since_s or now_s
        if now_s - since_s > WINDOW_S + 0.5:
            yield state


def test_figures_of_one_sample_agree_and_fair_is_the_optimum() -> None:
    """As the demo: clients with one link and with two send to one server, under each strategy.

    Nothing is said of how much they get, which is the machine's matter.
    """
    topology = rescaled(load_topology(TOPOLOGIES / "fig4" / "h.yaml"), RATE_BPS)
    with controlled(topology) as lab:
        optimum = goodput_optimum(lab.topology, list(CLIENTS), "A").fair_bps
        run = IperfRun(lab, "A", list(CLIENTS), streams=8, seconds=3600.0)
        try:
            for strategy in ("max_min", "round_robin", "ri2n_plus"):
                call(lab.controller_socket, "strategy", name=strategy)
                alike: list[float] = []
                known: dict[str, list[float]] = {name: [] for name in CLIENTS}
                with Watch(lab.controller_socket) as watch:
                    for state in _limited(watch, strategy):
                        fair, rates = state["fair"], state["rates"]
                        for client in CLIENTS:
                            # Fair rates are those of frames, and the optimum is that of data.
                            known[client].append(fair[client]["fair_bps"] * GOODPUT_RATIO)
                            sent_bps = sum(tx_bps for tx_bps, _ in rates[client].values())
                            tx_bps = fair[client]["tx_bps"]
                            # Each of both is a sum of whole numbers.
                            assert tx_bps <= sent_bps + 4, "a pair is faster than its NICs"
                            alike.append(tx_bps / max(1, sent_bps))
                        if len(alike) >= STATES * len(CLIENTS):
                            break
                # A client that gets no CPU for a moment wants less, and the others' part is larger
                # for as long as the mean has that moment.
                usual = {name: median(rates_bps) for name, rates_bps in known.items()}
                assert usual == pytest.approx(optimum, rel=0.01), (strategy, known)
                # Here hosts send to the server alone. Where the weight of a client has just
                # changed, the counters of its rows may be late by more than a window can correct.
                assert median(alike) > 0.97, (strategy, alike)
        finally:
            run.stop()
