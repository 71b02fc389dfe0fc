# SPDX-License-Identifier: Apache-2.0
"""A plain host floods while two others talk: what tests of both datapaths send."""

from __future__ import annotations

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream

from .packets import flawless

FLOODED = """
name: flooded
switches: {n1: {port_buffer_bytes: 131072}, n2: {port_buffer_bytes: 131072}}
hosts:
  A: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
             {name: eth1, switch: n2, rate_bps: 100000000}]}
  B: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
             {name: eth1, switch: n2, rate_bps: 100000000}]}
  R: {managed: false, nics: [{name: eth0, switch: n1, rate_bps: 100000000}]}
"""
# Sends ten frames every half millisecond. SOURCE and TARGET are MAC addresses, or "random".
FLOOD = """
import os, random, socket, sys, time
target, source, kind, pps, frames = *sys.argv[1:4], *map(int, sys.argv[4:])
own, chance = open("/sys/class/net/eth0/address").read().strip(), random.Random(1)
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); raw.bind(("eth0", 0))
mac = lambda text: bytes.fromhex(text.replace(":", ""))
start_s = time.monotonic()
for number in range(frames):
    if number % 10 == 0:
        time.sleep(max(0.0, start_s + number / pps - time.monotonic()))
    sender = b"\\x02" + chance.randbytes(5) if source == "random" else mac(own)
    raw.send((mac(target) + sender + bytes.fromhex(kind)).ljust(60, b"\\0"))
"""
BROADCAST = "ff:ff:ff:ff:ff:ff"
PROBES = "ff:ff:ff:ff:ff:fe"  # a group address to which nothing else is sent


def send(
    lab: Lab, target: str, source: str, kind: str, *, pps: int = 20_000, seconds: float = 1.0
) -> None:
    """Let R flood."""
    words = [target, source, kind, str(pps), str(round(pps * seconds))]
    lab.exec("R", ["python3", "-c", FLOOD, *words], timeout_s=600)


def flood(
    lab: Lab, target: str, source: str, kind: str, *, pps: int = 20_000, seconds: float = 1.0
) -> None:
    """Let R flood while A and B talk with 1,000 packets/s in each direction, and lose nothing."""
    streams = [
        Stream(lab, a, b, pps=1000, seconds=seconds + 0.5, flows=64)
        for a, b in (("A", "B"), ("B", "A"))
    ]
    send(lab, target, source, kind, pps=pps, seconds=seconds)
    for stream in streams:
        flawless(stream.result())
