# SPDX-License-Identifier: Apache-2.0
"""The two ends of `ri2n bench rules`: round trips of UDP, and a stream of TCP.

`python -m ri2n_lab.bench.rules_ends serve ADDRESS`, and `... ask ADDRESS`, which does what lines of
JSON on its standard input say and answers each with a line. Both are a user's programs: their
sockets are the user's. Both end with their
standard input.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import struct
import sys
import threading
import time
from typing import Any

from ri2n_lab.bench.rules_text import SENDER_UID
from ri2n_lab.traffic.iperf import CONGESTION_CONTROL

__all__ = ["main"]

PORT = 5900
CHUNK_BYTES = 128 << 10
MORE, LAST = b"\0", b"\1"
DATAGRAM_BYTES = 64
ANSWER_S = 20
READY_S = 60.0
RETRY_S = 0.05

Json = dict[str, Any]


def main(role: str, address: str) -> None:
    """Serve at `address`, or ask what serves there, until standard input ends."""
    os.setgroups([])
    os.setresgid(SENDER_UID, SENDER_UID, SENDER_UID)
    stream = _stream_socket()
    os.setresuid(SENDER_UID, SENDER_UID, SENDER_UID)
    {"serve": _serve, "ask": _ask}[role](address, stream)


def _stream_socket() -> socket.socket:
    """A user's socket with the congestion control of all benches.

    The socket belongs to the user who opens it. Only root may choose a congestion control that the
    machine does not let everybody use.
    """
    os.seteuid(SENDER_UID)
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    os.seteuid(0)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL.encode())
    return stream


# ---- the server


def _serve(address: str, listener: socket.socket) -> None:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, PORT))
    listener.bind((address, PORT))
    listener.listen()
    for loop, end in ((_echo, datagrams), (_accept, listener)):
        threading.Thread(target=loop, args=(end,), daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.read()


def _echo(datagrams: socket.socket) -> None:
    """Send every datagram back."""
    while True:
        data, sender = datagrams.recvfrom(DATAGRAM_BYTES)
        datagrams.sendto(data, sender)


def _accept(listener: socket.socket) -> None:
    """Take what one client after the other sends, and answer each last chunk."""
    chunk = bytearray(CHUNK_BYTES)
    while True:
        connection, _ = listener.accept()
        with connection:
            while _fill(connection, chunk):
                if chunk[:1] == LAST:
                    connection.sendall(LAST)


def _fill(connection: socket.socket, chunk: bytearray) -> bool:
    """Read one chunk; False at the end of the stream."""
    view = memoryview(chunk)
    while view:
        count = connection.recv_into(view, flags=socket.MSG_WAITALL)
        if not count:
            return False
        view = view[count:]
    return True


# ---- the client


def _ask(address: str, stream: socket.socket) -> None:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect((address, PORT))
    _limit(datagrams)
    _connect(stream, address)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request: Json = json.loads(line)
        try:
            if request["op"] == "round_trips":
                found = _round_trips(datagrams, request["seconds"])
            else:
                found = _transfer(stream, request["seconds"])
        except OSError as error:
            found = {"error": f"{request['op']}: {error}"}
        print(json.dumps(found), flush=True)


def _connect(stream: socket.socket, address: str) -> None:
    """Connect to the server; a link that comes up may lose the first packets."""
    deadline_s = time.monotonic() + READY_S
    while (refused := stream.connect_ex((address, PORT))) != 0:
        if time.monotonic() > deadline_s:
            raise OSError(refused, os.strerror(refused))
        time.sleep(RETRY_S)
    _limit(stream)


def _round_trips(datagrams: socket.socket, seconds: float) -> Json:
    """One datagram after the other for so long: the median of their round trips."""
    payload = bytes(DATAGRAM_BYTES)
    times_ns = []
    now_ns = time.perf_counter_ns()
    end_ns = now_ns + round(seconds * 1e9)
    while now_ns < end_ns:
        began_ns = now_ns
        datagrams.send(payload)
        datagrams.recv(DATAGRAM_BYTES)
        now_ns = time.perf_counter_ns()
        times_ns.append(now_ns - began_ns)
    return {"rtt_us": statistics.median(times_ns) / 1e3, "count": len(times_ns)}


def _transfer(stream: socket.socket, seconds: float) -> Json:
    """Send as much as goes for so long; the time ends when all of it has arrived."""
    more, last = (kind + bytes(CHUNK_BYTES - 1) for kind in (MORE, LAST))
    count = 1
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        stream.sendall(more)
        count += 1
    stream.sendall(last)
    if stream.recv(1) != LAST:
        raise ConnectionResetError("the server closed the connection")
    return {"bytes": count * CHUNK_BYTES, "seconds": time.perf_counter() - began_s}


def _limit(end: socket.socket) -> None:
    """Let reads and writes fail after a while.

    By the kernel's own time limit: with Python's each would be two system calls.
    """
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", ANSWER_S, 0))


if __name__ == "__main__":
    main(*sys.argv[1:3])
