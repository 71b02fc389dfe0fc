# SPDX-License-Identifier: Apache-2.0
"""host-up --helper on a lab's host.

It makes two TAPs that outlive the helper, and room for the helper's header; all of it is undone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ri2n_sdn.fabric.taps import PLAIN_TAP, WIRE_TAP

from .conftest import WaitUntil
from .prepared_host import HOST, SCRIPTS, WAIT_S, Host, fake_program, host
from .test_lab import carrier

__all__ = ["host"]

FAKE_HELPER = Path(__file__).with_name("fake_helper.py")


def mtu(host: Host, device: str) -> int:
    """The MTU of a device of the host."""
    return int(host.run("cat", f"/sys/class/net/{device}/mtu").stdout)


AWAY = "controller tcp:10.255.0.1:6653 is not connected"


def column(host: Host, record: str, name: str) -> str:
    """A column of an interface in OVSDB."""
    return host.lab.vsctl(HOST, "get", "interface", record, name).strip().strip('"')


def status_of(host: Host) -> dict[str, object]:
    """What host-status --json prints."""
    found = json.loads(host.script("host-status", "--json", check=False).stdout)
    assert isinstance(found, dict)
    return found


def test_two_taps_are_made_and_go_again(host: Host) -> None:
    before = host.snapshot()
    host.up("--helper")
    assert column(host, PLAIN_TAP, "ofport") == "101"
    assert column(host, WIRE_TAP, "ofport") == "102"
    devices = {
        entry["ifname"]: entry for entry in json.loads(host.run("ip", "-d", "-j", "link").stdout)
    }
    for tap in (PLAIN_TAP, WIRE_TAP):
        assert devices[tap]["linkinfo"]["info_data"]["persist"] is True
        # It has no carrier, since no process holds it.
        assert "UP" in devices[tap]["flags"] and "LOWER_UP" not in devices[tap]["flags"]
        assert host.run("cat", f"/proc/sys/net/ipv6/conf/{tap}/disable_ipv6").stdout == "1\n"
    assert devices[PLAIN_TAP]["mtu"] == mtu(host, "br-ri2n") == 1500 - 22
    assert devices[WIRE_TAP]["mtu"] >= 1500 + 22 + 4  # a full frame with header and tag
    assert {mtu(host, "eth0"), mtu(host, "eth1")} == {1500}
    assert host.answers("A", "B")
    assert host.answers("A", host.lab.address6("C"), "-6")
    host.script("host-down")
    assert host.snapshot() == before


def test_a_second_run_changes_nothing(host: Host) -> None:
    words = ("--helper", "--rate-mbps", "200")
    host.up(*words)
    before, flows = host.snapshot(), host.flows()
    assert "nothing to do" in host.up(*words)
    assert "nothing to do" in host.up(*words, "--dry-run")
    assert (host.snapshot(), host.flows()) == (before, flows)


def test_dry_run_tells_it_and_changes_nothing(host: Host) -> None:
    before = host.snapshot()
    output = host.up("--dry-run", "--helper")
    assert host.snapshot() == before
    for part in (
        f"ip tuntap add dev {PLAIN_TAP} mode tap",
        f"net.ipv6.conf.{WIRE_TAP}.disable_ipv6=1",
        f"ip link set dev {PLAIN_TAP} mtu 1478",
        f"add-port br-ri2n {WIRE_TAP} -- set interface {WIRE_TAP} ofport_request=102",
        "mtu_request=1478",
        "in_port=101,actions=drop",
    ):
        assert part in output


def test_it_can_be_added_to_a_host_that_is_up_and_taken_away(host: Host) -> None:
    host.up()
    before, flows = host.snapshot(), host.flows()
    assert mtu(host, "br-ri2n") == 1500
    host.up("--helper")
    assert host.snapshot() != before
    assert mtu(host, "br-ri2n") == 1478
    host.up()
    assert mtu(host, "br-ri2n") == 1500
    assert (host.snapshot(), host.flows()) == (before, flows)
    assert host.answers("A", "B")


@pytest.mark.parametrize(
    ("options", "nics", "address"),
    [
        ([], 1500, 1478),
        (["--nic-mtu", "1522"], 1522, 1500),
        (["--nic-mtu", "9000"], 9000, 1500),
        (["--nic-mtu", "9000", "--mtu", "9000"], 9000, 8978),
        (["--mtu", "1450"], 1500, 1450),  # eth0 had 1500, eth1 is raised to 1450, so 1428 fit
    ],
)
def test_mtus(host: Host, options: list[str], nics: int, address: int) -> None:
    before = host.snapshot()
    host.up("--helper", *options)
    least = min(mtu(host, "eth0"), mtu(host, "eth1"))
    assert mtu(host, "eth0") == nics
    assert mtu(host, "br-ri2n") == mtu(host, PLAIN_TAP) == min(address, least - 22)
    assert mtu(host, WIRE_TAP) >= least + 22 + 4
    tell = (host.lab.run_dir / HOST / "state" / "br-ri2n" / "helper").read_text()
    gro = "on" if host.lab.datapath == "system" else "off"
    assert tell == f"RI2N_REORDER_OPTIONS=--gro {gro} --mtu-wire {least}\n"
    host.script("host-down")
    assert host.snapshot() == before


ECHO = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 7007), family=family) as s:
    print("listening", flush=True)
    stream, _ = s.accept()
    while part := stream.recv(65536):
        stream.sendall(part)
"""
TALK = """
import socket, sys, threading
stream = socket.create_connection((sys.argv[1], 7007), 60)
print(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
data = bytes(range(256)) * 2000
def send():
    stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = b""
while part := stream.recv(65536):
    back += part
assert back == data
"""


