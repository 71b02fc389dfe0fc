# SPDX-License-Identifier: Apache-2.0
"""What is said to people of a host's fast path."""

from __future__ import annotations

from collections.abc import Mapping

from ri2n_sdn.contract.choices import FAST_PEERS, FastPeer, FastState
from ri2n_sdn.contract.documents import Fast

__all__ = ["fast_text", "fast_word"]

_WORDS: Mapping[FastState, str] = {
    "off": "fast path off",
    "in_force": "fast path",
    "refused": "fast path refused",
    "no_device": "fast path without a device",
    "silent": "fast path silent",
}
_TEXTS: Mapping[FastState, str] = {
    "off": "off: all frames pass the bridge",
    "in_force": "in force",
    "refused": "refused by the kernel: all frames pass the bridge",
    "no_device": "the bridge or a NIC is missing: all frames pass the bridge",
    "silent": "does not report: nobody knows what passes beside the bridge",
}
_PEERS: Mapping[FastPeer, str] = {
    "carried": "beside the bridge",
    "striped": "by the helper",
    "striped_tcp": "by TCP striped beside the bridge, the rest by the helper",
    "undecided": "through the bridge, for rows that only it knows",
    "unsupported": "through the bridge, for rows that are not supported",
    "too_many": "through the bridge, as too many",
}


def fast_word(fast: Fast) -> str:
    """The fast path in a word or two, for a table."""
    return _WORDS[fast["state"]]


def fast_text(fast: Fast) -> str:
    """The fast path in one line: its state, how its peers are reached, and what is not well."""
    state, peers = fast["state"], fast["peers"]
    parts = [_TEXTS[state]]
    if state == "in_force":
        reached = [f"{peers[each]} {_PEERS[each]}" for each in FAST_PEERS if peers.get(each)]
        parts.append(f"peers: {', '.join(reached) or 'none'}")
        if fast["filter"] == "missing":
            parts.append("Open vSwitch copies every frame")
        if fast["dropped"]:
            parts.append(f"{fast['dropped']} frames dropped")
    return "; ".join(parts)
