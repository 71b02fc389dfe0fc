"""What tests of several topologies send."""

from __future__ import annotations

import itertools
import subprocess
import sys

from ri2n_sdn.lab import Lab

COUNT_BROADCASTS = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 5700)); s.settimeout(20)
print("ready", flush=True)
got = []
while True:
    data = s.recv(100)
    if data == b"end": break
    got.append(data)
print(len(got), len(set(got)))
"""
SEND_BROADCASTS = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for i in range(50):
    s.sendto(str(i).encode(), ("10.77.0.255", 5700)); time.sleep(0.01)
time.sleep(0.5)  # not a wait for the copies: time for a second one, which there must not be, to show itself
s.sendto(b"end", ("10.77.0.255", 5700))
"""


def pairs(lab: Lab) -> list[tuple[str, str]]:
    """Ordered pairs of all hosts, plain ones too, that have a switch in common."""
    switches = {host: {nic.switch for nic in spec.nics} for host, spec in lab.topology.hosts.items()}
    return [(a, b) for a, b in itertools.permutations(switches, 2) if switches[a] & switches[b]]


def broadcasts_arrive_once(lab: Lab) -> None:
    """Every managed host sends 50 broadcasts; all others get each of them, and none twice."""
    for sender in lab.topology.managed_hosts():
        others = [b for a, b in pairs(lab) if a == sender]
        code = [sys.executable, "-c", COUNT_BROADCASTS]
        receivers = {b: lab.popen(b, code, stdout=subprocess.PIPE, text=True) for b in others}
        for process in receivers.values():
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        lab.exec(sender, [sys.executable, "-c", SEND_BROADCASTS])
        for name, process in receivers.items():
            assert process.communicate(timeout=30)[0].split() == ["50", "50"], f"{sender} -> {name}"
