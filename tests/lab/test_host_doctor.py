# SPDX-License-Identifier: Apache-2.0
"""host-doctor on a host with one fault after the other.

It names each fault with what to do, and that helps.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .prepared_host import HOST, SCRIPTS, Host, fake_program, host

__all__ = ["host"]

NICS = ("--nic", "eth0", "--nic", "eth1", "--name", HOST)
CODES = {"ok": 0, "warning": 1, "bad": 2}


def up(host: Host, *more: str) -> None:
    """Run host-up without a controller."""
    host.script("host-up", *NICS, "--datapath", host.lab.datapath, *more)


def findings(host: Host, programs: Path | None = None) -> list[dict[str, Any]]:
    """What host-doctor finds; its exit code matches the worst finding."""
    done = host.run(*host.command("host-doctor", "--json", programs=programs), check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    order = [CODES[finding["verdict"]] for finding in found]
    assert order == sorted(order, reverse=True), "the worst comes first"
    assert done.returncode == order[0]
    assert all(bool(finding["advice"]) == (finding["verdict"] != "ok") for finding in found)
    return found


def wrong(found: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {
        finding["seen"]: (finding["verdict"], finding["advice"])
        for finding in found
        if finding["verdict"] != "ok"
    }


NOBODY = {"no controller is set", "no controller has given this host flows yet"}


def test_a_host_in_order(host: Host) -> None:
    up(host)
    found = findings(host)
    assert set(wrong(found)) == NOBODY
    checks = {finding["check"]: finding["seen"] for finding in found if finding["verdict"] == "ok"}
    assert list(checks) == [
        "Open vSwitch",
        "bridge",
        "hash",
        "NICs",
        "MTU",
        "floods",
        "flow limit",
        "helper",
        "fast path",
    ]
    assert checks["bridge"] == f"br-ri2n, {host.lab.datapath} datapath"
    assert checks["helper"] == checks["fast path"] == "not asked for"


@dataclass(frozen=True)
class Ailment:
    """A fault that `command` makes on the host.

    `seen` is what host-doctor then finds, `advice` is what to do.
    """

    command: str
    verdict: str
    seen: str
    advice: str
    options: tuple[str, ...] = ()


UP = "run host-up again"
AILMENTS = [
    Ailment("ovs-vsctl set-fail-mode br-ri2n standalone", "bad", "fail_mode is not secure", UP),
    Ailment(
        "ovs-vsctl remove bridge br-ri2n other-config disable-in-band",
        "bad",
        "in-band control is not disabled",
        UP,
    ),
    Ailment("ip link set br-ri2n down", "bad", "br-ri2n is down", "ip link set br-ri2n up"),
    Ailment(
        "ip addr flush dev br-ri2n", "bad", "br-ri2n has no address", "give it the host's address"
    ),
    Ailment(
        "ip link set eth1 mtu 1280",
        "bad",
        "NIC eth1: its MTU of 1280 is less than br-ri2n's, 1500",
        UP,
    ),
    Ailment(
        *("ip route add 10.99.0.0/16 dev br-ri2n mtu 1501", "bad"),
        *("route 10.99.0.0/16: its MTU of 1501 is more than br-ri2n's, 1500", UP),
    ),
    Ailment(
        *("ip route add 10.99.0.0/16 dev br-ri2n mtu lock 1501", "bad"),
        *("route 10.99.0.0/16: its MTU of 1501 is more than br-ri2n's, 1500", UP),
    ),
    Ailment("ovs-ofctl -O OpenFlow15 del-flows br-ri2n", "bad", "no start-up flow", UP),
    Ailment(
        "ovs-ofctl -O OpenFlow15 del-flows br-ri2n in_port=2",
        "bad",
        "NIC eth1 has no start-up flow",
        UP,
    ),
    Ailment(
        "echo 999 >STATE/br-ri2n/nic.eth0/index", "bad", "NIC eth0 was replaced and may be deaf", UP
    ),
    Ailment(
        "ovs-vsctl del-port eth0 -- del-port eth1",
        "bad",
        "br-ri2n has no NIC",
        "run host-up with --nic",
    ),
    Ailment(
        "true", "warning", "the helper does not run", "systemctl start ri2n-reorder", ("--helper",)
    ),
    Ailment(
        "ovs-vsctl del-port ri2n-wire", "bad", "TAP ri2n-wire is not port 102", UP, ("--helper",)
    ),
    Ailment(
        "ip link set ri2n-plain mtu 1200",
        "bad",
        "TAP ri2n-plain: its MTU of 1200 is less",
        UP,
        ("--helper",),
    ),
    Ailment(
        "ip link set ri2n-wire mtu 1500",
        "bad",
        "TAP ri2n-wire: its MTU of 1500 is too small",
        UP,
        ("--helper",),
    ),
    Ailment(
        "ip link set ri2n-plain txqueuelen 5000",
        "warning",
        "5000 frames may wait",
        UP,
        ("--helper",),
    ),
    Ailment(
        "nft delete table inet ri2n_br_ri2n",
        "bad",
        "TCP is not told the MTU of br-ri2n",
        UP,
        ("--helper",),
    ),
    Ailment(
        "ovs-vsctl add-port br-ri2n stray -- set interface stray type=internal",
        *(
            "warning",
            "stray, a port of br-ri2n, is neither a NIC nor a guest",
            "give host-up its MAC: --extra-mac MAC@",
        ),
    ),
    Ailment(
        "true",
        "warning",
        "host-up is not confirmed",
        "run host-up --confirmed",
        ("--confirm", "99999"),
    ),
]


@pytest.mark.parametrize("ailment", AILMENTS, ids=[ailment.seen for ailment in AILMENTS])
def test_what_is_wrong_is_said_with_what_to_do_and_that_helps(ailment: Ailment, host: Host) -> None:
    up(host, *ailment.options)
    host.run("sh", "-ec", ailment.command.replace("STATE", str(host.state)))
    (said,) = (text for text in wrong(findings(host)) if text.startswith(ailment.seen))
    verdict, advice = wrong(findings(host))[said]
    assert (verdict, advice[: len(ailment.advice)]) == (ailment.verdict, ailment.advice)
    status = host.script("host-status", check=False)
    assert f"{verdict}: {said}: {advice}" in status.stdout.splitlines()
    assert status.returncode == CODES[verdict]
    if advice.startswith(UP):
        up(host, *ailment.options)
        assert said not in wrong(findings(host))
    host.script("host-up", "--confirmed", check=False)  # if something waits for it


def test_nics_without_a_link(host: Host) -> None:
    up(host)
    for nics, verdict, said in (
        (["eth1"], "warning", ["NIC eth1 has no link"]),
        (
            ["eth0", "eth1"],
            "bad",
            ["NIC eth0 has no link", "NIC eth1 has no link", "no NIC has a link"],
        ),
    ):
        for nic in nics:
            host.run("ip", "link", "set", nic, "down")
            host.lab.vsctl(HOST, "--timeout=60", "wait-until", "interface", nic, "link_state=down")
        found = findings(host)
        assert found[0]["verdict"] == verdict
        assert sorted(text for text in wrong(found) if "link" in text) == said


def test_a_guests_device_that_was_replaced(host: Host) -> None:
    guest = ("--extra-mac", "0e:00:00:00:00:01@box", "--extra-mac", "0e:00:00:00:00:02@box")
    make = ["ip", "link", "add", "box", "type", "veth", "peer", "name", "inside"]
    host.run(*make)
    try:
        up(host, *guest)
        found = findings(host)
        assert set(wrong(found)) == NOBODY
        assert [finding["seen"] for finding in found if finding["check"] == "guests"] == ["box"]
        assert host.lab.vsctl(HOST, "get", "interface", "box", "ofport").strip() == "2001"
        host.run("ip", "link", "set", "box", "mtu", "1600")
        said = "the guest's device box: its MTU of 1600 is more than br-ri2n's, 1500"
        assert wrong(findings(host))[said] == (
            "warning",
            "give it and the guest 1500: what is longer is lost",
        )
        host.run("ip", "link", "set", "box", "mtu", "1500")
        host.run("ip", "link", "del", "box")
        host.run(*make)
        said = "the guest's device box was replaced and may be deaf"
        assert wrong(findings(host))[said] == ("bad", UP)
        up(host, *guest)
        assert set(wrong(findings(host))) == NOBODY
        assert (
            "nothing to do"
            in host.script("host-up", *NICS, "--datapath", host.lab.datapath, *guest).stdout
        )
        up(host)
        assert "box" not in host.lab.vsctl(HOST, "list-ports", "br-ri2n").split(), (
            "a guest that is no longer named"
        )
    finally:
        host.run("ip", "link", "del", "box")


def test_frames_that_the_kernel_takes_too(host: Host) -> None:
    up(host)
    host.run("nft", "flush", "ruleset")
    texts = [text for text in wrong(findings(host)) if text.startswith("NIC eth0")]
    netdev = host.lab.datapath == "netdev"
    fault = ": the kernel answers beside Open vSwitch" if netdev else " takes floods as they come"
    assert texts == [f"NIC eth0{fault}"]
    up(host)
    assert set(wrong(findings(host))) == NOBODY


def test_flows_that_are_nobodys_go_as_it_says(host: Host) -> None:
    up(host)
    flow = "cookie=0x77abcdef00000012,table=9,priority=3,actions=drop"
    host.run("ovs-ofctl", "-O", "OpenFlow15", "add-flow", "br-ri2n", flow)
    ((said, (verdict, advice)),) = (
        (text, rest) for text, rest in wrong(findings(host)).items() if "nobody's" in text
    )
    assert verdict == "bad" and said.startswith(
        "1 flows are nobody's, for example 0x77abcdef00000012,"
    )
    host.run("sh", "-ec", advice.removeprefix("remove them: "))
    assert set(wrong(findings(host))) == NOBODY


@pytest.mark.parametrize(
    ("program", "body", "verdict", "seen", "advice"),
    [
        (
            *(
                "ovs-vsctl",
                'case $1 in --version) echo "ovs-vsctl (Open vSwitch) 2.16.9" ;; *) exec REAL "$@" '
                ";; esac",
            ),
            *("bad", "Open vSwitch 2.16.9 is too old", "upgrade to 2.17 or newer"),
        ),
        (
            "ovs-vsctl",
            "exit 1",
            "bad",
            "Open vSwitch is not installed",
            "apt install openvswitch-switch",
        ),
        (
            *("ovs-vsctl", 'case $* in *--version) exec REAL "$@" ;; *) exit 1 ;; esac'),
            *("bad", "ovsdb-server does not run", "systemctl start openvswitch-switch"),
        ),
        (
            "ovs-appctl",
            "exit 1",
            "bad",
            "ovs-vswitchd does not run",
            "systemctl start openvswitch-switch",
        ),
        (
            *("ovs-appctl", 'case $* in *features*) ;; *) exec REAL "$@" ;; esac'),
            *("warning", "Open vSwitch does not say how it hashes", "is ovs-vswitchd busy?"),
        ),
        (
            *("ovs-appctl", 'case $* in *upcall*) ;; *) exec REAL "$@" ;; esac'),
            *(
                "warning",
                "Open vSwitch does not say how many flows its datapath has",
                "is ovs-vswitchd busy?",
            ),
        ),
        (
            "ovs-appctl",
            'case $* in *upcall*) echo "flows: (current 161) (limit 200)" ;; *) exec REAL "$@" ;; '
            "esac",
            *(
                "warning",
                "161 of 200 flows of the datapath are in use",
                "ovs-vsctl set Open_vSwitch .",
            ),
        ),
        (
            *("cat", 'case $* in *eth1/duplex) echo half ;; *) exec REAL "$@" ;; esac'),
            *(
                "bad",
                "NIC eth1 runs at half duplex",
                "check cable, switch port and autonegotiation",
            ),
        ),
    ],
)
def test_what_this_lab_has_not_got(
    program: str, body: str, verdict: str, seen: str, advice: str, host: Host, tmp_path: Path
) -> None:
    """A program in the place of another one prints what it would print on a host in that state."""
    up(host)
    found = wrong(findings(host, programs=fake_program(tmp_path / "programs", program, body)))
    assert found[seen][0] == verdict and found[seen][1].startswith(advice)


def test_a_controller_that_does_not_listen(host: Host) -> None:
    host.up()
    said = "controller tcp:10.255.0.1:6653 is not connected (Connection refused)"
    verdict, advice = wrong(findings(host))[said]
    assert verdict == "bad" and advice.startswith("nobody listens there")
    host.script("host-down")
    ((said, (verdict, advice)),) = wrong(findings(host)).items()
    assert (said, verdict, advice) == ("br-ri2n is not there", "bad", "run host-up")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            "Connection timed out",
            "is there a way to it (ping 192.0.2.1), and does a firewall let port 6653 through?",
        ),
        ("No route to host", "is there a way to it"),
        ("Network is unreachable", "is there a way to it"),
        ("Protocol error", "do both sides use ssl:"),
        ("End of file", "the controller hangs up"),
        ("Connection reset by peer", "the controller hangs up"),
        ("", "is the controller running"),
    ],
)
def test_why_open_vswitch_cannot_connect(error: str, advice: str) -> None:
    script = f'. "{SCRIPTS}/examine.sh"; controller_advice tcp:192.0.2.1:6653 "$1"'
    done = subprocess.run(
        ["bash", "-euc", script, "-", error], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(advice)


def test_wrong_options_are_one_line(host: Host) -> None:
    for words in (["--nosuch"], ["--bridge"], ["--bridge", "a b"]):
        done = host.script("host-doctor", *words, check=False)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert host.script("host-doctor", "--help").stdout.startswith("Usage: host-doctor")
