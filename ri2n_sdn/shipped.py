"""Where the files are that come with the package: topologies, by path or by name, and host
scripts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology, load_topology

__all__ = ["find_topology", "find_topology_file", "host_script"]

_CHECKOUT = Path(__file__).resolve().parents[1]
_SHARE = Path(sys.prefix) / "share" / "ri2n"
SHIPPED = (_CHECKOUT if (_CHECKOUT / "topologies").is_dir() else _SHARE) / "topologies"
FOLDERS = ("", "fig4", "vbft", "large", "parallel")


def find_topology(text: str) -> Topology:
    """`text` as a file, else as a shipped topology: `fig4/d`, `d` (of figure 4), `mixed`.

    Raises BadInput.
    """
    return load_topology(find_topology_file(text))


def find_topology_file(text: str) -> Path:
    """The file that `text` means: a path, else the name of a shipped one, with or without its
    folder and `.yaml`.

    Raises BadInput when there is none.
    """
    path = Path(text)
    if path.is_file():
        return path
    name = text.removesuffix(".yaml")
    for folder in FOLDERS:
        candidate = SHIPPED / folder / f"{name}.yaml"
        if candidate.is_file() and candidate.resolve().is_relative_to(SHIPPED.resolve()):
            return candidate
    known = ", ".join(
        str(file.relative_to(SHIPPED).with_suffix("")) for file in sorted(SHIPPED.rglob("*.yaml"))
    )
    raise BadInput(
        f"topology {text}: no such file, and not one of {known or '(none are installed)'}"
    )


def host_script(name: str) -> Path:
    """host-up or one like it: beside the package in a checkout, else where the package says they
    were installed.

    Raises NotAvailable when it is in neither place.
    """
    for folder in (_CHECKOUT, _SHARE):
        script = folder / "ovs-host-scripts" / name
        if script.exists():
            return script
    raise NotAvailable(
        f"{_CHECKOUT}/ovs-host-scripts/{name} is missing: run from a checkout, or install the host "
        "scripts"
    )
