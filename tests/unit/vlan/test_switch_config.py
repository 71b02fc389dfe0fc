"""Switch configurations: whole files that were reviewed once, and what switches make of others."""

from __future__ import annotations

import json
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ri2n_sdn.cli.common import run_guarded
from ri2n_sdn.cli.vlan_config import switch_config, write_files
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology, parse_topology
from ri2n_sdn.vlan.configs import VENDORS, file_name, write
from ri2n_sdn.vlan.configs.common import MAX_LINE, listed
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts, switch_ports
from ri2n_sdn.vlan.trees import Trees, trees_from_cables
from tests.unit.vlan.switch_parsers import PARSERS, PortState, commands_of, numbers

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "GOLDEN_UPDATE"  # set it to write the files anew, then read what git says of them

# VBFT(2, 2) of 4 hosts, a router, and a spare cable that no tree uses.
VBFT = """
name: vbft22
switches:
  leaf1: {links: [{to: up1, port: 5, rate_bps: 1000000000},
                  {to: up2, port: 6, rate_bps: 1000000000}]}
  leaf2:
    links:
      - {to: up1, port: 5, rate_bps: 1000000000}
      - {to: up2, port: 6, rate_bps: 1000000000}
      - {to: up2, port: 7, rate_bps: 1000000000}
  up1: {links: [{to: leaf1, port: 1, rate_bps: 1000000000},
                {to: leaf2, port: 2, rate_bps: 1000000000}]}
  up2:
    links:
      - {to: leaf1, port: 1, rate_bps: 1000000000}
      - {to: leaf2, port: 2, rate_bps: 1000000000}
      - {to: leaf2, port: 3, rate_bps: 1000000000}
hosts:
  n1: {nics: [{name: nic0, switch: leaf1, rate_bps: 1000000000}]}
  n2: {nics: [{name: nic0, switch: leaf1, rate_bps: 1000000000}]}
  n3: {nics: [{name: nic0, switch: leaf2, rate_bps: 1000000000}]}
  n4: {nics: [{name: nic0, switch: leaf2, rate_bps: 1000000000}]}
  router: {managed: false, nics: [{name: eth0, switch: leaf2, port: 8, rate_bps: 1000000000}]}
"""


def vbft_trees(topology: Topology) -> Trees:
    """One tree from each upper switch, by the first cable to each leaf; IDs 101 and 102."""
    graph = topology.graph
    of = {(cable.a, cable.b, cable.a_port): cable.number for cable in graph.cables()}
    return trees_from_cables(
        graph,
        (101, 102),
        [[of["leaf1", up, port], of["leaf2", up, port]] for up, port in (("up1", 5), ("up2", 6))],
        [[graph.index["up1"]], [graph.index["up2"]]],
    )


@pytest.fixture(scope="module")
def vbft() -> dict[str, SwitchPorts]:
    topology = parse_topology(VBFT)
    return {switch.name: switch for switch in switch_ports(topology, vbft_trees(topology))}


def names_of(vendor: str, switch: SwitchPorts) -> dict[str, SwitchPort]:
    return {VENDORS[vendor].port_name(port.number): port for port in switch.ports}


def assert_means(vendor: str, text: str, ports: dict[str, SwitchPort]) -> None:
    """Assert that a switch which reads `text` does with each port what the model says."""
    found = PARSERS[vendor](text)
    assert set(found) == set(ports)
    for name, port in ports.items():
        state = found[name]
        wanted = PortState(port.native, frozenset(port.tagged), port.shut)
        assert (state.untagged, state.tagged, state.shut) == (
            wanted.untagged,
            wanted.tagged,
            wanted.shut,
        ), name
        if not (vendor == "ovs" and port.shut):
            assert state.description == port.description
        if vendor in ("ios", "eos", "powerconnect", "junos"):
            assert state.guarded is port.to_host


# ---- the model ----


