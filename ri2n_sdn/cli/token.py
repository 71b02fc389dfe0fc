# SPDX-License-Identifier: Apache-2.0
"""`ri2n token`: who may do what through the web process."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any

import typer

from ri2n_sdn.cli.common import note, print_json
from ri2n_sdn.cli.labs import Asked, Where
from ri2n_sdn.cli.options import Group
from ri2n_sdn.cli.tables import Column, or_dash, print_list
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import ROLES, one_of
from ri2n_sdn.contract.units import time_text
from ri2n_sdn.errors import BadInput

__all__ = ["app"]

TOKEN_BYTES = 32

_COLUMNS = (
    Column("token", "name"),
    Column("role"),
    Column("user", written=or_dash),
    Column("made", "created_s", time_text),
    Column("ends", "expires_s", lambda end_s: "never" if end_s is None else time_text(end_s)),
)

app = Group("Tokens for REST and the GUI (`ri2n web`).")


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for the token.")],
    role: Annotated[
        str,
        typer.Option(
            help="viewer changes nothing, user acts on his own jobs and reservations, admin does "
            "all."
        ),
    ],
    *,
    user: Annotated[str | None, typer.Option(help="Whose jobs; needed with the role user.")] = None,
    days: Annotated[
        int | None, typer.Option(min=1, help="Good for so long. Default: until it is removed.")
    ] = None,
    at: Asked,
) -> None:
    """Make a token and print it. It is shown this once: the controller keeps only its hash."""
    one_of(role, ROLES, "--role")
    if user is None and role == "user":
        raise BadInput("--user: is missing; a token with the role user is for one user's jobs")
    more: dict[str, Any] = {} if user is None else {"user": user}
    if days is not None:
        more["days"] = days
    token = secrets.token_urlsafe(TOKEN_BYTES)
    answer = call(
        at.path,
        ops.TOKEN_ADD,
        name=name,
        role=role,
        hash=hashlib.sha256(token.encode()).hexdigest(),
        **more,
    )["token"]
    if at.as_json:
        print_json({**answer, "token": token})
        return
    print(token)
    note(f"{name}: role {role}; keep the token, it is not shown again")


@app.command("ls")
def list_tokens(at: Asked) -> None:
    """Show all tokens: their names and roles, never their text."""
    tokens = call(at.path, ops.TOKEN_LIST)["tokens"]
    print_list(tokens, _COLUMNS, at.as_json, "no tokens")


@app.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")], at: Where
) -> None:
    """Remove a token. Whoever has it can do nothing with it from now on."""
    call(at.path, ops.TOKEN_REMOVE, name=name)
    print(f"{name}: removed")
