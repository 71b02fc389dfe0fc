# SPDX-License-Identifier: Apache-2.0
"""The labs of `ri2n bench parallel`, and the traffic programs that run in them."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Any, Protocol

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel_ends import EndSettings
from ri2n_lab.bench.peers import PEERS
from ri2n_lab.bench.peers.base import SERVER, address_on, await_whole, common_networks
from ri2n_lab.bench.peers.subnets import number_nics, silent_network
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.striped import await_striped
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import ip_batch
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "CLIENT",
    "PORT",
    "Ends",
    "Place",
    "Program",
    "limit_subflows",
    "mptcp_lacks",
    "numbered_lab",
    "stop_all",
    "trunk_lab",
]

CLIENT = "B"
PORT = 5800
START_S = 60.0
READY_S = 60.0
MAX_SUBFLOWS = 8  # the kernel's MPTCP_PM_ADDR_MAX

Json = dict[str, Any]


def mptcp_lacks() -> str | None:
    """Why there is no MPTCP here, in one sentence; the traffic programs need no mptcpize."""
    missing = PEERS["mptcp"].lacks()
    return None if missing is not None and missing.startswith("mptcpize") else missing


@contextmanager
def numbered_lab(topology: Topology, report: Report, key: str) -> Iterator[tuple[Lab, EndSettings]]:
    """A lab without RI2N, one subnet per network, each of which works.

    With MPTCP set up where the kernel has it.
    """
    with Lab.create(topology, software="none") as lab:
        for host in topology.managed_hosts():
            _send_frames(lab, host)
        mptcp = mptcp_lacks() is None
        if mptcp:
            PEERS["mptcp"].set_up(lab)
            limit_subflows(lab, MAX_SUBFLOWS)
        else:
            for host in topology.managed_hosts():
                number_nics(lab, host)
        clients = [host for host in topology.hosts if host != SERVER]
        for client in clients:
            _await_networks(lab, client)
        if mptcp:
            await_whole(PEERS["mptcp"], lab, clients, SERVER)
        _describe(lab, report, key)
        networks = common_networks(topology, SERVER, clients[0])
        addresses = tuple(address_on(topology, SERVER, network) for network in networks)
        yield lab, EndSettings(addresses, PORT, mptcp=mptcp)


@contextmanager
def trunk_lab(
    topology: Topology, mode: str, report: Report, key: str
) -> Iterator[tuple[Lab, EndSettings]]:
    """A lab with RI2N's trunk over all links, by `max_min`.

    In `mode` packet helpers stripe, in flow the hash decides.
    """
    with Lab.create(topology, helpers=mode == "packet") as lab:
        start_and_wait(lab, "max_min")
        await_striped(lab, [CLIENT], SERVER)
        _describe(lab, report, key)
        yield lab, EndSettings((lab.address(SERVER),), PORT)


def limit_subflows(lab: Lab, subflows: int) -> None:
    """Let an MPTCP connection that begins now have so many subflows with its first one."""
    more = min(subflows, MAX_SUBFLOWS) - 1
    for host in lab.topology.managed_hosts():
        ip_batch([f"mptcp limits set subflow {more} add_addr_accepted {more}"], lab.namespace(host))


def _send_frames(lab: Lab, host: str) -> None:
    """Let TCP hand single frames to the NICs' queues.

    It gives up to 64 KB to a queue as one packet whatever a device's offloads are. netem would keep
    that until its last byte is due, and the switch would send all of it once more: 64 KB in one go
    took 9.0 ms at 100 Mbit/s, not 5.7.
    """
    nics = lab.topology.hosts[host].nics
    ip_batch([f"link set {nic.name} gso_max_segs 1" for nic in nics], lab.namespace(host))


def _await_networks(lab: Lab, client: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while (silent := silent_network(lab, client, SERVER)) is not None:
        if time.monotonic() > deadline_s:
            raise NotAvailable(silent)
        time.sleep(0.05)


def _describe(lab: Lab, report: Report, key: str) -> None:
    report.describe_lab(lab, key)
    # Neither end asks for one, since a library's user cannot: it is what the host has.
    control = lab.exec(SERVER, ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]).stdout.strip()
    report.document["context"]["labs"][key]["congestion_control"] = control


class Place(Protocol):
    """Where programs are started: a lab, or what has hosts as a lab has."""

    def popen(self, host: str, argv: Sequence[str], **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a program on a host."""


