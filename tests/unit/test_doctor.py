"""What doctor says of a host in order, row by row, and of one that is not: what is wrong, and what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_sdn.cli import doctor, doctor_probe
from ri2n_sdn.cli.doctor_checks import Finding, examine
from ri2n_sdn.cli.doctor_probe import BRIDGE, collect, run_here
from ri2n_sdn.pipeline.layout import COOKIE_LEARNED, COOKIE_OURS, COOKIE_STARTUP
from tests.unit.commands import ri2n


def table(**columns: Any) -> str:
    """Rows of OVSDB as ovs-vsctl prints them in JSON: of each column, the cells."""
    return json.dumps({"headings": list(columns), "data": [list(row) for row in zip(*columns.values(), strict=True)]})


def flow(owner: int) -> str:
    return f" cookie={owner << 48 | 7:#x}, duration=1s, table=0, n_packets=0, n_bytes=0, priority=1 actions=drop"


class Machine:
    """A host's commands and what they print: a host in order, until a test changes that."""

    def __init__(self, datapath: str = "netdev") -> None:
        self.version = "ovs-vswitchd (Open vSwitch) 3.1.0\n"
        self.bridges: dict[str, Any] = {
            "name": [BRIDGE],
            "datapath_type": [datapath if datapath == "netdev" else ""],
            "controller": [["set", [["uuid", "one"], ["uuid", "two"]]]],
            "fail_mode": ["secure"],
            "other_config": [["map", [["disable-in-band", "true"], ["hwaddr", "06:00:00:00:00:01"]]]],
        }
        self.controllers: dict[str, Any] = {
            "_uuid": [["uuid", "one"], ["uuid", "two"], ["uuid", "of another bridge"]],
            "target": ["tcp:192.0.2.1:6653", "tcp:192.0.2.2:6653", "tcp:192.0.2.3:6653"],
            "is_connected": [True, False, True],
        }
        self.interfaces: dict[str, Any] = {
            "name": ["eth0", "eth1", BRIDGE, "patch", "eth7"],
            "type": ["", "", "internal", "patch", ""],
            "mtu": [1500, 1500, 1500, ["set", []], 576],
            "link_speed": [1_000_000_000, ["set", []], 10_000_000_000, ["set", []], 1],
            "duplex": ["full", "full", "full", ["set", []], "half"],
            "link_state": ["up", "up", "up", ["set", []], "down"],
            "ofport": [1, 2, 65534, 3, 4],
        }
        self.ports = "eth0\neth1\npatch\n"  # eth7 is another bridge's
        self.ethtool = {"eth0": "\tSpeed: 100Mb/s\n\tDuplex: Full\n", "eth1": "\tSpeed: Unknown!\n\tDuplex: Unknown!\n"}
        self.flows = "\n".join(map(flow, (COOKIE_STARTUP, COOKIE_OURS, COOKIE_OURS, COOKIE_LEARNED)))
        self.features = "Masked set action: Yes\nMax dp_hash algorithm: 1\n"
        self.upcalls = "system@ovs-system:\n  flows         : (current 40) (avg 34) (max 60) (limit 200000)\n"
        self.ruleset = "".join(
            f'table netdev t {{ chain {nic} {{ type filter hook ingress device "{nic}" priority 0; policy drop; }} }}\n'
            for nic in ("eth0", "eth1")
        )
        self.routes = {"-4": "10.77.0.0/24 proto kernel scope link\n", "-6": ""}
        self.missing: set[str] = set()

    def run(self, argv: list[str]) -> str | None:
        if argv[0] in self.missing:
            return None
        words = " ".join(argv)
        answers: dict[str, Callable[[], str]] = {
            "ovs-appctl -T 5 version": lambda: self.version,
            f"ovs-vsctl --timeout=5 --format=json find Bridge name={BRIDGE}": lambda: table(**self.bridges),
            f"ovs-vsctl --timeout=5 list-ports {BRIDGE}": lambda: self.ports,
            "ovs-vsctl --timeout=5 --format=json list Controller": lambda: table(**self.controllers),
            f"ovs-ofctl -O OpenFlow15 dump-flows {BRIDGE}": lambda: self.flows,
            f"ovs-appctl -T 5 dpif/show-dp-features {BRIDGE}": lambda: self.features,
            "ovs-appctl -T 5 upcall/show": lambda: self.upcalls,
            "nft list ruleset": lambda: self.ruleset,
            "ip -d -j link": lambda: "[]",
            f"ip -4 route show table all dev {BRIDGE}": lambda: self.routes["-4"],
            f"ip -6 route show table all dev {BRIDGE}": lambda: self.routes["-6"],
            "ethtool eth0": lambda: self.ethtool["eth0"],
            "ethtool eth1": lambda: self.ethtool["eth1"],
        }
        if argv[-2:] == ["list", "Interface"]:
            return table(**self.interfaces)
        return answers[words]()


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_probe, "STATUS_REFRESH_S", -1.0)


