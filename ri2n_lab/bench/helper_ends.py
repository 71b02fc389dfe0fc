# SPDX-License-Identifier: Apache-2.0
"""The two ends of requests and of short connections: a server that answers, and two clients.

A client prints one line of JSON. Run as `python -m ri2n_lab.bench.helper_ends WORD ...`.
"""

from __future__ import annotations

import json
import socket
import sys
import time

__all__ = ["PORT", "SIZE_BYTES", "answer", "connections", "requests"]

PORT = 5301
SIZE_BYTES = 1 << 10
LIMIT_S = 5.0
SKIPPED = 20
"""So many first requests are not counted: they are slower for everybody."""

STAY, CLOSE = b"S", b"C"
"""The first byte of a request: whether the connection stays open after the answer."""


def answer(listener: socket.socket) -> None:
    """Answer each request of SIZE_BYTES by as many bytes, one connection after the other.

    It never returns. The server closes, so that its end of a connection is the one that lingers:
    clients would run out of ports.
    """
    reply = bytes(SIZE_BYTES)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(LIMIT_S)
            try:
                while (request := _read(connection)) is not None:
                    connection.sendall(reply)
                    if request[:1] == CLOSE:
                        break
            except OSError:
                continue  # the client is gone


def requests(address: tuple[str, int], seconds: float, pause_s: float) -> list[float]:
    """Round trips in us of requests over one connection, with a pause after each."""
    times_us = []
    request = STAY + bytes(SIZE_BYTES - 1)
    with socket.create_connection(address, LIMIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_ns = time.perf_counter_ns()
            connection.sendall(request)
            if _read(connection) is None:
                raise OSError("the server closed the connection")
            times_us.append((time.perf_counter_ns() - began_ns) / 1000)
            time.sleep(pause_s)
    return times_us[min(SKIPPED, len(times_us) // 2) :]


def connections(address: tuple[str, int], seconds: float) -> tuple[int, float]:
    """How many connections with one request each, one after the other, and the seconds for them."""
    count = 0
    request = CLOSE + bytes(SIZE_BYTES - 1)
    began_s = time.monotonic()
    while time.monotonic() < began_s + seconds:
        with socket.create_connection(address, LIMIT_S) as connection:
            connection.sendall(request)
            while connection.recv(SIZE_BYTES):
                pass
        count += 1
    return count, time.monotonic() - began_s


def _read(connection: socket.socket) -> bytes | None:
    """SIZE_BYTES bytes; None when the other end has closed before."""
    data = b""
    while len(data) < SIZE_BYTES:
        part = connection.recv(SIZE_BYTES - len(data))
        if not part:
            return None
        data += part
    return data


def main(argv: list[str]) -> None:
    """`answer ADDRESS`, `requests ADDRESS SECONDS PAUSE_S` or `connections ADDRESS SECONDS`."""
    word, address = argv[0], argv[1]
    if word == "answer":
        with socket.create_server((address, PORT), backlog=128) as listener:
            print("listening", flush=True)
            answer(listener)
    elif word == "requests":
        times_us = requests((address, PORT), float(argv[2]), float(argv[3]))
        print(json.dumps({"times_us": [round(each, 2) for each in times_us]}))
    else:
        count, length_s = connections((address, PORT), float(argv[2]))
        print(json.dumps({"count": count, "seconds": length_s}))


if __name__ == "__main__":
    main(sys.argv[1:])
