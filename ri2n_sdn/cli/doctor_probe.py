"""Collect what `ri2n doctor` looks at from one host's Open vSwitch and kernel, by the usual commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ri2n_sdn.cli.doctor_checks import Facts, NicFacts, parse_cookies
from ri2n_sdn.cli.doctor_helper import collect_helper
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.taps import TAP_PORTS
from ri2n_sdn.lab.helpers import find_program

__all__ = ["BRIDGE", "Runner", "collect", "run_here"]

BRIDGE = "br-ri2n"
STATUS_REFRESH_S = 6.0
INSTALLED_HELPER = "/usr/local/lib/ri2n/ri2n-reorder"  # where ri2n-reorder.service looks

Runner = Callable[[list[str]], "str | None"]
"""Runs a command where the host is and returns its stdout; None when it fails or is not there."""


def run_here(argv: list[str]) -> str | None:
    """The Runner for the machine that this process is on."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=15, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def collect(host: str, run: Runner) -> Facts:
    """All facts of one host; what cannot be found out stays None."""
    vsctl = ["ovs-vsctl", "--timeout=5"]
    # The daemon's own word: the database's ovs_version is empty when OVS was not started by ovs-ctl.
    version = _search(r"\) (\d+\.\d+\.\d+)", run(["ovs-appctl", "-T", "5", "version"]))
    bridge = _rows(run([*vsctl, "--format=json", "find", "Bridge", f"name={BRIDGE}"]))
    if not bridge:
        return Facts(host, ovs_version=version)
    interfaces = _interfaces(run, vsctl)
    wanted = set(_plain_set(bridge[0].get("controller")))
    cookies, foreign = parse_cookies(run(["ovs-ofctl", "-O", "OpenFlow15", "dump-flows", BRIDGE]) or "")
    features = run(["ovs-appctl", "-T", "5", "dpif/show-dp-features", BRIDGE])
    upcalls = run(["ovs-appctl", "-T", "5", "upcall/show"])
    config = dict(bridge[0].get("other_config") or {})
    return Facts(
        host,
        ovs_version=version,
        datapath=str(bridge[0].get("datapath_type") or "system"),
        max_hash_alg=_number(r"Max dp_hash algorithm:\s*(\d+)", features),
        bridge_mtu=next((_int(row.get("mtu")) for row in interfaces if row["name"] == BRIDGE), None),
        route_mtus=_route_mtus(run),
        nics=[_nic(row, run) for row in interfaces if _is_nic(row)],
        in_band_disabled=config.get("disable-in-band") == "true",
        fail_mode=_first(bridge[0].get("fail_mode")),
        controllers=_controllers(run, vsctl, wanted),
        cookies=cookies,
        foreign_flows=foreign,
        ingress_drop=_ingress_drop(run(["nft", "list", "ruleset"])),
        flow_limit=_number(r"limit (\d+)", upcalls),
        datapath_flows=_number(r"current (\d+)", upcalls),
        helper=collect_helper(run(["ip", "-d", "-j", "link"]), interfaces, _helper_program()),
    )


def _controllers(run: Runner, vsctl: list[str], wanted: set[Any]) -> list[tuple[str, bool]]:
    """(target, connected) of each; a NO is believed only when it stays, as OVS writes it down every 5 s."""
    deadline = time.monotonic() + STATUS_REFRESH_S
    while True:
        rows = _rows(run([*vsctl, "--format=json", "list", "Controller"]))
        found = [
            (str(row.get("target")), row.get("is_connected") is True) for row in rows if row.get("_uuid") in wanted
        ]
        if not found or any(connected for _, connected in found) or time.monotonic() > deadline:
            return found
        time.sleep(0.25)


def _route_mtus(run: Runner) -> dict[str, int]:
    found = {}
    for family in ("-4", "-6"):
        for line in (run(["ip", family, "route", "show", "table", "all", "dev", BRIDGE]) or "").splitlines():
            mtu = _number(r" mtu (?:lock )?(\d+)", line)
            if mtu is not None:
                found[line.split()[0]] = mtu
    return found


def _interfaces(run: Runner, vsctl: list[str]) -> list[dict[str, Any]]:
    ports = (run([*vsctl, "list-ports", BRIDGE]) or "").split()
    columns = "name,type,mtu,link_speed,duplex,link_state,ofport"
    rows = _rows(run([*vsctl, "--format=json", f"--columns={columns}", "list", "Interface"]))
    return [row for row in rows if row.get("name") in (*ports, BRIDGE)]


def _is_nic(row: dict[str, Any]) -> bool:
    return row["name"] != BRIDGE and row["name"] not in TAP_PORTS and row.get("type") in ("", "system", "dpdk", "afxdp")


def _nic(row: dict[str, Any], run: Runner) -> NicFacts:
    name = str(row["name"])
    ethtool = run(["ethtool", name])
    speed = _number(r"Speed: (\d+)Mb/s", ethtool)
    duplex = _search(r"Duplex: (\w+)", ethtool)
    state = _first(row.get("link_state"))
    return NicFacts(
        name,
        mtu=_int(row.get("mtu")),
        speed_bps=speed * 1_000_000 if speed is not None else _int(row.get("link_speed")),
        duplex=duplex.lower() if duplex and duplex != "Unknown" else None,
        up=None if state is None else state == "up",
    )


def _helper_program() -> str | None:
    """Where this machine has ri2n-reorder; labs' hosts share its files."""
    if os.access(INSTALLED_HELPER, os.X_OK):
        return INSTALLED_HELPER
    try:
        return str(find_program())
    except NotAvailable:
        return None


def _ingress_drop(ruleset: str | None) -> list[str] | None:
    """NICs with an nftables ingress chain whose policy is drop; None when nft does not answer.

    From nft's text: its JSON leaves the device out (1.0.6).
    """
    if ruleset is None:
        return None
    found: list[str] = []
    for devices, rest in re.findall(r"hook ingress devices?\s*=?\s*([^;]*?)\s*priority([^}]*)", ruleset):
        if re.search(r"policy drop", rest):
            found += re.findall(r'"([^"]+)"', devices)
    return found


# ---- OVSDB's JSON: a set is ["set", [...]], a map is ["map", [[key, value], ...]], a row's id ["uuid", "..."]


def _rows(text: str | None) -> list[dict[str, Any]]:
    try:
        table = json.loads(text or "")
        headings, data = table["headings"], table["data"]
    except (ValueError, KeyError, TypeError):
        return []
    return [{key: _value(cell) for key, cell in zip(headings, row, strict=True)} for row in data]


def _value(cell: Any) -> Any:
    if isinstance(cell, list) and len(cell) == 2:
        if cell[0] == "set":
            return [_value(item) for item in cell[1]]
        if cell[0] == "map":
            return {key: _value(value) for key, value in cell[1]}
        if cell[0] == "uuid":
            return cell[1]
    return cell


def _plain_set(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _first(value: Any) -> str | None:
    values = _plain_set(value)
    return str(values[0]) if values and values[0] is not None else None


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _search(pattern: str, text: str | None) -> str | None:
    match = re.search(pattern, text or "")
    return match.group(1) if match else None


def _number(pattern: str, text: str | None) -> int | None:
    found = _search(pattern, text)
    return int(found) if found is not None else None
