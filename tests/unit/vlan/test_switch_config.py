# SPDX-License-Identifier: Apache-2.0
"""Switch configurations: whole files that were reviewed once, and what switches make of others."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.vlan.configs import VENDORS, file_name, write
from ri2n_sdn.vlan.configs.common import MAX_LINE, listed
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts
from tests.unit.vlan.switch_models import assert_means, names_of, vbft
from tests.unit.vlan.switch_parsers import PARSERS, numbers

__all__ = ["vbft"]

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "GOLDEN_UPDATE"  # set it to write the files anew, then read what git says of them


# ---- whole files ----


@pytest.mark.parametrize("vendor", VENDORS)
def test_golden(vendor: str, vbft: dict[str, SwitchPorts]) -> None:
    folder = GOLDEN / vendor
    written = {file_name(vendor, switch): write(vendor, switch) for switch in vbft.values()}
    if os.environ.get(UPDATE):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert written == {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("vendor", VENDORS)
def test_golden_files_mean_what_the_model_says(vendor: str, vbft: dict[str, SwitchPorts]) -> None:
    for switch in vbft.values():
        text = (GOLDEN / vendor / file_name(vendor, switch)).read_text(encoding="utf-8")
        assert_means(vendor, text, names_of(vendor, switch))


@pytest.mark.parametrize("vendor", ["linux-bridge", "ovs"])
def test_scripts_are_good_bash(vendor: str, tmp_path: Path, vbft: dict[str, SwitchPorts]) -> None:
    script = tmp_path / "script"
    for switch in vbft.values():
        script.write_text(write(vendor, switch))
        done = subprocess.run(
            ["bash", "-n", str(script)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


# ---- any switch ----

SOME_IDS = st.lists(st.integers(2, 1001), min_size=1, max_size=40, unique=True)


@st.composite
def any_switch(draw: st.DrawFn) -> SwitchPorts:
    ids = draw(SOME_IDS)
    ports = []
    for number in draw(
        st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True).map(sorted)
    ):
        kind = draw(st.sampled_from(["managed", "router", "cable", "spare"]))
        some = draw(st.sets(st.sampled_from(ids), min_size=1))
        if kind in ("managed", "router"):
            tagged = tuple(sorted(some - {ids[0]})) if kind == "managed" else ()
            ports.append(SwitchPort(number, f"h{number}:nic0", True, ids[0], tagged, False, 10**9))
        else:
            tagged = tuple(sorted(some)) if kind == "cable" else ()
            ports.append(
                SwitchPort(number, f"up{number} port 3", False, None, tagged, not tagged, 10**9)
            )
    vlans = tuple((vlan, f"ri2n-tree{place}") for place, vlan in enumerate(ids))
    return SwitchPorts("leaf1", tuple(ports), vlans, 300.0, 8192)


@pytest.mark.parametrize("vendor", VENDORS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(switch=any_switch())
def test_any_switch_is_understood(vendor: str, switch: SwitchPorts) -> None:
    text = write(vendor, switch)
    assert_means(vendor, text, names_of(vendor, switch))
    if vendor in ("ios", "eos", "powerconnect"):
        lists = [line for line in text.splitlines() if "vlan" in line and not line.startswith("!")]
        assert max(map(len, lists), default=0) <= MAX_LINE


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("step", [1, 3])
def test_256_vlans(vendor: str, step: int) -> None:
    ids = tuple(range(101, 101 + 256 * step, step))
    host = SwitchPort(1, "n1:nic0", True, 101, ids[1:], False, 10**9)
    cable = SwitchPort(2, "up1 port 3", False, None, ids, False, 10**9)
    switch = SwitchPorts(
        "leaf1", (host, cable), tuple((vlan, f"t{vlan}") for vlan in ids), 300.0, 8192
    )
    text = write(vendor, switch)
    assert_means(vendor, text, names_of(vendor, switch))
    if vendor in ("ios", "eos", "powerconnect"):
        lines = text.splitlines()
        lists = [line for line in lines if "vlan" in line and not line.startswith("!")]
        assert max(map(len, lists)) <= MAX_LINE
        if step == 3:  # 255 numbers of up to 4 characters with commas, on two ports
            assert sum(" add " in line for line in lists) > 2 * 255 * 4 // MAX_LINE
    if vendor == "ios":
        with_tree = [line for line in text.splitlines() if line.startswith("spanning-tree vlan ")]
        without = [line for line in text.splitlines() if line.startswith("no spanning-tree vlan ")]
        listed_ids = [
            set[int]().union(*(numbers(line.split()[-1]) for line in lines))
            for lines in (with_tree, without)
        ]
        assert listed_ids == [set(ids[:64]), set(ids[64:])]
    if vendor == "eos":
        without = [
            line for line in text.splitlines() if line.startswith("no spanning-tree vlan-id ")
        ]
        assert set[int]().union(*(numbers(line.split()[-1]) for line in without)) == set(ids)


@given(st.sets(st.integers(1, 4094)))
def test_lists_of_vlans_read_back(ids: set[int]) -> None:
    text = listed(ids)
    assert (set(numbers(text)) if text else set()) == ids
    assert text == listed(sorted(ids, reverse=True))


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_switch_that_no_tree_reaches_is_shut(vendor: str) -> None:
    spare = SwitchPort(3, "up1 port 3", False, None, (), True, 10**9)
    text = write(vendor, SwitchPorts("leaf1", (spare,), (), 300.0, 8192))
    assert_means(vendor, text, names_of(vendor, SwitchPorts("leaf1", (spare,), (), 300.0, 8192)))
    assert "vlan \n" not in text and "vlan-id \n" not in text


def test_text_from_outside_stays_text() -> None:
    nasty = SwitchPort(1, 'n1:"$(reboot)`x`;\n!', True, 101, (), False, 10**9)
    switch = SwitchPorts("leaf1", (nasty,), ((101, "base"),), 300.0, 8192)
    for vendor in VENDORS:
        text = write(vendor, switch)
        assert (
            "n1 ___reboot__x____" in text.replace("`", "_")
            and "$(" not in text
            and "!\n\n" not in text
        )
        PARSERS[vendor](text)


# ---- what is set, and what a vendor cannot do ----


@pytest.mark.parametrize(
    ("vendor", "ageing_s", "expected"),
    [
        ("ios", 299.5, "mac address-table aging-time 300\n"),
        ("ios", 3.0, "mac address-table aging-time 10\n"),
        ("eos", 1200.0, "mac address-table aging-time 1200\n"),
        ("powerconnect", 400.0, "mac address-table aging-time 400\n"),
        ("junos", 300.0, "set protocols l2-learning global-mac-table-aging-time 300\n"),
        ("linux-bridge", 300.0, " ageing_time 30000\n"),
        ("ovs", 3.0, " other_config:mac-aging-time=15 \\\n    other_config:mac-table-size=8192\n"),
    ],
)
def test_ageing(vendor: str, ageing_s: float, expected: str, vbft: dict[str, SwitchPorts]) -> None:
    assert expected in write(vendor, replace(vbft["up1"], ageing_s=ageing_s))


@pytest.mark.parametrize(
    ("vendor", "changes", "message"),
    [
        (
            "ios",
            {"vlans": ((1003, "x"),)},
            "vlans: VLAN 1003 cannot be used with ios: 1002-1005 are kept for",
        ),
        ("junos", {"vlans": ((1, "x"),)}, "vlans: VLAN 1 is where switches put"),
        (
            "eos",
            {"vlans": tuple((v, "x") for v in range(1006, 4095))},
            "switches.up1: VLANs up to 4094 leave eos none",
        ),
        (
            "powerconnect",
            {"ageing_s": 401.0},
            "vlans.ageing_s: 401 s is too long: powerconnect forgets after 400 s",
        ),
        (
            "ovs",
            {"ageing_s": 7200.0},
            "vlans.ageing_s: 7200 s is too long: ovs forgets after 3600 s",
        ),
        (
            "sonic",
            {"ageing_s": 601.0},
            "vlans.ageing_s: 601 s is too long: sonic forgets after 600 s",
        ),
        (
            "ovs",
            {"mac_table": 2_000_000},
            "vlans.mac_table: ovs remembers 1000000 addresses at most, not 2000000",
        ),
        (
            "cumulus",
            {},
            "--vendor: unknown 'cumulus'; choose from ios, eos, powerconnect, junos, sonic, "
            "linux-bridge",
        ),
    ],
)
def test_what_a_vendor_cannot_do(
    vendor: str, changes: dict[str, object], message: str, vbft: dict[str, SwitchPorts]
) -> None:
    with pytest.raises(BadInput) as caught:
        write(vendor, replace(vbft["up1"], **changes))  # type: ignore[arg-type]
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ((101, 1005), None),
        ((101, 4000), "1006 1199"),
        ((1006,), "1007 1200"),
        ((1100, 2000), "1101 1294"),
        ((*range(1006, 4000), 4090), "4000 4089"),
    ],
)
def test_eos_keeps_its_own_vlans_off_ours(
    ids: tuple[int, ...], expected: str | None, vbft: dict[str, SwitchPorts]
) -> None:
    text = write(
        "eos", replace(vbft["up1"], vlans=tuple((number, f"t{number}") for number in ids), ports=())
    )
    lines = [line for line in text.splitlines() if line.startswith("vlan internal ")]
    assert lines == (
        [] if expected is None else [f"vlan internal order ascending range {expected}"]
    )
