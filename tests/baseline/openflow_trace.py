# SPDX-License-Identifier: Apache-2.0
"""What the controller of a lab and its hosts tell each other, as OpenFlow messages with times."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ri2n_lab.cluster import Lab

__all__ = ["Message", "Recording", "counted", "read_messages", "recorded", "rows_hash"]

PORT, IPV4 = 6653, b"\x08\x00"
CONTROLLER = "controller"
RECORD = """
import signal, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # what is sent, too
s.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_TIMESTAMPNS", 35), 1)
s.bind((sys.argv[1], 0))
out = open(sys.argv[2], "w")
signal.signal(signal.SIGTERM, lambda *_: (out.flush(), sys.exit()))
print("ready", flush=True)
while True:
    frame, said, _, _ = s.recvmsg(65536, 64)
    seconds, nanoseconds = (int.from_bytes(said[0][2][at:at + 8], sys.byteorder) for at in (0, 8))
    print(seconds * 10**9 + nanoseconds, frame.hex(), file=out)
"""
"""A Python without site-packages runs this in the control network's namespace.

Its lines have the time in nanoseconds, and the frame.
"""

_STATS = {0: "desc", 1: "flow", 4: "port", 6: "group", 7: "group desc", 13: "port desc"}
_TYPES = {
    **{0: "hello", 1: "error", 2: "echo request", 3: "echo reply", 5: "features request"},
    **{6: "features reply", 7: "config request", 8: "config reply", 9: "set config"},
    **{10: "packet in", 11: "flow removed", 12: "port status", 13: "packet out", 14: "flow mod"},
    **{15: "group mod", 17: "table mod", 18: "stats request", 19: "stats reply"},
    **{20: "barrier request", 21: "barrier reply", 24: "role request", 25: "role reply"},
    **{28: "set async", 29: "meter mod", 33: "bundle control", 34: "bundle add"},
}
_CHANGES = frozenset({14, 15, 17, 29})
"""The types of messages that change what a host does."""

_ENDS = struct.Struct("!HHI")


class Message(NamedTuple):
    """A message of OpenFlow: when its last byte was seen, from whom to whom, and what it says."""

    time_s: float
    sender: str
    receiver: str
    type: int
    body: bytes

    @property
    def name(self) -> str:
        """What it is, in the words of the standard."""
        known = _TYPES.get(self.type, str(self.type))
        if self.type not in (18, 19):
            return known
        return f"{_STATS.get(self.body[1], str(self.body[1]))} {known}"


@dataclass
class Recording:
    """The messages, and a hash of all frames with their times in nanoseconds."""

    messages: list[Message] = field(default_factory=list)
    frames_hash: str = ""


@contextmanager
def recorded(lab: Lab) -> Iterator[Recording]:
    """What is said in the block; it is there when the block is left."""
    path = lab.run_dir / "openflow-frames"
    command = [sys.executable, "-S", "-c", RECORD, "control", str(path)]
    recording = Recording()
    with lab.popen("mgmt", command, stdout=subprocess.PIPE) as recorder:
        assert recorder.stdout is not None
        recorder.stdout.readline()
        try:
            yield recording
        finally:
            recorder.terminate()
    names = {_control_address(lab, host): host for host in lab.hosts}
    names[lab.controller_address] = CONTROLLER
    recording.messages += read_messages(path, names)
    recording.frames_hash = hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def counted(
    messages: Iterable[Message], begin_s: float, end_s: float, skipped: Container[str] = ()
) -> list[str]:
    """A line for each direction, with the number of messages of each kind in a time.

    They are of all hosts together: which host connects first, and is probed first, depends on
    microseconds.
    """
    found = {"controller to hosts": Counter[str](), "hosts to controller": Counter[str]()}
    for each in messages:
        if begin_s <= each.time_s < end_s and each.name not in skipped:
            to_hosts = each.sender == CONTROLLER
            found["controller to hosts" if to_hosts else "hosts to controller"][each.name] += 1
    return [
        f"{way}: " + ", ".join(f"{name} {number}" for name, number in sorted(kinds.items()))
        for way, kinds in found.items()
    ]


def rows_hash(messages: Iterable[Message], host: str, until_s: float) -> str:
    """A hash of what the controller has told a host to do until then, in this order.

    The number by which a message is answered is not in it.
    """
    told = hashlib.sha256()
    for each in messages:
        if each.receiver == host and each.type in _CHANGES and each.time_s < until_s:
            told.update(bytes([each.type]) + len(each.body).to_bytes(2, "big") + each.body)
    return told.hexdigest()[:16]


def _control_address(lab: Lab, host: str) -> str:
    shown = lab.exec(host, ["ip", "-4", "-br", "addr", "show", "dev", "mgmt0"], check=False).stdout
    return shown.split()[2].partition("/")[0] if shown else ""


def read_messages(path: Path, names: Mapping[str, str]) -> Iterator[Message]:
    """The messages in frames that RECORD has written; `names` are of addresses.

    A connection that begins again begins anew.
    """
    streams: dict[tuple[bytes, bytes], tuple[int, bytearray]] = {}
    for line in path.read_text().splitlines():
        time_ns, _, text = line.partition(" ")
        frame = bytes.fromhex(text)
        if frame[12:14] != IPV4:
            continue
        packet = frame[14:]
        segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big")]
        if packet[9] != 6 or PORT not in (ends := _ENDS.unpack_from(segment))[:2]:
            continue
        key, number = (packet[12:16] + segment[:2], packet[16:20] + segment[2:4]), ends[2]
        if segment[13] & 2:  # SYN
            streams[key] = (number + 1) % 2**32, bytearray()
            continue
        content = segment[(segment[12] >> 4) * 4 :]
        if key not in streams or number != streams[key][0]:
            continue  # what was sent again
        buffer = streams[key][1]
        streams[key] = (number + len(content)) % 2**32, buffer
        buffer += content
        sender, receiver = (".".join(map(str, each[:4])) for each in key)
        while len(buffer) >= 8 and len(buffer) >= (length := int.from_bytes(buffer[2:4], "big")):
            yield Message(
                *(int(time_ns) / 1e9, names.get(sender, sender), names.get(receiver, receiver)),
                *(buffer[1], bytes(buffer[8:length])),
            )
            del buffer[:length]
