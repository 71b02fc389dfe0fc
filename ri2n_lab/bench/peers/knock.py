# SPDX-License-Identifier: Apache-2.0
"""`python -m ri2n_lab.bench.peers.knock ADDRESS PORT COUNT SECONDS` checks a path to a host.

The status is 0 when COUNT connections to a port where nobody listens are each refused, or accepted,
within SECONDS.
"""

from __future__ import annotations

import socket
import sys

__all__ = ["knock", "main"]


def knock(address: str, port: int, count: int, limit_s: float) -> int:
    """How many of `count` connections, one after the other, got an answer.

    Ends at the first without one.
    """
    for number in range(count):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(limit_s)
            try:
                connection.connect((address, port))
            except ConnectionRefusedError:
                continue
            except OSError:
                return number
    return count


def main(argv: list[str]) -> int:
    """The command line; 0 when all were answered, else 1."""
    address, port, count, limit_s = argv
    return 0 if knock(address, int(port), int(count), float(limit_s)) == int(count) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
