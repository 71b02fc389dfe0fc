# SPDX-License-Identifier: Apache-2.0
"""Topology files: what is accepted, what is refused with which key, and what gives a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import load_topology
from tests.topology_text import parse_topology

TOPOLOGIES = Path(__file__).resolve().parents[2] / "topologies"

GOOD = """
name: t
switches: {s0: {port_buffer_bytes: 65536}, s1: }
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 100}, {name: eth1, switch: s1, rate_bps: 200}]}
  B: {nics: [{name: eth0, switch: s0, rate_bps: 100}]}
  R: {managed: false, nics: [{name: eth0, switch: s1, rate_bps: 100}]}
"""


def test_what_a_file_means() -> None:
    topology = parse_topology(GOOD)
    assert list(topology.hosts) == ["A", "B", "R"]
    assert topology.managed_hosts() == ["A", "B"]
    assert [topology.address(host) for host in topology.hosts] == [
        "10.77.0.1",
        "10.77.0.2",
        "10.77.0.3",
    ]
    assert topology.address6("R") == "fd77::3"
    assert topology.switches["s1"].port_buffer_bytes == 131_072
    assert [(host, nic.name) for host, nic in topology.nics_on("s1")] == [
        ("A", "eth1"),
        ("R", "eth0"),
    ]
    with pytest.raises(KeyError):
        topology.address("Q")


def test_a_nic_without_a_port_gets_the_lowest_that_no_other_is_given_anywhere_in_the_file() -> None:
    topology = parse_topology(
        GOOD.replace("B: {nics: [{name: eth0,", "B: {nics: [{name: eth0, port: 1,")
    )
    assert topology.port_numbers == {
        ("A", "eth0"): ("s0", 2),
        ("A", "eth1"): ("s1", 1),
        ("B", "eth0"): ("s0", 1),
        ("R", "eth0"): ("s1", 2),
    }


def test_it_survives_being_stored() -> None:
    topology = parse_topology(GOOD)
    assert type(topology).model_validate(topology.model_dump(mode="json")) == topology


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("port_buffer_bytes: 65536", "buffer: 1", "switches.s0.buffer: unknown key"),
        ("name: t", "name: t\ncolour: red", "colour: unknown key"),
        ("rate_bps: 200}", "rate_bps: 200, speed: 1}", "hosts.A.nics[1].speed: unknown key"),
        (
            "B: {nics: [{name: eth0, switch: s0, rate_bps: 100}]}",
            "B: {nics: []}",
            "hosts.B.nics: a host needs at least",
        ),
        (
            "B: {nics: [{name: eth0, switch: s0, rate_bps: 100}]}",
            "B: {}",
            "hosts.B.nics: is missing",
        ),
        ("rate_bps: 200", "rate_bps: 0", "hosts.A.nics[1].rate_bps: "),
        ("rate_bps: 200", "rate_bps: -5", "hosts.A.nics[1].rate_bps: "),
        ("rate_bps: 200", "rate_bps: fast", "hosts.A.nics[1].rate_bps: "),
        ("name: eth1", "name: eth0", "hosts.A.nics[1].name: duplicate NIC name 'eth0'"),
        ("name: eth1", "name: mgmt0", "hosts.A.nics[1].name: 'mgmt0' is reserved"),
        ("name: eth1", "name: a-very-long-device-name", "hosts.A.nics[1].name: "),
        (
            "switch: s1, rate_bps: 200",
            "switch: s7, rate_bps: 200",
            "hosts.A.nics[1].switch: no switch 's7'",
        ),
        ("  B: {", "  A: {", "duplicate key 'A'"),
        ("  B: {", "  sw: {", "hosts.sw: this name is reserved"),
        ("  B: {", "  b-2: {", "hosts.b-2"),
        ("name: t", "name: A Name", "name: "),
        ("name: t\n", "", "name: is missing"),
        (
            "R: {managed: false, nics: [",
            "R: {managed: false, nics: [{name: eth1, switch: s0, rate_bps: 1}, ",
            "hosts.R.nics: a host with managed: false has exactly one NIC",
        ),
    ],
)
def test_mistakes_are_one_line_with_the_key(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in GOOD
    path = tmp_path / "topology.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(BadInput) as error:
        load_topology(path)
    text = str(error.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text


def test_warnings() -> None:
    assert parse_topology(GOOD).warnings() == [
        "hosts B and R share no network: they cannot reach each other"
    ]
    lonely = GOOD.replace(
        "  R: {managed: false, nics: [{name: eth0, switch: s1, rate_bps: 100}]}\n", ""
    )
    assert parse_topology(lonely).warnings() == [
        "switches.s1: A:eth1 is its only NIC, so it reaches nobody there"
    ]
    empty = GOOD.replace("s1: }", "s1: , s2: }")
    assert "switches.s2: no NIC is plugged into it" in parse_topology(empty).warnings()


def test_hosts_on_two_switches_that_a_cable_joins_are_not_warned_of() -> None:
    text = """
