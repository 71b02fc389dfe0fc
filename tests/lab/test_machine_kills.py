# SPDX-License-Identifier: Apache-2.0
"""host-up and host-down are killed after any change.

The address is given by systemd-networkd or ifupdown, fixed or by DHCP.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.machine import Machine
from ri2n_sdn.errors import NotAvailable
from tests.topology_text import parse_topology

from .conftest import WaitUntil
from .failing_host import RUN
from .test_machines import PATIENCE_S, ROOT, SITE, bridges, commands

PEER = "10.77.0.2"
SERVER = (
    f"[Network]\nAddress={PEER}/24\nDHCPServer=yes\n[DHCPServer]\nEmitRouter=yes\nRouter={PEER}\n"
)
HOST_UP = ("host-up", "--nic", "eth0", "--nic", "eth1", "--name", "A", "--helper")
RECORD = "/run/record"

NETWORKD = "/etc/systemd/network/10-eth0.network"
IFUPDOWN = "/etc/network/interfaces"
BY = {
    "networkd-static": (
        NETWORKD,
        "[Match]\nName=eth0\n[Network]\nAddress=10.77.0.1/24\nGateway=10.77.0.2\n"
        "[Route]\nDestination=10.90.0.0/16\nGateway=10.77.0.9\n",
    ),
    "networkd-DHCP": (NETWORKD, "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n"),
    "ifupdown-static": (
        IFUPDOWN,
        "auto eth0\niface eth0 inet static\n address 10.77.0.1/24\n gateway 10.77.0.2\n"
        " up ip route add 10.90.0.0/16 via 10.77.0.9\n",
    ),
    "ifupdown-DHCP": (IFUPDOWN, "auto eth0\niface eth0 inet dhcp\n"),
}
PACKAGES = ("ifupdown", "isc-dhcp-client")
KEPT = ROOT / ".venv" / "debian"  # guests see this folder, and reach no package registry


def packages() -> list[Path]:
    """Debian's packages of ifupdown, only for machines of a lab.

    On this machine, ifupdown might take over the network.
    """
    for name in PACKAGES:
        if not list(KEPT.glob(f"{name}_*.deb")):
            line = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name]
            got = subprocess.run(line, cwd=KEPT, capture_output=True, text=True)
            if got.returncode:
                pytest.skip(f"needs Debian's package {name}: {got.stderr.strip()}")
    return [file for name in PACKAGES for file in KEPT.glob(f"{name}_*.deb")]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Machine, Machine]]:
    """A with the scripts, any change of which may be the last, and B, which gives out addresses."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with Lab.create(parse_topology(SITE), software="ovs") as lab, ExitStack() as made:
        try:
            a, b = (made.enter_context(Machine(lab, name, ROOT)) for name in "AB")
            a.boot()
            b.boot()
        except NotAvailable as error:
            pytest.skip(str(error))
        b.write("/etc/systemd/network/10-eth0.network", f"[Match]\nName=eth0\n{SERVER}")
        b.run("systemctl", "enable", "--now", "systemd-networkd")
        a.run("bash", "-ec", f"cd {ROOT}\n{commands('docs/host.md', 'Install', 'host-up')}")
        common = a.run("cat", "/usr/local/lib/ri2n/common.sh").stdout
        a.write("/usr/local/lib/ri2n/common.sh", common + RUN)
        a.run("systemctl", "enable", "--now", "openvswitch-switch")
        yield a, b


@pytest.fixture(params=list(BY))
def machine(request: pytest.FixtureRequest, pair: tuple[Machine, Machine]) -> Machine:
    """A, whose eth0 has its address and routes from that tool."""
    path, text = BY[request.param]
    found = packages() if path == IFUPDOWN else []
    machine, _ = pair
    # Remove what the test before has left: a DHCP client would go on by itself.
    machine.run(
        "sh",
        "-c",
        "systemctl disable --now networking systemd-networkd; ip addr flush dev eth0",
        check=False,
    )
    machine.run("rm", "-f", NETWORKD, IFUPDOWN)
    for file in found:
        # A folder of the package is a link in a system with one /usr: dpkg's own extraction would
        # replace the link.
        unpack = f"dpkg-deb --fsys-tarfile {file} | tar -x --keep-directory-symlink -C /"
        machine.run("bash", "-eo", "pipefail", "-c", unpack)
    machine.write(path, text)
    machine.run("systemctl", "daemon-reload")
    machine.run(
        "systemctl", "enable", "--now", "networking" if path == IFUPDOWN else "systemd-networkd"
    )
    return machine


