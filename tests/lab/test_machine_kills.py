"""host-up and host-down killed after any change; systemd-networkd or ifupdown gives the address, fixed or by DHCP."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import parse_topology
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.machine import Machine

from .failing_host import RUN
from .test_machines import PATIENCE_S, ROOT, SITE, bridges, commands

WaitUntil = Callable[..., None]
PEER = "10.77.0.2"
SERVER = f"[Network]\nAddress={PEER}/24\nDHCPServer=yes\n[DHCPServer]\nEmitRouter=yes\nRouter={PEER}\n"
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
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ri2n" / "debian"


def packages() -> list[Path]:
    """Debian's packages of ifupdown, for machines of a lab alone: on this machine it might take over the network.

    They are kept for guests, which reach no package registry.
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
    """A, with the scripts, each change of which may be its last, and B, which gives out addresses."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with Lab.create(parse_topology(SITE), software="ovs") as lab, ExitStack() as made:
        try:
            a, b = (made.enter_context(Machine(lab, name, ROOT, KEPT)) for name in "AB")
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
    # What the test before has left: a client of DHCP would go on by itself.
    machine.run("sh", "-c", "systemctl disable --now networking systemd-networkd; ip addr flush dev eth0", check=False)
    machine.run("rm", "-f", NETWORKD, IFUPDOWN)
    for file in found:
        # A folder of the package is a link in a system with one /usr: dpkg's own extraction would replace it.
        unpack = f"dpkg-deb --fsys-tarfile {file} | tar -x --keep-directory-symlink -C /"
        machine.run("bash", "-eo", "pipefail", "-c", unpack)
    machine.write(path, text)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", "networking" if path == IFUPDOWN else "systemd-networkd")
    return machine


def run(machine: Machine, *argv: str, kill: str = "", at: int = 0) -> subprocess.CompletedProcess[str]:
    """One of the scripts; `kill` names the one that dies after change number `at`."""
    machine.run("rm", "-f", RECORD)
    killed = [f"RI2N_TEST_KILL={kill}", f"RI2N_TEST_KILL_AT={at}"] if kill else []
    return machine.run("env", f"RI2N_TEST_RECORD={RECORD}", *killed, *argv, check=False)


def changes(machine: Machine) -> int:
    return len(machine.run("cat", RECORD).stdout.splitlines())


def reached_by(machine: Machine, device: str) -> str:
    """Its IPv4 addresses there and all IPv4 routes, without what says who made them."""
    words = f"ip -4 -o addr show dev {device} scope global; ip -4 route show"
    lines = machine.run("sh", "-c", words).stdout.splitlines()
    words = "valid_lft|preferred_lft|metric|proto|dynamic|noprefixroute|linkdown|src"
    drop = rf"^\d+: \S+|\s+({words})( \S+)?|\\.*| dev \S+"
    kept = (re.sub(drop, " ", line).replace(f" global {device}", " global") for line in lines)
    return "\n".join(sorted({" ".join(line.split()) for line in kept}))


@pytest.mark.long
@pytest.mark.virtual
def test_killed_at_every_change_and_run_again(machine: Machine, wait_until: WaitUntil) -> None:
    def reaches() -> bool:
        return machine.run("ping", "-q", "-c1", "-W1", PEER, check=False).returncode == 0

    def said() -> str:
        return machine.run("sh", "-c", "ip addr; ip route; host-status", check=False).stdout

    wait_until(lambda: "default via" in machine.run("ip", "route").stdout and reaches(), said, PATIENCE_S)
    before = reached_by(machine, "eth0")
    assert run(machine, *HOST_UP).returncode == 0
    ups, right = changes(machine), reached_by(machine, "br-ri2n")
    assert right == before
    assert run(machine, "host-down").returncode == 0
    downs = changes(machine)
    assert reached_by(machine, "eth0") == before
    for number in range(1, ups + 1):
        assert run(machine, *HOST_UP, kill="host-up", at=number).returncode != 0, number
        again = run(machine, *HOST_UP)
        assert again.returncode == 0, (number, again.stderr)
        assert reached_by(machine, "br-ri2n") == right, number
        wait_until(reaches, said, PATIENCE_S)
        assert run(machine, "host-down").returncode == 0
        assert reached_by(machine, "eth0") == before, number
        wait_until(reaches, said, PATIENCE_S)
    for number in range(1, downs + 1):
        assert run(machine, *HOST_UP).returncode == 0
        assert run(machine, "host-down", kill="host-down", at=number).returncode != 0, number
        again = run(machine, "host-down")
        assert again.returncode == 0, (number, again.stderr)
        assert reached_by(machine, "eth0") == before and bridges(machine) == "", number
        wait_until(reaches, said, PATIENCE_S)
    print(f"host-up killed at {ups} changes, host-down at {downs}")
