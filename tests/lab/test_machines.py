# SPDX-License-Identifier: Apache-2.0
"""A host as an administrator has it: installed as docs/host.md says, with systemd and reboots.

It also loses power. Its peer is a host of the lab under host-up, which is reached by either
network. The tests run in real time, so they check that it is reached again, not how soon.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.machine import Machine
from ri2n_sdn.errors import NotAvailable
from tests.topology_text import parse_topology

from .conftest import WaitUntil

ROOT = Path(__file__).resolve().parents[2]
SITE = """
name: site
switches: {n1: {}, n2: {}}
hosts:
  A:
    nics:
    - {name: eth0, switch: n1, rate_bps: 100000000}
    - {name: eth1, switch: n2, rate_bps: 100000000}
    - {name: eth2, switch: n1, rate_bps: 100000000}
    - {name: eth3, switch: n2, rate_bps: 100000000}
    - {name: spare, switch: n2, rate_bps: 100000000}
  B: {nics: [{name: eth0, switch: n1, rate_bps: 100000000},
             {name: eth1, switch: n2, rate_bps: 100000000}]}
"""
CONTROLLER = "tcp:10.255.0.1:6653"
PATIENCE_S = 180.0


def commands(path: str, heading: str, word: str) -> str:
    """The first block that has a word below a heading of the docs, without apt's lines.

    The machine has our root, with its packages.
    """
    text = (ROOT / path).read_text().partition(f"## {heading}\n")[2]
    block = next(
        block for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) if word in block
    )
    return "\n".join(line for line in block.splitlines() if not line.startswith("apt "))


@pytest.fixture(scope="module")
def site() -> Iterator[Lab]:
    with Lab.create(parse_topology(SITE), software="ovs") as lab:
        try:
            with Machine(lab, "A") as machine:
                # Nothing is installed yet, so what does not work here is not allowed on this
                # machine.
                machine.boot()
        except NotAvailable as error:
            pytest.skip(str(error))
        lab.host_script("B", "host-up", *lab.host_up_arguments("B"))
        yield lab


@pytest.fixture
def machine(site: Lab) -> Iterator[Machine]:
    """Host A with the scripts installed and Open vSwitch running at every boot.

    networkd gives its address.
    """
    with Machine(site, "A", ROOT) as machine:
        machine.boot()
        machine.run("bash", "-ec", f"cd {ROOT}\n{commands('docs/host.md', 'Install', 'host-up')}")
        configure(machine, "eth0", "[Network]\nAddress=10.77.0.1/24\n")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "enable", "--now", "openvswitch-switch", "systemd-networkd")
        yield machine
        machine.cut_power()


def configure(machine: Machine, device: str, text: str) -> None:
    machine.write(f"/etc/systemd/network/10-{device}.network", f"[Match]\nName={device}\n{text}")


def reaches(machine: Machine) -> bool:
    """Whether B gets an answer from A."""
    return machine.run("ping", "-q", "-c1", "-W1", "10.77.0.2", check=False).returncode == 0


def bridges(machine: Machine) -> str:
    return machine.run("ovs-vsctl", "list-br").stdout.strip()


def host_conf(machine: Machine, *nics: str) -> None:
    """Install RI2N for good, as docs/host.md says.

    The options are in a file, the address is on the bridge, and the unit is enabled.
    """
    lines = [*(f"nic {nic}" for nic in nics), "name A", f"controller {CONTROLLER}"]
    machine.write("/etc/ri2n/host.conf", "\n".join(lines) + "\n")
    machine.run("rm", "/etc/systemd/network/10-eth0.network")
    for nic in nics:
        configure(machine, nic, "[Network]\nLinkLocalAddressing=no\n")
    configure(machine, "br-ri2n", "[Network]\nAddress=10.77.0.1/24\n")
    machine.run("systemctl", "enable", "ri2n-host")


def status(machine: Machine) -> str:
    return machine.run("host-status", check=False).stdout


def test_a_loss_of_power_before_the_confirmation_is_undone_at_boot(
    machine: Machine, wait_until: WaitUntil
) -> None:
    machine.run("systemctl", "enable", "ri2n-unconfirmed")
    up = ["host-up", "--nic", "eth0", "--nic", "eth1"]
    up += ["--controller", CONTROLLER, "--confirm", "9999"]
    said = machine.run(*up)
    assert "loss of power" not in said.stderr
    assert bridges(machine) == "br-ri2n"
    wait_until(lambda: reaches(machine), "B does not answer")
    machine.cut_power()
    machine.boot()
    wait_until(
        lambda: bridges(machine) == "", lambda: machine.journal("ri2n-unconfirmed"), PATIENCE_S
    )
    wait_until(lambda: reaches(machine), "the NIC is not as before", PATIENCE_S)

    def left() -> list[str]:
        return machine.run("ls", "-A", "/var/lib/ri2n").stdout.split()

    # The state goes last.
    wait_until(lambda: left() == ["br-ri2n.undo.log"], lambda: f"left are {left()}", PATIENCE_S)


def test_host_up_says_where_a_loss_of_power_would_not_be_undone(machine: Machine) -> None:
    up = ["host-up", "--nic", "eth0", "--controller", CONTROLLER, "--confirm", "9999"]
    assert "systemctl enable ri2n-unconfirmed" in machine.run(*up).stderr
    machine.run("systemctl", "start", "ri2n-unconfirmed")  # its watcher lives, so nothing is undone
    assert bridges(machine) == "br-ri2n"


FOUR = ("eth0", "eth1", "eth2", "eth3")
SUBSETS = [(("eth0", "eth1"), ("eth0",)), (("eth0", "eth1"), ("eth1",))]
ALL_OF_FOUR = [(FOUR, missing) for number in (1, 2, 3) for missing in combinations(FOUR, number)]


@pytest.mark.parametrize(
    ("nics", "missing"),
    [*SUBSETS, *(pytest.param(*each, marks=pytest.mark.long) for each in ALL_OF_FOUR)],
    ids=" ".join,
)
def test_it_boots_without_nics_and_takes_each_when_it_appears(
    nics: tuple[str, ...], missing: tuple[str, ...], machine: Machine, wait_until: WaitUntil
) -> None:
    host_conf(machine, *nics)
    machine.cut_power()
    for nic in missing:
        machine.network("ip", "link", "set", nic, "name", f"x{nic}")
    machine.boot()
    wait_until(
        lambda: reaches(machine), lambda: status(machine) + machine.journal("ri2n-host"), PATIENCE_S
    )
    for nic in missing:
        said = f"--nic {nic}: there is no such NIC: going on without it"
        wait_until(
            lambda said=said: said in machine.journal("ri2n-host"),
            lambda: machine.journal("ri2n-host"),
            PATIENCE_S,
        )

    def units() -> list[str]:
        argv = ["systemctl", "is-active", "ri2n-host", "ri2n-host-watch"]
        return machine.run(*argv, check=False).stdout.split()

    # The host is reached before host-up has done the last that it does.
    wait_until(lambda: units() == ["active", "active"], lambda: f"{units()}", PATIENCE_S)
    took_s = []
    for nic in missing:
        number = 1 + nics.index(nic)
        machine.network("ip", "link", "set", f"x{nic}", "name", nic)
        appeared_s = time.monotonic()
        wait_until(
            lambda nic=nic, number=number: f"NIC {nic}: port {number}, link up" in status(machine),
            lambda: status(machine) + machine.journal("ri2n-host-watch"),
            PATIENCE_S,
        )
        took_s.append(round(time.monotonic() - appeared_s, 1))
    print("taken after", took_s, "s")
    for alone in missing:
        others = [nic for nic in nics if nic != alone]
        for nic in others:
            machine.network("ip", "link", "set", nic, "down")
        wait_until(
            lambda: reaches(machine),
            lambda: "a late NIC carries nothing: " + status(machine),
            PATIENCE_S,
        )
        for nic in others:
            machine.network("ip", "link", "set", nic, "up")


@pytest.mark.parametrize(
    "watched", [True, False], ids=["while it is watched", "before it is watched"]
)
def test_a_nic_that_is_replaced_under_its_name_is_heard(
    watched: bool, machine: Machine, wait_until: WaitUntil
) -> None:
    host_conf(machine, "eth0", "eth1")
    machine.run("systemctl", "start", "ri2n-host", *["ri2n-host-watch"] * watched)
    wait_until(lambda: reaches(machine), lambda: status(machine), PATIENCE_S)
    machine.network("ip", "link", "set", "eth1", "down")
    machine.network("ip", "link", "set", "eth1", "name", "broken")
    machine.network("ip", "link", "set", "spare", "down")
    machine.network("ip", "link", "set", "spare", "name", "eth1")
    replaced_s = time.monotonic()
    try:
        machine.run("systemctl", "start", "ri2n-host-watch")
        new = (
            machine.network("ip", "-o", "link", "show", "dev", "eth1")
            .partition("link/ether ")[2]
            .split()[0]
        )
        wait_until(
            lambda: f"NIC eth1: port 2, link up, MAC {new}" in status(machine),
            lambda: status(machine) + machine.journal("ri2n-host-watch"),
            PATIENCE_S,
        )
        print("taken after", round(time.monotonic() - replaced_s, 1), "s")
        machine.network("ip", "link", "set", "eth0", "down")
        wait_until(lambda: reaches(machine), lambda: "it is deaf: " + status(machine), PATIENCE_S)
    finally:
        machine.network("ip", "link", "set", "eth0", "up")
        machine.cut_power()
        for old, name in (("eth1", "spare"), ("broken", "eth1")):
            machine.network("ip", "link", "set", old, "name", name)


def test_a_host_without_any_nic_at_boot_takes_those_that_come_before_it_is_watched(
    machine: Machine, wait_until: WaitUntil
) -> None:
    nics = ("eth0", "eth1")
    host_conf(machine, *nics)
    machine.run("systemctl", "disable", "ri2n-host-watch")
    # It would wait two minutes for a network that is not there.
    machine.run("systemctl", "mask", "systemd-networkd-wait-online")
    machine.cut_power()
    for nic in nics:
        machine.network("ip", "link", "set", nic, "name", f"x{nic}")
    machine.boot()
    wait_until(
        lambda: (
            machine.run("systemctl", "is-failed", "ri2n-host", check=False).stdout.strip()
            == "failed"
        ),
        lambda: machine.journal("ri2n-host"),
        PATIENCE_S,
    )
    for nic in nics:
        machine.network("ip", "link", "set", f"x{nic}", "name", nic)
    machine.run("systemctl", "start", "ri2n-host-watch")
    wait_until(
        lambda: reaches(machine),
        lambda: status(machine) + machine.journal("ri2n-host-watch"),
        PATIENCE_S,
    )


# Answers each question by the address in a file, which is valid for a second. A connection to
# either address leaves a file.
NAMES_AND_VISITORS = """
import socket, threading
from pathlib import Path
def visitors(address):
    with socket.create_server((address, 6653)) as listening:
        while True:
            stream, _ = listening.accept()
            if stream.recv(1):
                Path("/run", address).touch()
            stream.close()
