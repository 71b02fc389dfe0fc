# SPDX-License-Identifier: Apache-2.0
"""host-status tells what is there and every problem, the worst first."""

from __future__ import annotations

import json

from .prepared_host import HOST, Host, host

__all__ = ["host"]


def test_status(host: Host) -> None:
    assert host.script("host-status", check=False).returncode == 2
    assert json.loads(host.script("host-status", "--json", check=False).stdout) == {
        "up": False,
        "bridge": "br-ri2n",
    }
    host.up()
    status = json.loads(host.script("host-status", "--json", check=False).stdout)
    assert (status["name"], status["mac"], status["datapath"]) == (
        "A",
        "06:00:00:00:01:01",
        host.lab.datapath,
    )
    assert [(nic["name"], nic["port"], nic["link"]) for nic in status["nics"]] == [
        ("eth0", 1, "up"),
        ("eth1", 2, "up"),
    ]
    (problem,) = status["problems"]
    assert problem["severity"] == "bad" and problem["advice"]
    assert problem["text"].startswith("controller tcp:10.255.0.1:6653 is not connected")
    host.lab.ofctl(HOST, "del-flows", "br-ri2n")
    assert "NIC eth0 has no start-up flow" in host.problems()


def test_status_tells_every_problem(host: Host) -> None:
    nics = ["--nic", "eth0", "--nic", "eth1", "--datapath", host.lab.datapath]
    host.script("host-up", *nics)
    assert host.script("host-status", check=False).returncode == 1
    assert host.problems() == [
        "no controller is set",
        "no controller has given this host flows yet",
    ]
    host.lab.vsctl(
        HOST,
        "set",
        "bridge",
        "br-ri2n",
        "fail_mode=standalone",
        "other_config:disable-in-band=false",
    )
    host.run("nft", "flush", "ruleset")
    host.run(
        "sh", "-ec", "ip addr flush dev br-ri2n; ip link set br-ri2n down; ip link set eth1 down"
    )
    host.lab.vsctl(HOST, "--timeout=60", "wait-until", "interface", "eth1", "link_state=down")
    # This is the index of the NIC that host-up has seen.
    (host.state / "br-ri2n" / "nic.eth0" / "index").write_text("999\n")
    status = host.script("host-status", check=False)
    problems = [
        line for line in status.stdout.splitlines() if line.startswith(("bad: ", "warning: "))
    ]
    assert status.returncode == 2
    assert problems == status.stdout.splitlines()[: len(problems)], "what is wrong comes first"
    assert problems == sorted(problems, key=lambda line: line.startswith("warning")), (
        "the worst first"
    )
    # The others are flows of the standalone bridge.
    said = {line.partition(": ")[2] for line in problems if "flows are nobody's" not in line}
    assert said - {
        f"NIC {nic} has no start-up flow: run host-up again" for nic in ("eth0", "eth1")
    } == {
        "br-ri2n is down: ip link set br-ri2n up",
        "fail_mode is not secure: flows would go when the controller does: run host-up again",
        "in-band control is not disabled: it can join networks into a loop: run host-up again",
        "br-ri2n has no address: give it the host's address",
        "NIC eth1 has no link: check its cable and its switch port",
        "NIC eth0 was replaced and may be deaf: run host-up again",
        "NIC eth0: the kernel answers beside Open vSwitch: run host-up again; it needs nftables",
        "NIC eth1: the kernel answers beside Open vSwitch: run host-up again; it needs nftables",
        "no start-up flow: after a restart the host would not find its controller: run host-up "
        "again",
        "no controller is set: run host-up with --controller",
    }
