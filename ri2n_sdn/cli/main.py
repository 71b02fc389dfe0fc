# SPDX-License-Identifier: Apache-2.0
"""The `ri2n` command, with the list of its subcommands."""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from typing import Any

import typer

from ri2n_sdn import __version__
from ri2n_sdn.cli.common import note, run_guarded
from ri2n_sdn.cli.options import Group

__all__ = ["main", "tree"]

_OWN = {
    "controller": "controller:controller",
    "reload": "controller:reload",
    "web": "web:web",
    "status": "status:status",
    "top": "top:top",
    "explain": "status:explain",
    "doctor": "doctor:doctor",
    "check-config": "config:check_config",
    "support-bundle": "bundle:support_bundle",
    "config": "config:app",
    "vlan": "vlan:app",
    "job": "job:app",
    "host": "rollout:app",  # cli.rollout adds its command to the group of cli.host
    "store": "store:app",
    "reserve": "reserve:reservations",
    "rights": "reserve:rights",
    "policy": "policy:app",
    "token": "token:app",
    "slurm": "slurm:app",
}
"""The module of each command or group of commands in this folder, and its name there."""


def main() -> None:
    """Run the `ri2n` command and exit. See `run_guarded` for the exit codes."""
    # pydantic would look into every installed package for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(run_guarded(lambda: tree(word)(prog_name="ri2n", standalone_mode=False)))


@functools.cache
def tree(word: str = "") -> Any:
    """The command `ri2n` with all commands, or with the one called `word` alone, if there is one.

    To import the modules of all commands takes longer than most commands take. Only the help, and
    the answer to a wrong command, need all of them.
    """
    root = Group(
        "The sum of several cheap NICs on several cheap switches, as one IP address.",
        name="ri2n",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(_root)
    if word in _OWN:
        _add(root, word, _own(word))
    elif not word:
        for name in _OWN:
            _add(root, name, _own(name))
        _join(root)
    elif not _join(root, word):
        return tree()
    return typer.main.get_command(root)


def _own(name: str) -> Any:
    module, _, attribute = _OWN[name].partition(":")
    return getattr(import_module(f"ri2n_sdn.cli.{module}"), attribute)


def _add(root: typer.Typer, name: str, command: Any) -> None:
    if isinstance(command, typer.Typer):
        root.add_typer(command, name=name)
    else:
        root.command(name)(command)


def _join(root: typer.Typer, word: str = "") -> bool:
    """Add the commands of other packages: labs, benches and the copy, where they are installed.

    With a `word`, the command of this name alone. Returns whether anything was added.
    """
    from importlib.metadata import entry_points

    joined = False
    for point in sorted(entry_points(group="ri2n_sdn.commands"), key=lambda point: point.name):
        if word in ("", point.name):
            try:
                _add(root, point.name, point.load())
                joined = True
            except ImportError as error:
                # The commands of this package must work when another package is broken. Where one
                # command was wanted, the tree of all commands says it.
                if not word:
                    note(f"ri2n: {point.name} cannot be loaded: {error}")
    return joined


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ri2n {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print it and exit."
    ),
) -> None:
    pass


if __name__ == "__main__":
    main()
