# SPDX-License-Identifier: Apache-2.0
"""`ri2n demo`: run topology h with live traffic under each strategy, and show what clients get."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_lab.cli.demo_rate import carries_bps, factor_for, last_factor, remember, slower
from ri2n_lab.cli.demo_rows import compare, in_order
from ri2n_lab.cli.demo_table import STREAMS
from ri2n_lab.cli.demo_web import SOCKET, DemoWeb
from ri2n_lab.cli.unowned import remove_unowned
from ri2n_sdn.cli.common import (
    JsonOption,
    check_choice,
    note,
    print_json,
    terminate_as_interrupt,
)
from ri2n_sdn.client import call
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_lab.cluster import Lab

__all__ = ["demo"]

SERVER = "A"
# How long the demo with all strategies may take when the user does not say it.
DEFAULT_SECONDS = 60
# The shortest run of a strategy: its weights must settle, and some time must be left to measure.
MIN_RUN_S = 4.0
FINAL = "max_min"
"""The strategy while the user looks around."""


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
    attempt: Annotated[
        str | None,
        typer.Option(
            "--try",
            metavar="NAME",
            help="Build nothing; let the demo that runs do this: cut, controller, job, strategy, "
            "helpers or fast. The same again undoes cut, job, helpers and fast.",
        ),
    ] = None,
    lab_name: Annotated[
        str | None,
        typer.Option("--lab", envvar="RI2N_LAB", metavar="LAB", help="With --try: in this demo."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a cluster on this machine, load it, and compare the strategies (root).

    A web page shows it live. Without --seconds, the cluster and its traffic stay until Ctrl-C.
    Everything is removed at the end.
    """
    if attempt is not None:
        _try_in(lab_name, attempt)
        return
    from ri2n_lab.bench.fair import goodput_optimum
    from ri2n_lab.bench.fig4 import clients_of
    from ri2n_lab.bench.ready import start_and_wait
    from ri2n_lab.cluster import Lab

    started_s = time.monotonic()
    full = find_topology(topology)
    clients = clients_of(full, "bulk")
    needed_bps = goodput_optimum(full, clients, SERVER).total_bps
    terminate_as_interrupt()
    remove_unowned()
    factor = last_factor(full.name)
    parsed = slower(full, factor)
    lab = Lab.create(parsed)
    note(f"building lab {lab.name}: {parsed.description or parsed.name}")

    def tell(text: str) -> None:
        note(f"{time.monotonic() - started_s:5.1f} s  {text}")

    with contextlib.ExitStack() as stack:
        removal = stack.enter_context(contextlib.ExitStack())
        removal.callback(_remove, lab)
        lab.up(tell)
        # The web process starts beside the controller, for which it waits by itself, and has
        # started before anything is measured.
        web = None if as_json else stack.enter_context(DemoWeb(lab.controller_socket))
        start_and_wait(lab, FINAL)
        if web is not None:
            web.url()
        tell("a moment of traffic, to see what this machine carries")
        carried = carries_bps(lab, SERVER, clients, STREAMS)
        before = factor
        if carried is not None:
            factor = factor_for(carried, needed_bps, before)
            remember(full.name, factor)
        if factor < 1:
            tell(f"CPUs are short: all links get {factor:.0%} of their rates, for all strategies")
        if factor != before:
            lab.down()
            removal.pop_all()
            parsed = slower(full, factor)
            lab = Lab.create(parsed, lab.name)
            removal.callback(_remove, lab)
            lab.up(tell)
            start_and_wait(lab, FINAL)
        optimum = goodput_optimum(parsed, clients, SERVER)
        address = _address(web)
        if address is not None:
            tell(f"watch it live:\n{address}")
        tell("all hosts have connected; now traffic starts")
        left_s = (seconds or DEFAULT_SECONDS) - (time.monotonic() - started_s) - 2
        # A machine may become slower or busier meanwhile, so no strategy is always the last one.
        order = in_order(left_s / len(STRATEGIES), turned=bool(secrets.randbelow(2)))
        run_s = max(MIN_RUN_S, left_s / len(order))
        results = compare(lab, SERVER, clients, optimum, order, run_s, as_json)
        if as_json:
            facts = {"topology": parsed.name, "rates_factor": factor}
            print_json({**facts, "optimum_bps": optimum.total_bps, "strategies": results})
        if seconds is None:
            call(lab.controller_socket, "strategy", name=FINAL)
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


def _stay(lab: Lab, clients: list[str], address: str | None) -> None:
    """Leave the lab to the user until Ctrl-C, with traffic that goes on."""
    from ri2n_lab.cli.demo_traffic import Traffic
    from ri2n_lab.cli.demo_tries import Tries

    traffic = Traffic(lab, SERVER, clients, STREAMS)
    with Tries(lab, SERVER, clients, STREAMS, traffic, _program()) as tries:
        note(f"lab {lab.name} stays up until Ctrl-C. In another terminal:")
        for command in commands(lab.name, clients[0]):
            note(f"  {command}")
        note("Things to try there, or by the buttons of the page Try:")
        for each in tries.described():
            note(f"  {each['command']}")
        try:
            if address is not None:
                note(f"Open {address}")
            traffic.run()
        except KeyboardInterrupt:
            note("")


def _try_in(lab: str | None, name: str) -> None:
    """Let a demo that runs do what is to be tried, and print what it says.

    Raises BadInput when no name of a lab is given and several demos run, and NotAvailable when none
    does.
    """
    from ri2n_lab.cli.demo_tries import KEYS, SETUP_S
    from ri2n_lab.cluster import state

    check_choice(name, KEYS, "--try")
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
    remove_unowned()  # a demo that was killed has left its socket
    names = sorted(path.parent.name for path in state.ROOT.glob(f"*/{SOCKET}"))
    if lab is None and len(names) > 1:
        raise BadInput(f"which demo? There are {', '.join(names)}: name one with --lab")
    lab = lab or (names[0] if names else None)
    if lab is None or lab not in names:
        raise NotAvailable("no demo waits for anything to try: `ri2n demo` starts one")
    path = state.run_dir(state.check_name(lab)) / SOCKET
    print(call(path, "try", timeout_s=SETUP_S, name=name)["text"])


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
    """What calls this program in any folder, with the rights that this process has.

    A demo of `sudo` needs `sudo` in the other terminal, too.
    """
    beside = Path(sys.executable).with_name("ri2n")
    found = shutil.which("ri2n")
    if found is not None and beside.exists() and beside.samefile(found):
        program = "ri2n"
    elif os.access(beside, os.X_OK):
        program = shlex.quote(str(beside))
    else:
        program = shlex.join([sys.executable, "-m", "ri2n_sdn.cli.main"])
    return f"sudo {program}" if "SUDO_USER" in os.environ else program
