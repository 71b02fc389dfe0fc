# SPDX-License-Identifier: Apache-2.0
"""`ri2n demo`: run topology h with live traffic under each strategy, and show what clients get."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ri2n_lab.cli.demo_web import DemoWeb
from ri2n_lab.cli.unowned import remove_unowned
from ri2n_sdn.cli.common import JsonOption, console, note, print_json, terminate_as_interrupt
from ri2n_sdn.client import call
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.contract.units import table_rate
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_lab.bench.fair import Optimum
    from ri2n_lab.cluster import Lab

__all__ = ["demo"]

SERVER = "A"
STREAMS = 8
# How long the demo with all strategies may take when the user does not say it.
DEFAULT_SECONDS = 60
# The shortest run of a strategy: its weights must settle, and some time must be left to measure.
MIN_RUN_S = 4.0
SETTLE_SHARE = 0.3
POLL_S = 0.5
# While the user looks around, transfers of this length follow each other.
TRAFFIC_S = 120.0
RETRY_S = 1.0


def demo(
    seconds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End after about so many seconds; without it the lab stays up until Ctrl-C.",
        ),
    ] = None,
    topology: Annotated[
        str, typer.Option(help="A topology file or a shipped one, with a host A.")
    ] = "fig4/h",
    as_json: JsonOption = False,
) -> None:
    """Build a cluster on this machine, load it, and compare the strategies (root).

    A web page shows it live. Without --seconds, the cluster and its traffic stay until Ctrl-C.
    Everything is removed at the end.
    """
    from ri2n_lab.bench.fair import goodput_optimum
    from ri2n_lab.bench.fig4 import clients_of
    from ri2n_lab.bench.ready import start_and_wait
    from ri2n_lab.cluster import Lab

    started_s = time.monotonic()
    parsed = find_topology(topology)
    clients = clients_of(parsed, "bulk")
    optimum = goodput_optimum(parsed, clients, SERVER)
    terminate_as_interrupt()
    remove_unowned()
    lab = Lab.create(parsed)
    note(f"building lab {lab.name}: {parsed.description or parsed.name}")
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, lab)
        lab.up(lambda text: note(f"{time.monotonic() - started_s:5.1f} s  {text}"))
        web = None if as_json else stack.enter_context(DemoWeb(lab.controller_socket))
        start_and_wait(lab, STRATEGIES[0])
        address = _address(web)
        if address is not None:
            note(f"{time.monotonic() - started_s:5.1f} s  watch it live:\n{address}")
        note(f"{time.monotonic() - started_s:5.1f} s  all hosts have connected; now traffic starts")
        left_s = (seconds or DEFAULT_SECONDS) - (time.monotonic() - started_s) - 2
        results = _compare(lab, clients, optimum, max(MIN_RUN_S, left_s / len(STRATEGIES)), as_json)
        if as_json:
            print_json(
                {"topology": parsed.name, "optimum_bps": optimum.total_bps, "strategies": results}
            )
        if seconds is None:
            _stay(lab, clients, address)


def _remove(lab: Lab) -> None:
    # A second Ctrl-C must not end the removal half-way. Programs that the removal starts ignore it,
    # too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the terminal may be gone
        note(f"removing lab {lab.name}")
    lab.down()


def _address(web: DemoWeb | None) -> str | None:
    """The address of the web page, with a login. The demo goes on without one."""
    if web is None:
        return None
    url = web.url()
    if url is None:
        note(f"no web page: {web.why()}")
        return None
    return web.address(url)


def _compare(
    lab: Lab, clients: list[str], optimum: Optimum, run_s: float, quiet: bool
) -> dict[str, dict[str, Any]]:
    """Run every strategy under the same load of TCP streams; the row of each.

    Each gets `run_s` seconds. Unless `quiet`, a table shows the rates while they run.
    """
    results: dict[str, dict[str, Any]] = {}
    if quiet:
        for strategy in STRATEGIES:
            _run_strategy(lab, clients, strategy, run_s, optimum, results, lambda: None)
        return results
    with Live(_table(results, clients, optimum, ""), console=console(), auto_refresh=False) as live:
        for strategy in STRATEGIES:

            def show(name: str = strategy) -> None:
                live.update(_table(results, clients, optimum, name), refresh=True)

            _run_strategy(lab, clients, strategy, run_s, optimum, results, show)
        live.update(_table(results, clients, optimum, ""), refresh=True)
    if not console().is_terminal:
        console().print()  # the last line of a live display has no line end there
    return results


def _run_strategy(
    lab: Lab,
    clients: list[str],
    strategy: str,
    run_s: float,
    optimum: Optimum,
    results: dict[str, dict[str, Any]],
    show: Callable[[], None],
) -> None:
    """Put the row of one strategy into `results`, and call `show` after each change.

    While the strategy runs, the row has the rates that arrive at the server's NICs; at the end, the
    goodput that iperf3 measured.
    """
    from ri2n_lab.traffic.iperf import MAX_LATE_S, IperfRun, NotTogether

    call(lab.controller_socket, "strategy", name=strategy)
    seconds = max(2, math.floor(run_s))
    settle_s = max(1.0, seconds * SETTLE_SHARE)
    run = IperfRun(lab, SERVER, clients, streams=STREAMS, seconds=seconds)
    try:
        while time.monotonic() < run.start_s + seconds:
            status = call(lab.controller_socket, "status")
            arriving = {
                pair["src"]: sum(path["rx_bps"] or 0.0 for path in pair["paths"])
                for pair in status["pairs"]
                if pair["dst"] == SERVER and pair["src"] in clients
            }
            results[strategy] = _row(
                {client: arriving.get(client, 0.0) for client in clients}, optimum
            )
            show()
            time.sleep(POLL_S)
        # On a busy machine clients begin one after the other. The window is so short that all of
        # them send in it.
        measured = run.results(skip_s=settle_s, window_s=seconds - settle_s - MAX_LATE_S)
    except NotTogether as error:
        note(f"{strategy}: {error}; the table shows what arrived on the wire")
        return
    finally:
        run.stop()
    results[strategy] = _row({client: measured[client].goodput_bps for client in clients}, optimum)
    show()


def _row(goodput_bps: dict[str, float], optimum: Optimum) -> dict[str, Any]:
    """A strategy's row: the rate of each client in bit/s, and shares of the optimum."""
    return {
        "clients": {client: round(rate) for client, rate in goodput_bps.items()},
        "total_of_optimum": round(sum(goodput_bps.values()) / optimum.total_bps, 4),
        "worst_share": round(
            min(rate / optimum.fair_bps[name] for name, rate in goodput_bps.items()), 4
        ),
    }


