# SPDX-License-Identifier: Apache-2.0
"""The greatest numbers that are accepted, wherever they come in."""

from __future__ import annotations

__all__ = [
    "MAX_ADDRESSES",
    "MAX_CLASS",
    "MAX_DSCP",
    "MAX_HOSTS",
    "MAX_NAMES",
    "MAX_RATE_BPS",
    "MAX_SERVICES",
    "MAX_TABLES",
    "MAX_TIME_S",
    "MAX_TOKEN_DAYS",
    "MAX_UID",
    "MAX_VLAN",
]

MAX_RATE_BPS = 10**15
"""The highest rate that is accepted. No network has it; it keeps numbers in 64 bits."""

MAX_TIME_S = 253402300799.0
"""The last second of the year 9999, in Unix time. Nothing can print later times."""

MAX_UID = 2**32 - 2
"""The highest uid. The number above it means "no user" to the kernel."""

MAX_HOSTS = 1024
"""The largest number of hosts of a job."""

MAX_NAMES = 64
"""The largest number of names in a path table."""

MAX_TABLES = 16
"""The largest number of path tables of a job: the default one, and those with a DSCP."""

MAX_SERVICES = 64
"""The largest number of services of an isolated job."""

MAX_CLASS = 63
"""The highest class. A class is the number of a job on one host."""

MAX_ADDRESSES = 16
"""The largest number of its own IP addresses that a host tells."""

MAX_DSCP = 63
"""The highest DSCP, which has six bits."""

MAX_VLAN = 4094
"""The highest VLAN ID that IEEE 802.1Q leaves to networks."""

MAX_TOKEN_DAYS = 3650
"""A token that ends is good for so many days at most."""
