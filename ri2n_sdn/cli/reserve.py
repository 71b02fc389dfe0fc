# SPDX-License-Identifier: Apache-2.0
"""`ri2n reserve` and `ri2n rights`: paths for a time to come, and what users may ask for."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ri2n_sdn.cli.common import print_answer
from ri2n_sdn.cli.job import NamedOption, PathsOption, PolicyOptions, policy_of, user_and_uid
from ri2n_sdn.cli.labs import Asked, Where
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.tables import Column, or_dash, print_list
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import KINDS
from ri2n_sdn.contract.units import (
    parse_duration,
    parse_rate,
    parse_time,
    table_rate,
    time_text,
)
from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.rights import parse_policies
from ri2n_sdn.jobs.text import parse_hosts

__all__ = ["reservations", "rights"]

reservations = Group("Paths that users have reserved.")
rights = Group("What users may ask for.")

_RESERVATIONS = (
    Column("reservation", "id"),
    Column("user"),
    Column("hosts", written=", ".join),
    Column("rate", "rate_bps", table_rate),
    Column("from", "begin_s", time_text),
    Column("to", "end_s", time_text),
)
_RIGHTS = (
    Column("user"),
    Column("policies", written=", ".join),
    Column("rate", "max_rate_bps", table_rate),
    Column("hosts", "max_hosts", or_dash),
    Column("may reserve", "reserve", lambda may: "yes" if may else "no"),
)


@reservations.command()
def add(
    name: Annotated[str, typer.Argument(metavar="ID", help="A name for the reservation.")],
    hosts: Annotated[str, typer.Option(metavar="A,B,...", help="Between which hosts.")],
    *,
    begin: Annotated[
        str, typer.Option(metavar="TIME", help="now, +2h, or 2026-11-27T10:00 (UTC).")
    ] = "now",
    end: Annotated[str | None, typer.Option(metavar="TIME", help="As --begin.")] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="In place of --end: 90m, 2h, 3d.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="As 400M: what each host gets.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="For whom. Default: you.")] = None,
    named: NamedOption = None,
    paths: PathsOption = None,
    at: Asked,
) -> None:
    """Reserve paths between hosts for a time. A refusal says what is in the way, and until when.

    They are exclusive unless --named says otherwise.
    """
    now_s = time.time()
    begin_s = parse_time(begin, now_s, "--begin")
    if (end is None) == (length is None):
        raise BadInput("--end: give --end or --for")
    if end is not None:
        end_s = parse_time(end, now_s, "--end")
    else:
        end_s = begin_s + parse_duration(str(length), "--for")
    wanted: dict[str, object] = {
        **{"id": name, "user": user_and_uid(user)[0], "hosts": list(parse_hosts(hosts))},
        **{"begin_s": begin_s, "end_s": end_s},
        **policy_of(None, PolicyOptions(paths), named, "exclusive"),
    }
    if rate is not None:
        wanted["rate_bps"] = parse_rate(rate, "--rate")
    answer = call(at.jobs, ops.RESERVE_ADD, reservation=wanted)["reservation"]
    said = f"{name}: reserved from {time_text(begin_s)} to {time_text(end_s)}"
    print_answer(answer, said, at.as_json)


@reservations.command("ls")
def list_reservations(at: Asked) -> None:
    """Show all reservations in the order of their beginnings."""
    kept = call(at.jobs, ops.RESERVE_LIST)["reservations"]
    print_list(kept, _RESERVATIONS, at.as_json, "no reservations")


@reservations.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="ID", help="The reservation's name.")], at: Where
) -> None:
    """Remove a reservation. A job that uses it goes on by the common paths."""
    call(at.jobs, ops.RESERVE_REMOVE, id=name)
    print(f"{name}: removed")


@rights.command("set")
def set_right(
    user: Annotated[str, typer.Argument(help="The name of a user.")],
    *,
    policies: Annotated[
        str, typer.Option(metavar="KIND,...", help=f"Some of {', '.join(KINDS)}.")
    ] = "shared",
    max_rate: Annotated[str | None, typer.Option(metavar="RATE", help="As 400M.")] = None,
    max_hosts: Annotated[int | None, typer.Option(min=1, help="Hosts of one job.")] = None,
    reserve: Annotated[bool, typer.Option("--reserve", help="May make reservations.")] = False,
    at: Where,
) -> None:
    """Say what a user may ask for. Only root may do so."""
    kinds = parse_policies(policies)
    right = {"user": user, "policies": kinds, "max_hosts": max_hosts, "reserve": reserve}
    right["max_rate_bps"] = parse_rate(max_rate, "--max-rate") if max_rate is not None else None
    call(at.jobs, ops.RIGHTS_SET, right=right)
    print(f"{user}: {', '.join(kinds)}")


@rights.command("ls")
def list_rights(at: Asked) -> None:
    """Show what users may ask for."""
    kept = call(at.jobs, ops.RIGHTS_LIST)["rights"]
    print_list(kept, _RIGHTS, at.as_json, "no entries")


@rights.command("rm")
def remove_right(
    user: Annotated[str, typer.Argument(help="The name of a user.")], at: Where
) -> None:
    """Remove a user's entry."""
    call(at.jobs, ops.RIGHTS_REMOVE, user=user)
    print(f"{user}: removed")
