# SPDX-License-Identifier: Apache-2.0
"""The traffic that tests of several topologies send."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterable

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream, StreamResult
from tests.lab.conftest import EXACT, PATIENCE_S

COUNT_BROADCASTS = """
import json, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 5700)); s.settimeout(120)
print("ready", flush=True)
got, awaited = {}, set(sys.argv[1:])
while awaited:
    data, (sender, _) = s.recvfrom(100)
    if data == b"end": awaited.discard(sender)
    else: got.setdefault(sender, []).append(data.decode())
print(json.dumps(got))
"""
SEND_BROADCASTS = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for i in range(50):
    s.sendto(str(i).encode(), ("10.77.0.255", 5700)); time.sleep(0.01)
# Not a wait for the copies: time for a second one, which there must not be, to show itself.
time.sleep(0.5)
s.sendto(b"end", ("10.77.0.255", 5700))
"""
PING_ALL = """
options=()
while [[ $1 != -- ]]; do options+=("$1"); shift; done
shift
for address; do ping -n -c3 -l3 -i2 -W2 "${options[@]}" "$address"; done
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
for a in sys.argv[2:]:
    s = socket.create_connection((a, 5800), timeout=float(sys.argv[1]))
    s.sendall(bytes(200000)); s.shutdown(socket.SHUT_WR)
    assert s.makefile().read() == "200000"; s.close()
"""


def pairs(lab: Lab) -> list[tuple[str, str]]:
    """Ordered pairs of all hosts, also plain ones, that have a switch in common."""
    switches = {
        host: {nic.switch for nic in spec.nics} for host, spec in lab.topology.hosts.items()
    }
    return [(a, b) for a, b in itertools.permutations(switches, 2) if switches[a] & switches[b]]


def pings(lab: Lab, source: str, address: str, *options: str) -> str:
    """What `ping` prints about three packets: `3 received`, `+1 duplicates`, `0% packet loss`."""
    done = lab.exec(
        source, ["ping", "-n", "-c3", "-l3", "-i2", "-W2", *options, address], check=False
    )
    return next(
        (line for line in done.stdout.splitlines() if "transmitted" in line),
        done.stdout + done.stderr,
    )


def reaches(lab: Lab, source: str, target: str, *options: str) -> None:
    """Three packets get one answer each, over IPv4 and IPv6; in real time, at any attempt."""
    for address in (lab.address(target), lab.address6(target)):
        deadline_s = time.monotonic() + (0 if EXACT else PATIENCE_S)
        while " 3 received" not in (said := pings(lab, source, address, *options)):
            assert time.monotonic() < deadline_s, f"{source} -> {address}: {said}"
        assert "duplicates" not in said, f"{source} -> {address}: {said}"


def all_reach_each_other(lab: Lab, *options: str) -> None:
    """Every pair reaches each other, over IPv4 and IPv6; each packet gets one answer.

    One shell per host runs all of its pings: to enter a host costs more than a ping. In real time,
    who is not reached gets further attempts.
    """
    targets: dict[str, list[str]] = {}
    for source, target in pairs(lab):
        targets.setdefault(source, []).append(target)
    for source, reached in targets.items():
        addresses = [each(target) for target in reached for each in (lab.address, lab.address6)]
        done = lab.exec(
            source, ["bash", "-c", PING_ALL, "ping-all", *options, "--", *addresses], check=False
        )
        lines = [line for line in done.stdout.splitlines() if "transmitted" in line]
        said = dict(zip(addresses, lines, strict=True)) if len(lines) == len(addresses) else {}
        for target in reached:
            both = [said.get(each(target), "") for each in (lab.address, lab.address6)]
            if EXACT or any("duplicates" in line for line in both):
                for line in both:
                    assert " 3 received" in line and "duplicates" not in line, (
                        f"{source} -> {target}: {both}\n{done.stdout}{done.stderr}"
                    )
            elif not all(" 3 received" in line for line in both):
                reaches(lab, source, target, *options)


def all_talk_tcp(lab: Lab) -> None:
    """Every pair talks, in both directions, over IPv4 and IPv6.

    200,000 bytes go, and their number comes back.
    """
    limit_s = 0.9 if EXACT else PATIENCE_S  # a lost SYN is sent again after 1 s
    servers = []
    try:
        for name in lab.topology.hosts:
            servers.append(
                lab.popen(
                    name, [sys.executable, "-c", COUNT_BYTES], stdout=subprocess.PIPE, text=True
                )
            )
        for server in servers:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
        for a in lab.topology.hosts:
            addresses = [f(b) for x, b in pairs(lab) if x == a for f in (lab.address, lab.address6)]
            lab.exec(
                a,
                [sys.executable, "-c", SEND_BYTES, str(limit_s), *addresses],
                timeout_s=PATIENCE_S,
            )
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def flawless(got: StreamResult, what: object = "") -> None:
    """No packet of a stream was duplicated and, in virtual time, none was lost or out of order."""
    said = f"{what}: {got}"
    assert got.received and not got.duplicates, said
    if EXACT:  # a machine in real time may stand still, and then loses packets itself
        assert (got.lost, got.out_of_order) == (0, 0), said


def flawless_streams(
    lab: Lab, ends: Iterable[tuple[str, str]], *, pps: float = 1000.0, **options: float
) -> None:
    """Run a stream for each of `ends` (source, destination), all at once.

    Each is flawless, and was sent completely.
    """
    seconds = options.pop("seconds", 0.3)
    streams = {
        (*end, port): Stream(lab, *end, pps=pps, seconds=seconds, port=port, **options)  # type: ignore[arg-type]
        for port, end in enumerate(ends, 5600)
    }
    for end, stream in streams.items():
        got = stream.result()
        flawless(got, end)
        assert got.sent == round(seconds * pps) and not got.errors, (end, got)


def broadcasts_arrive_once(lab: Lab) -> None:
    """Every managed host sends 50 broadcasts; all others on its switches get each of them once.

    A host hears its own broadcasts, too: each once. What comes from hosts on other switches may
    not come twice either.
    """
    senders = lab.topology.managed_hosts()
    heard_by = {
        host: [
            lab.address(sender)
            for sender in senders
            if sender == host or (sender, host) in pairs(lab)
        ]
        for host in lab.topology.hosts
    }
    every = sorted(map(str, range(50)))
    receivers = {}
    try:
        for host, heard in heard_by.items():
            command = [sys.executable, "-c", COUNT_BROADCASTS, *heard]
            receivers[host] = lab.popen(host, command, stdout=subprocess.PIPE, text=True)
        for process in receivers.values():
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for sender in senders:
            lab.exec(sender, [sys.executable, "-c", SEND_BROADCASTS])
        for host, process in receivers.items():
            got = json.loads(process.communicate(timeout=PATIENCE_S)[0])
            for address in heard_by[host]:
                assert sorted(got.get(address, [])) == every, f"{address} -> {host}: {got}"
            for address, each in got.items():
                assert len(set(each)) == len(each), f"{address} -> {host}: {each}"
    finally:
        for process in receivers.values():
            process.kill()
            process.communicate()
