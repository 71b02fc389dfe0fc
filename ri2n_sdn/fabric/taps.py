"""The two TAPs between a bridge and the helper ri2n-reorder, as host-up makes them.

What it adds to frames.
"""

__all__ = ["HELPER_BYTES", "PLAIN_TAP", "TAG_BYTES", "TAP_PORTS", "WIRE_TAP"]

PLAIN_TAP = "ri2n-plain"
"""The host's frames that are to be striped, and those that came in, in order again."""

WIRE_TAP = "ri2n-wire"
"""The helper's own frames, with a VLAN tag that only the bridge and the helper see."""

TAP_PORTS = {PLAIN_TAP: 101, WIRE_TAP: 102}
"""Their OpenFlow port numbers."""

HELPER_BYTES = 22
"""What the helper adds to each frame (docs/wire-format.md)."""

TAG_BYTES = 4
"""The VLAN tag on the wire TAP."""
