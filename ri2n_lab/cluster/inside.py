# SPDX-License-Identifier: Apache-2.0
"""Work inside a network namespace without a process: settings, and counters of devices.

To start a program takes some milliseconds, and ten times as long in a guest.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ri2n_lab.cluster.namespaces import NETNS
from ri2n_sdn.errors import NotAvailable

__all__ = ["device_counters", "inside", "write_settings"]

CLONE_NEWNET = 0x40000000
COLUMNS = {"rx_bytes": 0, "rx_packets": 1, "tx_bytes": 8, "tx_packets": 9}
"""The places of the numbers that a line of /proc/net/dev has of a device."""

Result = TypeVar("Result")


def inside(namespace: str, function: Callable[[], Result]) -> Result:
    """Call a function in a thread that is in a namespace, and return what the function returns.

    Files below /proc/sys/net and /proc/thread-self/net, and new sockets, are the namespace's there.
    Raises NotAvailable when there is no such namespace, and the function's own errors.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with (NETNS / namespace).open() as handle:
                if libc.setns(handle.fileno(), CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
        except OSError as error:
            errors.append(NotAvailable(f"namespace {namespace} cannot be entered: {error}"))
            return
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    libc = ctypes.CDLL(None, use_errno=True)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def write_settings(namespace: str, *settings: str) -> None:
    """Write settings `net/...=value` below /proc/sys; NotAvailable where the kernel refuses one."""

    def write() -> None:
        for setting in settings:
            name, _, value = setting.partition("=")
            try:
                Path("/proc/sys", name).write_text(value)
            except OSError as error:
                raise NotAvailable(f"{setting} in {namespace}: {error.strerror}") from None

    inside(namespace, write)


def device_counters(namespace: str) -> dict[str, dict[str, int]]:
    """{device: {"rx_bytes", "rx_packets", "tx_bytes", "tx_packets"}} of a namespace."""
    text = inside(namespace, lambda: Path("/proc/thread-self/net/dev").read_text())
    found = {}
    for line in text.splitlines()[2:]:
        device, _, numbers = line.rpartition(":")
        words = numbers.split()
        found[device.strip()] = {name: int(words[place]) for name, place in COLUMNS.items()}
    return found
