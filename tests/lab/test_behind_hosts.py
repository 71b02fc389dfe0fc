# SPDX-License-Identifier: Apache-2.0
"""Containers behind a host, with MAC addresses of their own.

Only the host's `host-up` was told these addresses.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.build import OFFLOADS_OFF
from ri2n_sdn.client import call
from ri2n_sdn.fabric.topology import load_topology

from .conftest import EXACT, PATIENCE_S, TOPOLOGIES, WAYS, WaitUntil, controlled, on_way
from .prepared_host import SCRIPTS

MAC = "0e:00:00:00:77:01"
SECOND = "0e:00:00:00:77:02"
HOST = "B"
GET = """
import socket, sys
s = socket.create_connection((sys.argv[1], 5900), timeout=float(sys.argv[2]))
print(len(s.makefile("rb").read()))
"""
SERVE = """
import socket
s = socket.create_server(("0.0.0.0", 5900))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(bytes(300_000))
    c.close()
"""


class Container:
    """A network namespace on HOST with an address of the cluster's network.

    `address` is without its prefix length.
    """

    def __init__(self, lab: Lab, number: int, wait_until: WaitUntil) -> None:
        self.lab = lab
        self.address = f"{lab.address(HOST).rpartition('.')[0]}.{number}"
        self.process = lab.popen(HOST, ["unshare", "--net", "sleep", "3600"])
        own = lab.exec(HOST, ["readlink", "/proc/self/ns/net"]).stdout
        wait_until(
            lambda: (
                lab.exec(HOST, ["readlink", f"/proc/{self.process.pid}/ns/net"], check=False).stdout
                not in ("", own)
            ),
            "the container has no network of its own",
        )

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        inside = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net"]
        return self.lab.exec(HOST, [*inside, *command], check=check)

    def configure(self, device: str) -> None:
        """Give its address to a device that it has."""
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", device)
        self.run("ip", "link", "set", device, "up")

    def plug(self, port: str, mac: str) -> None:
        """Plug in a veth: eth0 inside with that MAC, `port` on the host."""
        inside = ["peer", "name", "eth0", "address", mac, "netns", str(self.process.pid)]
        self.lab.exec(HOST, ["ip", "link", "add", port, "type", "veth", *inside])
        self.run("ethtool", "-K", "eth0", *OFFLOADS_OFF.split())
        self.configure("eth0")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """A program inside gives 300,000 bytes to whoever connects."""
        inside = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "python3", "-c", SERVE]
        with self.lab.popen(HOST, inside, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == b"ready\n"
                yield
            finally:
                server.kill()

    def end(self) -> None:
        """Remove its namespace, and its devices with it."""
        self.process.kill()
        self.process.wait()

    def unheard(self, hosts: list[str]) -> list[str]:
        """The hosts that get no answer from the container."""
        ping = ["ping", "-q", "-c1", "-W1", self.address]
        return [host for host in hosts if self.lab.exec(host, ping, check=False).returncode]


@pytest.fixture(params=WAYS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with controlled("one-switch", fast=on_way(request)) as lab:
        yield lab


def test_an_address_that_host_up_alone_was_told_is_reached_by_all_hosts(
    lab: Lab, wait_until: WaitUntil
) -> None:
    box = Container(lab, 77, wait_until)
    device = ["ip", "link", "add", "box0", "link", "br-ri2n", "address", MAC]
    lab.exec(HOST, [*device, "netns", str(box.process.pid), "type", "macvlan", "mode", "bridge"])
    box.configure("box0")
    # HOST itself cannot talk to its own macvlan.
    others = [host for host in lab.hosts if host != HOST]

    def silent() -> list[str]:
        return box.unheard(others)

    assert silent() == others, "nobody was told of it"
    lab.host_script(HOST, "host-up", *lab.host_up_arguments(HOST), "--extra-mac", MAC)
    wait_until(lambda: not silent(), lambda: f"not reached by {silent()}", PATIENCE_S)
    lab.host_script(HOST, "host-up", *lab.host_up_arguments(HOST))
    wait_until(
        lambda: silent() == others,
        "it is still let in, though host-up was told that it went",
        PATIENCE_S,
    )


@contextmanager
def watched(lab: Lab, folder: Path, *macs: str) -> Iterator[None]:
    """host-watch watches HOST, whose host.conf names these devices."""
    given = iter(lab.host_up_arguments(HOST))
    alone = ("--helper", "--fast")
    lines = [f"{option[2:]} {'yes' if option in alone else next(given)}" for option in given]
    run_dir = lab.run_dir / HOST
    lines += [
        f"db unix:{run_dir}/db.sock",
        f"state-dir {run_dir}/state",
        *(f"extra-mac {mac}" for mac in macs),
    ]
    config = folder / "host.conf"
    config.write_text("\n".join(lines) + "\n")
    process = lab.popen(HOST, [str(SCRIPTS / "host-watch"), "--config", str(config)])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def all_reach(lab: Lab, box: Container, wait_until: WaitUntil) -> None:
    """Every host and the container reach each other, by ping and by TCP with full packets."""
    wait_until(
        lambda: not box.unheard(lab.hosts),
        lambda: f"not reached by {box.unheard(lab.hosts)}",
        PATIENCE_S,
    )
    limit_s = "10" if EXACT else str(PATIENCE_S)
    for host in lab.hosts:
        assert lab.exec(host, ["python3", "-c", GET, box.address, limit_s]).stdout == "300000\n"
        ping = ["ping", "-q", "-c1", "-W3", lab.address(host)]
        wait_until(
            lambda ping=ping: box.run(*ping, check=False).returncode == 0,
            f"{host} does not answer",
            0.0,  # in virtual time the first ping is answered
        )


@pytest.mark.virtual
@pytest.mark.smoke
def test_a_container_with_a_port_of_its_own_reaches_everybody(
    wait_until: WaitUntil, tmp_path: Path
) -> None:
    """First without a controller, then, started again, with one; then two containers of one host.

    Each has only its own address.
    """
    with ExitStack() as stack:
        lab = stack.enter_context(Lab.create(load_topology(TOPOLOGIES / "one-switch.yaml")))
        stack.enter_context(watched(lab, tmp_path, f"{MAC}@box1", f"{SECOND}@box2"))
        for controller in (False, True):
            if controller:
                lab.start_controller()
                lab.wait_ready()
            box = Container(lab, 77, wait_until)
            box.plug("box1", MAC)
            with box.serving():
                all_reach(lab, box, wait_until)
            box.end()
        entry = next(
            host for host in call(lab.controller_socket, "status")["hosts"] if host["name"] == HOST
        )
        nics = {nic.name for nic in lab.topology.hosts[HOST].nics}
        assert {nic["name"] for nic in entry["nics"]} == nics, (
            "the container's device is not taken for a NIC"
        )
        first, second = Container(lab, 77, wait_until), Container(lab, 78, wait_until)
        first.plug("box1", MAC)
        second.plug("box2", SECOND)

        def reached(address: str) -> bool:
            return first.run("ping", "-q", "-c1", "-W1", address, check=False).returncode == 0

        wait_until(
            lambda: reached(second.address) and reached(lab.address("A")),
            "two containers of one host do not reach each other and A",
            PATIENCE_S,
        )
        first.run("ip", "link", "set", "eth0", "address", "0e:00:00:00:77:99")
        assert not reached(second.address) and not reached(lab.address("A")), (
            "it is heard under another address"
        )
