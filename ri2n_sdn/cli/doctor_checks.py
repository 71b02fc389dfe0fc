"""What `ri2n doctor` knows about a healthy host: pure functions from collected facts to rows ok, warn or bad."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ri2n_sdn.cli.doctor_helper import HelperFacts, check_helper, check_helper_mtu, check_helper_queue
from ri2n_sdn.pipeline.layout import COOKIE_LEARNED, COOKIE_OURS, COOKIE_STARTUP

__all__ = ["Facts", "Finding", "NicFacts", "Verdict", "examine", "parse_cookies"]

Verdict = Literal["ok", "warn", "bad"]

OLDEST_OVS = (2, 17)
# First good versions: before these, ovs-ofctl insert-buckets and remove-buckets corrupt a dp_hash group.
INSERT_BUCKET_FIXED = {(3, 2): 6, (3, 3): 5, (3, 4): 3, (3, 5): 1}


@dataclass(frozen=True)
class NicFacts:
    """A NIC as the host sees it; None means that it does not say."""

    name: str
    mtu: int | None = None
    speed_bps: int | None = None
    duplex: str | None = None
    up: bool | None = None


@dataclass(frozen=True)
class Facts:
    """Everything collected on one host; None means that the question could not be answered."""

    host: str
    ovs_version: str | None = None
    datapath: str | None = None
    max_hash_alg: int | None = None
    bridge_mtu: int | None = None
    route_mtus: dict[str, int] = field(default_factory=dict)
    """MTUs of the bridge's routes that have one of their own, by destination."""
    nics: list[NicFacts] = field(default_factory=list)
    in_band_disabled: bool | None = None
    fail_mode: str | None = None
    controllers: list[tuple[str, bool]] = field(default_factory=list)
    cookies: dict[int, int] = field(default_factory=dict)
    """Number of flows by the top 16 bits of their cookie."""
    foreign_flows: list[str] = field(default_factory=list)
    ingress_drop: list[str] | None = None
    """NICs whose frames the kernel is kept from (nftables, netdev datapath only)."""
    flow_limit: int | None = None
    datapath_flows: int | None = None
    helper: HelperFacts = field(default_factory=HelperFacts)


@dataclass(frozen=True)
class Finding:
    """One row: what was looked at, how it is, what was seen, and what to do about it (empty when ok)."""

    host: str
    check: str
    verdict: Verdict
    seen: str
    advice: str = ""


def examine(facts: Facts) -> list[Finding]:
    """All checks on one host, in an order that a person would look in; without a bridge only the first two."""
    checks: list[tuple[str, Callable[[Facts], tuple[Verdict, str, str]]]] = [
        ("OVS version", _version),
        ("datapath", _datapath),
        ("hash algorithm", _hash_algorithm),
        ("NICs", _nics),
        ("MTU", _mtu),
        ("in-band control", _in_band),
        ("fail mode", _fail_mode),
        ("controller", _controller),
        ("start-up flows", _startup_flows),
        ("stale flows", _stale_flows),
        ("kernel beside OVS", _ingress_drop),
        ("flow limit", _flow_limit),
        ("helper", lambda facts: check_helper(facts.helper)),
        ("helper's MTU", _helper_mtu),
        ("helper's queue", lambda facts: check_helper_queue(facts.helper)),
    ]
    if facts.datapath is None:
        checks = checks[:2]
    return [Finding(facts.host, name, *check(facts)) for name, check in checks]


def parse_cookies(dump: str) -> tuple[dict[int, int], list[str]]:
    """Flows by the top 16 bits of the cookie, and the flows that are nobody's, from `ovs-ofctl dump-flows`."""
    counts: dict[int, int] = {}
    foreign: list[str] = []
    for line in dump.splitlines():
        flow = line.strip()
        if "actions=" not in flow:
            continue
        match = re.search(r"cookie=(0x[0-9a-f]+)", flow)
        owner = int(match.group(1), 16) >> 48 if match else 0
        counts[owner] = counts.get(owner, 0) + 1
        if owner not in (COOKIE_OURS, COOKIE_LEARNED, COOKIE_STARTUP):
            foreign.append(flow)
    return counts, foreign


# ---- the checks: (verdict, what was seen, what to do)


def _version(facts: Facts) -> tuple[Verdict, str, str]:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", facts.ovs_version or "")
    if not numbers:
        return "bad", "Open vSwitch does not answer", "install openvswitch-switch and start it"
    major, minor, patch = map(int, numbers.groups())
    if (major, minor) < OLDEST_OVS:
        return "bad", facts.ovs_version or "", "needs Open vSwitch 2.17 or newer: upgrade"
    fixed = (major, minor) >= (3, 6) or patch >= INSERT_BUCKET_FIXED.get((major, minor), 1 << 30)
    remark = "" if fixed else "; never use insert-buckets by hand on this version, it corrupts groups"
    return "ok", f"{facts.ovs_version}{remark}", ""


def _datapath(facts: Facts) -> tuple[Verdict, str, str]:
    if facts.datapath is None:
        return "bad", "there is no bridge br-ri2n", "run ovs-host-scripts/host-up"
    if facts.datapath == "netdev":
        return "ok", "netdev (userspace)", ""
    return "ok", "system (kernel)", ""


def _hash_algorithm(facts: Facts) -> tuple[Verdict, str, str]:
    if facts.max_hash_alg is None:
        return "warn", "ovs-appctl dpif/show-dp-features does not say", "is ovs-vswitchd running?"
    seen = f"max dp_hash algorithm {facts.max_hash_alg}"
    if facts.datapath == "system" and facts.max_hash_alg == 0:
        advice = "this kernel hashes by the socket's random number: a flow may move after a time-out; update the kernel"
        return "warn", seen, advice
    return "ok", seen, ""