for address in ("192.0.2.10", "192.0.2.11"):
    threading.Thread(target=visitors, args=(address,), daemon=True).start()
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
while True:
    asked, client = names.recvfrom(512)
    end = asked.index(0, 12) + 5
    found = b""
    if asked[end - 4 : end - 2] == bytes((0, 1)):
        address = socket.inet_aton(Path("/run/address").read_text().strip())
        found = bytes((0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4)) + address
    head = asked[:2] + bytes((0x81, 0x80, 0, 1, 0, 1 if found else 0, 0, 0, 0, 0))
    names.sendto(head + asked[12:end] + found, client)
"""


def test_a_controller_has_a_name_and_moves(machine: Machine, wait_until: WaitUntil) -> None:
    for address in ("192.0.2.10", "192.0.2.11"):
        machine.run("ip", "addr", "add", f"{address}/32", "dev", "lo")
    machine.write("/run/address", "192.0.2.10")
    machine.write("/usr/local/lib/names.py", NAMES_AND_VISITORS)
    machine.run("rm", "-f", "/etc/resolv.conf")
    machine.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    machine.run("systemd-run", "--unit=names", "/usr/bin/python3", "/usr/local/lib/names.py")
    # It reads resolv.conf when it starts.
    machine.run("systemctl", "restart", "openvswitch-switch")
    machine.run(
        "host-up", "--nic", "eth0", "--nic", "eth1", "--controller", "tcp:ri2n.site.example:6653"
    )

    def visited(address: str) -> bool:
        return machine.run("test", "-e", f"/run/{address}", check=False).returncode == 0

    wait_until(
        lambda: visited("192.0.2.10"),
        lambda: machine.journal("names") + status(machine),
        PATIENCE_S,
    )
    assert not visited("192.0.2.11")
    machine.write("/run/address", "192.0.2.11")
    wait_until(
        lambda: visited("192.0.2.11"),
        lambda: machine.journal("names") + status(machine),
        PATIENCE_S,
    )


def test_the_state_is_for_root_alone(machine: Machine) -> None:
    """A user who may lock the state's folder could keep host-up and host-down from working."""
    host_conf(machine, "eth0", "eth1")
    machine.run("mkdir", "-m", "755", "-p", "/var/lib/ri2n")  # as it was made before
    machine.run("systemctl", "start", "ri2n-host")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        machine.run(
            "setpriv", "--reuid=65534", "--clear-groups", "flock", "-n", "/var/lib/ri2n", "true"
        )
    assert "Permission denied" in refused.value.stderr


