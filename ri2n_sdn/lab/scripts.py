"""Where host-up and its like are."""

from __future__ import annotations

import sys
from pathlib import Path

from ri2n_sdn.errors import NotAvailable

__all__ = ["host_script"]


def host_script(name: str) -> Path:
    """A host script: beside the package in a checkout, else where the package says they were installed.

    Raises NotAvailable when they are in neither place.
    """
    beside = Path(__file__).resolve().parents[2] / "ovs-host-scripts"
    for folder in (beside, Path(sys.prefix) / "share" / "ri2n" / "ovs-host-scripts"):
        if (folder / name).exists():
            return folder / name
    raise NotAvailable(f"{beside}/{name} is missing: run from a checkout, or install the host scripts")
