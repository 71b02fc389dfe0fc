# SPDX-License-Identifier: Apache-2.0
"""Conversations of which every byte is checked, and what passes beside or through the bridges."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from ri2n_lab.cluster import Lab
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.pipeline.layout import Table
from tests.lab.conftest import PATIENCE_S, await_true

__all__ = ["Talk", "Talker", "await_in_force", "beside", "through"]

PORT = 7300

LISTEN = """
import socket, sys, threading
server = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True,
                              backlog=256)
print("ready", flush=True)

def serve(connection):
    with connection, connection.makefile("rb") as source:
        while head := source.read(4):
            connection.sendall(source.read(int.from_bytes(head, "big")))

while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

# Each connection sends random bytes and gets them back, again and again; `datagrams` do the same,
# and what is lost is sent again with other bytes. Every line of input is answered by the rounds of
# each; the first wrong byte ends the program.
TALK = """
import json, os, random, socket, sys, threading, time
words = json.loads(sys.argv[1])
rounds, pauses = [], words["pause_s"]

def tell(place, one):
    chance = random.Random(place)
    while True:
        data = chance.randbytes(chance.randrange(1, words["most"]))
        one(data)
        rounds[place] += 1
        time.sleep(pauses)

def connection(place, address, port):
    try:
        s = socket.create_connection((address, port), timeout=words["patience_s"])
        s.settimeout(words["patience_s"])
        source = s.makefile("rb")
        def one(data):
            s.sendall(len(data).to_bytes(4, "big") + data)
            back = source.read(len(data))
            if back != data:
                raise ValueError(f"{len(back)} of {len(data)} bytes, or wrong ones")
        tell(place, one)
    except BaseException as error:
        print(json.dumps(f"{address}: {error!r}"), flush=True)
        os._exit(1)

for address in words["addresses"]:
    for _ in range(words["each"]):
        rounds.append(0)
        place = len(rounds) - 1
        threading.Thread(target=connection, args=(place, address, words["port"]),
                         daemon=True).start()
for line in sys.stdin:
    print(json.dumps(rounds), flush=True)
"""


class Talker:
    """A server on a host, that gives back what it gets."""

    def __init__(self, lab: Lab, host: str, port: int = PORT) -> None:
        self._process = lab.popen(
            host, [sys.executable, "-c", LISTEN, str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"

    def end(self) -> None:
        """End it, with all conversations."""
        self._process.kill()
        self._process.wait()


class Talk:
    """Conversations from one host with others, of both families, `each` with each address."""

    def __init__(
        self,
        lab: Lab,
        source: str,
        *targets: str,
        each: int = 1,
        most: int = 20_000,
        pause_s: float = 0.002,
        port: int = PORT,
    ) -> None:
        self._what = f"{source} -> {', '.join(targets)}"
        words = {
            "addresses": [of(target) for target in targets for of in (lab.address, lab.address6)],
            **{"each": each, "most": most, "pause_s": pause_s, "port": port},
            "patience_s": PATIENCE_S,
        }
        self._process = lab.popen(
            source,
            [sys.executable, "-c", TALK, json.dumps(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rounds(self) -> list[int]:
        """How often each connection has got back what it sent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        said = json.loads(self._process.stdout.readline() or '"it has ended"')
        assert isinstance(said, list), f"{self._what}: {said}"
        return said

    def go_on(self, more: int = 3) -> None:
        """Return when each connection has had so many more rounds."""
        start = self.rounds()
        await_true(
            lambda: all(now >= old + more for now, old in zip(self.rounds(), start, strict=True)),
            lambda: f"{self._what}: {start} -> {self.rounds()}",
        )

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def status_of(lab: Lab, host: str) -> dict[str, Any]:
    """What a host's fast path says; empty where it does not answer."""
    try:
        return lab.fast_paths.status(host)
    except NotAvailable:
        return {}


def await_in_force(lab: Lab, *hosts: str) -> None:
    """Wait until the hosts (none named: all) carry all peers, and Open vSwitch gets no copies."""
    wanted = hosts or lab.fast_paths.hosts
    peers = len(lab.fast_paths.hosts) - 1

    def missing() -> list[Any]:
        found = [(host, status_of(lab, host)) for host in wanted]
        return [
            (host, says)
            for host, says in found
            if not says
            or says["programs"] != "in_force"
            or says["filter"] == "missing"
            or says["peers"]["carried"] != peers
        ]

    await_true(lambda: not missing(), lambda: f"not in force: {missing()}", timeout_s=30)


def beside(lab: Lab, host: str) -> int:
    """How many frames a host's programs have sent and taken since they were loaded."""
    says = lab.fast_paths.status(host)
    return int(says["sent"]["packets"]) + int(says["arrived"]["packets"])


def through(lab: Lab, host: str) -> int:
    """How many frames a bridge has counted to and from managed hosts, those of just now, too."""
    # Rows count what the datapath has counted until it was last asked, on a busy machine long ago.
    lab.appctl(host, "revalidator/wait")
    count = 0
    for table in (Table.SEND_COUNT, Table.RECEIVE_COUNT):
        rows = lab.ofctl(host, "dump-flows", "br-ri2n", f"table={table}")
        count += sum(int(found) for found in re.findall(r"n_packets=(\d+)", rows))
    return count