def test_the_helper_runs_with_the_few_powers_that_its_service_has(
    machine: Machine, reorder_program: Path, wait_until: WaitUntil
) -> None:
    machine.run("install", "-m", "755", str(reorder_program), "/usr/local/lib/ri2n/ri2n-reorder")
    host_conf(machine, "eth0", "eth1")
    machine.run("sh", "-c", "echo helper yes >>/etc/ri2n/host.conf")
    machine.run("systemctl", "start", "ri2n-host")
    # It has told systemd that it is ready, or this fails.
    machine.run("systemctl", "start", "ri2n-reorder")
    # Open vSwitch hears of the TAPs' carrier a moment later.
    wait_until(lambda: "helper: running" in status(machine), lambda: status(machine), PATIENCE_S)
    asked = (
        "import socket; s = socket.socket(socket.AF_UNIX); "
        "s.connect('/run/ri2n/reorder.sock'); print(s.recv(9))"
    )
    assert machine.run("python3", "-c", asked).stdout.startswith("b'{")
    pid = machine.run(
        "systemctl", "show", "--property=MainPID", "--value", "ri2n-reorder"
    ).stdout.strip()
    capabilities = machine.run("sh", "-c", f"grep CapBnd /proc/{pid}/status").stdout.split()[1]
    # These are NET_ADMIN, NET_RAW and SYS_NICE.
    assert int(capabilities, 16) == sum(1 << number for number in (12, 13, 23))
    machine.run("kill", "-KILL", pid)
    wait_until(
        lambda: "helper: running" in status(machine),
        lambda: machine.journal("ri2n-reorder"),
        PATIENCE_S,
    )