@pytest.mark.parametrize("address", ["10.77.0.2", "fd77::2"])
def test_tcp_fits_the_bridge_whatever_a_route_says(host: Host, address: str) -> None:
    """systemd-networkd takes a route's MTU from router advertisements, and the kernel uses it."""
    before = host.snapshot()
    host.up("--helper")
    assert not [text for text in host.problems() if "MTU" in text]
    host.run("ip", "route", "replace", address, "dev", "br-ri2n", "mtu", "1500")
    server = host.lab.popen(
        "B", [sys.executable, "-c", ECHO, address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None and server.stdout.readline() == "listening\n"
        segment = int(host.run(sys.executable, "-c", TALK, address).stdout)
    finally:
        server.kill()
        server.wait()
    assert segment <= 1478 - (60 if ":" in address else 40)
    said = [text for text in host.problems() if "MTU" in text]
    assert len(said) == 1 and said[0].startswith(
        f"route {address}: its MTU of 1500 is more than br-ri2n's, 1478"
    )
    host.up("--helper")
    assert not [text for text in host.problems() if "MTU" in text]
    assert "mtu=1478" in too_long(host, address)
    host.run("ip", "route", "del", address, "dev", "br-ri2n")
    assert "nothing to do" in host.up("--helper")
    host.run("nft", "delete", "table", "inet", "ri2n_br_ri2n")
    assert "TCP is not told the MTU of br-ri2n" in host.problems()
    host.up("--helper")
    assert "TCP is not told the MTU of br-ri2n" not in host.problems()
    host.up()  # the bridge has the NICs' MTU, so there is nothing to print
    assert "inet ri2n" not in host.run("nft", "list", "tables").stdout
    host.script("host-down")
    assert host.snapshot() == before


def too_long(host: Host, address: str) -> str:
    """What the host prints about a packet of 1,500 bytes that must not be fragmented."""
    data = 1500 - (48 if ":" in address else 28)
    tried = host.run("ping", "-c1", "-W1", "-M", "do", "-s", str(data), address, check=False)
    assert tried.returncode != 0
    return (tried.stdout + tried.stderr).replace("mtu: ", "mtu=")


# Each route as `ip route add` takes it. All its attributes must stay, except the MTU.
WIDE = {
    "-4": [
        "10.77.0.2 mtu 1500",
        "10.99.0.0/16 via 10.77.0.2 metric 7 mtu lock 9000",
        "10.98.0.0/16 mtu 1300 table 77",
    ],
    "-6": [
        "fd77::2 proto ra metric 9 mtu 1500",
        "fd99::/64 via fd77::2 proto ra metric 1024 mtu 1500 pref high",
    ],
}
NARROW = [
    "10.77.0.2 scope link mtu 1478",
    "10.98.0.0/16 table 77 scope link mtu 1300",
    "10.99.0.0/16 via 10.77.0.2 metric 7 mtu lock 1478",
    "fd77::2 proto ra metric 9 mtu 1478 pref medium",
    "fd99::/64 via fd77::2 proto ra metric 1024 mtu 1478 pref high",
]


def test_a_route_gets_the_mtu_of_the_bridge_as_soon_as_it_says_more(
    host: Host, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Both routes that are there when host-watch starts and routes that come later."""
    before = host.snapshot()
    host.up("--helper")
    config = tmp_path / "host.conf"
    config.write_text(f"nic eth0\nnic eth1\nhelper yes\nstate-dir {host.state}\n")

    def routes() -> list[str]:
        found = [
            host.run("ip", each, "route", "show", "table", "all", "dev", "br-ri2n").stdout
            for each in WIDE
        ]
        return sorted(
            " ".join(line.split()) for line in "".join(found).splitlines() if " mtu " in line
        )

    def add() -> None:
        for family, lines in WIDE.items():
            for line in lines:
                host.run("ip", family, "route", "add", *line.split(), "dev", "br-ri2n")

    add()
    assert "fd77::2 proto ra metric 9 mtu 1500 pref medium" in routes()
    watch = host.lab.popen(HOST, [str(SCRIPTS / "host-watch"), "--config", str(config)])
    try:
        wait_until(lambda: routes() == NARROW, routes, WAIT_S)
        for address in ("10.77.0.2", "fd77::2"):
            assert "mtu=1478" in too_long(host, address)
        for line in NARROW:
            family = "-6" if line.startswith("fd") else "-4"
            host.run(
                "ip", family, "route", "del", *line.replace(" lock", "").split(), "dev", "br-ri2n"
            )
        assert not routes()
        add()
        wait_until(lambda: routes() == NARROW, routes, WAIT_S)
        assert not [text for text in host.problems() if "MTU" in text]
        assert watch.poll() is None
    finally:
        watch.terminate()
        watch.wait()
    host.run("ip", "route", "flush", "table", "77")
    host.script("host-down")
    assert host.snapshot() == before


def test_without_helper_nics_can_be_raised_too(host: Host) -> None:
    host.up("--nic-mtu", "1600")
    assert (mtu(host, "eth0"), mtu(host, "eth1"), mtu(host, "br-ri2n")) == (1600, 1600, 1500)
    assert "nothing to do" in host.up("--nic-mtu", "1600")


@pytest.mark.parametrize(
    ("rate_mbps", "frames"), [("1", 16), ("200", 82), ("1000", 411), ("40000", 1000)]
)
def test_the_queue_is_five_milliseconds_long(host: Host, rate_mbps: str, frames: int) -> None:
    host.up("--helper", "--rate-mbps", rate_mbps)
    assert int(host.run("cat", f"/sys/class/net/{PLAIN_TAP}/tx_queue_len").stdout) == frames


def test_frames_from_the_taps_go_nowhere_before_a_controller_says_so(host: Host) -> None:
    host.up("--helper")
    rows = [flow for flow in host.flows() if re.search(r"in_port=10[12]\b", flow)]
    assert len(rows) == 2 and all(row.endswith("actions=drop") for row in rows)
    for port in (101, 102):
        for destination in ("ff:ff:ff:ff:ff:ff", "04:00:00:00:02:01"):
            trace = host.lab.appctl(
                HOST, "ofproto/trace", "br-ri2n", f"in_port={port},dl_dst={destination}"
            )
            assert "Datapath actions: drop" in trace


def test_the_bridge_sees_whether_the_helper_lives(host: Host, wait_until: WaitUntil) -> None:
    host.up("--helper")
    status = status_of(host)
    assert status["helper"] == {
        "running": False,
        "taps": [
            {"name": PLAIN_TAP, "port": 101, "link": "down", "mtu": 1478},
            {"name": WIRE_TAP, "port": 102, "link": "down", "mtu": mtu(host, WIRE_TAP)},
        ],
    }
    assert "the helper does not run" in host.problems()
    socket = host.lab.run_dir / HOST / "test.sock"
    socket.unlink(missing_ok=True)
    argv = [str(FAKE_HELPER), "--plain", PLAIN_TAP, "--wire", WIRE_TAP, "--status", str(socket)]
    for _ in range(2):  # a route that is there again is seen again
        helper = host.lab.popen(HOST, argv, stdout=subprocess.DEVNULL)
        for tap in (PLAIN_TAP, WIRE_TAP):
            wait_until(
                lambda tap=tap: column(host, tap, "link_state") == "up", f"{tap} stays down", WAIT_S
            )
        assert [text.partition(" (")[0] for text in host.problems()] == [AWAY]
        assert "helper: running" in host.script("host-status", check=False).stdout
        helper.kill()
        helper.wait()
        socket.unlink(missing_ok=True)  # it comes after the carrier
        for tap in (PLAIN_TAP, WIRE_TAP):
            wait_until(
                lambda tap=tap: column(host, tap, "link_state") == "down", f"{tap} stays up", WAIT_S
            )


def test_host_down_while_the_helper_runs(host: Host, wait_until: WaitUntil) -> None:
    before = host.snapshot()
    host.up("--helper")
    socket = host.lab.run_dir / HOST / "test.sock"
    socket.unlink(missing_ok=True)
    argv = [str(FAKE_HELPER), "--plain", PLAIN_TAP, "--wire", WIRE_TAP, "--status", str(socket)]
    helper = host.lab.popen(HOST, argv, stdout=subprocess.DEVNULL)
    wait_until(lambda: carrier(host.lab, HOST, WIRE_TAP), "no carrier", WAIT_S)
    host.script("host-down")
    helper.kill()
    helper.wait()
    socket.unlink()
    assert host.snapshot() == before


def test_a_tap_that_somebody_removed_comes_back_and_is_heard(
    host: Host, wait_until: WaitUntil
) -> None:
    host.up("--helper")
    host.run("ip", "link", "del", PLAIN_TAP)
    assert f"TAP {PLAIN_TAP} is not port 101" in host.problems()
    host.up("--helper")
    assert column(host, PLAIN_TAP, "ofport") == "101"
    host.lab.ofctl(
        HOST,
        "add-flow",
        "br-ri2n",
        "cookie=0x77,table=0,priority=9,in_port=101,dl_type=0x88b7,actions=drop",
    )
    host.run("python3", "-c", SEND_ONE, PLAIN_TAP)

    def heard() -> bool:
        return "n_packets=1," in host.lab.ofctl(HOST, "dump-flows", "br-ri2n", "cookie=0x77/-1")

    wait_until(heard, "the bridge does not hear the new TAP", WAIT_S)


SEND_ONE = f"""
import sys; sys.path.insert(0, {str(FAKE_HELPER.parent)!r})
import os, fake_helper, time
tap = fake_helper.hold(sys.argv[1])
# bytes(10): the virtio header
frame = bytes(10) + bytes.fromhex("020000000002 020000000001 88b7") + bytes(46)
os.write(tap, frame)
"""

BAD = {
    "only with --helper": ["--nic", "eth0", "--rate-mbps", "100"],
    "must be 1 to 9999999": ["--nic", "eth0", "--helper", "--rate-mbps", "0"],
    "--nic-mtu 70: must be 576 to 9216": ["--nic", "eth0", "--nic-mtu", "70"],
    "must not be less than the address's": ["--nic", "eth0", "--mtu", "1500", "--nic-mtu", "1400"],
    "there is a device ri2n-wire": ["--nic", "eth0", "--helper"],
    "must be at least 600, it would be 590": [
        "--nic",
        "eth0",
        "--nic",
        "eth1",
        "--helper",
        "--mtu",
        "590",
    ],
    "unexpected argument yes": ["--nic", "eth0", "--helper", "yes"],
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_line_and_changes_nothing(message: str, host: Host) -> None:
    if "590" in message:
        host.run("ip", "link", "set", "eth1", "mtu", "580")
    if "device" in message:
        host.run("ip", "link", "add", WIRE_TAP, "type", "bridge")
    before = host.snapshot()
    done = host.script("host-up", *BAD[message], check=False)
    after = host.snapshot()
    host.run("ip", "link", "del", WIRE_TAP, check=False)
    # Below 1280, a NIC has no IPv6 settings for the next test.
    host.run("ip", "link", "set", "eth1", "mtu", "1500")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert message in done.stderr
    assert after == before


def test_a_line_in_the_file_asks_for_it(host: Host, tmp_path: Path) -> None:
    config = tmp_path / "host.conf"
    config.write_text("nic eth0\nnic eth1\nhelper yes\nrate-mbps 200\n")
    host.script("host-up", "--config", str(config))
    assert column(host, WIRE_TAP, "ofport") == "102"
    config.write_text("nic eth0\nhelper maybe\n")
    done = host.script("host-up", "--config", str(config), check=False)
    assert (done.returncode, done.stderr) == (2, "host-up: helper maybe: must be yes or no\n")


def test_a_nic_that_cannot_have_the_mtu_is_found_before_anything_is_changed(
    host: Host, tmp_path: Path
) -> None:
    before = host.snapshot()
    # All virtual devices of the kernel can do it; of a real NIC, `ip -d` tells its limit.
    fake = fake_program(tmp_path, "ip", 'REAL "$@" | sed "/eth1/s/maxmtu [0-9]*/maxmtu 2000/"')
    done = host.run(
        *host.command("host-up", *host.up_arguments, "--nic-mtu", "9000", programs=fake),
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "host-up: --nic eth1: cannot have an MTU of 9000, only up to 2000\n",
    )
    assert host.snapshot() == before