def test_ports_of_a_small_fat_tree(vbft: dict[str, SwitchPorts]) -> None:
    ports = {port.number: port for port in vbft["leaf2"].ports}
    rate = 10**9
    assert list(ports) == [1, 2, 5, 6, 7, 8]
    assert ports[1] == SwitchPort(1, "n3:nic0", True, 101, (102,), False, rate)
    assert ports[5] == SwitchPort(5, "up1 port 2", False, None, (101,), False, rate)
    assert ports[6] == SwitchPort(6, "up2 port 2", False, None, (102,), False, rate)
    assert ports[7] == SwitchPort(7, "up2 port 3", False, None, (), True, rate)
    assert ports[8] == SwitchPort(8, "router:eth0", True, 101, (), False, rate)
    assert [port.description for port in vbft["leaf2"].ports][:3] == [
        "n3 nic0",
        "n4 nic0",
        "to up1 port 2",
    ]
    assert vbft["leaf2"].vlans == ((101, "ri2n-base"), (102, "ri2n-tree1"))
    assert vbft["up2"].vlans == ((102, "ri2n-tree1"),)
    assert [(port.number, port.carried, port.shut) for port in vbft["up2"].ports] == [
        (1, (102,), False),
        (2, (102,), False),
        (3, (), True),
    ]


def test_a_leaf_that_the_first_tree_leaves_out_is_named() -> None:
    topology = parse_topology(VBFT)
    graph = topology.graph
    trees = trees_from_cables(graph, (101,), [[0]], [[graph.index["up1"]]])
    with pytest.raises(
        ValueError,
        match=r"^switches\.leaf2: n3:nic0 is plugged into it, but VLAN 101 does not reach it$",
    ):
        switch_ports(topology, trees)


def test_trees_of_other_switches_are_refused() -> None:
    other = parse_topology(VBFT.replace("up2", "up3"))
    with pytest.raises(ValueError, match="not over the topology's switches"):
        switch_ports(other, vbft_trees(parse_topology(VBFT)))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 8), st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_vlan_is_on_both_ends_of_its_trees_cables_and_on_no_other(
    switches: int, more: int, count: int, dice: random.Random
) -> None:
    pairs = [(dice.randrange(place), place) for place in range(1, switches)]
    for _ in range(more):
        first, second = sorted(dice.sample(range(switches), 2))
        pairs.append((first, second))
    links: dict[str, list[dict[str, object]]] = {f"s{place}": [] for place in range(switches)}
    for one, other in pairs:
        for near, far in ((one, other), (other, one)):
            ends = links[f"s{near}"]
            ends.append({"to": f"s{far}", "port": len(ends) + 1, "rate_bps": 10**9})
    hosts = {
        f"n{n}": {"nics": [{"name": "e", "switch": f"s{n}", "rate_bps": 10**9}]}
        for n in range(switches)
    }
    written = {
        "name": "x",
        "switches": {name: {"links": of} for name, of in links.items()},
        "hosts": hosts,
    }
    topology = Topology.model_validate(written)
    graph = topology.graph

    chosen = []
    for _ in range(count):
        part, tree = list(range(switches)), []
        for cable in dice.sample(range(len(graph.ends)), len(graph.ends)):
            a, b = (part[end] for end in graph.ends[cable].tolist())
            if a != b:
                tree.append(cable)
                part = [b if place == a else place for place in part]
        chosen.append(tree)
    vlans = tuple(range(201, 201 + count))
    found = {
        s.name: s
        for s in switch_ports(topology, trees_from_cables(graph, vlans, chosen, [[0]] * count))
    }

    on_port = {(name, port.number): port for name, switch in found.items() for port in switch.ports}
    for link in graph.cables():
        wanted = tuple(
            vlan for vlan, tree in zip(vlans, chosen, strict=True) if link.number in tree
        )
        for end in ((link.a, link.a_port), (link.b, link.b_port)):
            port = on_port.pop(end)
            assert (port.native, port.tagged, port.shut) == (None, wanted, not wanted)
    assert {port.carried for port in on_port.values()} == {vlans}
    assert {port.native for port in on_port.values()} == {201}


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


# ---- scripts: devices, the datapath, times ----


