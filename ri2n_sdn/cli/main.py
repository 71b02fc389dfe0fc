# SPDX-License-Identifier: Apache-2.0
"""The `ri2n` command, which loads each of its subcommands when it is used."""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ri2n_sdn import __version__
from ri2n_sdn.cli.common import note, run_guarded
from ri2n_sdn.cli.entries import OTHERS, OWN, SHOWN, Entry
from ri2n_sdn.cli.options import Group
from ri2n_sdn.errors import NotAvailable

__all__ = ["loaded_tree", "main", "tree"]


def main() -> None:
    """Run the `ri2n` command and exit. See `run_guarded` for the exit codes."""
    # pydantic would look into every installed package for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(run_guarded(lambda: tree()(prog_name="ri2n", standalone_mode=False)))


@functools.cache
def tree() -> Any:
    """The command `ri2n`, which loads a subcommand when somebody uses it.

    To import the modules of all commands takes longer than most commands take.
    """
    root = Group(
        "The sum of several cheap NICs on several cheap switches, as one IP address.",
        cls=_Root,
        name="ri2n",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(_root)
    return typer.main.get_command(root)


@functools.cache
def loaded_tree() -> Any:
    """The command `ri2n` with all subcommands, loaded: for who looks at all or runs many."""
    root = cast(_Root, tree())
    root.load_all()
    return root


class _Root(TyperGroup):
    """The group of all commands. Each stands in it as its `Entry` until it is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.entries = {name: entry for name, (_, entry) in OWN.items()}
        self._points: dict[str, Any] | None = None
        self._loaded: set[str] = set()
        for name, entry in self.entries.items():
            self.commands[name] = TyperCommand(name, help=entry.line)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name: as its entry, unless it is loaded."""
        self._join(cmd_name)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the help."""
        self._join()
        return super().list_commands(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with, loaded."""
        self._join(args[0])
        if args[0] not in self.commands:
            self._join()  # for the words that are like a wrong one
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and self.load(name), rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: all commands under headings, each heading with an example."""
        self._join()
        options = ", ".join(max(option.opts, key=len) for option in self.get_params(ctx))
        formatter.write(f"Usage: ri2n COMMAND ...\n\n{self.help}\n")
        width = max(map(len, self.commands))
        kinds: dict[str, list[str]] = {kind: [] for kind in SHOWN}
        for name in self.commands:
            kinds.setdefault(self.entries[name].kind, []).append(name)
        for kind, names in kinds.items():
            if not names:  # the package is not installed
                continue
            formatter.write(f"\n{kind}:\n")
            for name in names:
                formatter.write(f"  {name:{width}}  {self.entries[name].line}\n")
            example = self.entries[SHOWN.get(kind, names[0])].example
            if example:
                formatter.write(f"  Example: {example}\n")
        formatter.write(f"\n`ri2n COMMAND --help` says more.\nOptions: {options}\n")

    def load(self, name: str) -> Any:
        """The command itself. Raises NotAvailable when its package is broken."""
        if name in self._loaded:
            return self.commands[name]
        try:
            if name in OWN:
                module, _, attribute = OWN[name][0].partition(":")
                found = getattr(import_module(f"ri2n_sdn.cli.{module}"), attribute)
            else:
                found = (self._points or {})[name].load()
        except ImportError as error:
            raise NotAvailable(f"{name} cannot be loaded: {error}") from error
        example = self.entries[name].example
        part, settings = Group("", add_completion=False), {"name": name}
        if example:
            settings["epilog"] = f"Example: {example}"
        if isinstance(found, typer.Typer):
            part.add_typer(found, **cast(Any, settings))
        else:
            part.command(**cast(Any, settings))(found)
        part.callback()(lambda: None)
        self.commands[name] = cast(Any, typer.main.get_command(part)).commands[name]
        self._loaded.add(name)
        return self.commands[name]

    def load_all(self) -> None:
        """Load all commands that can be, and say of the others why they cannot."""
        self._join()
        for name in tuple(self.commands):
            try:
                self.load(name)
            except NotAvailable as error:
                note(f"ri2n: {error}")

    def _join(self, only: str = "") -> None:
        """Add the commands of other packages: labs, benches and the copy, where they are installed.

        With `only`, the command of this name alone: other packages need not be imported then.
        A package says what the help shows of its commands in `COMMANDS`, a map from the name to
        the fields of an `Entry`, in the folder of the command's module. The folder takes little
        time to import.
        """
        if only in self.commands:
            return
        if self._points is None:
            from importlib.metadata import entry_points

            self._points = {point.name: point for point in entry_points(group="ri2n_sdn.commands")}
        for name, point in sorted(self._points.items()):
            if name in self.commands or only not in ("", name):
                continue
            try:
                folder = import_module(point.module.rpartition(".")[0])
                entry = Entry(*getattr(folder, "COMMANDS", {}).get(name, (OTHERS, "", "")))
            except ImportError as error:
                entry = Entry(OTHERS, f"cannot be loaded: {error}", "")
            self.entries[name] = entry
            self.commands[name] = TyperCommand(name, help=entry.line)


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