def run(
    machine: Machine, *argv: str, kill: str = "", at: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts; `kill` names the one that dies after change number `at`."""
    machine.run("rm", "-f", RECORD)
    killed = [f"RI2N_TEST_KILL={kill}", f"RI2N_TEST_KILL_AT={at}"] if kill else []
    return machine.run("env", f"RI2N_TEST_RECORD={RECORD}", *killed, *argv, check=False)


def changes(machine: Machine) -> int:
    return len(machine.run("cat", RECORD).stdout.splitlines())


def reached_by(machine: Machine, device: str) -> str:
    """The machine's IPv4 addresses there and all IPv4 routes, without what says who made them."""
    words = f"ip -4 -o addr show dev {device} scope global; ip -4 route show"
    lines = machine.run("sh", "-c", words).stdout.splitlines()
    words = "valid_lft|preferred_lft|metric|proto|dynamic|noprefixroute|linkdown|src"
    drop = rf"^\d+: \S+|\s+({words})( \S+)?|\\.*| dev \S+"
    kept = (re.sub(drop, " ", line).replace(f" global {device}", " global") for line in lines)
    return "\n".join(sorted({" ".join(line.split()) for line in kept}))


class Trial:
    """A machine that is reached as before host-up.

    It records by what it is reached, then and under host-up.
    """

    def __init__(self, machine: Machine, wait_until: WaitUntil) -> None:
        self.machine, self._wait_until = machine, wait_until
        wait_until(
            lambda: "default via" in machine.run("ip", "route").stdout, self._said, PATIENCE_S
        )
        self._is_reached()
        self._before = reached_by(machine, "eth0")
        self.up()
        self.changes_of_up = changes(machine)
        self.down()
        self.changes_of_down = changes(machine)

    def up(self) -> None:
        """Run host-up to its end: the bridge is reached as the NIC was."""
        done = run(self.machine, *HOST_UP)
        assert done.returncode == 0, done.stderr
        assert reached_by(self.machine, "br-ri2n") == self._before
        self._is_reached()

    def down(self) -> None:
        """Run host-down to its end: everything is as before."""
        done = run(self.machine, "host-down")
        assert done.returncode == 0, done.stderr
        assert reached_by(self.machine, "eth0") == self._before and bridges(self.machine) == ""
        self._is_reached()

    def _is_reached(self) -> None:
        ping = ("ping", "-q", "-c1", "-W1", PEER)
        self._wait_until(
            lambda: self.machine.run(*ping, check=False).returncode == 0, self._said, PATIENCE_S
        )

    def _said(self) -> str:
        return self.machine.run("sh", "-c", "ip addr; ip route; host-status", check=False).stdout


@pytest.mark.long
@pytest.mark.virtual
def test_host_up_is_killed_at_every_change_and_run_again(
    machine: Machine, wait_until: WaitUntil
) -> None:
    trial = Trial(machine, wait_until)
    for number in range(1, trial.changes_of_up + 1):
        assert run(machine, *HOST_UP, kill="host-up", at=number).returncode != 0, number
        trial.up()
        trial.down()
    print(f"host-up killed at {trial.changes_of_up} changes")


@pytest.mark.long
@pytest.mark.virtual
def test_host_down_is_killed_at_every_change_and_run_again(
    machine: Machine, wait_until: WaitUntil
) -> None:
    trial = Trial(machine, wait_until)
    for number in range(1, trial.changes_of_down + 1):
        trial.up()
        assert run(machine, "host-down", kill="host-down", at=number).returncode != 0, number
        trial.down()
    print(f"host-down killed at {trial.changes_of_down} changes")