def rows(machine: Machine) -> dict[str, tuple[str, str, str]]:
    return {row.check: (row.verdict, row.seen, row.advice) for row in examine(collect("h", machine.run))}


ROWS = {
    "OVS version": "3.1.0; never use insert-buckets by hand on this version, it corrupts groups",
    "datapath": "netdev (userspace)",
    "hash algorithm": "max dp_hash algorithm 1",
    "NICs": "eth0 100 Mbit/s full, eth1 speed unknown",
    "MTU": "br-ri2n 1500; eth0 1500, eth1 1500",
    "in-band control": "disabled",
    "fail mode": "secure",
    "controller": "tcp:192.0.2.1:6653 connected, tcp:192.0.2.2:6653 NOT connected",
    "start-up flows": "1 flows",
    "stale flows": "none; 2 of the controller",
    "kernel beside OVS": "kept out by nft on every NIC",
    "flow limit": "40 of 200000 datapath flows",
    "helper": "not asked for",
    "helper's MTU": "no helper",
    "helper's queue": "no helper",
}


def test_a_host_in_order() -> None:
    found = rows(Machine())
    assert {name: seen for name, (_, seen, _) in found.items()} == ROWS
    assert {(verdict, advice) for verdict, _, advice in found.values()} == {("ok", "")}
    kernel = rows(Machine("system"))
    assert kernel["datapath"] == ("ok", "system (kernel)", "")
    assert kernel["kernel beside OVS"] == ("ok", "not needed on this datapath", "")


def changed(**attributes: Any) -> Callable[[Machine], None]:
    def change(machine: Machine) -> None:
        for name, value in attributes.items():
            old = getattr(machine, name)
            setattr(machine, name, {**old, **value} if isinstance(value, dict) else value)

    return change


def without(program: str) -> Callable[[Machine], None]:
    return lambda machine: machine.missing.add(program)


NO_NIC = {"type": ["internal"] * 5}
ONE_DOWN, BOTH_DOWN = {"link_state": ["up", "down", "up", [], []]}, {"link_state": ["down", "down", "up", [], []]}
UNREACHED = "is the controller running and reachable? The host forwards as it last was told"
RUNNING = "is ovs-vswitchd running?"
IN_BAND = "ovs-vsctl set bridge br-ri2n other-config:disable-in-band=true (in-band control can loop networks)"
FAIL_MODE = "ovs-vsctl set-fail-mode br-ri2n secure (else flows go when the controller does)"
STARTUP = "run ovs-host-scripts/host-up again: without them the host cannot reach its controller"
STALE = "remove them with ovs-ofctl -O OpenFlow15 del-flows br-ri2n, by their cookie"

