# SPDX-License-Identifier: Apache-2.0
"""Which trees of switches there are, one for each VLAN, and which cables each one uses: pure."""

from __future__ import annotations

from collections import Counter

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.units import counted

__all__ = ["NO_TREE", "cables_of", "said_of", "tree_choices"]

NO_TREE = 0
"""Stands for no tree. It is no VLAN ID."""


def tree_choices(state: Documents) -> dict[int, str]:
    """What to call each tree, by its VLAN ID, and no tree. There is none without cables."""
    cables = state["cables"].values()
    counts = Counter(vlan for cable in cables for vlan in cable["vlans"])
    return {NO_TREE: "no tree"} | {
        vlan: f"VLAN {vlan} ({counted(counts[vlan], 'cable')})" for vlan in sorted(counts)
    }


def cables_of(state: Documents, vlan: int) -> frozenset[str]:
    """The cables that the tree of a VLAN uses."""
    if vlan == NO_TREE:
        return frozenset()
    cables = state["cables"]
    return frozenset(name for name, cable in cables.items() if vlan in cable["vlans"])


def said_of(state: Documents, vlan: int) -> str:
    """What is wrong with the tree of a VLAN, or that nothing is. Nothing is said of no tree."""
    if vlan == NO_TREE:
        return ""
    used = cables_of(state, vlan)
    dead = sum(not state["cables"][name]["alive"] for name in used)
    if not used:
        return f"VLAN {vlan} uses no cable."
    if dead:
        return f"VLAN {vlan}: {dead} of its {counted(len(used), 'cable')} are dead."
    return f"VLAN {vlan} uses {counted(len(used), 'cable')}; all are alive."
