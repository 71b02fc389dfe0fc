# SPDX-License-Identifier: Apache-2.0
"""What host-up is told: bad input is one line and changes nothing; files are read and put back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .prepared_host import HOST, SCRIPTS, Host, fake_program, host

__all__ = ["host"]

BAD = {
    "no NIC given": [],
    "no NIC given: --nic NAME": ["--nic", "-"],
    "is given twice": ["--nic", "eth0", "--nic", "eth0"],
    "there is no such NIC": ["--nic", "eth0", "--nic", "eth9"],
    "is not an Ethernet NIC": ["--nic", "lo"],
    "must be tcp:HOST:PORT": ["--nic", "eth0", "--controller", "tcp:controller_example:6653"],
    "an IP address ([...] for IPv6)": ["--nic", "eth0", "--controller", "tcp:fd00::1:6653"],
    "the port must be 1 to": ["--nic", "eth0", "--controller", "tcp:controller.example:0"],
    "the port must be": ["--nic", "eth0", "--controller", "tcp:10.0.0.1:70000"],
    "not an IP address": ["--nic", "eth0", "--controller", "tcp:10.0.300.1:6653"],
    "needs --ssl-key": ["--nic", "eth0", "--controller", "ssl:10.0.0.1:6653"],
    "unknown option --nics": ["--nics", "eth0"],
    "--nic needs a value": ["--nic"],
    "must be auto, system or netdev": ["--nic", "eth0", "--datapath", "kernel"],
    "must be 576 to 9216": ["--nic", "eth0", "--mtu", "70"],
    "must be a number of seconds": ["--nic", "eth0", "--confirm", "soon"],
    "not a unicast MAC": ["--nic", "eth0", "--extra-mac", "01:00:00:00:00:01"],
    "--extra-mac 02:aa:00:00:00:01 is given twice": [
        *(
            "--nic",
            "eth0",
            "--extra-mac",
            "02:AA:00:00:00:01@box",
            "--extra-mac",
            "02:aa:00:00:00:01",
        ),
    ],
    "a/b is not the name of a device": ["--nic", "eth0", "--extra-mac", "02:aa:00:00:00:01@a/b"],
    "04:00:00:00:01:01: is the MAC address of --nic eth0": [
        "--nic",
        "eth0",
        "--extra-mac",
        "04:00:00:00:01:01",
    ],
    "eth0 is not a guest's": ["--nic", "eth0", "--extra-mac", "02:aa:00:00:00:01@eth0"],
    "not a valid device name": ["--nic", "eth0", "--bridge", "a-name-that-is-too-long"],
    "cannot be read": ["--config", "/nonexistent"],
    "--nic twin: has the MAC address of --nic eth0, 04:00:00:00:01:01": [
        "--nic",
        "eth0",
        "--nic",
        "twin",
    ],
}


@pytest.fixture
def twin(host: Host) -> Iterator[None]:
    """A NIC with the address of another one, like VLAN devices and former members of bonds."""
    host.run("ip", "tuntap", "add", "twin", "mode", "tap")
    host.run("ip", "link", "set", "twin", "address", "04:00:00:00:01:01")
    yield
    host.run("ip", "link", "del", "twin")


@pytest.mark.parametrize("message", BAD)
@pytest.mark.usefixtures("twin")
def test_bad_input_is_one_line_and_changes_nothing(message: str, host: Host) -> None:
    before = host.snapshot()
    done = host.script("host-up", *BAD[message], check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert host.snapshot() == before


def test_a_nic_in_another_bridge_is_refused(host: Host) -> None:
    host.run("sh", "-ec", "ip link add other type bridge; ip link set eth1 master other")
    done = host.script("host-up", *host.up_arguments, check=False)
    host.run("ip", "link", "del", "other")
    assert (done.returncode, "eth1: is already in other" in done.stderr) == (2, True)
    host.lab.vsctl(HOST, "add-br", "mine", "--", "set", "bridge", "mine", "datapath_type=netdev")
    try:
        host.lab.vsctl(HOST, "add-port", "mine", "eth1")
        done = host.script("host-up", *host.up_arguments, check=False)
        assert (done.returncode, "OVS bridge mine" in done.stderr) == (2, True)
        done = host.script("host-up", "--bridge", "mine", "--nic", "eth0", check=False)
        assert (done.returncode, "was not made by host-up" in done.stderr) == (2, True)
        done = host.script("host-down", "--bridge", "mine", check=False)
        assert (done.returncode, "was not made by host-up" in done.stderr) == (2, True)
    finally:
        host.lab.vsctl(HOST, "del-br", "mine")
        # When a bridge without linux-noop took eth1, the queue of eth1 was removed.
        host.run(
            "sh", "-c", "tc qdisc replace dev eth1 root tbf rate 100mbit burst 10000 limit 1514000"
        )


def test_no_root_no_ovs_old_ovs(host: Host, tmp_path: Path) -> None:
    script = str(SCRIPTS / "host-up")
    before = host.snapshot()
    # setpriv: the script must be readable, and the folders above it need not be.
    unprivileged = ["setpriv", "--reuid", "65534", "--clear-groups", "bash"]
    unprivileged += ["-s", "--", "--nic", "eth0"]
    text = (SCRIPTS / "host-up").read_text()
    for part in re.findall(r'^source "\$HERE/(\S+)"$', text, re.MULTILINE):
        text = text.replace(f'source "$HERE/{part}"', (SCRIPTS / part).read_text())
    done = host.lab.exec(HOST, unprivileged, check=False, input=text.replace("${0##*/}", "host-up"))
    assert (done.returncode, done.stderr) == (2, "host-up: must run as root: use sudo\n")
    done = host.run(script, "--nic", "eth0", "--db", f"unix:{tmp_path}/db.sock", check=False)
    assert done.returncode == 2
    assert "Open vSwitch is not running" in done.stderr
    old = fake_program(tmp_path, "ovs-vsctl", "echo 'ovs-vsctl (Open vSwitch) 2.15.1'")
    done = host.run(*host.command("host-up", "--nic", "eth0", programs=old), check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "host-up: Open vSwitch 2.15.1 is too old: 2.17 or newer is needed\n",
    )
    assert host.snapshot() == before


def test_config_file(host: Host, tmp_path: Path) -> None:
    config = tmp_path / "host.conf"
    config.write_text(
        "# this host\nnic eth0\nnic eth1   # the second\n\nname node7\ncontroller "
        "tcp:10.255.0.1:6653\n"
    )
    host.script("host-up", "--config", str(config))
    assert "node7" in host.lab.vsctl(HOST, "get", "bridge", "br-ri2n", "other_config:dp-desc")
    config.write_text("nic eth0\nnics eth1\n")
    done = host.script("host-up", "--config", str(config), check=False)
    assert (done.returncode, f"{config}:2: unknown option nics" in done.stderr) == (2, True)


def test_ssl_files_are_set_and_put_back(host: Host, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("key.pem", "cert.pem", "ca.pem")]
    for file in files:
        file.write_text("")
    words = [
        word
        for kind, file in zip(("key", "cert", "ca"), files, strict=True)
        for word in (f"--ssl-{kind}", str(file))
    ]
    target = ["--controller", "ssl:10.255.0.1:6653"]
    nics = ["--nic", "eth0", "--nic", "eth1", "--datapath", host.lab.datapath]
    for old in ([], ["/old/key", "/old/cert", "/old/ca"]):
        if old:
            host.lab.vsctl(HOST, "set-ssl", *old)
        before = host.lab.vsctl(HOST, "get-ssl")
        host.script("host-up", *nics, *target, *words)
        assert all(str(file) in host.lab.vsctl(HOST, "get-ssl") for file in files)
        assert "nothing to do" in host.script("host-up", *nics, *target, *words).stdout
        host.script("host-down")
        assert host.lab.vsctl(HOST, "get-ssl") == before
    host.lab.vsctl(HOST, "del-ssl")
