# SPDX-License-Identifier: Apache-2.0
"""What a service tells systemd: that it has started, and that it is still well."""

from __future__ import annotations

import os
import socket

__all__ = ["notify", "watchdog_s"]


def notify(*settings: str) -> bool:
    """Send settings such as `READY=1` to systemd, as sd_notify(3) says; True when they were sent.

    False, and nothing else, where this process is no service or systemd does not listen. A child of
    a service sends nothing, because it would speak for the service.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")) or not _is_the_service():
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # A systemd that does not read must not make its services wait.
            sender.setblocking(False)
            sender.connect(address)
            sender.sendall("\n".join(settings).encode())
    except OSError:
        return False
    return True


def watchdog_s() -> float | None:
    """The longest time in seconds between two `WATCHDOG=1`; None where systemd wants none.

    A service sends them twice as often (sd_watchdog_enabled(3)).
    """
    try:
        limit_us = int(os.environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return limit_us / 1e6 if limit_us > 0 and _is_the_service() else None


def _is_the_service() -> bool:
    """Whether systemd means this process and not one that started it."""
    return os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
