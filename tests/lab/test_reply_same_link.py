# SPDX-License-Identifier: Apache-2.0
"""reply-same-link on a host with three NICs in one subnet.

Replies leave by the right NIC, and everything is restored.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster.namespaces import add_namespaces, remove_namespaces
from ri2n_lab.cluster.run import in_namespace, ip_batch, run

from .prepared_host import DEFAULT_SIGNALS, fake_program

SCRIPT = Path(__file__).resolve().parents[2] / "ovs-host-scripts" / "reply-same-link"
NICS = ("eth0", "eth1", "eth2")
NET4, NET6 = "10.88.0", "fd88:"
BEHIND_ROUTER4, BEHIND_ROUTER6 = "10.99.0.9", "fd99::9"
SENT_BYTES = 300_000
FAMILIES = pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])

SERVER = """
import socket, threading
server = socket.create_server(("::", 7100), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(bytes(300_000))
    connection.close()
"""
CLIENT = """
import socket, sys
source = (sys.argv[2], 0) if len(sys.argv) > 2 else None
connection = socket.create_connection((sys.argv[1], 7100), timeout=120, source_address=source)
assert len(connection.makefile("rb").read()) == 300_000
"""
SNAPSHOT = """
ip -4 rule; ip -6 rule; ip -4 route show table all; ip -6 route show table all
cd /proc/sys/net; grep -r . ipv4/conf/*/arp_* ipv4/conf/*/rp_filter ipv6/conf/*/disable_ipv6
"""


class Host:
    """The host under test, and a client on the same bridge.

    The client is a router for its second address, too.
    """

    def __init__(self, state: Path) -> None:
        self.server: subprocess.Popen[str] | None = None
        self.names = {
            part: f"ri2n-rsl{os.getpid()}-{part}" for part in ("host", "client", "bridge")
        }
        self.state = state

    def make(self) -> None:
        """Make the namespaces, a bridge and addresses.

        Reverse paths are checked strictly, as distributions set it.
        """
        host, client, bridge = self.names.values()
        add_namespaces(self.names.values())
        lines = ["link add br0 type bridge", "link set br0 up"]
        for number, (owner, nic) in enumerate([*((host, nic) for nic in NICS), (client, "eth0")]):
            lines += [
                f"link add p{number} type veth peer name {nic} netns {owner}",
                f"link set p{number} master br0 up",
            ]
        ip_batch(lines, namespace=bridge)
        self.on("host", "sh", "-ec", "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter")
        for number, nic in enumerate(NICS, 1):
            self.ip("host", f"link set {nic} up")
            self.ip("host", f"addr add {NET4}.{number}/24 dev {nic}")
            self.ip("host", f"addr add {NET6}:{number}/64 dev {nic} nodad")
        self.ip("host", "link set lo up")
        self.ip("client", "link set lo up")
        self.ip("client", "link set eth0 up")
        for address in (f"{NET4}.9/24 dev eth0", f"{BEHIND_ROUTER4}/32 dev lo"):
            self.ip("client", f"addr add {address}")
        for address in (f"{NET6}:9/64 dev eth0", f"{BEHIND_ROUTER6}/128 dev lo"):
            self.ip("client", f"addr add {address} nodad")
        self.ip("host", f"route add default via {NET4}.9 dev eth0 metric 50")
        self.ip("host", f"-6 route add default via {NET6}:9 dev eth0 metric 50")
        command = in_namespace(host, [sys.executable, "-c", SERVER])
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout is not None and self.server.stdout.readline() == "ready\n"

    def remove(self) -> None:
        """Remove what `make` made, however far it came."""
        remove_namespaces(self.names.values())
        if self.server is not None:
            self.server.communicate()

    def on(self, part: str, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run(in_namespace(self.names[part], argv), check=check)

    def ip(self, part: str, command: str) -> str:
        return self.on(part, "ip", *command.split()).stdout

    def script(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.on("host", str(SCRIPT), *args, "--state-dir", str(self.state), check=check)

    def snapshot(self) -> str:
        """Rules, routes of all tables, and sysctls, without what only tells the time."""
        return "\n".join(
            sorted(self.on("host", "sh", "-c", SNAPSHOT, check=False).stdout.splitlines())
        )

    def address(self, number: int, ipv6: bool) -> str:
        return f"{NET6}:{number}" if ipv6 else f"{NET4}.{number}"

    def replies(self, number: int, ipv6: bool, source: str | None = None) -> dict[str, int]:
        """The bytes that leave each NIC while the client gets SENT_BYTES from one address.

        It is the `number`-th address of the host.
        """
        before = self._sent()
        arguments = [self.address(number, ipv6), *([source] if source else [])]
        self.on("client", sys.executable, "-c", CLIENT, *arguments)
        return {nic: after - before[nic] for nic, after in self._sent().items()}

    def _sent(self) -> dict[str, int]:
        files = [f"/sys/class/net/{nic}/statistics/tx_bytes" for nic in NICS]
        return dict(zip(NICS, map(int, self.on("host", "cat", *files).stdout.split()), strict=True))


def leaves_by(sent: dict[str, int]) -> str:
    """The one NIC by which the replies left; AssertionError when they left by several."""
    (found,) = [nic for nic, count in sent.items() if count > SENT_BYTES / 100]
    assert sent[found] > SENT_BYTES
    return found


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., None]
) -> Iterator[Host]:
    host = Host(tmp_path_factory.mktemp("state"))
    try:
        host.make()
        # Link-local addresses bring routes of their own, once it is found that nobody else has
        # them.
        wait_until(
            lambda: not host.ip("host", "-6 addr show tentative"), "addresses stay tentative", 120
        )
        yield host
    finally:
        host.remove()


@pytest.fixture
def host(made: Host) -> Iterator[Host]:
    """The host as it was before the script, also afterwards.

    The client forgets all MACs that it learned before.
    """
    made.ip("client", "neigh flush all")
    yield made
    made.script("down")


@FAMILIES
def test_replies_leave_by_the_nic_of_the_address(host: Host, ipv6: bool) -> None:
    """Without the script, all replies leave by one NIC.

    With it, each leaves by its own, and `down` restores everything.
    """
    assert {leaves_by(host.replies(number, ipv6)) for number in (1, 2, 3)} == {"eth0"}
    before = host.snapshot()
    host.script("up", *NICS)
    host.ip("client", "neigh flush all")
    assert [leaves_by(host.replies(number, ipv6)) for number in (1, 2, 3)] == list(NICS)
    host.script("down")
    assert host.snapshot() == before
    assert list(host.state.iterdir()) == []
    host.ip("client", "neigh flush all")
    assert {leaves_by(host.replies(number, ipv6)) for number in (1, 2, 3)} == {"eth0"}


@FAMILIES
def test_the_next_hop_is_still_the_routing_tables(host: Host, ipv6: bool) -> None:
    """A client is behind a router.

    All three NICs can reach the router, though the default route names one of them.
    """
    source = BEHIND_ROUTER6 if ipv6 else BEHIND_ROUTER4
    assert leaves_by(host.replies(2, ipv6, source)) == "eth0"
    host.script("up")
    host.ip("client", "neigh flush all")
    assert [leaves_by(host.replies(number, ipv6, source)) for number in (1, 2, 3)] == list(NICS)


@pytest.mark.parametrize("signal_name", ["HUP", "PIPE"])
def test_it_finishes_though_the_session_dies(host: Host, tmp_path: Path, signal_name: str) -> None:
    """The signals come of a terminal that is gone and of output that nobody reads.

    They come while a rule is added or removed.
    """
    programs = fake_program(
        tmp_path, "ip", f'case "$*" in *"rule "*) kill -{signal_name} $PPID;; esac; exec REAL "$@"'
    )
    before = host.snapshot()
    for action in ("up", "down"):
        path = f"PATH={programs}:{os.environ['PATH']}"
        host.on("host", *DEFAULT_SIGNALS, path, str(SCRIPT), action, "--state-dir", str(host.state))
        if action == "up":
            assert host.script("up").stdout == "nothing to do\n"
    assert host.snapshot() == before


def test_each_nic_answers_arp_for_its_own_address_alone(host: Host) -> None:
    macs = [host.on("host", "cat", f"/sys/class/net/{nic}/address").stdout.strip() for nic in NICS]
    host.script("up")
    for number, mac in enumerate(macs, 1):
        host.ip("client", "neigh flush all")
        host.replies(number, ipv6=False)
        assert mac in host.ip("client", f"neigh show {NET4}.{number}")


def test_a_second_run_changes_nothing_and_puts_right_what_is_missing(host: Host) -> None:
    before = host.snapshot()
    assert host.script("status", check=False).returncode == 1
    host.script("up")
    up = host.snapshot()
    assert host.script("up").stdout == "nothing to do\n"
    assert host.snapshot() == up
    assert host.script("status").stdout.count("table") == 3
    host.ip("host", f"rule del from {NET4}.2")
    host.ip("host", "-6 route flush dev eth1 table 5250")
    status = host.script("status", check=False)
    assert status.returncode == 1 and status.stdout.count("missing") == 3, status.stdout
    host.script("up")
    assert host.snapshot() == up
    host.script("down")
    assert host.snapshot() == before
    assert host.script("down").stdout == "nothing to undo\n"


def test_nics_one_by_one_and_an_address_that_moves(host: Host) -> None:
    before = host.snapshot()
    host.script("up", "eth1")
    assert "10.88.0.1 lookup" not in host.snapshot()
    host.script("up", "eth2")
    assert leaves_by(host.replies(3, ipv6=True)) == "eth2"
    host.script("down", "eth2")
    assert leaves_by(host.replies(3, ipv6=True)) == "eth0"
    assert leaves_by(host.replies(2, ipv6=True)) == "eth1"
    host.ip("host", f"addr add {NET4}.22/24 dev eth1")
    host.script("up", "eth1")
    assert f"from {NET4}.22 lookup" in host.snapshot()
    host.ip("host", f"addr del {NET4}.22/24 dev eth1")
    host.script("up")
    assert f"from {NET4}.22 lookup" not in host.snapshot()
    host.script("down")
    assert host.snapshot() == before


def test_tables_and_settings_of_others_are_left_alone(host: Host) -> None:
    host.ip("host", "route add 192.0.2.0/24 dev eth2 table 5249")
    host.ip("host", "rule add from 192.0.2.1 lookup 5250 priority 99")
    host.on("host", "sh", "-c", "echo 2 > /proc/sys/net/ipv4/conf/eth0/arp_ignore")
    try:
        before = host.snapshot()
        host.script("up")
        up = host.snapshot()
        assert "ipv4/conf/eth0/arp_ignore:2" in up and "ipv4/conf/eth1/arp_ignore:1" in up
        assert f"from {NET4}.1 lookup 5251" in up and f"from {NET4}.3 lookup 5253" in up
        host.script("down")
        assert host.snapshot() == before
    finally:
        host.ip("host", "route del 192.0.2.0/24 dev eth2 table 5249")
        host.ip("host", "rule del from 192.0.2.1")
        host.on("host", "sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/eth0/arp_ignore")


def test_dry_run_says_it_and_changes_nothing(host: Host) -> None:
    before = host.snapshot()
    said = host.script("up", "--dry-run").stdout
    assert f"ip -4 rule add from {NET4}.2 lookup 5250" in said and "arp_ignore=1" in said
    assert host.snapshot() == before and list(host.state.iterdir()) == []


def test_a_table_is_emptied_when_no_rule_leads_to_it(host: Host) -> None:
    """Else replies would meanwhile find no route, or another NIC's."""
    host.script("up")
    said = host.script("down", "--dry-run").stdout.splitlines()
    for family in ("-4", "-6"):
        for table in ("5249", "5250", "5251"):
            steps = [
                line.split()[2:4]
                for line in said
                if line.startswith(f"ip {family}") and f" {table}" in line
            ]
            assert steps == sorted(steps, key=lambda step: step[0] != "rule")
            assert {step[0] for step in steps} == {"rule", "route"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say up, down or status"),
        (["sideways"], "sideways: must be up, down or status"),
        (["up", "nosuch"], "NIC nosuch: no such device"),
        (["up", "../x"], "NIC ../x: no such device"),
        (["up", "lo"], "NIC lo: not an Ethernet device"),
        (["up", "--fast"], "unknown option --fast"),
        (["down", "eth1"], "NIC eth1: nothing is set up for it"),
        (["status", "eth1"], "status takes no NICs"),
        (["up", "--state-dir", ""], "--state-dir needs a value"),
    ],
)
def test_bad_input_is_one_line_and_status_2(host: Host, arguments: list[str], says: str) -> None:
    before = host.snapshot()
    done = host.on("host", str(SCRIPT), "--state-dir", str(host.state), *arguments, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and says in done.stderr and not done.stdout
    assert host.snapshot() == before


def test_a_nic_without_address_or_of_a_bridge_is_refused(host: Host) -> None:
    host.ip("host", "link add spare0 type veth peer name spare1")
    host.ip("host", "link add br9 type bridge")
    try:
        assert "has no address" in host.script("up", "spare0", check=False).stderr
        host.ip("host", "link set spare0 master br9")
        assert "belongs to br9" in host.script("up", "spare0", check=False).stderr
    finally:
        host.ip("host", "link del spare0")
        host.ip("host", "link del br9")
