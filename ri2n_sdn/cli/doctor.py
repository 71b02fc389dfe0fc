"""`ri2n doctor`:

is this host (or every host of a lab) set up as it must be? What `host-doctor` says there.
"""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ri2n_sdn.cli.common import JsonOption, console, print_json
from ri2n_sdn.cli.finding import Finding, problems_in
from ri2n_sdn.cli.labs import labs
from ri2n_sdn.cli.views import STYLES
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.problem import exit_code, worst_first
from ri2n_sdn.shipped import host_script

__all__ = ["doctor", "findings_in"]

LIMIT_S = 60.0


def doctor(
    lab: Annotated[
        str | None, typer.Option(help="Look at the hosts of this lab, not at this machine.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="With --lab: this host only.")] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="uml or virtual: can this machine run labs in guests with it? Boots one."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a cluster host and say what to do; exit code 0: all is right, 1: warnings, 2:

    something is bad.
    """
    if host is not None and lab is None:
        raise BadInput("--host: only with --lab; without it doctor looks at this machine")
    if kernel is not None and lab is not None:
        raise BadInput("--kernel: looks at this machine, not at a lab; leave --lab away")
    if kernel is not None:
        findings = labs("--kernel").examine_guest(kernel)
    elif lab is None:
        findings = _examine_here()
    else:
        findings = labs("--lab").examine_lab(lab, host)
    problems = problems_in(findings)
    if as_json:
        print_json(
            {
                "bad": sum(problem.severity == "bad" for problem in problems),
                "warnings": sum(problem.severity == "warning" for problem in problems),
                "findings": [asdict(finding) for finding in findings],
            }
        )
    else:
        for problem in worst_first(problems):
            console().print(Text(str(problem), style=STYLES[problem.severity]))
        console().print(_table(findings))
    return exit_code(problems)


def _examine_here() -> list[Finding]:
    try:
        done = subprocess.run(
            [str(host_script("host-doctor")), "--json"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(
            f"host-doctor has not ended after {LIMIT_S:.0f} s: does Open vSwitch hang?"
        ) from None
    return findings_in(platform.node(), done.stdout, done.stderr)


def findings_in(host: str, said: str, error: str) -> list[Finding]:
    """What host-doctor found, from its JSON.

    Raises NotAvailable with what it complained of when there is none.
    """
    try:
        rows: list[dict[str, Any]] = json.loads(said)["findings"]
        return [Finding(host, **row) for row in rows]
    except (ValueError, KeyError, TypeError):
        raise NotAvailable(f"{host}: {error.strip() or 'host-doctor says nothing'}") from None


def _table(findings: list[Finding]) -> Table:
    table = Table()
    for heading in ("host", "check", "", "seen"):
        table.add_column(heading, overflow="fold")
    previous = None
    for finding in findings:
        table.add_row(
            finding.host if finding.host != previous else "",
            finding.check,
            Text(finding.verdict, style=STYLES[finding.verdict]),
            Text(finding.seen),
        )
        previous = finding.host
    return table
