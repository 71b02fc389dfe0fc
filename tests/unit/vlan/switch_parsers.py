# SPDX-License-Identifier: Apache-2.0
"""Reads switches' configurations as the switches would.

The result is what each port has in the end, whatever was set there before.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass

__all__ = ["PARSERS", "PortState", "commands_of"]

EVERY_VLAN = frozenset(range(1, 4095))
STALE = 3000  # a VLAN that every port is in before the file is applied


@dataclass
class PortState:
    """What a port does with frames; `untagged` is the VLAN of those without a tag."""

    untagged: int | None = None
    tagged: frozenset[int] = frozenset()
    shut: bool = False
    description: str = ""
    guarded: bool = False  # BPDU guard or the like


def numbers(text: str) -> frozenset[int]:
    """`101-104,106` as a set."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _interfaces(text: str) -> dict[str, list[str]]:
    """The lines below each `interface ...`, until one that ends it."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.startswith("interface ") and not line.startswith("interface vlan"):
            current = found.setdefault(line.removeprefix("interface "), [])
        elif line.startswith(" ") and current is not None:
            current.append(line.strip())
        else:
            current = None
    return found


def cisco_like(text: str) -> dict[str, PortState]:
    """IOS and EOS."""
    defined = {
        int(line.split()[1]) for line in text.splitlines() if re.fullmatch(r"vlan \d+", line)
    }
    result = {}
    for name, lines in _interfaces(text).items():
        state = PortState()
        mode, access, native, allowed = "", STALE, STALE, frozenset({STALE})
        for line in lines:
            words = line.split()
            if words[:2] == ["switchport", "mode"]:
                mode = words[2]
            elif words[:3] == ["switchport", "access", "vlan"]:
                access = int(words[3])
            elif words[:4] == ["switchport", "trunk", "native", "vlan"]:
                native = int(words[4])
            elif line == "no switchport trunk native vlan":
                native = 1
            elif words[:5] == ["switchport", "trunk", "allowed", "vlan", "add"]:
                allowed |= numbers(words[5])
            elif words[:4] == ["switchport", "trunk", "allowed", "vlan"]:
                allowed = numbers(words[4])
            elif line in ("shutdown", "no shutdown"):
                state.shut = line == "shutdown"
            elif words[0] == "description":
                state.description = line.removeprefix("description ")
            elif line == "spanning-tree bpduguard enable":
                state.guarded = True
            else:
                assert line in KNOWN_CISCO, line
        if state.shut:
            pass
        elif mode == "access":
            state.untagged = access
        else:
            assert mode == "trunk"
            assert allowed <= defined  # a VLAN that the switch does not have would not be carried
            state.untagged = native if native in allowed else None
            state.tagged = allowed - {native}
        result[name] = state
    return result


KNOWN_CISCO = {
    "switchport",
    "switchport nonegotiate",
    "spanning-tree portfast",
    "spanning-tree portfast trunk",
    "no spanning-tree portfast",
    "no spanning-tree bpduguard",
}


def powerconnect(text: str) -> dict[str, PortState]:
    """PowerConnect 5500; before, every port was in all the switch's VLANs, untagged in VLAN 1."""
    database = text.partition("vlan database\n")[2].partition("exit\n")[0]
    defined = frozenset[int]().union(
        *(numbers(line.removeprefix("vlan ")) for line in database.splitlines())
    )
    result = {}
    for name, lines in _interfaces(text).items():
        state = PortState()
        mode, access, pvid, tagged_only, filters = "", 1, 1, False, False
        tagged, untagged = set(defined), {1}
        for line in lines:
            words = line.split()
            if words[:2] == ["switchport", "mode"]:
                mode = words[2]
            elif words[:3] == ["switchport", "access", "vlan"]:
                access = int(words[3])
            elif words[:5] == ["switchport", "general", "allowed", "vlan", "remove"]:
                assert numbers(words[5]) <= defined
                tagged -= numbers(words[5])
                untagged -= numbers(words[5])
            elif words[:5] == ["switchport", "general", "allowed", "vlan", "add"]:
                assert numbers(words[5]) <= defined
                add_to, take_from = (
                    (tagged, untagged) if words[6] == "tagged" else (untagged, tagged)
                )
                assert words[6] in ("tagged", "untagged")
                add_to |= numbers(words[5])
                take_from -= numbers(words[5])
            elif line == "switchport forbidden default-vlan":
                tagged.discard(1)
                untagged.discard(1)
            elif words[:3] == ["switchport", "general", "pvid"]:
                pvid = int(words[3])
            elif words[:3] == ["switchport", "general", "acceptable-frame-type"]:
                tagged_only = words[3] == "tagged-only"
            elif line == "no switchport general ingress-filtering disable":
                filters = True
            elif line in ("shutdown", "no shutdown"):
                state.shut = line == "shutdown"
            elif words[0] == "description":
                state.description = line.removeprefix('description "').removesuffix('"')
            elif line == "spanning-tree bpduguard enable":
                state.guarded = True
            else:
                assert line in (
                    "spanning-tree disable",
                    "no spanning-tree disable",
                    "spanning-tree portfast",
                ), line
        if state.shut:
            pass
        elif mode == "access":
            state.untagged = access
        else:
            assert mode == "general" and filters
            assert untagged == (set() if tagged_only else {pvid})
            state.untagged = None if tagged_only else pvid
            state.tagged = frozenset(tagged)
        result[name] = state
    return result


