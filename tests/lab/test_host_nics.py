# SPDX-License-Identifier: Apache-2.0
"""The NICs that host-up is given: their MTUs, what else names them, and NICs no longer named."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .failing_host import differences
from .prepared_host import HOST, Host, host

__all__ = ["host"]


def test_a_dry_run_lists_what_names_the_nics(host: Host, tmp_path: Path) -> None:
    """Without an error, each of these would see no packet any more."""
    etc = tmp_path / "etc"
    files = {
        "iptables/rules.v4": "-A INPUT -i eth0 -j ACCEPT",
        "openmpi/openmpi-mca-params.conf": "btl_tcp_if_include=eth1,eth0",
        "sysctl.d/99.conf": "net.ipv4.conf.eth1.rp_filter=0\nnet.ipv4.conf.eth10.rp_filter=0",
        "network/interfaces": "auto eth10\niface eth1.5 inet manual\niface veth0 inet manual",
        "ri2n/host.conf": "nic eth0\nnic eth1",
        "udev/rules.d/70-nics.rules": 'NAME="eth0"',
    }
    for name, text in files.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)
    host.run(
        "nft",
        "add table inet filter; add chain inet filter input; add rule inet filter input iifname "
        '"eth1" drop',
    )
    host.run("ip", "rule", "add", "iif", "eth0", "table", "main")
    sleeper = host.lab.popen(
        HOST, ["sh", "-c", "read _", "dhclient", "eth0"], stdin=subprocess.PIPE
    )
    try:
        environment = {"MENTIONS_ROOT": str(tmp_path)}
        said = host.run(
            *host.command("host-up", *host.up_arguments, "--dry-run", environment=environment)
        ).stdout
    finally:
        sleeper.kill()
        sleeper.wait()
        host.run("ip", "rule", "del", "iif", "eth0", "table", "main")
        host.run("nft", "delete", "table", "inet", "filter")
    found: dict[str, list[str]] = {}
    for line in said.splitlines():
        if line.startswith("# ") and " is named here" in line:
            places = found.setdefault(line.split()[1], [])
        elif line.startswith("#   "):
            places.append(line.removeprefix("#   ").replace(str(etc), "/etc"))
    assert found == {
        "eth0": [
            *("/etc/iptables/rules.v4", "/etc/openmpi/openmpi-mca-params.conf", "ip rule"),
            f"process {sleeper.pid}: sh -c read _ dhclient eth0 ",
        ],
        "eth1": [
            *(
                "/etc/network/interfaces",
                "/etc/openmpi/openmpi-mca-params.conf",
                "/etc/sysctl.d/99.conf",
            ),
            "nft table inet filter",
        ],
    }
    assert "br-ri2n instead" in said and not host.is_up


def test_an_mtu_that_is_no_longer_asked_for_goes_back(host: Host) -> None:
    """Else a host would have NICs with several MTUs, and a helper that counts on the wrong one."""

    def mtus() -> list[str]:
        return [
            host.run("cat", f"/sys/class/net/{nic}/mtu").stdout.strip()
            for nic in ("eth0", "eth1", "br-ri2n")
        ]

    before = host.snapshot()
    host.up("--nic-mtu", "1522", "--helper")
    assert mtus() == ["1522", "1522", "1500"]
    host.up("--helper")
    assert mtus() == ["1500", "1500", "1478"]
    assert "nothing to do" in host.up("--helper")
    host.up("--mtu", "1400")
    assert mtus() == ["1500", "1400", "1400"]
    host.run("ip", "link", "set", "eth1", "mtu", "1600")  # the administrator's own wish
    host.up()
    assert mtus() == ["1500", "1600", "1500"]
    host.script("host-down")
    assert differences(before, host.snapshot()) == ""


def test_nics_that_carry_much_more_are_told_of(host: Host) -> None:
    for nic in ("eth0", "eth1"):
        host.run("ip", "link", "set", nic, "mtu", "9000")
    said = (
        "the NICs carry 9000 bytes and br-ri2n has an MTU of 1500: --mtu {}, on all hosts, "
        "would use them"
    )
    for more, least in (((), 9000), (("--helper",), 8978)):
        done = host.script("host-up", *host.up_arguments, *more)
        assert said.format(least) in done.stderr
    for mtu in ("1500", "9000"):
        assert (
            "would use them" not in host.script("host-up", *host.up_arguments, "--mtu", mtu).stderr
        )
    assert host.run("cat", "/sys/class/net/br-ri2n/mtu").stdout == "9000\n"


def test_a_nic_that_is_no_longer_named_goes_back(host: Host) -> None:
    host.up()
    words = list(host.up_arguments)
    index = words.index("eth1")
    del words[index - 1 : index + 1]
    host.script("host-up", *words)
    assert host.lab.vsctl(HOST, "list-ports", "br-ri2n").split() == ["eth0"]
    assert "mtu 1400" in host.run("ip", "link", "show", "eth1").stdout
    assert "eth1" not in host.run("nft", "list", "ruleset").stdout
    assert "10.79.0.1" in host.run("ip", "addr", "show", "dev", "br-ri2n").stdout
    assert host.answers("B", "A")


def test_a_nic_that_is_no_longer_named_gets_no_address_and_no_route_back(host: Host) -> None:
    """The bridge has them.

    If the NIC had them, too, answers would leave by a NIC whose cable may be unplugged.
    """
    host.up()
    words = list(host.up_arguments)
    index = words.index("eth1")
    del words[index - 1 : index + 1]
    host.script("host-up", *words)
    assert host.run("ip", "-o", "addr", "show", "dev", "eth1", "scope", "global").stdout == ""
    assert host.run("ip", "-4", "route", "show", "dev", "eth1").stdout == ""


def test_the_rules_of_a_nic_that_was_made_anew_are_put_back(host: Host) -> None:
    """With a NIC, its chain is removed; the table stays, and the other NIC's chain in it."""
    host.up()
    rules = host.run("nft", "list", "ruleset").stdout
    host.run("nft", "delete", "chain", "netdev", "ri2n_br_ri2n", "nic1")
    host.up()
    assert host.run("nft", "list", "ruleset").stdout == rules and 'device "eth1"' in rules