name: t
switches:
  s0: {links: [{to: s1, port: 1, rate_bps: 100}]}
  s1: {links: [{to: s0, port: 1, rate_bps: 100}]}
  s2:
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 100}, {name: eth1, switch: s2, rate_bps: 100}]}
  B: {nics: [{name: eth0, switch: s1, rate_bps: 100}]}
  C: {nics: [{name: eth0, switch: s2, rate_bps: 100}]}
"""
    assert parse_topology(text).warnings() == [
        "hosts B and C share no network: they cannot reach each other"
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"), [("  B: {", "  A: {", 6), ("name: t", "name: [t", 3)]
)
def test_what_is_no_yaml_is_told_with_the_line_as_editors_count(
    old: str, new: str, line: int
) -> None:
    with pytest.raises(BadInput, match=rf"^lab:{line}: "):
        parse_topology(GOOD.replace(old, new, 1), "lab")


# Figure 4 of the paper: the links of each host, per topology.
FIGURE_4 = {
    "a": {"A": [0], "B": [0]},
    "b": {"A": [0, 1], "B": [0, 1]},
    "c": {"A": [0, 1], "B": [0, 1], "C": [0, 1]},
    "d": {"A": [0, 1], "B": [0], "C": [0, 1]},
    "e": {"A": [0, 1], "B": [0, 1], "C": [0, 1], "D": [0, 1]},
    "f": {"A": [0, 1], "B": [0], "C": [0, 1], "D": [0, 1]},
    "g": {"A": [0, 1], "B": [0], "C": [0, 1], "D": [1]},
    "h": {"A": [0, 1], "B": [0], "C": [0, 1], "D": [0]},
}


@pytest.mark.parametrize("name", FIGURE_4)
def test_figure_4(name: str) -> None:
    topology = load_topology(TOPOLOGIES / "fig4" / f"{name}.yaml")
    assert topology.name == name
    links = {
        host: [int(nic.switch[1:]) for nic in spec.nics] for host, spec in topology.hosts.items()
    }
    assert links == FIGURE_4[name]
    nics = [nic for spec in topology.hosts.values() for nic in spec.nics]
    assert all(nic.name == f"eth{nic.switch[1:]}" and nic.rate_bps == 100_000_000 for nic in nics)


def test_the_other_shipped_topologies() -> None:
    one_switch = load_topology(TOPOLOGIES / "one-switch.yaml")
    assert {len(spec.nics) for spec in one_switch.hosts.values()} == {2}
    assert (len(one_switch.hosts), list(one_switch.switches), one_switch.warnings()) == (
        4,
        ["s0"],
        [],
    )
    mixed = load_topology(TOPOLOGIES / "mixed.yaml")
    counts = sorted(len(spec.nics) for spec in mixed.hosts.values() if spec.managed)
    assert counts == [1, 2, 3, 4]
    assert len({nic.rate_bps for spec in mixed.hosts.values() for nic in spec.nics}) >= 3
    assert [host for host, spec in mixed.hosts.items() if not spec.managed] == ["R"]
    assert mixed.warnings() == []  # every pair shares a network


def test_with_drop_changes_that_alone() -> None:
    topology = parse_topology(GOOD)
    newest = topology.with_drop("newest")
    assert {
        name: (spec.port_buffer_bytes, spec.drop) for name, spec in newest.switches.items()
    } == {
        "s0": (65_536, "newest"),
        "s1": (131_072, "newest"),
    }
    assert newest.with_drop("oldest") == topology
    with pytest.raises(BadInput, match=r"s0\.drop"):
        parse_topology(GOOD.replace("port_buffer_bytes: 65536", "drop: random"))
