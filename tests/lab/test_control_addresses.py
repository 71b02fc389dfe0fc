# SPDX-License-Identifier: Apache-2.0
"""Cables are swapped under a controller on a managed host.

The other hosts reach it by several addresses, or by a new one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.plan import switch_ports
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.fabric.topology import Topology
from tests.lab.conftest import EXACT, await_true
from tests.lab.outages import busy_nic
from tests.lab.packets import reaches

pytestmark = pytest.mark.virtual

PORT = 6653
MAX_GAP_MS = 1500
MOVED = "10.52.49.250"  # only its /32 is in a lab's network
HOSTS = ("A", "B", "C")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    nics = [
        {"name": f"eth{number}", "switch": f"s{number}", "rate_bps": 100_000_000}
        for number in (0, 1)
    ]
    document = {
        "name": "swapped",
        "switches": {"s0": {"port_buffer_bytes": 131_072}, "s1": {"port_buffer_bytes": 131_072}},
        "hosts": {host: {"nics": nics} for host in HOSTS},
    }
    with Lab.create(Topology.model_validate(document)) as made:
        yield made


@contextmanager
def controller_at_a(lab: Lab, listen: str, targets: dict[str, str]) -> Iterator[None]:
    """A controller on host A, and each host's route to it."""
    argv = [sys.executable, "-m", "ri2n_sdn.cli.main", "controller", "--listen", listen]
    argv += ["--socket", str(lab.controller_socket), "--config", str(lab.cluster_file)]
    argv += ["--state-dir", str(lab.run_dir / ".memory")]
    for host, target in targets.items():
        lab.vsctl(host, "set-controller", "br-ri2n", target)
    with (lab.run_dir / "controller.log").open("ab") as log:
        controller = lab.popen("A", argv, stdout=log, stderr=log)
    try:
        lab.wait_ready()
        yield
    finally:
        _end(controller)


def _end(controller: subprocess.Popen[bytes]) -> None:
    controller.kill()
    controller.wait()


def swap_cables(lab: Lab, host: str) -> None:
    """Swap the host's two cables."""
    one, other = (port for port in switch_ports(lab.topology) if port.host == host)
    bridges = {port: lab.vsctl("sw", "port-to-br", port.device).strip() for port in (one, other)}
    args = ["--id=@noop", "create", "QoS", "type=linux-noop"]
    for port in (one, other):
        args += ["--", "del-port", bridges[port], port.device]
    for port, bridge in ((one, bridges[other]), (other, bridges[one])):
        args += ["--", "add-port", bridge, port.device]
        args += ["--", "set", "port", port.device, "qos=@noop"]
    lab.vsctl("sw", *args)


def networks(lab: Lab) -> dict[str, str | None]:
    """The network of each NIC; empty while a host is not connected or something has not settled."""
    status = call(lab.controller_socket, "status")
    if not status["settled"] or not all(host["connected"] for host in status["hosts"]):
        return {}
    return {
        f"{host['name']}:{nic['name']}": nic["network"]
        for host in status["hosts"]
        for nic in host["nics"]
    }


def joined(now: dict[str, str | None], host: str, fellow: str) -> list[bool]:
    """For each NIC of `host`, whether it is on the network of the NIC of that name of `fellow`."""
    return (
        [now[f"{host}:eth{number}"] == now[f"{fellow}:eth{number}"] for number in (0, 1)]
        if now
        else []
    )


def survives_swaps(lab: Lab) -> None:
    """The cables of each host are swapped under a stream between others.

    The controller finds out how they are now.
    """
    for host, sender, receiver in (("B", "C", "B"), ("C", "B", "C"), ("A", "B", "C")):
        fellow = next(name for name in HOSTS if name != host)
        before = joined(networks(lab), host, fellow)
        assert before in ([True, True], [False, False])
        stream = Stream(lab, sender, receiver, seconds=4)
        busy_nic(lab, sender)
        swap_cables(lab, host)
        swapped_is_found(lab, host, fellow, [not each for each in before])
        got = stream.result()
        assert got.received and not got.duplicates, (host, got)
        assert not EXACT or (
            got.longest_gap_ms <= MAX_GAP_MS and not got.lost_after(got.end_s - 0.5)
        ), (host, got)
        for end in HOSTS[1:]:
            reaches(lab, "A", end)


def swapped_is_found(lab: Lab, host: str, fellow: str, as_now: list[bool]) -> None:
    await_true(
        lambda: joined(networks(lab), host, fellow) == as_now,
        lambda: f"{host} and {fellow} are not {as_now}: {call(lab.controller_socket, 'status')}",
    )


@pytest.mark.smoke
def test_cables_are_swapped_under_a_controller_that_hosts_reach_by_ipv4_ipv6_and_loopback(
    lab: Lab,
) -> None:
    targets = {"A": "127.0.0.1", "B": f"[{lab.address6('A')}]", "C": lab.address("A")}
    with controller_at_a(
        lab, f"[::]:{PORT}", {host: f"tcp:{at}:{PORT}" for host, at in targets.items()}
    ):
        survives_swaps(lab)


def test_cables_are_swapped_under_a_controller_that_has_moved(lab: Lab) -> None:
    """The controller runs at a second address, which its predecessor's rows do not have."""
    at = f"{lab.address('A')}:{PORT}"
    with controller_at_a(lab, at, dict.fromkeys(HOSTS, f"tcp:{at}")):
        pass
    lab.exec("A", ["ip", "addr", "add", f"{MOVED}/32", "dev", "br-ri2n"])
    for host in HOSTS[1:]:
        lab.exec(
            host, ["ip", "route", "add", f"{MOVED}/32", "via", lab.address("A"), "dev", "br-ri2n"]
        )
    swap_cables(lab, "B")  # while no controller runs
    with controller_at_a(lab, f"{MOVED}:{PORT}", dict.fromkeys(HOSTS, f"tcp:{MOVED}:{PORT}")):
        survives_swaps(lab)
