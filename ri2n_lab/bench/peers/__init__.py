# SPDX-License-Identifier: Apache-2.0
"""What RI2N is measured against: other ways to use several links, set up as their manuals say."""

from __future__ import annotations

from ri2n_lab.bench.peers.base import Peer, await_whole
from ri2n_lab.bench.peers.ecmp import Ecmp
from ri2n_lab.bench.peers.lacp_hash import LacpHash
from ri2n_lab.bench.peers.lcb import Lcb
from ri2n_lab.bench.peers.mptcp import Mptcp
from ri2n_lab.bench.peers.ovs_bond import OvsBond
from ri2n_lab.bench.peers.ovs_equal import OvsEqual

__all__ = ["PEERS", "Peer", "await_whole"]

_ALL: list[Peer] = [Lcb(), LacpHash(), OvsEqual(), OvsBond(), Ecmp(), Mptcp()]

PEERS: dict[str, Peer] = {peer.name: peer for peer in _ALL}
"""Every peer by its name, in the order of the tables."""
