"""`ri2n doctor`: is this host (or every host of a lab) set up as the product needs it?"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ri2n_sdn.cli.common import JsonOption, console, print_json
from ri2n_sdn.cli.doctor_checks import Finding, examine
from ri2n_sdn.cli.doctor_probe import Runner, collect, run_here
from ri2n_sdn.cli.forward import forward
from ri2n_sdn.errors import BadInput, Ri2nError

if TYPE_CHECKING:
    from ri2n_sdn.lab import Lab

__all__ = ["doctor", "lab_runner"]

STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def doctor(
    lab: Annotated[str | None, typer.Option(help="Look at the hosts of this lab, not at this machine.")] = None,
    host: Annotated[str | None, typer.Option(help="With --lab: this host only.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="uml or virtual: can this machine run labs in guests with it? Boots one.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a cluster host and say what to do; exit code 1 if anything is bad."""
    if host is not None and lab is None:
        raise BadInput("--host: only with --lab; without it doctor looks at this machine")
    if kernel is not None and lab is not None:
        raise BadInput("--kernel: looks at this machine, not at a lab; leave --lab away")
    findings: list[Finding] = []
    if kernel is not None:
        from ri2n_sdn.cli.doctor_guest import examine_guest

        findings = examine_guest(kernel)
    elif lab is None:
        findings = examine(collect(platform.node(), run_here))
    else:
        forward(lab)
        from ri2n_sdn.lab import Lab

        there = Lab.load(lab)
        names = there.topology.managed_hosts()
        if host is not None and host not in names:
            raise BadInput(f"--host {host}: lab {lab} has no managed host of that name: {', '.join(names)}")
        for name in [host] if host else names:
            findings += examine(collect(name, lab_runner(there, name)))
    bad = sum(finding.verdict == "bad" for finding in findings)
    if as_json:
        print_json({"bad": bad, "findings": [asdict(finding) for finding in findings]})
    else:
        console().print(_table(findings))
    return 1 if bad else 0


def lab_runner(lab: Lab, host: str) -> Runner:
    """Runs commands in a lab host's namespace, and OVS's own against that host's OVS."""
    clients: dict[str, Callable[..., str]] = {
        "ovs-vsctl": lab.vsctl,
        "ovs-ofctl": lab.ofctl,
        "ovs-appctl": lab.appctl,
    }

    def run(argv: list[str]) -> str | None:
        try:
            if argv[0] in clients:
                return clients[argv[0]](host, *argv[1:])
            return lab.exec(host, argv, timeout_s=15).stdout
        except (Ri2nError, subprocess.SubprocessError, OSError):
            return None

    return run


def _table(findings: list[Finding]) -> Table:
    table = Table()
    for heading in ("host", "check", "", "seen", "what to do"):
        table.add_column(heading, overflow="fold")
    previous = None
    for finding in findings:
        table.add_row(
            finding.host if finding.host != previous else "",
            finding.check,
            Text(finding.verdict, style=STYLES[finding.verdict]),
            Text(finding.seen),
            Text(finding.advice),
        )
        previous = finding.host
    return table
