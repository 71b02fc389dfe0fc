"""What `ri2n doctor` knows about the helper ri2n-reorder on a host: pure functions from command output to rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ri2n_sdn.fabric.taps import HELPER_BYTES, PLAIN_TAP, TAG_BYTES, TAP_PORTS, WIRE_TAP

__all__ = [
    "HelperFacts",
    "TapFacts",
    "check_helper",
    "check_helper_mtu",
    "check_helper_queue",
    "collect_helper",
]

Verdict = Literal["ok", "warn", "bad"]
Row = tuple[Verdict, str, str]

LONGEST_QUEUE = 1000
"""Frames: 5 ms at 2.4 Gbit/s, what host-up gives at most."""

HOST_UP = "run ovs-host-scripts/host-up again, with --helper"


@dataclass(frozen=True)
class TapFacts:
    """One of the helper's two TAPs as the kernel and Open vSwitch see it."""

    name: str
    port: int | None = None  # OpenFlow port number; None when it is not in the bridge
    mtu: int | None = None
    carrier: bool | None = None  # a process holds it
    queue: int | None = None  # frames
    qdisc: str | None = None


@dataclass(frozen=True)
class HelperFacts:
    """The helper on a host: its TAPs (none where host-up was not asked for them) and its program's path."""

    taps: list[TapFacts] = field(default_factory=list)
    program: str | None = None


def collect_helper(links: str | None, interfaces: Sequence[dict[str, Any]], program: str | None) -> HelperFacts:
    """The facts from `ip -d -j link`, the bridge's rows of OVSDB's Interface, and where the program is.

    A TAP that is only known to one of the two is a fact too: something removed the other half.
    """
    try:
        devices = {str(entry["ifname"]): entry for entry in json.loads(links or "[]")}
    except (ValueError, KeyError, TypeError):
        devices = {}
    ports = {str(row["name"]): row.get("ofport") for row in interfaces}
    taps = [
        _tap(name, devices.get(name, {}), ports.get(name)) for name in TAP_PORTS if name in devices or name in ports
    ]
    return HelperFacts(taps, program)


def check_helper(facts: HelperFacts) -> Row:
    """TAPs there, program there, running."""
    if not facts.taps:
        return "ok", "not asked for", ""
    wrong = [
        name
        for name, port in TAP_PORTS.items()
        if not any((tap.name, tap.port) == (name, port) and tap.mtu is not None for tap in facts.taps)
    ]
    if wrong:
        ports = " and ".join(f"{name} as port {TAP_PORTS[name]}" for name in wrong)
        return "bad", f"the bridge has not got {ports}", HOST_UP
    if all(tap.carrier for tap in facts.taps):
        return "ok", "running", ""
    if facts.program is None:
        return "bad", "ri2n-reorder is not installed", "install it; until then packets go by the slot table"
    held = [tap.name for tap in facts.taps if tap.carrier]
    seen = f"not running{': somebody else holds ' + ', '.join(held) if held else ''} ({facts.program})"
    return "bad", seen, "systemctl start ri2n-reorder, and see journalctl -u ri2n-reorder"


def check_helper_mtu(facts: HelperFacts, bridge_mtu: int | None, nic_mtus: Sequence[int | None]) -> Row:
    """The header and the longest packet fit a NIC's frame, and what comes in by a NIC fits the TAP."""
    if not facts.taps:
        return "ok", "no helper", ""
    known = [mtu for mtu in nic_mtus if mtu is not None]
    mtus = {tap.name: tap.mtu for tap in facts.taps if tap.mtu is not None}
    if bridge_mtu is None or not known or len(mtus) < len(TAP_PORTS):
        return "warn", "unknown", HOST_UP
    least = min(known)
    taps = ", ".join(f"{name} {mtus[name]}" for name in TAP_PORTS)
    seen = f"br-ri2n {bridge_mtu} + {HELPER_BYTES}, NICs {least}, {taps}"
    if bridge_mtu + HELPER_BYTES > least:
        return "bad", seen, f"{HOST_UP} (--nic-mtu {bridge_mtu + HELPER_BYTES} if the switches carry it)"
    if mtus[PLAIN_TAP] < bridge_mtu or mtus[WIRE_TAP] < least + HELPER_BYTES + TAG_BYTES:
        return "bad", seen, HOST_UP
    return "ok", seen, ""


def check_helper_queue(facts: HelperFacts) -> Row:
    """What waits for the helper waits for milliseconds only: else TCP fills it, and every packet pays."""
    plain = next((tap for tap in facts.taps if tap.name == PLAIN_TAP), None)
    if plain is None:
        return "ok", "no helper", ""
    if plain.queue is None:
        return "warn", "unknown", HOST_UP
    seen = f"{plain.queue} frames, {plain.qdisc or 'no qdisc'}"
    if plain.queue > LONGEST_QUEUE:
        return "warn", seen, f"{HOST_UP}: a long queue is a long delay"
    return "ok", seen, ""


def _tap(name: str, device: dict[str, Any], port: object) -> TapFacts:
    flags = device.get("flags")

    def number(key: str) -> int | None:
        value = device.get(key)
        return value if isinstance(value, int) else None

    return TapFacts(
        name,
        port=port if isinstance(port, int) and port > 0 else None,
        mtu=number("mtu"),
        carrier="LOWER_UP" in flags if isinstance(flags, list) else None,
        queue=number("txqlen"),
        qdisc=device.get("qdisc"),
    )
