# SPDX-License-Identifier: Apache-2.0
"""`ri2n slurm`: what Slurm wants to know of the network."""

from __future__ import annotations

import os
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import note, os_errors_of, state_of
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.cli.options import Group
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.slurm_topology import SlurmTree, slurm_tree, write_conf, write_yaml

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import Documents

__all__ = ["app", "topology"]

app = Group("What Slurm wants to know of the network.")


class Format(str, Enum):
    """The files that Slurm reads."""

    conf = "conf"
    yaml = "yaml"


@app.callback()
def _group() -> None:
    """With a single command, Typer would leave its name out."""


@app.command()
def topology(
    *,
    format: Annotated[
        Format, typer.Option(help="topology.conf, or topology.yaml of Slurm 25.05 and newer.")
    ] = Format.conf,
    output: Annotated[
        Path | None, typer.Option(help="Write this file, all of it or nothing; default: stdout.")
    ] = None,
    at: Where,
) -> None:
    """Write the learned networks as a tree of switches, for Slurm's topology/tree.

    Hosts that are plugged into the same switches are one leaf. The names of the controller's hosts
    must be Slurm's node names.
    """
    tree = _tree_of(state_of(at.path))
    for line in tree.notes:
        note(f"ri2n: warning: {line}")
    text = write_conf(tree) if format is Format.conf else write_yaml(tree)
    if output is None:
        print(text, end="")
    else:
        _replace(output, text)


def _tree_of(state: Documents) -> SlurmTree:
    """The tree of a controller's state.

    Raises NotAvailable when the controller does not know the networks yet.
    """
    try:
        if not state["controller"]["settled"]:
            raise NotAvailable("the controller still learns which networks there are: try again")
        places = {
            name: {
                str(nic["switch"] or nic["network"])
                for nic in host["nics"].values()
                if nic["network"] is not None
            }
            for name, host in state["hosts"].items()
        }
        ends = [cable["ends"] for cable in state["cables"].values()]
        cables = sorted({(min(each), max(each)) for each in ends})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAvailable(f"the controller's answer is of another version (key {error})") from None
    tree = slurm_tree(places, cables)
    if not tree.switches:
        raise NotAvailable("the controller knows no host in any network")
    return tree


def _replace(path: Path, text: str) -> None:
    """Write a file so that its readers see the old text or the new one, and nothing between."""
    if path.is_dir():
        raise BadInput(f"--output {path}: is a folder")
    with os_errors_of(f"--output {path}"):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
