# SPDX-License-Identifier: Apache-2.0
"""Find the files that come with the package: topologies, host scripts and the documentation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.fabric.topology import Topology

__all__ = ["documentation", "find_topology", "find_topology_file", "host_script"]

_CHECKOUT = Path(__file__).resolve().parents[1]
_SHARE = Path(sys.prefix) / "share" / "ri2n"
SHIPPED = (_CHECKOUT if (_CHECKOUT / "topologies").is_dir() else _SHARE) / "topologies"
FOLDERS = ("", "fig4", "vbft", "large", "parallel")


def find_topology(text: str) -> Topology:
    """Load the topology that `text` names: a file, or a shipped topology.

    Shipped topologies have names such as `fig4/d`, `d` (of figure 4) and `mixed`. Raises BadInput
    when there is no such topology, or its file is wrong.
    """
    from ri2n_sdn.fabric.topology import load_topology

    return load_topology(find_topology_file(text))


def find_topology_file(text: str) -> Path:
    """The file of the topology that `text` names: a file, or a shipped topology.

    The name of a shipped topology may come with or without its folder and `.yaml`. Raises BadInput
    when there is no such topology.
    """
    path = Path(text)
    if path.is_file():
        return path
    name = text.removesuffix(".yaml")
    for folder in FOLDERS:
        candidate = SHIPPED / folder / f"{name}.yaml"
        if candidate.is_file() and candidate.resolve().is_relative_to(SHIPPED.resolve()):
            return candidate
    names = ", ".join(
        str(file.relative_to(SHIPPED).with_suffix("")) for file in sorted(SHIPPED.rglob("*.yaml"))
    )
    raise BadInput(
        f"topology {text}: no such file, and not one of {names or '(none are installed)'}"
    )


def documentation() -> Path | None:
    """The folder of the documentation as a site; None where it is not built.

    In a checkout `./dev docs` builds it; the Debian package ri2n-web has it.
    """
    for folder in (_CHECKOUT, _SHARE):
        site = folder / "site"
        if (site / "index.html").is_file():
            return site
    return None


def host_script(name: str) -> Path:
    """The path of a host script, such as host-up.

    In a checkout the scripts are beside the package, else in the share folder of the installation.
    Raises NotAvailable when the script is in neither place.
    """
    for folder in (_CHECKOUT, _SHARE):
        script = folder / "ovs-host-scripts" / name
        if script.exists():
            return script
    raise NotAvailable(
        f"{_CHECKOUT}/ovs-host-scripts/{name} is missing: run from a checkout, or install the host "
        "scripts"
    )
