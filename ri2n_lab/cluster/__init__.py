"""A cluster on one machine:

namespaces, one real Open vSwitch per host, shaped links, faults, traffic.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Lab"]

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab


def __getattr__(name: str) -> Any:
    """Load Lab on first use:

    programs that run inside namespaces (traffic, lossy) need none of what it imports.
    """
    if name == "Lab":
        from ri2n_lab.cluster.lab import Lab

        return Lab
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
