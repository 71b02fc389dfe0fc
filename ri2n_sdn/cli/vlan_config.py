# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan switch-config`: one configuration file per switch, for the switches of one vendor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import os_errors_of
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology
from ri2n_sdn.vlan.configs import VENDORS, file_name, vendor_named, write

if TYPE_CHECKING:
    from ri2n_sdn.vlan.switch_ports import SwitchPorts

__all__ = ["switch_config", "write_files"]


def switch_config(
    topology: Annotated[str, typer.Argument(help="A topology file, or the name of a shipped one.")],
    vendor: Annotated[str, typer.Option(help=f"Whose switches they are: {', '.join(VENDORS)}.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Where the files go, one per switch."),
    ],
    port_format: Annotated[
        str | None,
        typer.Option(
            help="How switches name their ports: {port} is the number, {port0} counts from 0, "
            "{switch} is the switch's name."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
) -> None:
    """Write the VLANs, ports and descriptions of every switch as the vendor's configuration."""
    from ri2n_sdn.vlan.build import build_trees
    from ri2n_sdn.vlan.switch_ports import switch_ports

    # An unknown vendor is reported before the work.
    vendor_named(vendor)
    wired = find_topology(topology)
    graph = wired.graph
    leaves = sorted({graph.index[nic.switch] for spec in wired.hosts.values() for nic in spec.nics})
    try:
        switches = switch_ports(wired, build_trees(graph, leaves, wired.vlans))
    except ValueError as error:
        raise BadInput(f"{topology}: {error}") from None
    for path, changed in write_files(
        switches, vendor, output, port_format=port_format, force=force
    ):
        print(f"{path}: {'written' if changed else 'unchanged'}")


def write_files(
    switches: Iterable[SwitchPorts],
    vendor: str,
    folder: Path,
    *,
    port_format: str | None = None,
    force: bool = False,
) -> list[tuple[Path, bool]]:
    """Write the file of each switch into `folder`, and return (file, whether it changed) for each.

    Raises BadInput, and writes nothing, when a file cannot be made, or when it differs from one
    that is there and `force` is not set.
    """
    script = vendor_named(vendor).script
    texts = {
        folder / file_name(vendor, switch): write(vendor, switch, port_format=port_format)
        for switch in switches
    }
    changed = {path: _differs(path, text, force) for path, text in texts.items()}
    with os_errors_of(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        if changed[path]:
            _replace(path, text, script)
    return list(changed.items())


def _differs(path: Path, text: str, force: bool) -> bool:
    """Whether the file must be written.

    Raises BadInput when another file is there that may not be overwritten.
    """
    with os_errors_of(path):
        try:
            present = path.read_bytes()
        except FileNotFoundError:
            return True
    if present == text.encode():
        return False
    if not force:
        raise BadInput(f"{path}: is there and differs; --force overwrites it")
    return True


def _replace(path: Path, text: str, script: bool) -> None:
    """Write a file in one step, so that readers see the whole old text or the whole new one."""
    draft = path.with_name(f".{path.name}.draft")
    with os_errors_of(path):
        try:
            draft.write_text(text, encoding="utf-8")
            if script:
                mode = draft.stat().st_mode
                # Everybody who may read it may run it.
                draft.chmod(mode | (mode & 0o444) >> 2)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
