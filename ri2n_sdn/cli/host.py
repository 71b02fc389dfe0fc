# SPDX-License-Identifier: Apache-2.0
"""`ri2n host`: the hosts that the controller knows, and their coming and going."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ri2n_sdn.cli.common import (
    JsonOption,
    console,
    note,
    number_option,
    print_answer,
    print_json,
    state_of,
    tries,
)
from ri2n_sdn.cli.labs import Asked, Where
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.tables import Column, comma_list, mark, or_dash, table
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.fast_words import fast_text
from ri2n_sdn.contract.said import Line, worst_first
from ri2n_sdn.contract.units import table_rate
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.contract.answers import KnownHost
    from ri2n_sdn.contract.documents import Documents

__all__ = ["Change", "DryRun", "Yes", "app", "confirm", "host_named"]

app = Group("The hosts that the controller knows, and their coming and going.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

RETIRE_S = 30.0
_LOOK_S = 0.25


@dataclass(frozen=True)
class Change(Where):
    """Which controller is asked for a change of hosts, and how carefully."""

    force: Annotated[bool, typer.Option("--force", help="Also when jobs need it.")] = False
    dry_run: DryRun = False
    yes: Yes = False


def confirm(question: str, yes: bool) -> None:
    """Go on when the user agrees, or has agreed by `--yes`.

    Raises BadInput when there is nobody to ask, typer.Abort when the user does not agree.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput("--yes is missing: there is no terminal on which to ask")
    # stdout is for the answer, and may be a file.
    typer.confirm(question, abort=True, err=True)


def host_named(hosts: list[KnownHost], name: str) -> KnownHost:
    """The host with this name of the answer to `host_list`. Raises BadInput when there is none."""
    for host in hosts:
        if host["name"] == name:
            return host
    raise BadInput(f"{name}: the controller knows no such host; see ri2n host ls")


@app.command("ls")
def list_hosts(at: Asked) -> None:
    """List all hosts, those that are away first, with the jobs and reservations that need them."""
    answer = call(at.path, ops.HOST_LIST)
    if at.as_json:
        print_json(answer)
        return
    columns = (
        Column("host", "name"),
        Column("state", _state),
        Column("NICs", "nics", ", ".join),
        Column("place", _place),
        Column("jobs", written=comma_list),
        Column("reservations", written=comma_list),
    )
    hosts = sorted(answer["hosts"], key=lambda each: (each["connected"], each["name"]))

    def style(host: KnownHost) -> str:
        return "" if host["connected"] else "bold red"

    console().print(table(columns, hosts, row_style=style))


@app.command("show")
def show(name: Annotated[str, typer.Argument(metavar="NAME", help="The host.")], at: Asked) -> None:
    """Show one host: its state, what is wrong with it, its NICs, and what needs it."""
    path = at.path
    known = host_named(call(path, ops.HOST_LIST)["hosts"], name)
    state = state_of(path)
    entry = state["hosts"].get(name)
    problems = [each for each in state["problems"].values() if each["subject"].get("host") == name]
    nics = [_nic(state, known, nic) for nic in known["nics"]]
    if at.as_json:
        print_json({**known, **(entry or {}), "nics": nics, "problems": problems})
        return
    out = console()
    facts = [_state(known)]
    if entry is not None:
        facts.append(f"Open vSwitch {entry['ovs']}, datapath {or_dash(entry['datapath'])}")
        if entry["helper"] is not None:
            facts.append(f"helper {'runs' if entry['helper']['running'] else 'does not run'}")
        if fast := entry.get("fast"):
            age_s = known.get("fast_report_age_s")
            age = "" if age_s is None else f", reported {age_s:.1f} s ago"
            facts.append(f"fast path {fast_text(fast)}{age}")
    out.print(f"{name}: {'; '.join(facts)}", highlight=False)
    for line in worst_first(map(Line.of, problems)):
        out.print(f"  {line}", highlight=False)
    if nics:
        out.print(table(_NICS, nics))
    for what in (known["jobs"], known["reservations"]):
        if what:
            kind = "jobs" if what is known["jobs"] else "reservations"
            out.print(f"{kind} that need it: {', '.join(what)}", highlight=False)


@app.command("retire")
def retire(
    name: Annotated[str, typer.Argument(help="The host, which must be off or have left.")],
    at: Change,
    as_json: JsonOption = False,
) -> None:
    """Take a host out of the cluster for good: the controller forgets it, and so does its store.

    It is refused while the host is connected, while cluster.yaml names it, and without `--force`
    while jobs or reservations need it. To do it twice is no error.
    """
    plan = call(at.path, ops.HOST_RETIRE, name=name, force=at.force, dry_run=True)
    needs = [*plan["jobs"], *plan["reservations"]]
    if not plan["known"]:
        said = f"{name}: the controller knows no such host; there is nothing to do"
        print_answer(plan, said, as_json)
        return
    text = f"{name} with its NICs {', '.join(plan['nics']) or '(none)'}"
    if needs:
        text += f", which {', '.join(needs)} will wait for"
    if at.dry_run:
        print_answer(plan, f"would be forgotten: {text}", as_json)
        return
    confirm(f"Forget {text}?", at.yes)
    answer = call(at.path, ops.HOST_RETIRE, timeout_s=RETIRE_S, name=name, force=at.force)
    print_answer(answer, f"{name} is retired", as_json)
    if not answer["stored"]:
        note(
            "ri2n: the store has not acknowledged it yet; ri2n status says when something is wrong"
        )