def test_the_fast_path_runs_with_the_few_powers_that_its_service_has(
    machine: Machine, fast_program: Path, wait_until: WaitUntil
) -> None:
    machine.run("install", "-m", "755", str(fast_program), "/usr/local/lib/ri2n/ri2n-fast")
    unit = str(ROOT / "ovs-host-scripts" / "ri2n-fast.service")
    machine.run("install", "-m", "644", unit, "/etc/systemd/system/")
    machine.run("systemctl", "daemon-reload")
    host_conf(machine, "eth0", "eth1")
    machine.run("systemctl", "start", "ri2n-host")
    # It starts with ri2n-host where it is asked for, and not otherwise.
    assert machine.run("systemctl", "is-active", "ri2n-fast", check=False).stdout == "inactive\n"
    machine.run("sh", "-c", "echo fast yes >>/etc/ri2n/host.conf")
    machine.run("systemctl", "restart", "ri2n-host")

    def in_force() -> bool:
        return "fast path: in force" in status(machine)

    def said() -> str:
        return status(machine) + machine.journal("ri2n-fast")

    wait_until(in_force, said, PATIENCE_S)
    assert '"filter":"in_force"' in machine.run(
        "/usr/local/lib/ri2n/ri2n-fast", "status", "--json"
    ).stdout.replace(" ", "")
    show = ("systemctl", "show", "--property=MainPID", "--value", "ri2n-fast")
    pid = machine.run(*show).stdout.strip()
    capabilities = machine.run("sh", "-c", f"grep CapBnd /proc/{pid}/status").stdout.split()[1]
    # These are DAC_OVERRIDE, NET_ADMIN, SYS_PTRACE, PERFMON and BPF.
    assert int(capabilities, 16) == sum(1 << number for number in (1, 12, 19, 38, 39))
    machine.run("kill", "-KILL", pid)
    wait_until(lambda: machine.run(*show).stdout.strip() not in ("0", pid), said, PATIENCE_S)
    wait_until(in_force, said, PATIENCE_S)
    # What is no longer asked for ends, and does not start again.
    machine.run("sed", "-i", "s/^fast yes/fast no/", "/etc/ri2n/host.conf")
    machine.run("systemctl", "restart", "ri2n-host")
    wait_until(
        lambda: (
            machine.run("systemctl", "is-active", "ri2n-fast", check=False).stdout == "inactive\n"
        ),
        said,
        PATIENCE_S,
    )
    assert machine.run("tc", "filter", "show", "dev", "eth0", "ingress").stdout == ""


