"""The `ri2n` command, with the list of its subcommands."""

from __future__ import annotations

import functools
import sys
from importlib.metadata import entry_points

import typer

from ri2n_sdn import __version__
from ri2n_sdn.cli import config, host, job, policy, reserve, slurm, store, token, vlan
from ri2n_sdn.cli.bundle import support_bundle
from ri2n_sdn.cli.common import note, run_guarded
from ri2n_sdn.cli.controller import controller, reload
from ri2n_sdn.cli.doctor import doctor
from ri2n_sdn.cli.rollout import rollout
from ri2n_sdn.cli.status import explain, status
from ri2n_sdn.cli.top import top
from ri2n_sdn.cli.web import web

__all__ = ["app", "main"]

app = typer.Typer(
    name="ri2n",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The sum of several cheap NICs on several cheap switches, as one IP address.",
)
for command in (controller, reload, web, status, top, explain, doctor, config.check_config):
    app.command()(command)
app.command("support-bundle")(support_bundle)
app.add_typer(config.app, name="config")
app.add_typer(vlan.app, name="vlan")
app.add_typer(job.app, name="job")
host.app.command("rollout")(rollout)
app.add_typer(host.app, name="host")
app.add_typer(store.app, name="store")
app.add_typer(reserve.reservations, name="reserve")
app.add_typer(reserve.rights, name="rights")
app.add_typer(policy.app, name="policy")
app.add_typer(token.app, name="token")
app.add_typer(slurm.app, name="slurm")


def _join() -> None:
    """Add the commands of other packages: labs, benches and the copy, where they are installed."""
    for point in sorted(entry_points(group="ri2n_sdn.commands"), key=lambda point: point.name):
        try:
            joining = point.load()
        except ImportError as error:
            # The commands of this package must work when another package is broken.
            note(f"ri2n: {point.name} cannot be loaded: {error}")
            continue
        if isinstance(joining, typer.Typer):
            app.add_typer(joining, name=point.name)
        else:
            app.command(point.name)(joining)


_join()


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ri2n {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print it and exit."
    ),
) -> None:
    pass


# Building the tree of all commands takes as long as most of them. A process that runs several
# commands, as tests do, builds it once.
_tree = functools.cache(lambda: typer.main.get_command(app))


def main() -> None:
    """Run the `ri2n` command and exit. See `run_guarded` for the exit codes."""
    sys.exit(run_guarded(lambda: _tree()(prog_name="ri2n", standalone_mode=False)))


if __name__ == "__main__":
    main()
