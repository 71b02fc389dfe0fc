# SPDX-License-Identifier: Apache-2.0
"""`ri2n policy`: names for policies, which jobs and reservations may use."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from ri2n_sdn.cli.common import JsonOption, LabOption, SocketOption, console, print_json
from ri2n_sdn.cli.job import (
    MaxRateOption,
    MinRateOption,
    PathsOption,
    PolicyOption,
    ServiceOption,
    TableOption,
    policy_of,
    policy_text,
    rates_text,
)
from ri2n_sdn.cli.labs import jobs_socket
from ri2n_sdn.client import call
from ri2n_sdn.contract.names import policy_name

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Policies with names, for jobs and reservations.")

Json = dict[str, Any]

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name.")]


@app.command()
def add(
    name: NameArgument,
    policy: PolicyOption,
    paths: PathsOption = None,
    table: TableOption = None,
    service: ServiceOption = None,
    min_rate: MinRateOption = None,
    max_rate: MaxRateOption = None,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a policy a name, for `ri2n job begin --named` and `reserve add --named`. Root only."""
    policy_name(name, "NAME")
    wanted = policy_of(policy, paths, table, service, min_rate, max_rate)
    answer = call(jobs_socket(socket, lab), "policy_add", name=name, policy=wanted)["policy"]
    if as_json:
        print_json(answer)
    else:
        print(f"{name}: {_summary(answer)}")


@app.command("ls")
def list_policies(
    socket: SocketOption = None, lab: LabOption = None, as_json: JsonOption = False
) -> None:
    """Show all named policies."""
    kept = call(jobs_socket(socket, lab), "policy_list")["policies"]
    if as_json:
        print_json(kept)
        return
    if not kept:
        print("no named policies")
        return
    shown = Table()
    for heading in ("name", "policy", "rates", "services"):
        shown.add_column(heading)
    for each in kept:
        services = ", ".join(each["services"]) or "-"
        shown.add_row(each["name"], policy_text(each), rates_text(each), services)
    console().print(shown)


@app.command()
def show(
    name: NameArgument,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one named policy."""
    policy = call(jobs_socket(socket, lab), "policy_show", name=name)["policy"]
    if as_json:
        print_json(policy)
        return
    print(f"{policy['name']}: {_summary(policy)}")
    for service in policy["services"]:
        print(f"service {service}")


@app.command()
def rm(name: NameArgument, socket: SocketOption = None, lab: LabOption = None) -> None:
    """Remove a named policy. Jobs and reservations that came from it keep what they have."""
    call(jobs_socket(socket, lab), "policy_remove", name=name)
    print(f"{name}: removed")


def _summary(policy: Json) -> str:
    rates = rates_text(policy)
    return policy_text(policy) if rates == "-" else f"{policy_text(policy)}; {rates}"
