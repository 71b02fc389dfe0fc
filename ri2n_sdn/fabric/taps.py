# SPDX-License-Identifier: Apache-2.0
"""The TAPs of the helper, and the bytes that it adds to frames.

`host-up` makes the TAPs, `ri2n-reorder` uses them.
"""

__all__ = ["HELPER_BYTES", "HOLD_TAP", "PLAIN_TAP", "WIRE_TAP"]

PLAIN_TAP = "ri2n-plain"
"""The TAP for frames of the host that are to be striped, and for received ones, in order again."""

WIRE_TAP = "ri2n-wire"
"""The TAP for frames between helpers, with a VLAN tag that only the bridge and the helper see."""

HOLD_TAP = "ri2n-hold"
"""The TAP for frames of TCP that came beside the bridge and too early. It is no port of the bridge,
and is there on hosts that have a fast path, too."""

HELPER_BYTES = 22
"""The number of bytes that the helper adds to each frame (docs/wire-format.md)."""