AILMENTS: list[tuple[str, Callable[[Machine], None], str, str, str]] = [
    (
        "OVS version",
        without("ovs-appctl"),
        "bad",
        "Open vSwitch does not answer",
        "install openvswitch-switch and start it",
    ),
    (
        *("OVS version", changed(version="ovs-vswitchd (Open vSwitch) 2.16.9\n")),
        *("bad", "2.16.9", "needs Open vSwitch 2.17 or newer: upgrade"),
    ),
    ("OVS version", changed(version="(Open vSwitch) 3.4.3\n"), "ok", "3.4.3", ""),
    ("OVS version", changed(version="(Open vSwitch) 3.6.0\n"), "ok", "3.6.0", ""),
    ("OVS version", changed(version="(Open vSwitch) 2.17.0\n"), "ok", "2.17.0; never use insert-buckets", ""),
    ("OVS version", changed(version="(Open vSwitch) 3.4.2\n"), "ok", "3.4.2; never use insert-buckets", ""),
    ("datapath", without("ovs-vsctl"), "bad", "there is no bridge br-ri2n", "run ovs-host-scripts/host-up"),
    ("hash algorithm", without("ovs-appctl"), "warn", "ovs-appctl dpif/show-dp-features does not say", RUNNING),
    ("NICs", changed(interfaces=NO_NIC), "bad", "the bridge has no NIC", "run ovs-host-scripts/host-up with the NICs"),
    ("NICs", changed(interfaces=BOTH_DOWN), "bad", "all are down", "check cables and `ip link`"),
    ("NICs", changed(interfaces=ONE_DOWN), "warn", "down: eth1", "check cables and `ip link`"),
    (
        *("NICs", changed(ethtool={"eth1": "\tSpeed: 10Mb/s\n\tDuplex: Half\n"})),
        *("bad", "eth1 10 Mbit/s half; half duplex: eth1", "check cable, switch port and autonegotiation"),
    ),
    ("NICs", without("ethtool"), "ok", "eth0 1000 Mbit/s, eth1 speed unknown", ""),
    (
        *("MTU", changed(interfaces={"mtu": [1500, 1499, 1500, [], 576]})),
        *("bad", "eth1 1499", "raise the MTU of eth1, or lower the bridge's (mtu_request)"),
    ),
    (
        *("MTU", changed(routes={"-6": "default via fe80::1 proto ra metric 1024 mtu 1501 pref medium\n"})),
        *("bad", "eth1 1500; route default 1501", "give the routes no MTU"),
    ),
    ("MTU", changed(routes={"-4": "10.9.0.0/16 via 10.77.0.2 mtu lock 1500\n"}), "ok", "eth1 1500", ""),
    (
        "MTU",
        changed(routes={"-4": "10.9.0.0/16 via 10.77.0.2 mtu lock 1600\n"}),
        "bad",
        "10.9.0.0/16 1600",
        "give the routes no MTU",
    ),
    ("MTU", changed(interfaces={"mtu": [9000, 1500, 1500, [], 576]}), "ok", "eth0 9000, eth1 1500", ""),
    ("MTU", changed(interfaces={"mtu": [[], [], 1500, [], 576]}), "warn", "unknown", "is the bridge there?"),
    ("in-band control", changed(bridges={"other_config": [["map", []]]}), "bad", "not disabled", IN_BAND),
    (
        *("in-band control", changed(bridges={"other_config": [["map", [["disable-in-band", "false"]]]]})),
        *("bad", "not disabled", IN_BAND),
    ),
    ("fail mode", changed(bridges={"fail_mode": [["set", []]]}), "bad", "not set", FAIL_MODE),
    ("fail mode", changed(bridges={"fail_mode": ["standalone"]}), "bad", "standalone", FAIL_MODE),
    (
        *("controller", changed(bridges={"controller": [["set", []]]})),
        *("bad", "none is set", "run ovs-host-scripts/host-up with --controller"),
    ),
    (
        *("controller", changed(controllers={"is_connected": [False, False, True]})),
        *("bad", "tcp:192.0.2.1:6653 NOT connected, tcp:192.0.2.2:6653 NOT connected", UNREACHED),
    ),
    ("start-up flows", changed(flows=flow(COOKIE_OURS)), "bad", "none", STARTUP),
    ("start-up flows", without("ovs-ofctl"), "bad", "none", STARTUP),
    (
        *("stale flows", changed(flows="\n".join(map(flow, (COOKIE_STARTUP, COOKIE_OURS, 0, 0x1234))))),
        *("bad", "2 flows are nobody's, for example: cookie=0x7, duration=1s", STALE),
    ),
    (
        *("stale flows", changed(flows=flow(COOKIE_STARTUP))),
        *("warn", "no flow of a controller", "no controller has configured this host yet"),
    ),
    (
        *("kernel beside OVS", without("nft")),
        *("bad", "nft does not answer", "install nftables, then run ovs-host-scripts/host-up again"),
    ),
    (
        *("kernel beside OVS", changed(ruleset=Machine().ruleset.splitlines()[0])),
        *("bad", "also answers on eth1", "run ovs-host-scripts/host-up again (nft ingress drop)"),
    ),
    (
        *("kernel beside OVS", changed(ruleset=Machine().ruleset.replace("policy drop", "policy accept"))),
        *("bad", "also answers on eth0, eth1", "run ovs-host-scripts/host-up again (nft ingress drop)"),
    ),
    ("flow limit", without("ovs-appctl"), "warn", "ovs-appctl upcall/show does not say", RUNNING),
    (
        *("flow limit", changed(upcalls="flows : (current 160001) (avg 3) (max 6) (limit 200000)")),
        *("warn", "160001 of 200000", "raise it: ovs-vsctl set Open_vSwitch . other_config:flow-limit=400000"),
    ),
    ("flow limit", changed(upcalls="(current 160000) (limit 200000)"), "ok", "160000 of 200000 datapath flows", ""),
]


