# SPDX-License-Identifier: Apache-2.0
"""Hostile OpenFlow messages from a seed.

Some are messages of a real switch that were damaged, others are well-formed and false.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Sequence

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.helper_frames import CONTROLLER_MAC, HELPER_MAC
from ri2n_sdn.pipeline.layout import ETH_RI2N, WIRE_PORT
from tests.waiting import LONG_S

from .frames import arp, ether, read_pcap

__all__ = ["Hostile", "record"]

HELLO, ERROR, ECHO_REPLY, EXPERIMENTER = 0, 1, 3, 4
PACKET_IN, FLOW_REMOVED, PORT_STATUS = 10, 11, 12
ECHO_REQUEST, FEATURES_REQUEST, MULTIPART_REQUEST, BARRIER_REQUEST, ROLE_REQUEST = 2, 5, 18, 20, 24
FEATURES_REPLY, MULTIPART_REPLY, BARRIER_REPLY, ROLE_REPLY = 6, 19, 21, 25
LOCAL, ANY, ALL_GROUPS = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFC
ETH_HELPER, ETH_LLDP = 0x88B6, 0x88CC
NUMBERS = (0, 1, 3, 4, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
REQUESTS = {  # by kind of multipart message
    0: b"",  # description
    1: struct.pack("!B3xII4xQQ", 0xFF, ANY, ANY, 0, 0) + struct.pack("!HH4x", 1, 4),  # flows
    2: struct.pack("!B3xII4xQQ", 0xFF, ANY, ANY, 0, 0) + struct.pack("!HH4x", 1, 4),  # sums
    3: b"",  # tables
    4: struct.pack("!I4x", ANY),  # counters of ports
    5: struct.pack("!II", ANY, ANY),  # queues
    6: struct.pack("!I4x", ALL_GROUPS),  # counters of groups
    7: struct.pack("!I4x", ALL_GROUPS),  # groups
    8: b"",  # features of groups
    13: struct.pack("!I4x", ANY),  # ports
    17: struct.pack("!B3xII4xQQ", 0xFF, ANY, ANY, 0, 0)
    + struct.pack("!HH4x", 1, 4),  # flows, in short
}


def message(kind: int, body: bytes = b"", xid: int = 1, version: int = 6) -> bytes:
    """One OpenFlow message whose length is right."""
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def record(sandbox: Sandbox, host: str) -> list[bytes]:
    """What a real switch answers to requests of every kind; the first answer is its greeting."""
    asked = [message(HELLO, struct.pack("!HHI", 1, 8, 1 << 6)), message(FEATURES_REQUEST)]
    asked += [
        message(ECHO_REQUEST, struct.pack("!d", 1.0)),
        message(ROLE_REQUEST, struct.pack("!I4xQ", 0, 0)),
    ]
    asked += [
        message(MULTIPART_REQUEST, struct.pack("!HHxxxx", kind, 0) + body)
        for kind, body in REQUESTS.items()
    ]
    asked += [message(200, bytes(8)), message(BARRIER_REQUEST)]  # the first causes an error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as switch:
        switch.settimeout(LONG_S)
        switch.connect(str(sandbox.folder / f"{host}.mgmt"))
        switch.sendall(b"".join(asked))
        heard: list[bytes] = []
        buffer = b""
        while not heard or heard[-1][1] != BARRIER_REPLY:
            data = switch.recv(1 << 16)
            assert data, f"{host} has closed the connection after {len(heard)} messages"
            buffer += data
            while len(buffer) >= 8 and len(buffer) >= (
                length := struct.unpack_from("!H", buffer, 2)[0]
            ):
                heard.append(buffer[:length])
                buffer = buffer[length:]
    kinds = {each[1] for each in heard}
    assert kinds >= {
        HELLO,
        ERROR,
        ECHO_REPLY,
        FEATURES_REPLY,
        MULTIPART_REPLY,
        BARRIER_REPLY,
        ROLE_REPLY,
    }, kinds
    return heard


class Hostile:
    """What an attacker sends; everything random comes from `generator`."""

    def __init__(
        self, sandbox: Sandbox, recorded: Sequence[bytes], own: str, generator: random.Random
    ) -> None:
        """`own` is the MAC address of the switch that sends it."""
        self._recorded, self._own = list(recorded), own
        self._random = generator
        self._macs = [sandbox.mac(host) for host in sandbox.hosts]
        probes = [
            frame
            for name in sandbox.plain
            for frame in read_pcap(sandbox.capture(name))
            if frame[24:28] == "88b5"
        ]
        self._frames = [bytes.fromhex(frame) for frame in (*probes[:16], *self._made_up())]

    def next(self, damaged: float) -> bytes:
        """One message; the share `damaged` of them is not as OpenFlow says."""
        made = self._random.choice(self._MAKERS)(self)
        return self.damage(made) if self._random.random() < damaged else made

    def reply(self, polite: bytes) -> bytes:
        """An answer to a question, with the right number.

        It is damaged, or another answer, or one of endless parts.
        """
        kind = self._random.randrange(4)
        if kind == 0:
            return self.damage(polite)
        if kind == 1 and polite[1] == MULTIPART_REPLY and len(polite) >= 16:
            return polite[:10] + b"\0\1" + polite[12:]  # it announces more parts, which never come
        other = self._random.choice(self._recorded)
        return other[:4] + polite[4:8] + other[8:]

    def damage(self, whole: bytes) -> bytes:
        """A message in which some bytes, numbers or parts are others.

        The length in its header is mostly corrected.
        """
        data = bytearray(whole)
        for _ in range(self._random.randint(1, 3)):
            place = self._random.randrange(8, len(data)) if len(data) > 8 else 8
            what = self._random.randrange(7)
            if what == 0 and len(data) > 8:
                data[place] ^= 1 << self._random.randrange(8)
            elif what == 1:
                value = (self._random.choice(NUMBERS) & 0xFFFF).to_bytes(2, "big")
                data[place & ~1 : (place & ~1) + 2] = value
            elif what == 2:
                data[place & ~3 : (place & ~3) + 4] = self._random.choice(NUMBERS).to_bytes(
                    4, "big"
                )
            elif what == 3:
                del data[place:]
            elif what == 4:
                del data[place : place + self._random.randint(1, 40)]
            elif what == 5:
                data[place:place] = self._random.randbytes(self._random.randint(1, 40))
            else:
                other = self._random.choice(self._recorded)
                data[place:] = other[self._random.randrange(len(other)) :]
        del data[65528:]
        length = len(data)
        lie = self._random.randrange(40)
        if lie == 0:
            length = self._random.choice((0, 1, 7, 8, max(8, length - 1), length + 1, 65535))
        elif lie == 1:
            data[0] = self._random.choice((0, 1, 4, 5, 7, 255))
        elif lie == 2:
            data[1] = self._random.randrange(256)
        data[2:4] = length.to_bytes(2, "big")
        return bytes(data)

    # ---- well-formed and false

    def _again(self) -> bytes:
        said = bytearray(self._random.choice(self._recorded))
        said[4:8] = self._random.choice((self._random.randrange(200), 0, ANY)).to_bytes(4, "big")
        return bytes(said)

    def packet_in(self, frame: bytes, port: int) -> bytes:
        """A frame that a switch says has arrived at `port`."""
        fields = struct.pack("!II", 0x80000004, port)
        if self._random.randrange(20) == 0:
            fields = b""  # it does not say the port
        match = struct.pack("!HH", 1, 4 + len(fields)) + fields
        match += bytes(-len(match) % 8)
        head = struct.pack(
            "!IHBBQ", ANY, len(frame), 1, self._random.randrange(256), self._random.getrandbits(64)
        )
        return message(PACKET_IN, head + match + bytes(2) + frame, self._random.getrandbits(32))

    def _frame(self) -> bytes:
        frame = bytearray(self._random.choice(self._frames))
        report = frame[12:14] == ETH_HELPER.to_bytes(2, "big")
        for _ in range(self._random.randrange(3)):
            frame[self._random.randrange(len(frame))] = self._random.randrange(256)
        del frame[
            self._random.choice((len(frame), len(frame), self._random.randrange(len(frame) + 1))) :
        ]
        if report and self._random.randrange(4):
            # With the right checksum, the controller reads what is in the report.
            frame[16:20] = crc32c(bytes(frame[12:16] + frame[20:])).to_bytes(4, "big")
        return bytes(frame)

    def _frame_in(self) -> bytes:
        ports = (1, 2, WIRE_PORT, WIRE_PORT - 1, LOCAL, 0, ANY, self._random.getrandbits(32))
        frame = self._frame()
        return self.packet_in(
            frame, WIRE_PORT if frame[12:14] == b"\x88\xb6" else self._random.choice(ports)
        )

    def _port_status(self) -> bytes:
        mac = bytes.fromhex(f"0200{self._random.getrandbits(32):08x}")
        if self._random.randrange(8) == 0:
            mac = bytes.fromhex(
                self._random.choice(("00" * 6, "ff" * 6, *self._macs)).replace(":", "")
            )
        ports = (
            1,
            2,
            3,
            WIRE_PORT,
            WIRE_PORT - 1,
            1023,
            1024,
            0,
            LOCAL,
            self._random.getrandbits(32),
        )
        number = self._random.choice(ports)
        name = self._random.choice((b"e1", b"ri2n-wire", b"\x1b[31m\n", b"\xff" * 16, b""))
        state, config = self._random.choice((0, 1, ANY)), self._random.choice((0, 1, ANY))
        speed = struct.pack("!HH4x6I", 0, 32, 0, 0, 0, 0, *self._random.choices(NUMBERS, k=2))
        port = (
            struct.pack("!IH2x6s2x16sII", number, 40 + len(speed), mac, name, config, state) + speed
        )
        return message(
            PORT_STATUS, struct.pack("!B7x", self._random.choice((0, 1, 2, 2, 255))) + port
        )

    def _error(self) -> bytes:
        said = self._random.randbytes(self._random.choice((0, 1, 8, 64)))
        kind = self._random.choice((0, 1, 4, 5, 13, 0xFFFF))
        code = self._random.choice((0, 1, 99, 0xFFFF))
        return message(ERROR, struct.pack("!HH", kind, code) + said, self._random.randrange(200))

    def _echo(self) -> bytes:
        seconds = self._random.choice((float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300))
        said = self._random.choice((struct.pack("!d", seconds), b"", bytes(7), bytes(900)))
        return message(
            self._random.choice((ECHO_REQUEST, ECHO_REPLY)), said, self._random.getrandbits(32)
        )

    def _not_asked_for(self) -> bytes:
        kind = self._random.choice(
            (HELLO, EXPERIMENTER, FLOW_REMOVED, ROLE_REPLY, 8, 26, 30, 33, 34, 99)
        )
        return message(
            kind, self._random.randbytes(8 * self._random.randrange(10)) if kind else b""
        )

    def _multipart(self) -> bytes:
        body = b"".join(
            struct.pack(
                "!H2xIII8Q",
                80,
                port,
                0,
                0,
                *(2 ** self._random.choice((0, 32, 63, 64)) - 1 for _ in range(8)),
            )
            for port in range(1, self._random.randint(2, 6))
        )
        kind = self._random.choice((*REQUESTS, 9, 10, 11, 12, 14, 15, 16, 99, 0xFFFF))
        body = body if kind == 4 else self._random.randbytes(8 * self._random.randrange(20))
        if kind in (1, 7, 6, 0, 13):  # these are read; contradictions in them are for `damage`
            body = b""
        flags = self._random.choice((0, 0, 1, 0xFFFF))
        return message(
            MULTIPART_REPLY, struct.pack("!HHxxxx", kind, flags) + body, self._random.randrange(200)
        )

    def _made_up(self) -> list[str]:
        """Frames of all kinds that the controller reads, with addresses of the real hosts."""
        frames = []
        for source, target in zip(self._macs, self._macs[1:] + self._macs[:1], strict=True):
            frames += [
                arp(source, "10.77.0.1", "10.77.0.2"),
                ether(source, "01:80:c2:00:00:0e", ETH_LLDP, bytes(40)),
            ]
            syn_ack = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + bytes(
                [10, 77, 0, 1, 10, 77, 0, 2]
            )
            syn_ack += struct.pack("!HHIIBBHHH", 80, 50_000, 1, 1, 0x50, 0x12, 1024, 0, 0)
            frames.append(ether(source, target, 0x0800, syn_ack))
            frames += [self._report(source), self._report(self._own)]
            probe = (
                b"RI2P"
                + struct.pack("!BBHQIQ", 2, self._random.randrange(5), 0xFFFF, 1, 1, 0)
                + bytes(16)
            )
            frames.append(ether(source, target, ETH_RI2N, probe))
        return frames

    def _report(self, mac: str) -> str:
        """What the helper of a host with that address would report about peers that are made up."""
        count = self._random.randint(0, 36)
        report = struct.pack(
            "!BBIBxI6s4x", 0x35, 0, 0, count, 1000, bytes.fromhex(mac.replace(":", ""))
        )
        for _ in range(count):
            link = bytes.fromhex(f"0200{self._random.getrandbits(32):08x}") + bytes(
                [self._random.randrange(64), 3]
            )
            report += link + struct.pack("!8I", *self._random.choices(NUMBERS, k=8))
        return ether(HELPER_MAC, CONTROLLER_MAC, ETH_HELPER, report)

    _MAKERS = (
        _again,
        _frame_in,
        _frame_in,
        _frame_in,
        _port_status,
        _error,
        _echo,
        _not_asked_for,
        _multipart,
    )