def junos(text: str) -> dict[str, PortState]:
    """Junos, ELS; before, every port was shut, guarded, and in a stale VLAN, tagged or not."""
    result: dict[str, PortState] = {}
    mode: dict[str, str] = {}
    native: dict[str, int | None] = {}
    members: dict[str, set[int]] = {}
    defined = {int(line.split()[-1]) for line in text.splitlines() if line.startswith("set vlans ")}
    switching = "unit 0 family ethernet-switching"
    for line in text.splitlines():
        if line.startswith("#") or line.startswith(
            ("set vlans ", "set protocols rstp ", "set protocols l2-learning ")
        ):
            continue
        verb, _, rest = line.partition(" ")
        if rest.startswith("protocols layer2-control bpdu-block interface "):
            result[rest.split()[-1]].guarded = verb == "set"
            continue
        kind, name, what = rest.split(maxsplit=2)
        assert kind == "interfaces"
        state = result.setdefault(name, PortState(shut=True, guarded=True))
        native.setdefault(name, STALE)
        members.setdefault(name, {STALE})
        if what == "disable":
            state.shut = verb == "set"
        elif (verb, what) == ("delete", "native-vlan-id"):
            native[name] = None
        elif (verb, what) == ("delete", switching):
            members[name], mode[name] = set(), ""
        elif verb == "set" and what.startswith("description "):
            state.description = what.removeprefix('description "').removesuffix('"')
        elif verb == "set" and what.startswith(f"{switching} interface-mode "):
            mode[name] = what.split()[-1]
        elif verb == "set" and what.startswith("native-vlan-id "):
            native[name] = int(what.split()[-1])
        else:
            assert verb == "set" and what.startswith(f"{switching} vlan members "), line
            members[name] |= numbers(what.split()[-1])
    for name, state in result.items():
        assert members[name] <= defined
        if mode[name] == "access":
            (state.untagged,) = members[name]
            assert native[name] is None
        elif mode[name] == "trunk":
            state.untagged = native[name]
            assert native[name] is None or native[name] in members[name]
            state.tagged = frozenset(members[name] - {native[name]})
    return result


def sonic(text: str) -> dict[str, PortState]:
    """SONiC's config_db.json."""
    document = json.loads(text)
    result = {
        name: PortState(
            shut={"up": False, "down": True}[port["admin_status"]], description=port["description"]
        )
        for name, port in document["PORT"].items()
    }
    for key, member in document["VLAN_MEMBER"].items():
        vlan, name = key.split("|")
        number = int(document["VLAN"][vlan]["vlanid"])
        assert vlan == f"Vlan{number}"
        if member["tagging_mode"] == "tagged":
            result[name].tagged |= {number}
        else:
            assert member["tagging_mode"] == "untagged" and result[name].untagged is None
            result[name].untagged = number
    return result


BASH = shutil.which("bash") or "/bin/bash"
RECORD = """
ip() { printf '%s\\037' ip "$@" >&3; printf '\\n' >&3; [[ "$*" != "link show"* ]]; }
bridge() { printf '%s\\037' bridge "$@" >&3; printf '\\n' >&3; }
ovs-vsctl() { printf '%s\\037' ovs-vsctl "$@" >&3; printf '\\n' >&3; }
exec 3>&1 >/dev/null
"""


def commands_of(script: str) -> list[list[str]]:
    """The commands that bash runs for a script, as lists of words.

    The commands themselves do nothing.
    """
    done = subprocess.run(
        [BASH],
        input=RECORD + script,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"PATH": "/nonexistent"},
    )
    assert done.stderr == ""
    return [line.split("\037")[:-1] for line in done.stdout.splitlines()]


