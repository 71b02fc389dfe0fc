# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: namespaces, a real Open vSwitch per host, shaped links, faults."""

from typing import TYPE_CHECKING, Any

__all__ = ["Lab"]

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab


def __getattr__(name: str) -> Any:
    """Load Lab on first use.

    Programs that run inside namespaces (ri2n_lab.traffic) need nothing of what it imports.
    """
    if name == "Lab":
        from ri2n_lab.cluster.lab import Lab

        return Lab
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