# A router on br-ri2n that announces the prefix PREFIX and an MTU of 1500.
ROUTER = """
import socket
import struct
with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as router:
    router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    router.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"br-ri2n")
    mtu = struct.pack("!BBHL", 5, 1, 0, 1500)
    prefix = struct.pack("!BBBBLLL", 3, 4, 64, 0xC0, 3600, 3600, 0)
    prefix += socket.inet_pton(socket.AF_INET6, "PREFIX")
    head = struct.pack("!BBHBBHLL", 134, 0, 0, 64, 0, 1800, 0, 0)
    router.sendto(head + mtu + prefix, ("ff02::1", 0))
"""


def test_a_router_that_promises_more_than_the_bridge_carries_is_not_believed(
    site: Lab, machine: Machine, wait_until: WaitUntil
) -> None:
    """With the helper, the bridge has an MTU of 1478.

    systemd-networkd makes routes with 1500, again with every advertisement.
    """
    host_conf(machine, "eth0", "eth1")
    machine.run("sh", "-c", "echo helper yes >>/etc/ri2n/host.conf")
    configure(machine, "br-ri2n", "[Network]\nAddress=10.77.0.1/24\nIPv6AcceptRA=yes\n")
    machine.run("systemctl", "start", "ri2n-host")
    # It starts with the host, and would mend the routes before they are looked at.
    machine.run("systemctl", "stop", "ri2n-host-watch")
    machine.run("systemctl", "restart", "systemd-networkd")

    def has_routes(prefix: str) -> bool:
        """Whether there are routes of such an advertisement; if not, one more is sent."""
        found = "default" in routes() and f"{prefix}/64" in routes()
        if not found:  # B cannot as long as it has no address of its own
            site.exec("B", ["python3", "-c", ROUTER.replace("PREFIX", prefix)], check=False)
        return found

    def routes() -> str:
        command = "ip -6 route show table all dev br-ri2n | grep 'proto ra' || true"
        return machine.run("sh", "-c", command).stdout

    def mtus() -> set[str]:
        return set(re.findall(r"\bmtu (\d+)", routes()))

    wait_until(lambda: has_routes("fd55::"), routes, PATIENCE_S)
    assert mtus() == {"1500"}
    assert "its MTU of 1500 is more than br-ri2n's, 1478" in status(machine)
    machine.run("systemctl", "start", "ri2n-host-watch")
    for prefix in ("fd55::", "fd66::"):
        wait_until(lambda prefix=prefix: has_routes(prefix), routes, PATIENCE_S)
        wait_until(
            lambda: mtus() == {"1478"},
            lambda: routes() + machine.journal("ri2n-host-watch"),
            PATIENCE_S,
        )
    assert "its MTU" not in status(machine)