def linux_bridge(text: str) -> dict[str, PortState]:
    """A Linux bridge; before, every device was down and had a stale VLAN, and VLAN 1 untagged."""
    result: dict[str, PortState] = {}
    pvid: dict[str, int | None] = {}
    # The VLANs of each device, and whether their frames leave with a tag.
    tags: dict[str, dict[int, bool]] = {}
    attached: dict[str, bool] = {}
    created = ""
    filters = False
    for command in commands_of(text):
        match command:
            case ["ip", "link", "show", *_]:
                pass
            case ["ip", "link", "add", "name", bridge, "type", "bridge", "vlan_filtering", "1"]:
                created = bridge
            case ["ip", "link", "set", "dev", bridge, "type", "bridge", *settings] if (
                bridge == created
            ):
                as_set = dict(zip(settings[::2], settings[1::2], strict=True))
                filters = (
                    as_set["vlan_filtering"],
                    as_set["vlan_default_pvid"],
                    as_set["stp_state"],
                ) == (
                    "1",
                    "0",
                    "0",
                )
            case ["ip", "link", "set", "dev", bridge, "up"] if bridge == created:
                pass
            case ["ip", "link", "set", "dev", device, *what]:
                state = result.setdefault(device, PortState(shut=True))
                pvid.setdefault(device, 1)
                tags.setdefault(device, {1: False, STALE: True})
                match what:
                    case ["alias", description]:
                        state.description = description
                    case ["master", bridge]:
                        assert bridge == created
                        attached[device] = True
                    case ["nomaster"]:
                        attached[device] = False
                    case [direction]:
                        state.shut = {"up": False, "down": True}[direction]
                    case _:
                        raise AssertionError(command)
            case ["bridge", "vlan", "add", "dev", device, "vid", vid, "pvid", "untagged"]:
                pvid[device] = int(vid)
                tags[device][int(vid)] = False
            case ["bridge", "vlan", "add", "dev", device, "vid", vids]:
                tags[device] |= dict.fromkeys(numbers(vids), True)
                pvid[device] = None if pvid[device] in numbers(vids) else pvid[device]
            case ["bridge", "vlan", "del", "dev", device, "vid", vids]:
                tags[device] = {
                    vid: tagged for vid, tagged in tags[device].items() if vid not in numbers(vids)
                }
                pvid[device] = None if pvid[device] in numbers(vids) else pvid[device]
            case _:
                raise AssertionError(command)
    assert filters
    for device, state in result.items():
        assert attached[device] is not state.shut
        if not state.shut:
            untagged = [vid for vid, tagged in tags[device].items() if not tagged]
            assert untagged == ([] if pvid[device] is None else [pvid[device]])
            state.untagged = pvid[device]
            state.tagged = frozenset(tags[device]) - set(untagged)
    return result


def ovs(text: str) -> dict[str, PortState]:
    """Open vSwitch; before, every port trunked all VLANs."""
    result: dict[str, PortState] = {}
    bridges: dict[str, dict[str, str]] = {}
    ports: dict[str, dict[str, str]] = {}
    for command in commands_of(text):
        match command:
            case ["ip", "link", "set", "dev", device, direction]:
                state = result.setdefault(device, PortState())
                state.shut = {"up": False, "down": True}[direction]
            case [
                "ovs-vsctl",
                "--may-exist",
                "add-br",
                bridge,
                "--",
                "set",
                "Bridge",
                same,
                *settings,
            ]:
                assert bridge == same
                bridges[bridge] = dict(setting.split("=", 1) for setting in settings)
            case ["ovs-vsctl", "--if-exists", "del-port", bridge, device]:
                assert bridge in bridges
            case [
                "ovs-vsctl",
                "--may-exist",
                "add-port",
                bridge,
                device,
                "--",
                "set",
                "Port",
                same,
                *settings,
            ]:
                assert bridge in bridges and device == same
                ports[device] = dict(setting.split("=", 1) for setting in settings)
            case _:
                raise AssertionError(command)
    (only,) = bridges.values()
    assert (only["stp_enable"], only["rstp_enable"], only["flood_vlans"]) == (
        "false",
        "false",
        "[]",
    )
    for device, columns in ports.items():
        state = result[device]
        state.description = columns["external_ids:ri2n-plugged"].strip('"')
        tag = None if columns.get("tag", "[]") == "[]" else int(columns["tag"])
        trunks = EVERY_VLAN if columns["trunks"] == "[]" else numbers(columns["trunks"])
        if columns["vlan_mode"] == "access":
            assert columns["trunks"] == "[]"
            state.untagged = tag
        elif columns["vlan_mode"] == "native-untagged":
            assert tag is not None
            state.untagged, state.tagged = tag, trunks - {tag}
        else:
            assert columns["vlan_mode"] == "trunk" and tag is None
            state.tagged = trunks
    for device, state in result.items():
        assert state.shut is (device not in ports)
    return result


PARSERS = {
    "ios": cisco_like,
    "eos": cisco_like,
    "powerconnect": powerconnect,
    "junos": junos,
    "sonic": sonic,
    "linux-bridge": linux_bridge,
    "ovs": ovs,
}
