# SPDX-License-Identifier: Apache-2.0
"""Give the packet sockets of a running ovs-vswitchd larger buffers.

On the netdev datapath, ovs-vswitchd sends on all ports by one AF_PACKET socket. With the default
buffer of 208 KiB, about 90 queued frames on one shaped port make it drop frames for every other
port, long before a port's own queue is full (measured: 11 drops at the port's queue, 8,500
retransmits). The kernel's default for new sockets holds for the whole machine, so this changes the
sockets themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["widen_packet_sockets"]

_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


def widen_packet_sockets(pid: int, size_bytes: int) -> int:
    """Give every AF_PACKET socket of process `pid` buffers of `size_bytes`; return their number.

    This needs root and Linux 5.6. The socket for sending exists only after the process has sent a
    frame.
    """
    changed = 0
    for packet_socket in _packet_sockets(pid):
        packet_socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, size_bytes)
        packet_socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size_bytes)
        changed += 1
    return changed


def _packet_sockets(pid: int) -> Iterator[socket.socket]:
    """A copy of each AF_PACKET socket of the process, open until the next one is taken."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for entry in sorted(Path(f"/proc/{pid}/fd").iterdir()):
            with contextlib.suppress(FileNotFoundError):
                if not str(entry.readlink()).startswith("socket:"):
                    continue
                number = libc.syscall(_SYS_PIDFD_GETFD, process, int(entry.name), 0)
                if number < 0:
                    continue
                with socket.socket(fileno=number) as copy:
                    if copy.family == socket.AF_PACKET:
                        yield copy
    finally:
        os.close(process)
