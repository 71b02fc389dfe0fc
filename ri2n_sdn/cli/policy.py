# SPDX-License-Identifier: Apache-2.0
"""`ri2n policy`: names for policies, which jobs and reservations may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import print_answer
from ri2n_sdn.cli.job import POLICY, RATES, PolicyOptions, policy_of, policy_text, rates_text
from ri2n_sdn.cli.labs import Asked, Where
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.tables import Column, comma_list, print_list
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import KINDS
from ri2n_sdn.contract.names import policy_name

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import PolicyOf

__all__ = ["app"]

app = Group("Policies with names, for jobs and reservations.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name.")]


@app.command()
def add(
    name: NameArgument,
    policy: Annotated[str, typer.Option(help=f"What the job may use: {', '.join(KINDS)}.")],
    given: PolicyOptions,
    at: Asked,
) -> None:
    """Give a policy a name, for `ri2n job begin --named` and `reserve add --named`. Root only."""
    policy_name(name, "NAME")
    wanted = policy_of(policy, given)
    answer = call(at.jobs, ops.POLICY_ADD, name=name, policy=wanted)["policy"]
    print_answer(answer, f"{name}: {_summary(answer)}", at.as_json)


@app.command("ls")
def list_policies(at: Asked) -> None:
    """Show all named policies."""
    kept = call(at.jobs, ops.POLICY_LIST)["policies"]
    columns = (Column("name"), POLICY, RATES, Column("services", written=comma_list))
    print_list(kept, columns, at.as_json, "no named policies")


@app.command()
def show(name: NameArgument, at: Asked) -> None:
    """Show one named policy."""
    policy = call(at.jobs, ops.POLICY_SHOW, name=name)["policy"]
    services = [f"service {service}" for service in policy["services"]]
    said = [f"{policy['name']}: {_summary(policy)}", *services]
    print_answer(policy, "\n".join(said), at.as_json)


@app.command()
def rm(name: NameArgument, at: Where) -> None:
    """Remove a named policy. Jobs and reservations that came from it keep what they have."""
    call(at.jobs, ops.POLICY_REMOVE, name=name)
    print(f"{name}: removed")


def _summary(policy: PolicyOf) -> str:
    rates = rates_text(policy)
    return policy_text(policy) if rates == "-" else f"{policy_text(policy)}; {rates}"
