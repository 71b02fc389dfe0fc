# SPDX-License-Identifier: Apache-2.0
"""A hostile switch: it is polite up to some point, and sends false and damaged messages after it.

`Hostile` makes up what it sends, and what it answers.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time

from tests.waiting import LONG_S

from .fake_switch import DESC, FLOW_DESC, HELLO, LOCAL, MULTIPART_REQUEST, FakeSwitch, _port
from .hostile import Hostile

__all__ = ["STAGES", "Attacker", "Identity"]

STAGES = (
    "before its greeting",
    "after its greeting",
    "before it says its name",
    "when it said it",
    "when it is let in",
)
"""The moments at which an attacker stops being polite."""

_PACKET_OUT = 13
_WAITING_BYTES = 1 << 16
_AT_ONCE = 50


class Identity:
    """What a switch says of itself."""

    def __init__(self, name: str, dpid: int, mac: str, nics: list[str]) -> None:
        self.name, self.dpid, self.mac, self.nics = name, dpid, mac, nics


class Attacker(FakeSwitch):
    """One connection, in the thread that calls `run`.

    It ends when the controller ends it, or when everything was sent.
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
        """Queue a message; once the switch is hostile, every second answer is false."""
        size = 8 + len(body) if length is None else length
        said = struct.pack("!BBHI", version, kind, size, xid) + body
        if self._hostile_now and self._random.random() < 0.5:
            said = self._hostile.reply(said)
        self._out += said

    def run(self, who: Identity, stage: str, messages: int) -> None:
        """Be that switch, which is hostile from that stage on.

        Raises AssertionError when nothing happens for LONG_S seconds.
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
                    # The controller reads what was sent to its end.
                    self.socket.shutdown(socket.SHUT_WR)
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
                # A probe is sent back.
                self._out += self._hostile.packet_in(body[-60:], self._random.randint(1, 3))
            self._reply(kind, xid, body, who.dpid, who.name, ports)
            self._hostile_now |= what == DESC and stage == STAGES[3]