@pytest.mark.parametrize(
    ("check", "change", "verdict", "seen", "advice"),
    AILMENTS,
    ids=[f"{check}: {seen}" for check, _, _, seen, _ in AILMENTS],
)
def test_what_is_wrong_is_said_with_what_to_do(
    check: str, change: Callable[[Machine], None], verdict: str, seen: str, advice: str
) -> None:
    machine = Machine()
    change(machine)
    found = rows(machine)[check]
    assert found[0] == verdict and seen in found[1], found
    assert found[2].startswith(advice) and bool(found[2]) == bool(advice), found


@pytest.mark.parametrize(
    ("datapath", "algorithm", "verdict"), [("system", 0, "warn"), ("system", 1, "ok"), ("netdev", 0, "ok")]
)
def test_a_kernel_that_hashes_by_a_random_number_only(datapath: str, algorithm: int, verdict: str) -> None:
    machine = Machine(datapath)
    machine.features = f"Max dp_hash algorithm: {algorithm}\n"
    found = rows(machine)["hash algorithm"]
    assert found[:2] == (verdict, f"max dp_hash algorithm {algorithm}")
    assert ("update the kernel" in found[2]) == (verdict == "warn")


def test_without_a_bridge_there_is_nothing_more_to_look_at() -> None:
    machine = Machine()
    machine.missing.add("ovs-vsctl")
    assert list(rows(machine)) == ["OVS version", "datapath"]


def test_a_controller_is_not_connected_only_when_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open vSwitch writes it down every few seconds."""
    machine, now_s, slept = Machine(), [0.0], []
    machine.controllers["is_connected"] = [False, False, True]

    def sleep(duration_s: float) -> None:
        slept.append(duration_s)
        now_s[0] += duration_s
        machine.controllers["is_connected"][1] = now_s[0] > late_s

    monkeypatch.setattr(doctor_probe, "STATUS_REFRESH_S", 6.0)
    monkeypatch.setattr(doctor_probe, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    late_s = 5.0
    assert rows(machine)["controller"][0] == "ok"
    machine.controllers["is_connected"][1], late_s = False, 1e9
    assert rows(machine)["controller"][0] == "bad" and sum(slept) < 13


def test_the_command_ends_with_1_when_anything_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(doctor, "run_here", machine.run)
    good = ri2n("doctor", "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["bad"] == 0
    machine.flows = flow(COOKIE_STARTUP)  # a warning
    assert ri2n("doctor").returncode == 0
    machine.bridges["fail_mode"] = ["standalone"]
    bad = ri2n("doctor", "--json")
    document = json.loads(bad.stdout)
    assert (bad.returncode, document["bad"], len(document["findings"])) == (1, 1, len(ROWS))
    shown = ri2n("doctor")
    assert shown.returncode == 1 and FAIL_MODE in " ".join(shown.stdout.replace("│", " ").split())


def test_a_command_that_fails_or_is_not_there_says_nothing() -> None:
    assert run_here(["sh", "-c", "echo yes"]) == "yes\n"
    assert run_here(["sh", "-c", "echo no; exit 1"]) is None
    assert run_here(["/nonexistent/program"]) is None


def test_of_a_command_that_hangs_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(argv: list[str], **keywords: Any) -> None:
        raise subprocess.TimeoutExpired(argv, keywords["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert run_here(["ovs-vsctl", "show"]) is None


def test_findings_say_whose_they_are() -> None:
    assert {row.host for row in examine(collect("h", Machine().run))} == {"h"}
    assert Finding("h", "x", "ok", "y").advice == ""