class Program:
    """A traffic program on a host, which answers lines of JSON."""

    def __init__(self, lab: Place, host: str, module: str, *arguments: str) -> None:
        self._host, self._module = host, module
        argv = [sys.executable, "-m", module, *arguments]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._child = lab.popen(host, argv, **pipes)
        self._rest = b""

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._child.pid

    def send(self, line: str) -> None:
        """Write a line to its standard input; NotAvailable when it has ended."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()
        except OSError:
            raise self._ended() from None

    def line(self, limit_s: float) -> str:
        """Read the next line of its output; NotAvailable at its end or after `limit_s`."""
        assert self._child.stdout is not None
        deadline_s = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select(
                [self._child.stdout], [], [], max(0.0, deadline_s - time.monotonic())
            )
            if not ready:
                self.stop()
                raise NotAvailable(
                    f"{self._module} on {self._host} did not answer for {limit_s:g} s"
                )
            data = self._child.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not data:
                raise self._ended()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def answer(self, limit_s: float) -> Json:
        """Read the next line as JSON; NotAvailable also for {"error"}."""
        found: Json = json.loads(self.line(limit_s))
        if found.get("error") is not None:
            raise NotAvailable(f"{self._module} on {self._host}: {found['error']}")
        return found

    def stop(self) -> None:
        """End it at once; a second call does nothing."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()

    def _ended(self) -> NotAvailable:
        self.stop()
        assert self._child.stderr is not None
        words = self._child.stderr.read().decode(errors="replace").split()
        return NotAvailable(
            f"{self._module} on {self._host} ended: {' '.join(words)[-300:] or 'no word'}"
        )


class Ends:
    """The server, and the client that measures.

    `with Ends(lab, settings) as ends: ends.ask(...)`.
    """

    def __init__(self, lab: Lab, settings: EndSettings, *, client: str | None = CLIENT) -> None:
        """Start both, and return when the server listens; without `client` the server alone."""
        module, words = "ri2n_lab.bench.parallel_ends", json.dumps(asdict(settings))
        self._programs: list[Program] = []
        try:
            self.server = self._start(lab, SERVER, module, "serve", words)
            self.server.answer(START_S)
            self.client = self._start(lab, client, module, "ask", words) if client else None
        except BaseException:
            self.stop()
            raise

    def ask(self, limit_s: float, **request: Any) -> Json:
        """Let the client do one thing, and return what it found out."""
        self.begin(limit_s=limit_s, **request)
        return self.client_answer(limit_s)

    def begin(self, **request: Any) -> None:
        """Tell the client what to do, without waiting for its answer."""
        assert self.client is not None
        self.client.send(json.dumps(request))

    def client_answer(self, limit_s: float) -> Json:
        """The client's next answer.

        The time limit is longer than its own, so that it can say what was wrong.
        """
        assert self.client is not None
        return self.client.answer(2 * limit_s + START_S)

    def uneven(self) -> Json:
        """By how many connections the server's interfaces differed since the last call."""
        self.server.send(json.dumps({"op": "uneven"}))
        return self.server.answer(START_S)

    def stop(self) -> None:
        """End both programs."""
        stop_all(self._programs)

    def __enter__(self) -> Ends:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, lab: Lab, host: str, module: str, *arguments: str) -> Program:
        program = Program(lab, host, module, *arguments)
        self._programs.append(program)
        return program


def stop_all(programs: Sequence[Program]) -> None:
    """End all of these programs."""
    for program in programs:
        program.stop()
