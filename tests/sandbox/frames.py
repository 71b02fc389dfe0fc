# SPDX-License-Identifier: Apache-2.0
"""Frames in and out of a sandbox: builders, captures, traces, and waiting for a condition."""

from __future__ import annotations

import ipaddress
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ri2n_lab.cluster.sandbox import Sandbox
from tests.problem_texts import problem_texts
from tests.waiting import LONG_S, wait_until

__all__ = [
    "LONG_S",
    "Capture",
    "Hop",
    "arp",
    "ether",
    "read_pcap",
    "slot_hops",
    "trace",
    "udp",
    "wait_until",
]

BROADCAST = "ff:ff:ff:ff:ff:ff"


def await_problems(sandbox: Sandbox, *texts: str) -> None:
    """Wait until `status` has these problems and no others.

    On a slow machine, a NIC may be called silent for a moment.
    """
    wait_until(
        lambda: problem_texts(sandbox.ask("status")) == list(texts),
        lambda: str(problem_texts(sandbox.ask("status"))),
    )


def ether(source: str, target: str, ether_type: int, payload: bytes) -> str:
    """An Ethernet frame in hex, padded to 60 bytes."""
    head = bytes.fromhex(target.replace(":", "")) + bytes.fromhex(source.replace(":", ""))
    return (head + struct.pack("!H", ether_type) + payload).ljust(60, b"\0").hex()


def udp(
    source: str, target: str, ports: tuple[int, int], *, ipv6: bool = False, size: int = 18
) -> str:
    """A UDP packet between two MAC addresses; its `ports` make it a flow of its own."""
    datagram = struct.pack("!HHHH", *ports, 8 + size, 0) + bytes(size)
    if ipv6:
        head = struct.pack("!IHBB", 6 << 28, len(datagram), 17, 64)
        head += ipaddress.ip_address("fd77::1").packed + ipaddress.ip_address("fd77::2").packed
        return ether(source, target, 0x86DD, head + datagram)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0)
    head += ipaddress.ip_address("10.77.0.1").packed + ipaddress.ip_address("10.77.0.2").packed
    return ether(source, target, 0x0800, head + datagram)


def arp(source: str, sender_ip: str, target_ip: str) -> str:
    """An ARP request."""
    mac = bytes.fromhex(source.replace(":", ""))
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + ipaddress.ip_address(sender_ip).packed
    return ether(
        source, BROADCAST, 0x0806, body + bytes(6) + ipaddress.ip_address(target_ip).packed
    )


def read_pcap(path: Path) -> list[str]:
    """The frames of a capture, in hex."""
    data = path.read_bytes() if path.exists() else b""
    frames, offset = [], 24
    while offset + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, offset + 8)
        if offset + 16 + length > len(data):
            break  # the rest of it is just being written
        frames.append(data[offset + 16 : offset + 16 + length].hex())
        offset += 16 + length
    return frames


class Capture:
    """What hosts are given from now on."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._paths = {name: sandbox.capture(name) for name in (*sandbox.hosts, *sandbox.plain)}
        self._before = {name: len(read_pcap(path)) for name, path in self._paths.items()}

    def new(self, name: str) -> Counter[str]:
        """The frames that a host was given, without those of the controller's own EtherType."""
        frames = read_pcap(self._paths[name])[self._before[name] :]
        return Counter(frame for frame in frames if frame[24:28] != "88b5")

    def expect(self, wanted: Mapping[str, Iterable[str]]) -> None:
        """Each host gets exactly these frames, each once; a host that is not named gets none."""
        counters = {name: Counter(wanted.get(name, ())) for name in self._paths}
        every = {frame for frames in counters.values() for frame in frames}

        def state() -> str:
            missing = {
                name: sum((counters[name] - self.new(name)).values()) for name in self._paths
            }
            return f"missing frames: {missing}"

        wait_until(lambda: all(not counters[name] - self.new(name) for name in self._paths), state)
        # Frames that were put in are processed in order before appctl answers, so copies too many
        # are there by now.
        for name in self._paths:
            extra = (
                Counter({f: n for f, n in self.new(name).items() if f in every}) - counters[name]
            )
            assert not extra, f"{name} was given what it should not, or twice: {extra}"


@dataclass
class Hop:
    """What one bridge did with a frame in a trace."""

    bridge: str
    sets: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    bucket: int | None = None


def trace(sandbox: Sandbox, bridge: str, flow: str) -> tuple[list[Hop], str]:
    """The bridges that a frame crosses, in order, and the trace's text."""
    text = sandbox.ovs.appctl("ofproto/trace", bridge, flow)
    hops: list[Hop] = []
    for line in text.splitlines():
        if found := re.search(r'bridge\("(.+)"\)', line):
            hops.append(Hop(found[1]))
        elif not hops or line.startswith(("Final flow", "Megaflow")):
            continue
        elif found := re.search(r"set_field:(\S+)->(eth_\w+)", line):
            hops[-1].sets.append((found[2], found[1]))
        elif found := re.fullmatch(r"\s+(?:output:)?(\d+|LOCAL|drop|-> flooding)", line):
            hops[-1].outputs.append(found[1])
        elif found := re.search(r"-> using bucket (\d+)", line):
            hops[-1].bucket = int(found[1])
    return hops, text


def slot_hops(sandbox: Sandbox, source: str, target: str, slots: int) -> list[list[Hop]]:
    """Traces of a managed pair's UDP, one for every slot of its group."""
    macs = sandbox.mac(source), sandbox.mac(target)
    flow = (
        f"in_port=LOCAL,dl_src={macs[0]},dl_dst={macs[1]},"
        "udp,nw_src=10.77.0.1,nw_dst=10.77.0.2,udp_src=1,udp_dst=2"
    )
    recirculated = None

    def is_hashed() -> bool:
        # The second half of a hashed packet can be traced as long as a cached flow of the first
        # half is there.
        nonlocal recirculated
        sandbox.receive(source, udp(*macs, (1, 2)))
        recirculated = re.search(
            r"recirc\((0x[0-9a-f]+)\)", sandbox.ovs.appctl("ofproto/trace", source, flow)
        )
        return recirculated is not None

    wait_until(is_hashed, f"no packet of {source} to {target} is hashed")
    assert recirculated is not None
    # dp_hash 0 means "not hashed yet", so the hash gets a bit above those that choose the slot.
    return [
        trace(sandbox, source, f"recirc_id={recirculated[1]},dp_hash={slots | slot:#x},{flow}")[0]
        for slot in range(slots)
    ]
