# SPDX-License-Identifier: Apache-2.0
"""Sockets that listen at several own addresses, all with one port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

__all__ = ["WILDCARDS", "listen_at"]

WILDCARDS = ("", "0.0.0.0", "::")
"""Hosts that stand for all own addresses."""
MAX_PORTS = 16
"""Ports that are tried when the program has named none."""


def listen_at(
    address: tuple[str, int], addresses: Sequence[str] | None, backlog: int
) -> list[socket.socket]:
    """Non-blocking sockets that listen at `address` and, on its port, at all of `addresses`.

    A wildcard alone is enough for all of them. With port 0 it is any port that is free at each.
    OSError when the port is taken at one of them.
    """
    host, port = address
    hosts = [host]
    if host not in WILDCARDS and addresses:
        hosts += [other for other in addresses if other != host]
    tries_left = 1 if port else MAX_PORTS
    while True:
        tries_left -= 1
        try:
            return _listen(hosts, port, backlog)
        except OSError as error:
            # The kernel chooses a port that is free at the first address. At another address it may
            # be taken; then another port is tried.
            if error.errno != errno.EADDRINUSE or not tries_left:
                raise


def _listen(hosts: Sequence[str], port: int, backlog: int) -> list[socket.socket]:
    """One try: with port 0 the kernel chooses the port at the first address."""
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family, backlog=backlog)
            sockets.append(listening)
            listening.setblocking(False)
            port = listening.getsockname()[1]
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets
