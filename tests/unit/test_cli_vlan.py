# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan plan` as a user runs it: tables, JSON, and one line for each error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.commands import ri2n

CUT = """
name: cut
switches:
  a: {links: [{to: b, port: 9, rate_bps: 1000000}]}
  b: {links: [{to: a, port: 9, rate_bps: 1000000}]}
  c: {}
hosts:
  h1: {nics: [{name: eth0, switch: a, rate_bps: 1000000}]}
  h2: {nics: [{name: eth0, switch: c, rate_bps: 1000000}]}
"""


def test_a_plan_for_people() -> None:
    shown = ri2n("vlan", "plan", "vbft_4_4", "--limit", "3")
    assert (shown.returncode, shown.stderr) == (0, "")
    for text in (
        "vbft-4-4: VLAN IDs: 3 of at most 3 (101 to 103)",
        "up1, up2, up3",
        "48 of 8192",
        "4 unused",
        "1 of 4",
    ):
        assert text in shown.stdout


@pytest.mark.parametrize("name", ["ft-4096", "large/ft-4096", "topologies/large/ft-4096.yaml"])
def test_the_large_one_under_all_its_names(name: str) -> None:
    shown = ri2n("vlan", "plan", name, "--json", "--table", "cyclic")
    document = json.loads(shown.stdout)
    assert len(document["vlans"]) == document["networks"][0]["trees"] == 64
    assert document["networks"][0]["switches"] == [256, 128, 64]
    assert (document["table"], document["per_pair"]) == ("cyclic", 1)


def test_thinning_is_said() -> None:
    shown = ri2n("vlan", "plan", "ft-4096", "--mac-table", "100000")
    assert shown.returncode == 0
    assert "note: VLANs that a pair uses: 1, not 4" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nosuchfile",), "topology nosuchfile: no such file"),
        (("ft-4096", "--mac-table", "8192"), "ft-4096.yaml: switches.leaf"),
        (("vbft_4_4", "--limit", "0"), "--limit"),
        (("vbft_4_4", "--limit", "4095"), "--limit"),
        (("vbft_4_4", "--mac-table", "0"), "--mac-table"),
        (("vbft_4_4", "--per-pair", "65"), "--per-pair"),
        (("vbft_4_4", "--table", "fastest"), "'fastest'"),
        (("CUT",), "cut.yaml: switches.c: is not connected with a, so hosts h1 and h2"),
        (("IDS",), "ids.yaml: vlans.ids: 1 VLAN IDs for 2 trees"),
        (("ID 0",), "ids.yaml: vlans.ids[0]"),
        (("GENERATE",), "generate.yaml: generate.layers: unknown key"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    files = {
        "CUT": ("cut.yaml", CUT),
        "IDS": ("ids.yaml", CUT.replace("switch: c", "switch: b") + "vlans: {ids: [7]}\n"),
        "ID 0": ("ids.yaml", CUT + "vlans: {ids: [0]}\n"),
        "GENERATE": (
            "generate.yaml",
            "name: x\ngenerate: {hosts: 4096, down: 16, up: 8, stages: 3, layers: 3}\n",
        ),
    }
    if arguments[0] == "IDS":  # two cables, so that there are two trees
        both = files["IDS"][1].replace(
            "rate_bps: 1000000}]}\n  b",
            "rate_bps: 1000000}, {to: b, port: 8, rate_bps: 1000000}]}\n  b",
        )
        both = both.replace(
            "rate_bps: 1000000}]}\n  c",
            "rate_bps: 1000000}, {to: a, port: 8, rate_bps: 1000000}]}\n  c",
        )
        files["IDS"] = ("ids.yaml", both)
    if arguments[0] in files:
        name, content = files[arguments[0]]
        (tmp_path / name).write_text(content)
        arguments = (str(tmp_path / name),)
    shown = ri2n("vlan", "plan", *arguments)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert text in shown.stderr
    assert shown.stderr.count("\n") == 1
