# SPDX-License-Identifier: Apache-2.0
"""A TCP client that speaks just enough OpenFlow 1.5 to be taken for a switch.

It may stop behaving at any point.
"""

from __future__ import annotations

import socket
import struct
import threading

from tests.waiting import LONG_S

__all__ = ["FakeSwitch"]

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
FEATURES_REPLY, MULTIPART_REPLY, BARRIER_REPLY = 6, 19, 21
FEATURES_REQUEST, FLOW_MOD, MULTIPART_REQUEST, BARRIER_REQUEST = 5, 14, 18, 20
DESC, FLOW_DESC, PORT_STATS, PORT_DESC = 0, 1, 4, 13
LOCAL = 0xFFFFFFFE


class FakeSwitch:
    """One connection; `answer` runs a polite switch in a thread until `stop`."""

    def __init__(self, port: int, source: str = "", address: str = "127.0.0.1") -> None:
        """Connect to the controller at `address`, from `source`, an address of this machine."""
        self.socket = socket.create_connection(
            (address, port), timeout=LONG_S, source_address=(source, 0)
        )
        self.mute = self.all_ones = self.wrong_kind = False
        """Faults of the switch, each off at first.

        `mute`: it answers no request except the one for its description. `all_ones`: its counters
        are 2^64 - 1. `wrong_kind`: its replies are of another kind.
        """
        self.keeps_flows = False
        """It leaves requests for flows, and no others, to the test."""
        self.asked_flows = 0
        """The transaction number of the newest request for flows."""
        self.turns = threading.Lock()
        """Held while the thread that answers, or the test, sends a message."""
        self.echo_replies = 0
        """How many of its echo requests were answered."""
        self._rows: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        self.stop()
        self.socket.close()

    def stop(self) -> None:
        """Stop answering and reading; the connection stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def until_left(self) -> None:
        """Wait until the other side has ended the connection of a switch that answers."""
        if self._thread is not None:
            self._thread.join()

    def send(
        self,
        kind: int,
        body: bytes = b"",
        xid: int = 1,
        version: int = 6,
        length: int | None = None,
    ) -> None:
        """Send one message; `length` in its header may be false."""
        size = 8 + len(body) if length is None else length
        with self.turns:
            self.socket.sendall(struct.pack("!BBHI", version, kind, size, xid) + body)

    def closed(self) -> bool:
        """Whether the other side ends the connection; what it sends before that is read."""
        self.socket.settimeout(LONG_S)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def answer(self, *, dpid: int, name: str, mac: str, nics: list[str]) -> None:
        """Greet, and answer the first requests of a controller, as a switch of this name."""
        self.send(HELLO, struct.pack("!HHI", 1, 8, 1 << 6))
        ports = _port(LOCAL, mac, name) + b"".join(
            _port(n, nic, f"e{n}") for n, nic in enumerate(nics, 1)
        )
        self._thread = threading.Thread(target=self._serve, args=(dpid, name, ports), daemon=True)
        self._thread.start()

    def _serve(self, dpid: int, name: str, ports: bytes) -> None:
        self.socket.settimeout(0.1)
        buffer = b""
        while not self._stop.is_set():
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            buffer += data
            while len(buffer) >= 8:
                _, kind, length, xid = struct.unpack_from("!BBHI", buffer)
                if len(buffer) < length:
                    break
                body, buffer = buffer[8:length], buffer[length:]
                try:
                    self._reply(kind, xid, body, dpid, name, ports)
                except OSError:
                    return

    def _reply(self, kind: int, xid: int, body: bytes, dpid: int, name: str, ports: bytes) -> None:
        if kind == FEATURES_REQUEST:
            self.send(FEATURES_REPLY, struct.pack("!QIBBxxII", dpid, 0, 254, 0, 0x4F, 0), xid)
        elif kind == ECHO_REQUEST:
            self.send(ECHO_REPLY, body, xid)
        elif kind == ECHO_REPLY:
            self.echo_replies += 1
        elif kind == FLOW_MOD:
            cookie, _, table, command = struct.unpack_from("!QQBB", body)
            if command == 0:
                self._rows[cookie] = table
        elif kind == BARRIER_REQUEST:
            if not self.mute:
                self.send(BARRIER_REPLY, b"", xid)
        elif kind == MULTIPART_REQUEST:
            (what,) = struct.unpack_from("!H", body)
            if what == FLOW_DESC:
                self.asked_flows = xid
            if (self.mute and what not in (PORT_DESC, DESC)) or (
                self.keeps_flows and what == FLOW_DESC
            ):
                return
            payload = {PORT_DESC: ports, DESC: _description(name)}.get(what, b"")
            if what == PORT_STATS and self.all_ones:
                payload = struct.pack("!H2xIII8Q", 80, 1, 0, 0, *[2**64 - 1] * 8)
            if what == FLOW_DESC and self.all_ones:
                payload = b"".join(_flow(table, cookie) for cookie, table in self._rows.items())
            said = PORT_STATS if self.wrong_kind and what == FLOW_DESC else what
            self.send(MULTIPART_REPLY, struct.pack("!HHxxxx", said, 0) + payload, xid)


def _flow(table: int, cookie: int) -> bytes:
    """An OFPMP_FLOW_DESC entry whose counters are unknown."""
    counts = b"".join(struct.pack("!HBBQ", 0x8002, field << 1, 8, 2**64 - 1) for field in (4, 5))
    stats = struct.pack("!2xH", 4 + len(counts)) + counts
    stats += bytes(-len(stats) % 8)
    length = 24 + 8 + len(stats)
    return (
        struct.pack("!H2xBxHHHHHQ", length, table, 100, 0, 0, 0, 0, cookie)
        + struct.pack("!HH4x", 1, 4)
        + stats
    )


def _port(number: int, mac: str, name: str) -> bytes:
    address = bytes.fromhex(mac.replace(":", ""))
    return struct.pack("!IH2x6s2x16sII", number, 40, address, name.encode(), 0, 4)


def _description(name: str) -> bytes:
    return struct.pack("!256s256s256s32s256s", b"test", b"test", b"3.1.0", b"1", name.encode())
