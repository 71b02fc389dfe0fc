"""What tests of several topologies send."""

from __future__ import annotations

import itertools
import subprocess
import sys

from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.traffic import StreamResult

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
COUNT_BYTES = """
import socket
s = socket.create_server(("::", 5800), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    c, _ = s.accept(); d = c.makefile("rb").read(); c.sendall(str(len(d)).encode()); c.close()
"""
SEND_BYTES = """
import socket, sys
for a in sys.argv[1:]:
    s = socket.create_connection((a, 5800), timeout=10)
    s.sendall(bytes(200000)); s.shutdown(socket.SHUT_WR); assert s.makefile().read() == "200000"; s.close()
"""


def pairs(lab: Lab) -> list[tuple[str, str]]:
    """Ordered pairs of all hosts, plain ones too, that have a switch in common."""
    switches = {host: {nic.switch for nic in spec.nics} for host, spec in lab.topology.hosts.items()}
    return [(a, b) for a, b in itertools.permutations(switches, 2) if switches[a] & switches[b]]


def pings(lab: Lab, source: str, address: str, *options: str) -> str:
    """What `ping` says of three packets: `3 received`, `+1 duplicates`, `0% packet loss`."""
    done = lab.exec(source, ["ping", "-n", "-c3", "-l3", "-i2", "-W2", *options, address], check=False)
    return next((line for line in done.stdout.splitlines() if "transmitted" in line), done.stdout + done.stderr)


def all_reach_each_other(lab: Lab, *options: str) -> None:
    """Every pair, both ways, IPv4 and IPv6; each packet has one answer."""
    for a, b in pairs(lab):
        for address in (lab.address(b), lab.address6(b)):
            said = pings(lab, a, address, *options)
            assert " 3 received" in said and "duplicates" not in said, f"{a} -> {b} {address}: {said}"


def all_talk_tcp(lab: Lab) -> None:
    """Every pair, both ways, over IPv4 and IPv6: 200,000 bytes there, their number back."""
    for name in lab.topology.hosts:
        server = lab.popen(name, [sys.executable, "-c", COUNT_BYTES], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        server.stdout.close()
    for a in lab.topology.hosts:
        addresses = [f(b) for x, b in pairs(lab) if x == a for f in (lab.address, lab.address6)]
        lab.exec(a, [sys.executable, "-c", SEND_BYTES, *addresses])


def stalled(got: StreamResult, pps: float) -> bool:
    """Whether the machine stood still so long that what waited may be more than a switch port's buffer."""
    return max(got.late_ms, got.latency_ms["max"]) * pps / 1e3 > 40


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