def _table(
    results: dict[str, dict[str, Any]], clients: list[str], optimum: Optimum, running: str
) -> Group:
    table = Table(
        title=f"{STREAMS} TCP streams from every client to {SERVER}", title_justify="left"
    )
    for heading in ("strategy", *clients, "total", "of the optimum", "worst client's share"):
        is_name = heading == "strategy"  # in a narrow terminal rates are broken, but no name
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name)
    for strategy in STRATEGIES:
        row = results.get(strategy)
        style = "bold" if strategy == running else "" if row else "dim"
        if row is None:
            table.add_row(strategy, *["" for _ in clients], "", "", "", style=style)
            continue
        rates = row["clients"]
        table.add_row(
            strategy + (" ..." if strategy == running else ""),
            *(table_rate(rates[client]) for client in clients),
            table_rate(sum(rates.values())),
            f"{row['total_of_optimum']:.0%}",
            f"{row['worst_share']:.0%}",
            style=style,
        )
    fair = [table_rate(optimum.fair_bps[client]) for client in clients]
    table.add_row(
        "(fair optimum)", *fair, table_rate(optimum.total_bps), "100%", "100%", style="dim"
    )
    hint = (
        "while a strategy runs, the figures are what arrives on the wire; then they are the "
        "goodput that iperf3 measured"
    )
    return Group(table, Text(hint, style="dim"))


def _stay(lab: Lab, clients: list[str], address: str | None) -> None:
    """Leave the lab to the user until Ctrl-C, with traffic that goes on."""
    note(f"lab {lab.name} stays up until Ctrl-C. In another terminal:")
    for command in commands(lab.name, clients[0]):
        note(f"  {command}")
    try:
        if address is not None:
            note(f"Open {address}")
        while True:
            _send(lab, clients)
    except KeyboardInterrupt:
        note("")


def commands(lab: str, host: str) -> list[str]:
    """What a user may try beside the demo, as it is typed. Each names the lab of this demo."""
    words = [
        f"status --lab {lab}",
        f"top --lab {lab}",
        f"explain {host} {SERVER} --lab {lab}",
        f"lab exec --lab {lab} {host} -- ping -c 3 {SERVER}",
        f"doctor --lab {lab}",
    ]
    return [f"{_program()} {each}" for each in words]


def _program() -> str:
    """What calls this program in any folder: as this process was called, and with the same rights.

    A demo of `sudo` needs `sudo` in the other terminal, too.
    """
    called = Path(sys.argv[0]).absolute()
    found = shutil.which("ri2n")
    if found is not None and called.exists() and Path(found).samefile(called):
        program = "ri2n"
    elif called.name == "ri2n":
        program = shlex.quote(str(called))
    else:
        program = shlex.join([sys.executable, "-m", "ri2n_sdn.cli.main"])
    return f"sudo {program}" if "SUDO_USER" in os.environ else program


def _send(lab: Lab, clients: list[str]) -> None:
    """Send from all clients to the server for a while.

    Whatever the user breaks meanwhile may end a transfer, and the next one begins soon.
    """
    from ri2n_lab.traffic.iperf import IperfRun

    try:
        run = IperfRun(lab, SERVER, clients, streams=STREAMS, seconds=TRAFFIC_S)
    except NotAvailable:
        time.sleep(RETRY_S)
        return
    try:
        time.sleep(max(0.0, run.start_s + TRAFFIC_S - time.monotonic()))
    finally:
        run.stop()
