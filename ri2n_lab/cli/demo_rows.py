# SPDX-License-Identifier: Apache-2.0
"""The rows of the demo's table: each strategy runs under the same traffic, in some order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.live import Live

from ri2n_lab.bench.cpus import Moment, look, used_between
from ri2n_lab.cli.demo_table import STREAMS, compared
from ri2n_sdn.cli.common import console, note
from ri2n_sdn.client import call
from ri2n_sdn.contract.choices import STRATEGIES

if TYPE_CHECKING:
    from ri2n_lab.bench.fair import Optimum
    from ri2n_lab.cluster import Lab

__all__ = ["compare", "in_order", "mean_row", "row_of"]

SETTLE_SHARE = 0.3
POLL_S = 0.5
TWICE_S = 20.0
"""A strategy that has so long runs twice: once in each of two opposite orders."""

Row = dict[str, Any]


def in_order(run_s: float, *, turned: bool) -> list[str]:
    """The strategies in the order of their runs, where each has `run_s` seconds in all.

    With enough time, each runs twice, and the second order is the first one turned: what grows
    slower or busier meanwhile then costs each the same.
    """
    first = list(reversed(STRATEGIES)) if turned else list(STRATEGIES)
    return [*first, *reversed(first)] if run_s >= TWICE_S else first


def compare(
    lab: Lab,
    server: str,
    clients: list[str],
    optimum: Optimum,
    order: Sequence[str],
    run_s: float,
    quiet: bool,
) -> dict[str, Row]:
    """Run strategies in an `order`, each for `run_s` seconds, and return their rows.

    Unless `quiet`, a table shows the rates while they run.
    """
    measured: dict[str, list[Row]] = {}
    running: dict[str, Row] = {}

    def rows() -> dict[str, Row]:
        known = {name: mean_row(each) for name, each in measured.items()}
        return {name: row for name in STRATEGIES if (row := running.get(name) or known.get(name))}

    def run_all(show: Callable[[str], None]) -> None:
        for name in order:
            arriving = _arriving(lab, server, clients)

            def on_poll(rates: Mapping[str, float], began: Moment, name: str = name) -> None:
                running[name] = row_of(rates, optimum, began, look())
                show(name)

            row = _run(lab, server, clients, name, run_s, optimum, arriving, on_poll)
            last = running.pop(name, None)
            if (row := row or last) is not None:
                measured.setdefault(name, []).append(row)
            show(name)

    if quiet:
        run_all(lambda name: None)
        return rows()
    first = compared(rows(), clients, optimum, "")
    with Live(first, console=console(), auto_refresh=False) as live:
        run_all(lambda name: live.update(compared(rows(), clients, optimum, name), refresh=True))
        live.update(compared(rows(), clients, optimum, ""), refresh=True)
    if not console().is_terminal:
        console().print()  # the last line of a live display has no line end there
    return rows()


def row_of(goodput_bps: Mapping[str, float], optimum: Optimum, began: Moment, ended: Moment) -> Row:
    """A run's row: the rate of each client in bit/s, shares of the optimum, and the CPUs' use."""
    used = used_between(began, ended)
    shares = [rate / optimum.fair_bps[name] for name, rate in goodput_bps.items()]
    return {
        "clients": {client: round(rate) for client, rate in goodput_bps.items()},
        "total_of_optimum": round(sum(goodput_bps.values()) / optimum.total_bps, 4),
        "worst_share": round(min(shares), 4),
        "cpus_short": used.short,
        "cpus": {
            "idle": round(used.idle, 4),
            "stolen": round(used.stolen, 4),
            "waiting": None if used.waiting is None else round(used.waiting, 4),
        },
    }


def mean_row(rows: Sequence[Row]) -> Row:
    """The row of several runs of a strategy: the means; CPUs were short if they were in any run."""
    waits = [row["cpus"]["waiting"] for row in rows]
    return {
        "clients": {
            client: round(_mean([row["clients"][client] for row in rows]))
            for client in rows[0]["clients"]
        },
        **{
            key: round(_mean([row[key] for row in rows]), 4)
            for key in ("total_of_optimum", "worst_share")
        },
        "cpus_short": any(row["cpus_short"] for row in rows),
        "cpus": {
            **{
                key: round(_mean([row["cpus"][key] for row in rows]), 4)
                for key in ("idle", "stolen")
            },
            "waiting": None if None in waits else round(_mean(waits), 4),
        },
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _arriving(lab: Lab, server: str, clients: Sequence[str]) -> Callable[[], dict[str, float]]:
    """What asks the controller how much arrives at the server's NICs from each client.

    On a busy machine the controller may know nothing for a moment: then it is as it was before.
    """
    last_bps = dict.fromkeys(clients, 0.0)

    def ask() -> dict[str, float]:
        for pair in call(lab.controller_socket, "status")["pairs"]:
            rates_bps = [path["rx_bps"] for path in pair["paths"]]
            if pair["dst"] == server and pair["src"] in clients and None not in rates_bps:
                last_bps[pair["src"]] = sum(rates_bps)
        return dict(last_bps)

    return ask


def _run(
    lab: Lab,
    server: str,
    clients: list[str],
    strategy: str,
    run_s: float,
    optimum: Optimum,
    arriving: Callable[[], dict[str, float]],
    on_poll: Callable[[Mapping[str, float], Moment], None],
) -> Row | None:
    """Run one strategy, and return its row: the goodput that iperf3 measured.

    While it runs, `on_poll` gets the rates that arrive, and the moment at which it began. None when
    clients did not send at the same time; then the last of these rates stand for the run.
    """
    from ri2n_lab.traffic.iperf import MAX_LATE_S, IperfRun, NotTogether

    call(lab.controller_socket, "strategy", name=strategy)
    seconds = max(2, math.floor(run_s))
    settle_s = max(1.0, seconds * SETTLE_SHARE)
    began = look()
    run = IperfRun(lab, server, clients, streams=STREAMS, seconds=seconds)
    try:
        while time.monotonic() < run.start_s + seconds:
            on_poll(arriving(), began)
            time.sleep(POLL_S)
        ended = look()
        # On a busy machine clients begin one after the other. The window is so short that all of
        # them send in it.
        results = run.results(skip_s=settle_s, window_s=seconds - settle_s - MAX_LATE_S)
    except NotTogether as error:
        note(f"{strategy}: {error}; the table shows what arrived on the wire")
        return None
    finally:
        run.stop()
    goodput_bps = {client: results[client].goodput_bps for client in clients}
    return row_of(goodput_bps, optimum, began, ended)
