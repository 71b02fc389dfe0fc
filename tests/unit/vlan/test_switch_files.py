# SPDX-License-Identifier: Apache-2.0
"""Files of switch configurations, the names of ports in them, and the command that writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ri2n_sdn.cli.common import run_guarded
from ri2n_sdn.cli.vlan_config import switch_config, write_files
from ri2n_sdn.errors import BadInput
from ri2n_sdn.vlan.configs import VENDORS, write
from ri2n_sdn.vlan.switch_ports import SwitchPorts, switch_ports
from tests.topology_text import parse_topology
from tests.unit.vlan.switch_models import VBFT, vbft, vbft_trees
from tests.unit.vlan.switch_parsers import PARSERS

__all__ = ["vbft"]

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
        ("ovs", "-a{port}"),
        ("ovs", "a234567890123{port}{port}{port}"),
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


def test_no_port_has_the_name_of_the_bridge(vbft: dict[str, SwitchPorts]) -> None:
    with pytest.raises(
        BadInput, match=r"^--port-format up\{port\}: 'up1' is both a port and the bridge$"
    ):
        write("ovs", vbft["up1"], port_format="up{port}")
    with pytest.raises(BadInput, match=r"^linux-bridge: 'swp1' is both a port and the bridge$"):
        write("linux-bridge", replace(vbft["up1"], name="swp1"))


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
