# SPDX-License-Identifier: Apache-2.0
"""A bulk TCP stream that knows its longest stall.

`python -m ri2n_lab.bench.tcp_stall recv|send ...`. The receiver notes when bytes arrive and prints
one JSON line: {"longest_stall_ms", "bytes", "seconds"}. iperf3's intervals are 100 ms at best,
which is what a fault may last.
"""

from __future__ import annotations

import argparse
import json
import socket
import time

__all__ = ["main", "receive", "send"]

CHUNK_BYTES = 1 << 16
# The first moments are the stream's own start, not a stall.
START_S = 0.2


def receive(port: int, timeout_s: float, address: str = "") -> dict[str, float]:
    """Take one connection, read it to its end or for `timeout_s`, and judge the gaps."""
    deadline = time.monotonic() + timeout_s
    with socket.create_server((address, port)) as listener:
        print("listening", flush=True)
        listener.settimeout(timeout_s)
        connection, _ = listener.accept()
    started = last = time.monotonic()
    longest_s, total = 0.0, 0
    with connection:
        while True:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = connection.recv(CHUNK_BYTES)
            except TimeoutError:
                data = b""
            now = time.monotonic()
            if now - started > START_S and (data or now >= deadline):
                longest_s = max(longest_s, now - max(last, started + START_S))
            if not data:
                break
            last = now
            total += len(data)
    return {
        "longest_stall_ms": round(longest_s * 1000, 1),
        "bytes": total,
        "seconds": round(last - started, 3),
    }


def send(address: str, port: int, seconds: float, congestion: str) -> None:
    """Send as fast as TCP takes it for `seconds`; a stalled stream ends at most one second late."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        connection.settimeout(5)
        connection.connect((address, port))
        data = bytes(CHUNK_BYTES)
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            connection.settimeout(left_s + 1)
            try:
                connection.send(data)
            except TimeoutError:
                break


def main() -> None:
    """The command line that the bench starts in the hosts' namespaces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["recv", "send"])
    parser.add_argument("--address", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--congestion", default="cubic")
    arguments = parser.parse_args()
    if arguments.role == "recv":
        print(json.dumps(receive(arguments.port, arguments.seconds, arguments.address)), flush=True)
    else:
        send(arguments.address, arguments.port, arguments.seconds, arguments.congestion)


if __name__ == "__main__":
    main()
