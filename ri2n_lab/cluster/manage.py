# SPDX-License-Identifier: Apache-2.0
"""The commands of `ri2n lab` as plain functions: up, down, ls, exec, fault, restore."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ri2n_lab.cluster import state
from ri2n_lab.cluster.lab import Lab
from ri2n_lab.cluster.run import in_namespace
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import load_topology

__all__ = [
    "down",
    "down_all_mine",
    "execute",
    "fault",
    "find",
    "ls",
    "remove_unowned",
    "restore",
    "up",
]


def up(
    topology: Path,
    name: str | None = None,
    *,
    datapath: str = "auto",
    helpers: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Lab:
    """Make the lab that the topology file describes, and let the lab stay until `down`.

    Raises BadInput or NotAvailable, and then leaves nothing behind.
    """
    lab = Lab.create(load_topology(topology), name, datapath=datapath, helpers=helpers)
    lab.up(progress)
    lab.keep()
    return lab


def find(name: str | None = None) -> Lab:
    """The lab of this name, or the only lab of this user.

    Raises NotAvailable when there is none, BadInput when the user has several and none is named.
    """
    if name is not None:
        return Lab.load(name)
    mine = Lab.all_mine()
    if not mine:
        raise NotAvailable("there is no lab: `ri2n lab up TOPOLOGY` makes one")
    if len(mine) > 1:
        raise BadInput(
            f"which lab? There are {', '.join(lab.name for lab in mine)}: name one with --lab"
        )
    return mine[0]


def down(name: str | None = None) -> str:
    """Remove a lab (see `find`) and return its name."""
    lab = find(name)
    _need_root()
    lab.down()
    return lab.name


def down_all_mine() -> list[str]:
    """Remove every lab of this user, also what a crash left, and return the labs' names."""
    _need_root()
    names = []
    for lab in Lab.all_mine():
        lab.down()
        names.append(lab.name)
    state.sweep()
    return names


def remove_unowned(tell: Callable[[str], None]) -> None:
    """Remove every lab that belongs to nobody, and call `tell` with a line about each.

    A lab belongs to nobody when the process that made it has ended and left it behind, as by
    SIGKILL. Labs that stay until `down`, and labs of living processes, are not touched. Nothing is
    raised: a lab that cannot be removed has a line, too.
    """
    for lab in Lab.all():
        try:
            if lab.down_if_unowned():
                tell(f"removed lab {lab.name} of {lab.owner}: the process that made it has ended")
        except NotAvailable as error:
            tell(f"lab {lab.name} of {lab.owner} belongs to nobody and cannot be removed: {error}")


def ls() -> list[dict[str, Any]]:
    """Every lab on the machine, each as a dict.

    The keys are name, topology, phase, owner, datapath, created_s, hosts and faults.
    """
    return [
        {
            "name": lab.name,
            "topology": lab.topology.name,
            "phase": lab.phase,
            "owner": lab.owner,
            "datapath": lab.datapath,
            "created_s": lab.created_s,
            "hosts": lab.hosts,
            "faults": [
                {key: value for key, value in vars(fault).items() if value is not None}
                for fault in lab.faults()
            ],
        }
        for lab in Lab.all()
    ]


def execute(host: str, argv: Sequence[str], name: str | None = None) -> int:
    """Run a command on a host with this process's own input and output; return its exit status."""
    lab = find(name)
    if not argv:
        raise BadInput("no command given: ri2n lab exec HOST -- COMMAND")
    _need_root()
    command = in_namespace(lab.namespace(host), argv)
    return subprocess.run(command, env=lab.environment(host), check=False).returncode


def fault(kind: str, name: str | None = None, **where: Any) -> None:
    """Make a fault; keywords as in `Lab.fault`."""
    lab = find(name)
    _need_root()
    lab.fault(kind, **where)


def restore(kind: str | None = None, name: str | None = None, **where: Any) -> None:
    """End a fault, or all of them when no kind is given; keywords as in `Lab.restore`."""
    lab = find(name)
    _need_root()
    if kind is None:
        lab.restore_all()
    else:
        lab.restore(kind, **where)


def _need_root() -> None:
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root: use sudo")
