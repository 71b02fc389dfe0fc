# SPDX-License-Identifier: Apache-2.0
"""`ri2n doctor`: whether this machine, or each host of a lab, is set up as it must be.

`host-doctor` examines a host, `doctor_controller.py` the controller's machine. This command prints
what they have found.
"""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ri2n_sdn.cli.common import JsonOption, console, print_json
from ri2n_sdn.cli.doctor_controller import examine_controller
from ri2n_sdn.cli.examined import HOST, OPTIONS, Examined
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.cli.labs import labs
from ri2n_sdn.cli.tables import Column, table
from ri2n_sdn.cli.views import STYLES
from ri2n_sdn.client import DEFAULT_SOCKET
from ri2n_sdn.contract.said import Line, exit_code, worst_first
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.shipped import host_script

__all__ = ["doctor", "findings_in"]

LIMIT_S = 60.0
_FINDINGS = (
    Column("host"),
    Column("check"),
    Column("", "verdict", lambda verdict: Text(verdict, style=STYLES[verdict])),
    Column("seen"),
)


def doctor(
    lab: Annotated[
        str | None, typer.Option(help="Look at the hosts of this lab, not at this machine.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="With --lab: this host only.")] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="uml or virtual: whether this machine can run labs in guests with it. Boots one."
        ),
    ] = None,
    controller: Annotated[
        bool, typer.Option("--controller", help="Look at the controller's side of this machine.")
    ] = False,
    socket: Annotated[
        Path | None,
        typer.Option(envvar="RI2N_SOCKET", help="With --controller: the controller's socket."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check this machine, a cluster host or the controller's, and say what to do.

    Without options it looks at all that this machine is: a host, the controller's machine, or both.
    Exit code: 0 when all is right, 1 for warnings, 2 when something is bad.
    """
    if host is not None and lab is None:
        raise BadInput("--host: only with --lab; without --lab, doctor looks at this machine")
    if kernel is not None and lab is not None:
        raise BadInput("--kernel: looks at this machine, not at a lab; leave out --lab")
    if controller and (lab is not None or kernel is not None):
        raise BadInput("--controller: looks at this machine alone; leave out --lab and --kernel")
    if controller:
        findings = examine_controller(Examined.of(socket or DEFAULT_SOCKET))
    elif kernel is not None:
        findings = labs("--kernel").examine_guest(kernel)
    elif lab is None:
        findings = _examine_all()
    else:
        findings = labs("--lab").examine_lab(lab, host)
    problems = [
        Line(each.verdict, f"{each.host}: {each.seen}", each.advice)
        for each in findings
        if each.verdict != "ok"
    ]
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
        rows = map(asdict, findings)
        console().print(table(_FINDINGS, rows, once=1))
    return exit_code(problems)


def _examine_all() -> list[Finding]:
    """Whatever this machine is; a host, where nothing says that it is anything."""
    is_controller = OPTIONS.exists() or DEFAULT_SOCKET.exists()
    findings = examine_controller(Examined.of(DEFAULT_SOCKET)) if is_controller else []
    return findings + (_examine_here() if HOST.exists() or not is_controller else [])


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
            f"host-doctor has not ended after {LIMIT_S:.0f} s: check whether Open vSwitch hangs"
        ) from None
    return findings_in(platform.node(), done.stdout, done.stderr)


def findings_in(host: str, output: str, error: str) -> list[Finding]:
    """The findings of `host-doctor`, from the JSON in its `output`.

    Raises NotAvailable with `error`, its text on stderr, when there is no such JSON.
    """
    try:
        rows: list[dict[str, Any]] = json.loads(output)["findings"]
        return [Finding(host, **row) for row in rows]
    except (ValueError, KeyError, TypeError):
        raise NotAvailable(f"{host}: {error.strip() or 'host-doctor printed nothing'}") from None