@app.command("replace")
def replace(
    name: Annotated[str, typer.Argument(help="The host whose place another machine gets.")],
    at: Change,
    wait: Annotated[float, number_option("Wait so long for the new machine.", 0)] = 600.0,
) -> None:
    """Give the place of a host to another machine: its name, jobs, reservations, switch ports.

    It says what to write on the new machine, and waits until that machine has connected and is
    settled. It is refused while the host is connected and, without `--force`, while jobs need it.
    """
    host = host_named(call(at.path, ops.HOST_LIST)["hosts"], name)
    if host["connected"]:
        raise BadInput(f"{name}: is connected; run host-down on it first, or turn it off")
    needs = [*host["jobs"], *host["reservations"]]
    if host["jobs"] and not at.force:
        raise BadInput(
            f"{name}: {', '.join(host['jobs'])} use it; end them first, or give --force: they go "
            "on when the new machine is there"
        )
    print(f"The new machine gets the place of {name}:")
    print(f"  NICs with the same names: {', '.join(host['nics']) or 'any'}")
    for nic, (switch, port) in host["places"].items():
        print(f"  {nic} plugged into {switch}" + (f", port {port}" if port is not None else ""))
    print(f"  kept: {', '.join(needs) or 'no job and no reservation'}")
    print("On it, install the host's part, and write into /etc/ri2n/host.conf:")
    print(f"  name {name}")
    for nic in host["nics"]:
        print(f"  nic {nic}")
    sys.stdout.flush()  # whoever does the rest may read it now
    if at.dry_run:
        return
    confirm(f"Wait {wait:g} s for the new {name}?", at.yes)
    new = _wait_for(at.path, name, host["dpid"], wait)
    missing = [nic for nic in host["nics"] if nic not in new["nics"]]
    print(f"{name} is there, at {new['address']}")
    if missing:
        raise BadInput(
            f"{name}: the new machine has no NIC {', '.join(missing)}; it has "
            f"{', '.join(sorted(new['nics']))}: name them as before, or change cluster.yaml"
        )


def _wait_for(path: Path, name: str, dpid: str | None, limit_s: float) -> KnownHost:
    """The host of `host_list` when another machine is connected as `name`, and all is settled.

    It asks again and again: where nothing else happens, a stream of changes says nothing for hours.
    Raises NotAvailable after `limit_s`.
    """
    for _ in tries(limit_s, _LOOK_S):
        with contextlib.suppress(NotAvailable):  # the controller may start anew meanwhile
            for host in call(path, ops.HOST_LIST)["hosts"]:
                other = dpid is None or host["dpid"] != dpid or not host["nics"]
                there = host["name"] == name and host["connected"] and other
                if there and state_of(path)["controller"]["settled"]:
                    return host
    raise NotAvailable(
        f"{name}: no other machine of this name has connected within {limit_s:g} s; run "
        "ri2n status here, and host-doctor there"
    )


def _nic(state: Documents, host: KnownHost, name: str) -> dict[str, Any]:
    """All that is known of a NIC; None for what is not known, as while the host is away."""
    unknown: dict[str, Any] = dict.fromkeys(("network", "speed_bps", "up", "alive"))
    entry = state["hosts"].get(host["name"])
    switch, port = host["places"].get(name, (None, None))
    tx_bps, rx_bps = state["rates"].get(host["name"], {}).get(name, (None, None))
    return {
        **{"name": name, **unknown, **(entry["nics"].get(name, {}) if entry else {})},
        **{"switch": switch, "switch_port": port, "tx_bps": tx_bps, "rx_bps": rx_bps},
    }


_NICS = (
    Column("NIC", "name"),
    Column("network", written=or_dash),
    Column("switch", written=or_dash),
    Column("speed", "speed_bps", table_rate, right=True),
    Column("up", written=mark),
    Column("alive", written=mark),
    Column("sending", "tx_bps", table_rate, right=True),
    Column("receiving", "rx_bps", table_rate, right=True),
)


def _state(host: KnownHost) -> str:
    if host["connected"]:
        return f"connected, {host['address']}"
    if not host["seen"]:
        return "never seen"
    if host["away_since_s"] is None:
        return "away"
    return f"away since {time.strftime('%Y-%m-%d %H:%M', time.localtime(host['away_since_s']))}"


def _place(host: KnownHost) -> str:
    places = (
        f"{nic}: {switch}" + (f"/{port}" if port is not None else "")
        for nic, (switch, port) in host["places"].items()
    )
    return ", ".join(places) or ("cluster.yaml" if host["declared"] else "-")
