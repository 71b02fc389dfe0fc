# SPDX-License-Identifier: Apache-2.0
"""Programs for tests of single connections.

There are a server, clients that hold many connections, and a watcher that sees by which NIC each
connection's data goes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ri2n_lab.cluster import Lab
from tests.lab.conftest import PATIENCE_S

__all__ = ["PORT", "Client", "Program", "Watcher", "serve"]

PORT = 7000

SERVER = """
import socket, struct, sys, threading
server = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True,
                              backlog=128)
print("ready", flush=True)

def serve(connection):
    with connection, connection.makefile("rb") as source:
        while head := source.read(8):
            up, down = struct.unpack("!II", head)
            assert len(source.read(up)) == up
            connection.sendall(bytes(down))

while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

CLIENT = """
import json, socket, struct, sys, threading
held = []

def exchange(connection, up, down):
    connection.sendall(struct.pack("!II", up, down) + bytes(up))
    while down:
        got = len(connection.recv(65536))
        if not got:
            raise EOFError("the server closed a connection")
        down -= got

def talk(connection, up, down, errors):
    try:
        exchange(connection, up, down)
    except Exception as error:
        errors.append(f"{connection.getsockname()}: {error!r}")

for line in sys.stdin:
    command, *words = line.split()
    errors = []
    if command == "open":
        address, port, count, timeout_s = words[0], int(words[1]), int(words[2]), float(words[3])
        for _ in range(count):  # one after the other
            connection = socket.create_connection((address, port), timeout=timeout_s)
            connection.settimeout(timeout_s)
            exchange(connection, 1, 1)
            held.append(connection)
    elif command == "close":
        for connection in held[:: int(words[0])]:
            connection.close()
        held = [connection for connection in held if connection.fileno() >= 0]
    elif command == "reset":
        for connection in held[:: int(words[0])]:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        held = [connection for connection in held if connection.fileno() >= 0]
    elif command == "talk":
        up, down = int(words[0]), int(words[1])
        threads = [threading.Thread(target=talk, args=(c, up, down, errors)) for c in held]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps({"errors": errors, "ports": [c.getsockname()[1] for c in held]}), flush=True)
"""

WATCHER = """
import json, select, socket, sys
port, nics = int(sys.argv[1]), sys.argv[2:]
sockets = {}
for nic in nics:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: nothing may be missed
    s.bind((nic, 3))
    s.setblocking(False)
    sockets[s] = nic
seen = {}

def take(s):
    while True:
        try:
            frame, source = s.recvfrom(200)
        except OSError:  # nothing more, or the NIC has just gone down
            return
        if frame[12:14] == b"\\x08\\x00" and frame[23] == 6:
            start = 14 + (frame[14] & 15) * 4
            length = int.from_bytes(frame[16:18], "big")
        elif frame[12:14] == b"\\x86\\xdd" and frame[20] == 6:
            start, length = 54, 40 + int.from_bytes(frame[18:20], "big")
        else:
            continue
        ends = (int.from_bytes(frame[start:start + 2], "big"),
                int.from_bytes(frame[start + 2:start + 4], "big"))
        if port not in ends or length - (start - 14) <= (frame[start + 12] >> 4) * 4:
            continue  # another's, or without data
        out = source[2] == socket.PACKET_OUTGOING
        if (ends[0] == port) != out:
            continue
        other = frame[26:30] if start < 54 or frame[12] == 8 else frame[22:38]
        target = frame[30:34] if frame[12] == 8 else frame[38:54]
        client = (target if out else other).hex() + ":" + str(ends[1] if out else ends[0])
        seen.setdefault("out" if out else "in", {}).setdefault(client, set()).add(sockets[s])

print("ready", flush=True)
while True:
    readable, _, _ = select.select([*sockets, sys.stdin], [], [])
    for s in sockets:
        take(s)
    if sys.stdin in readable:
        if not sys.stdin.readline():
            break
        ends = {way: {c: sorted(n) for c, n in found.items()} for way, found in seen.items()}
        print(json.dumps(ends), flush=True)
        seen = {}
"""


class Program:
    """A Python program on a host that answers each line with one line of JSON."""

    def __init__(self, lab: Lab, host: str, code: str, *args: str, ready: bool = True) -> None:
        self._process = lab.popen(
            host,
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if ready:
            assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"

    def tell(self, line: str) -> None:
        """Send a line; the program then owes an answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the last line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the program has ended"
        return json.loads(line)


class Client(Program):
    """A client that holds connections to a server of `serve`."""

    def __init__(self, lab: Lab, host: str) -> None:
        super().__init__(lab, host, CLIENT, ready=False)

    def open(
        self, address: str, count: int, port: int = PORT, timeout_s: float = PATIENCE_S
    ) -> list[int]:
        """Open more connections, one after the other, with one byte in each direction.

        Returns the ports of all connections that it holds.
        """
        self.tell(f"open {address} {port} {count} {timeout_s}")
        return self._ports()

    def close(self, every: int = 1) -> list[int]:
        """Close the first connection and every `every`-th one after it.

        Returns the ports of those that are left.
        """
        self.tell(f"close {every}")
        return self._ports()

    def reset(self, every: int = 1) -> list[int]:
        """Like `close`, but by RST, as when a program crashes before it has read everything."""
        self.tell(f"reset {every}")
        return self._ports()

    def start_talk(self, up_bytes: int, down_bytes: int) -> None:
        """Send and get so many bytes on each connection at once; `end_talk` waits for the end."""
        self.tell(f"talk {up_bytes} {down_bytes}")

    def end_talk(self) -> None:
        """Wait until all connections have got everything; AssertionError when one has not."""
        self._ports()

    def _ports(self) -> list[int]:
        got = self.answer()
        assert not got["errors"], got["errors"]
        return list(got["ports"])


class Watcher(Program):
    """Sees by which of its host's NICs the data of a server's connections goes."""

    def __init__(self, lab: Lab, host: str, port: int = PORT) -> None:
        super().__init__(
            lab, host, WATCHER, str(port), *(nic.name for nic in lab.topology.hosts[host].nics)
        )

    def report(self) -> dict[str, dict[str, list[str]]]:
        """What was seen since the last report.

        "in" and "out" -> client's address and port -> NICs.
        """
        self.tell("report")
        found: dict[str, dict[str, list[str]]] = self.answer()
        return found


def serve(lab: Lab, host: str, port: int = PORT) -> None:
    """Start the server, which ends with the lab."""
    server = lab.popen(
        host, [sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    server.stdout.close()