def _nics(facts: Facts) -> tuple[Verdict, str, str]:
    if not facts.nics:
        return "bad", "the bridge has no NIC", "run ovs-host-scripts/host-up with the NICs' names"
    down = [nic.name for nic in facts.nics if nic.up is False]
    half = [nic.name for nic in facts.nics if nic.duplex == "half"]
    seen = ", ".join(f"{nic.name} {_speed(nic)}" for nic in facts.nics)
    if len(down) == len(facts.nics):
        return "bad", f"{seen}; all are down", "check cables and `ip link`"
    if half:
        return "bad", f"{seen}; half duplex: {', '.join(half)}", "check cable, switch port and autonegotiation"
    if down:
        return "warn", f"{seen}; down: {', '.join(down)}", "check cables and `ip link`"
    return "ok", seen, ""


def _mtu(facts: Facts) -> tuple[Verdict, str, str]:
    mtus = {nic.name: nic.mtu for nic in facts.nics if nic.mtu is not None}
    if facts.bridge_mtu is None or not mtus:
        return "warn", "unknown", "is the bridge there?"
    small = [name for name, mtu in mtus.items() if mtu < facts.bridge_mtu]
    seen = f"br-ri2n {facts.bridge_mtu}; " + ", ".join(f"{name} {mtu}" for name, mtu in mtus.items())
    if small:
        return "bad", seen, f"raise the MTU of {', '.join(small)}, or lower the bridge's (mtu_request)"
    wide = {route: mtu for route, mtu in facts.route_mtus.items() if mtu > facts.bridge_mtu}
    if wide:
        routes = "".join(f"; route {route} {mtu}" for route, mtu in wide.items())
        advice = "give the routes no MTU, longer packets are lost (systemd-networkd: [IPv6AcceptRA] UseMTU=no)"
        return "bad", seen + routes, advice
    return "ok", seen, ""


def _in_band(facts: Facts) -> tuple[Verdict, str, str]:
    if facts.in_band_disabled:
        return "ok", "disabled", ""
    advice = "ovs-vsctl set bridge br-ri2n other-config:disable-in-band=true (in-band control can loop networks)"
    return "bad", "not disabled", advice


def _fail_mode(facts: Facts) -> tuple[Verdict, str, str]:
    if facts.fail_mode == "secure":
        return "ok", "secure", ""
    advice = "ovs-vsctl set-fail-mode br-ri2n secure (else flows go when the controller does)"
    return "bad", facts.fail_mode or "not set", advice


def _controller(facts: Facts) -> tuple[Verdict, str, str]:
    if not facts.controllers:
        return "bad", "none is set", "run ovs-host-scripts/host-up with --controller"
    seen = ", ".join(f"{target} {'connected' if up else 'NOT connected'}" for target, up in facts.controllers)
    if any(up for _, up in facts.controllers):
        return "ok", seen, ""
    return "bad", seen, "is the controller running and reachable? The host forwards as it last was told"


def _startup_flows(facts: Facts) -> tuple[Verdict, str, str]:
    count = facts.cookies.get(COOKIE_STARTUP, 0)
    if count:
        return "ok", f"{count} flows", ""
    return "bad", "none", "run ovs-host-scripts/host-up again: without them the host cannot reach its controller"


def _stale_flows(facts: Facts) -> tuple[Verdict, str, str]:
    ours = facts.cookies.get(COOKIE_OURS, 0)
    if facts.foreign_flows:
        seen = f"{len(facts.foreign_flows)} flows are nobody's, for example: {facts.foreign_flows[0][:80]}"
        return "bad", seen, "remove them with ovs-ofctl -O OpenFlow15 del-flows br-ri2n, by their cookie"
    if not ours:
        return "warn", "no flow of a controller", "no controller has configured this host yet"
    return "ok", f"none; {ours} of the controller", ""


def _ingress_drop(facts: Facts) -> tuple[Verdict, str, str]:
    if facts.datapath != "netdev":
        return "ok", "not needed on this datapath", ""
    missing = [nic.name for nic in facts.nics if nic.name not in (facts.ingress_drop or [])]
    if facts.ingress_drop is None:
        return "bad", "nft does not answer", "install nftables, then run ovs-host-scripts/host-up again"
    if missing:
        return "bad", f"also answers on {', '.join(missing)}", "run ovs-host-scripts/host-up again (nft ingress drop)"
    return "ok", "kept out by nft on every NIC", ""


def _flow_limit(facts: Facts) -> tuple[Verdict, str, str]:
    if facts.flow_limit is None or facts.datapath_flows is None:
        return "warn", "ovs-appctl upcall/show does not say", "is ovs-vswitchd running?"
    seen = f"{facts.datapath_flows} of {facts.flow_limit} datapath flows"
    if facts.datapath_flows > facts.flow_limit * 0.8:
        return "warn", seen, "raise it: ovs-vsctl set Open_vSwitch . other_config:flow-limit=400000"
    return "ok", seen, ""


def _helper_mtu(facts: Facts) -> tuple[Verdict, str, str]:
    return check_helper_mtu(facts.helper, facts.bridge_mtu, [nic.mtu for nic in facts.nics])


def _speed(nic: NicFacts) -> str:
    speed = f"{nic.speed_bps / 1e6:g} Mbit/s" if nic.speed_bps else "speed unknown"
    return f"{speed} {nic.duplex}" if nic.duplex else speed
