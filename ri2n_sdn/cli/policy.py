# SPDX-License-Identifier: Apache-2.0
"""`ri2n policy`: names for policies, which jobs and reservations may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import JsonOption, LabOption, SocketOption, print_answer
from ri2n_sdn.cli.job import (
    POLICY,
    RATES,
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
from ri2n_sdn.cli.tables import Column, comma_list, print_list
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.names import policy_name

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import PolicyOf

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Policies with names, for jobs and reservations.")

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
    answer = call(jobs_socket(socket, lab), ops.POLICY_ADD, name=name, policy=wanted)["policy"]
    print_answer(answer, f"{name}: {_summary(answer)}", as_json)


@app.command("ls")
def list_policies(
    socket: SocketOption = None, lab: LabOption = None, as_json: JsonOption = False
) -> None:
    """Show all named policies."""
    kept = call(jobs_socket(socket, lab), ops.POLICY_LIST)["policies"]
    columns = (Column("name"), POLICY, RATES, Column("services", written=comma_list))
    print_list(kept, columns, as_json, "no named policies")


@app.command()
def show(
    name: NameArgument,
    socket: SocketOption = None,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one named policy."""
    policy = call(jobs_socket(socket, lab), ops.POLICY_SHOW, name=name)["policy"]
    services = [f"service {service}" for service in policy["services"]]
    said = [f"{policy['name']}: {_summary(policy)}", *services]
    print_answer(policy, "\n".join(said), as_json)


@app.command()
def rm(name: NameArgument, socket: SocketOption = None, lab: LabOption = None) -> None:
    """Remove a named policy. Jobs and reservations that came from it keep what they have."""
    call(jobs_socket(socket, lab), ops.POLICY_REMOVE, name=name)
    print(f"{name}: removed")


def _summary(policy: PolicyOf) -> str:
    rates = rates_text(policy)
    return policy_text(policy) if rates == "-" else f"{policy_text(policy)}; {rates}"
