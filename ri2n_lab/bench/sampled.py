# SPDX-License-Identifier: Apache-2.0
"""`python -m ri2n_lab.bench.sampled --port N... --seconds S` counts what TCP delivers every 10 ms.

It prints "listening", and at the end one JSON line: {"bin_s", "start_s", "clients": {port:
{"accepted_s": [...], "bytes": [...]}}}. Times are CLOCK_MONOTONIC, bytes those of each bin from
`start_s` on. iperf3's shortest interval is ten times as long. `ri2n_lab.bench.tcp_stall send` is
the sender; a port takes any number of streams, one after another.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from typing import Any

__all__ = ["BIN_S", "main", "receive"]

BIN_S = 0.01
CHUNK_BYTES = 1 << 16


def receive(ports: list[int], seconds: float) -> dict[str, Any]:
    """Take connections on all ports for `seconds` and count their bytes in bins of BIN_S."""
    bins = int(seconds / BIN_S) + 1
    counts = {port: [0] * bins for port in ports}
    accepted: dict[int, list[float]] = {port: [] for port in ports}
    with selectors.DefaultSelector() as selector:
        for port in ports:
            selector.register(socket.create_server(("", port)), selectors.EVENT_READ, (True, port))
        print("listening", flush=True)
        start_s = time.monotonic()
        while (left_s := start_s + seconds - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                is_listener, port = key.data
                assert isinstance(key.fileobj, socket.socket)
                now_s = time.monotonic()
                if is_listener:
                    connection, _ = key.fileobj.accept()
                    accepted[port].append(now_s)
                    selector.register(connection, selectors.EVENT_READ, (False, port))
                elif length := _take(key.fileobj):
                    counts[port][min(bins - 1, int((now_s - start_s) / BIN_S))] += length
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    clients = {str(port): {"accepted_s": accepted[port], "bytes": counts[port]} for port in ports}
    return {"bin_s": BIN_S, "start_s": start_s, "clients": clients}


def _take(connection: socket.socket) -> int:
    """Read what there is; 0 when the sender has closed it, or it is broken."""
    try:
        return len(connection.recv(CHUNK_BYTES))
    except OSError:
        return 0


def main() -> None:
    """The command line that the bench starts in the server's namespace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, action="append", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    print(json.dumps(receive(arguments.port, arguments.seconds)), flush=True)


if __name__ == "__main__":
    main()
