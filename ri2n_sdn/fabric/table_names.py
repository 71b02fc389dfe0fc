# SPDX-License-Identifier: Apache-2.0
"""The names of path tables, for commands that only offer them."""

from __future__ import annotations

__all__ = ["TABLES"]

TABLES = ("cyclic", "spread", "adaptive", "profile")
"""The names of path tables (ri2n_sdn.vlan)."""
