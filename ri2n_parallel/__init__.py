# SPDX-License-Identifier: Apache-2.0
"""Parallel networking for programs: several TCP connections over several NICs as one connection.

It needs no switch, no bridge and no root. Two systems of the papers are in this library: Paradise's
parallel networking, where the server chooses the interfaces, and user-level RI2N, which sends what
was lost on a dead link again over the others. docs/parallel.md explains both.
"""

from ri2n_parallel.calls import p_accept, p_connect, p_read, p_write
from ri2n_parallel.connect import Qos, create_connection
from ri2n_parallel.connection import ParallelSocket
from ri2n_parallel.errors import (
    AllLinksLost,
    HandshakeRefused,
    ParallelError,
    ProtocolError,
    TokenRefused,
)
from ri2n_parallel.link import LinkInfo
from ri2n_parallel.listener import ParallelListener, create_listener

__all__ = [
    "AllLinksLost",
    "HandshakeRefused",
    "LinkInfo",
    "ParallelError",
    "ParallelListener",
    "ParallelSocket",
    "ProtocolError",
    "Qos",
    "TokenRefused",
    "create_connection",
    "create_listener",
    "p_accept",
    "p_connect",
    "p_read",
    "p_write",
]