def test_devices_of_a_lab(vbft: dict[str, SwitchPorts]) -> None:
    devices = {
        1: "n3-nic0",
        2: "n4-nic0",
        5: "leaf2-up1",
        6: "leaf2-up2",
        7: "leaf2-up2b",
        8: "router-eth0",
    }
    ports = {devices[port.number]: port for port in vbft["leaf2"].ports}
    for vendor in ("linux-bridge", "ovs"):
        assert_means(vendor, write(vendor, vbft["leaf2"], devices=devices), ports)
    text = write("ovs", vbft["leaf2"], devices=devices, datapath_type="netdev")
    first = commands_of(text)[0]
    assert (
        first[:4] == ["ovs-vsctl", "--may-exist", "add-br", "leaf2"]
        and "datapath_type=netdev" in first
    )
    assert "datapath_type" not in write("ovs", vbft["leaf2"])


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({}, "devices: no name for port 1 of up1"),
        ({1: "a b", 2: "c"}, "devices: 'a b' cannot be a port of ovs ('swp5' could)"),
        ({1: "a" * 16, 2: "c"}, f"devices: '{'a' * 16}' cannot be a port of ovs ('swp5' could)"),
        ({1: "-a", 2: "c"}, "devices: '-a' cannot be a port of ovs ('swp5' could)"),
        ({1: "up1", 2: "c"}, "devices: 'up1' is both a port and the bridge"),
        ({1: "c", 2: "c"}, "devices: two ports of up1 have the same name"),
    ],
)
def test_bad_devices(devices: dict[int, str], message: str, vbft: dict[str, SwitchPorts]) -> None:
    with pytest.raises(BadInput) as caught:
        write("ovs", vbft["up1"], devices=devices)
    assert str(caught.value) == message


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


def test_only_ovs_has_a_datapath_type(vbft: dict[str, SwitchPorts]) -> None:
    with pytest.raises(BadInput, match=r"^datapath_type: only ovs has one, ios does not$"):
        write("ios", vbft["up1"], datapath_type="netdev")


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


# ---- names of ports ----


@pytest.mark.parametrize(
    ("vendor", "port_format", "expected"),
    [
        ("ios", None, "GigabitEthernet1/0/5"),
        ("ios", "FastEthernet0/{port}", "FastEthernet0/5"),
        ("eos", None, "Ethernet5"),
        ("eos", "Ethernet{port}/1", "Ethernet5/1"),
        ("powerconnect", None, "gigabitethernet 1/0/5"),
        ("junos", None, "ge-0/0/4"),
        ("junos", "xe-0/0/{port0}", "xe-0/0/4"),
        ("sonic", None, "Ethernet16"),
        ("sonic", "Ethernet{port0}", "Ethernet4"),
        ("linux-bridge", None, "swp5"),
        ("linux-bridge", "p{port}-{port0}", "p5-4"),
        ("ovs", None, "swp5"),
        ("ovs", "eth{port0}", "eth4"),
        ("ovs", "{switch}-{port}", "leaf2-5"),
    ],
)
def test_port_names(
    vendor: str, port_format: str | None, expected: str, vbft: dict[str, SwitchPorts]
) -> None:
    names = {port.number: port for port in vbft["leaf2"].ports}
    found = PARSERS[vendor](write(vendor, vbft["leaf2"], port_format=port_format))
    assert found[expected].tagged == set(names[5].tagged)


@pytest.mark.parametrize(
    "port_format",
    [
        "eth",
        "",
        "eth{}",
        "eth{0}",
        "eth{port!r}",
        "eth{port.real}",
        "eth{port:02d}",
        "{{port}}",
        "{port}}",
        "{switch}",
        "{port}{switch:s}",
        "{port}{x}",
    ],
)
def test_bad_port_formats(port_format: str, vbft: dict[str, SwitchPorts]) -> None:
    with pytest.raises(BadInput) as caught:
        write("ovs", vbft["up1"], port_format=port_format)
    assert str(caught.value) == (
        f"--port-format {port_format}: must contain {{port}} or {{port0}}, and no other braces but "
        f"{{switch}}"
    )


