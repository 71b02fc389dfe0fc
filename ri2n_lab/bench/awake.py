# SPDX-License-Identifier: Apache-2.0
"""Keep this machine's CPUs awake while round trips are timed, as cyclictest does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cpus_awake"]

DEVICE = Path("/dev/cpu_dma_latency")


@contextmanager
def cpus_awake(device: Path = DEVICE) -> Iterator[bool]:
    """Keep idle CPUs polling, not sleeping, as long as this lasts; False where that cannot be had.

    By the kernel's PM QoS. To wake a CPU takes some 5 us on a real machine and 25 to 45 us on many
    a virtual one, for each process that a packet goes through: more than what they do with it.
    """
    try:
        request = device.open("r+b", buffering=0)
    except OSError:
        yield False
        return
    with request:  # the kernel keeps to it until the file is closed
        request.write(struct.pack("i", 0))
        yield True
