"""A hostile switch:

polite up to some point, then it says what `Hostile` makes up, and lies when it is asked.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time

from .fake_switch import DESC, FLOW_DESC, HELLO, LOCAL, MULTIPART_REQUEST, FakeSwitch, _port
from .frames import LONG_S
from .hostile import Hostile

__all__ = ["STAGES", "Attacker", "Identity"]

STAGES = (
    "before its greeting",
    "after its greeting",
    "before it says its name",
    "when it said it",
    "when it is let in",
)
"""When an attacker stops being polite."""

_PACKET_OUT = 13
_WAITING_BYTES = 1 << 16
_AT_ONCE = 50


class Identity:
    """Who a switch says it is."""

    def __init__(self, name: str, dpid: int, mac: str, nics: list[str]) -> None:
        self.name, self.dpid, self.mac, self.nics = name, dpid, mac, nics


class Attacker(FakeSwitch):
    """One connection, in the thread that calls `run`.

    It ends when the controller ends it or all was said.
    """

    def __init__(
        self, port: int, source: str, hostile: Hostile, generator: random.Random, damaged: float
    ) -> None:
        super().__init__(port, source)
        self._hostile, self._random, self._damaged = hostile, generator, damaged
        self._out = bytearray()
        self._hostile_now = False

    def send(
        self,
        kind: int,
        body: bytes = b"",
        xid: int = 1,
        version: int = 6,
        length: int | None = None,
    ) -> None:
        """Queued; once it is hostile, every second answer is a lie."""
        size = 8 + len(body) if length is None else length
        said = struct.pack("!BBHI", version, kind, size, xid) + body
        if self._hostile_now and self._random.random() < 0.5:
            said = self._hostile.reply(said)
        self._out += said

    def run(self, who: Identity, stage: str, messages: int) -> None:
        """Be that switch, and from that stage on hostile.

        AssertionError when nothing happens for long.
        """
        ports = _port(LOCAL, who.mac, who.name) + b"".join(
            _port(n, nic, f"e{n}") for n, nic in enumerate(who.nics, 1)
        )
        self._hostile_now = stage == STAGES[0]
        if not self._hostile_now:
            self.send(HELLO, struct.pack("!HHI", 1, 8, 1 << 6))
            self._hostile_now = stage == STAGES[1]
        self.socket.setblocking(False)
        buffer = bytearray()
        ended = False
        moved_s = time.monotonic()
        while True:
            if self._hostile_now:
                while messages and len(self._out) < _WAITING_BYTES:
                    count = min(_AT_ONCE, messages)
                    messages -= count
                    for _ in range(count):
                        self._out += self._hostile.next(self._damaged)
                if not messages and not self._out and not ended:
                    ended = True
                    self.socket.shutdown(socket.SHUT_WR)  # what was said is read to its end
            readable, writable, _ = select.select(
                [self.socket], [self.socket] if self._out else [], [], 1.0
            )
            if readable or writable:
                moved_s = time.monotonic()
            assert time.monotonic() < moved_s + LONG_S, (
                f"{who.name}, hostile {stage}: neither heard nor closed"
            )
            if writable:
                del self._out[: self.socket.send(self._out)]
            if readable:
                data = self.socket.recv(1 << 16)
                if not data:
                    return
                buffer += data
                self._answer_all(buffer, who, stage, ports, ended)

    def _answer_all(
        self, buffer: bytearray, who: Identity, stage: str, ports: bytes, ended: bool
    ) -> None:
        while len(buffer) >= 8:
            _, kind, length, xid = struct.unpack_from("!BBHI", buffer)
            if len(buffer) < length:
                return
            body = bytes(buffer[8:length])
            del buffer[:length]
            what = struct.unpack_from("!H", body)[0] if kind == MULTIPART_REQUEST else None
            self._hostile_now |= what == DESC and stage == STAGES[2]
            self._hostile_now |= what == FLOW_DESC and stage == STAGES[4]
            if ended:
                continue
            if kind == _PACKET_OUT and self._hostile_now and len(self._out) < _WAITING_BYTES:
                self._out += self._hostile.packet_in(
                    body[-60:], self._random.randint(1, 3)
                )  # a probe, sent back
            self._reply(kind, xid, body, who.dpid, who.name, ports)
            self._hostile_now |= what == DESC and stage == STAGES[3]