def test_the_controller_runs_as_nobody_in_particular(
    machine: Machine, wait_until: WaitUntil
) -> None:
    """The controller runs with Debian's Python and this installation's packages.

    Services must not read the Python of a home folder.
    """
    site = Path(yaml.__file__).parents[1]
    paths = f"import sys; sys.path[:0] = ['{ROOT}', '{site}']"
    nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
    ]
    if machine.run(
        *nobody, f"{paths}; import ri2n_sdn, numpy, pydantic, yaml", check=False
    ).returncode:
        pytest.skip("this checkout is not for everybody to read, or not for /usr/bin/python3")
    code = f"{paths}; from ri2n_sdn.cli.main import main; main()"
    machine.write("/opt/ri2n_sdn/.venv/bin/ri2n", f"#!/usr/bin/python3\n{code}\n")
    # The service has a /tmp of its own, and no homes. It must see these folders even there.
    shown = f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={ROOT} {site}\n"
    machine.write("/etc/systemd/system/ri2n-controller.service.d/checkout.conf", shown)
    # This is the controller's address in the docs.
    machine.run("ip", "addr", "add", "192.0.2.10/32", "dev", "lo")
    machine.run("chmod", "755", "/opt/ri2n_sdn/.venv/bin/ri2n")
    machine.run(
        "sh",
        "-ec",
        f"cd {ROOT}\n{commands('docs/operations.md', 'Run the controller', 'enable --now')}",
    )
    wait_until(
        lambda: (
            "no host has connected"
            in machine.run("/opt/ri2n_sdn/.venv/bin/ri2n", "status", check=False).stdout
        ),
        lambda: machine.journal("ri2n-controller"),
        PATIENCE_S,
    )
    pid = machine.run(
        "systemctl", "show", "--property=MainPID", "--value", "ri2n-controller"
    ).stdout.strip()
    found = machine.run(
        "sh", "-c", f"grep -E 'Uid|CapEff|CapBnd' /proc/{pid}/status"
    ).stdout.split()
    assert found[1] != "0" and set(found[6::2]) == {"0000000000000000"}, found
    machine.run("systemctl", "reload", "ri2n-controller")
    wait_until(  # what a service says is in the journal a moment later
        lambda: "starting anew" in machine.journal("ri2n-controller"),
        lambda: machine.journal("ri2n-controller"),
        PATIENCE_S,
    )
    # No host has connected.
    assert machine.run("/opt/ri2n_sdn/.venv/bin/ri2n", "status", check=False).returncode == 1
    assert (
        machine.run(
            "systemctl", "show", "--property=MainPID", "--value", "ri2n-controller"
        ).stdout.strip()
        == pid
    )
