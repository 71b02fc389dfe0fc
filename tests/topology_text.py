# SPDX-License-Identifier: Apache-2.0
"""Topologies that tests write down as YAML."""

from __future__ import annotations

from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.fabric.yamlfile import parse_model

__all__ = ["parse_topology"]


def parse_topology(text: str, source: str = "topology") -> Topology:
    """Read a topology from YAML text. Errors (BadInput) call it by the name `source`."""
    return parse_model(text, Topology, source)