@pytest.mark.parametrize(
    ("vendor", "port_format"),
    [
        ("ovs", "a b{port}"),
        ("ovs", "a/{port}"),
        ("ios", "x;reload{port}"),
        ("junos", "ge{port}"),
        ("sonic", "p{port}"),
    ],
)
def test_formats_that_give_no_name_of_the_vendor(
    vendor: str, port_format: str, vbft: dict[str, SwitchPorts]
) -> None:
    with pytest.raises(
        BadInput, match=r"^--port-format .*: '.*' cannot be a port of \S+ \('\S+' could\)$"
    ):
        write(vendor, vbft["up1"], port_format=port_format)


# ---- files ----


def test_files_are_written_once_and_not_overwritten(
    tmp_path: Path, vbft: dict[str, SwitchPorts]
) -> None:
    folder = tmp_path / "new" / "folder"
    switches = list(vbft.values())
    paths = [folder / f"{name}.sh" for name in vbft]
    assert write_files(switches, "ovs", folder) == [(path, True) for path in paths]
    assert [path.read_text() for path in paths] == [write("ovs", switch) for switch in switches]
    assert all(path.stat().st_mode & 0o100 for path in paths)
    assert write_files(switches, "ovs", folder) == [(path, False) for path in paths]

    paths[3].write_text("mine")
    paths[0].unlink()
    with pytest.raises(BadInput) as caught:
        write_files(switches, "ovs", folder)
    assert str(caught.value) == f"{paths[3]}: is there and differs; --force overwrites it"
    assert paths[3].read_text() == "mine" and not paths[0].exists()
    assert write_files(switches, "ovs", folder, force=True) == [
        (path, path in (paths[0], paths[3])) for path in paths
    ]
    assert sorted(folder.iterdir()) == sorted(paths)  # and no draft


def test_nothing_is_written_when_one_switch_cannot_be(
    tmp_path: Path, vbft: dict[str, SwitchPorts]
) -> None:
    bad = replace(vbft["up2"], vlans=((1002, "x"),))
    with pytest.raises(BadInput, match="VLAN 1002"):
        write_files([vbft["up1"], bad], "ios", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_the_way_is_named(tmp_path: Path, vbft: dict[str, SwitchPorts]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=f"^{tmp_path}/file/up1.json: Not a directory$"):
        write_files([vbft["up1"]], "sonic", tmp_path / "file")
    (tmp_path / "up1.json").mkdir()
    with pytest.raises(BadInput, match=f"^{tmp_path}/up1.json: Is a directory$"):
        write_files([vbft["up1"]], "sonic", tmp_path, force=True)


# ---- the command ----


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ri2n_sdn.vlan.build")
    source, out = tmp_path / "vbft.yaml", tmp_path / "out"
    source.write_text(VBFT)
    assert run_guarded(lambda: switch_config(str(source), "sonic", out)) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{out}/{name}.json: written" for name in ("leaf1", "leaf2", "up1", "up2")
    ]
    # Whichever trees were built, hosts have the base VLAN untagged, and each VLAN joins the two
    # leaves.
    documents = {path.stem: json.loads(path.read_text()) for path in out.iterdir()}
    vlans = sorted(documents["leaf1"]["VLAN"])
    assert len(vlans) >= 2 and sorted(documents["leaf2"]["VLAN"]) == vlans
    assert documents["leaf1"]["VLAN_MEMBER"]["Vlan101|Ethernet0"] == {"tagging_mode": "untagged"}
    for vlan in vlans:
        assert all(
            any(
                f"{vlan}|Ethernet{4 * (port - 1)}" in documents[leaf]["VLAN_MEMBER"]
                for port in (5, 6, 7)
            )
            for leaf in ("leaf1", "leaf2")
        )
    assert run_guarded(lambda: switch_config(str(source), "nosuch", out)) == 2
    assert (
        capsys.readouterr().err
        == f"ri2n: --vendor: unknown 'nosuch'; choose from {', '.join(VENDORS)}\n"
    )


def test_arrays_of_trees_are_left_alone(vbft: dict[str, SwitchPorts]) -> None:
    topology = parse_topology(VBFT)
    trees = vbft_trees(topology)
    before = trees.cable.copy()
    assert {s.name: s for s in switch_ports(topology, trees)} == vbft
    assert np.array_equal(trees.cable, before)
