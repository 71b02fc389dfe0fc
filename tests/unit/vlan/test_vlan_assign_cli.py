# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan assign`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ri2n_sdn.cli.common import run_guarded
from ri2n_sdn.cli.vlan_assign import assign
from tests.unit.vlan.networks import CG, CG_BOTH_WAYS


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """VBFT(4, 4) with 16 hosts h1..h16; h16 is not managed."""
    switches: dict[str, Any] = {
        f"leaf{n}": {
            "links": [{"to": f"up{m}", "port": 20 + m, "rate_bps": 100_000_000} for m in range(4)]
        }
        for n in range(4)
    }
    for m in range(4):
        switches[f"up{m}"] = {
            "links": [{"to": f"leaf{n}", "port": n + 1, "rate_bps": 100_000_000} for n in range(4)]
        }
    hosts: dict[str, Any] = {}
    for host in range(16):
        nics = [{"name": "p0", "switch": f"leaf{host // 4}", "rate_bps": 100_000_000}]
        hosts[f"h{host + 1}"] = {"nics": nics}
    hosts["h16"]["managed"] = False
    path = tmp_path / "vbft.yaml"
    path.write_text(
        yaml.safe_dump({"name": "vbft", "switches": switches, "hosts": hosts}, sort_keys=False)
    )
    return path


def run(*arguments: str) -> int:
    """The command as the sub-app would run it; its exit code."""
    app = typer.Typer()
    app.command()(assign)
    app.callback()(lambda: None)
    return run_guarded(lambda: app(["assign", *arguments], standalone_mode=False))


def cg_file(folder: Path) -> Path:
    path = folder / "pairs.txt"
    path.write_text("".join(f"h{a} h{b}\n" for a, b in CG_BOTH_WAYS))
    return path


def test_cg_pairs_have_no_conflict_left(
    topology: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(topology), "--pairs", str(cg_file(tmp_path)), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["fullest"]["of_capacity"] == pytest.approx(1.0)
    assert answer["fullest_cyclic"]["of_capacity"] == pytest.approx(2.0)
    assert [(p["sender"], p["receiver"]) for p in answer["pairs"]] == [
        (f"h{a}", f"h{b}") for a, b in CG_BOTH_WAYS
    ]
    assert {p["demand_bps"] for p in answer["pairs"]} == {1e8}
    assert 0 < answer["differ_from_cyclic"] < len(CG_BOTH_WAYS)


def test_the_cyclic_table_is_symmetric_and_written(topology: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert (
        run(str(topology), "--pairs", str(cg_file(tmp_path)), "--table", "cyclic", "-o", str(out))
        == 0
    )
    lines = out.read_text().splitlines()
    assert lines[0] == "sender,receiver,vlan"
    found = {tuple(line.split(",")[:2]): int(line.split(",")[2]) for line in lines[1:]}
    assert all(found[f"h{a}", f"h{b}"] == found[f"h{b}", f"h{a}"] for a, b in CG)
    assert set(found.values()) <= {101, 102, 103, 104}


def test_a_matrix_of_bytes_and_an_unmanaged_host(
    topology: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text("sender,receiver,bytes\nh1,h5,1000\nh2,h6,500\nh2,h16,1\nh1,h2,10\n")
    assert run(str(topology), "--pairs", str(path)) == 0
    lines = capsys.readouterr().out.splitlines()
    vlan = {tuple(line.split(",")[:2]): line.split(",")[2] for line in lines[1:5]}
    assert vlan["h1", "h5"] != vlan["h2", "h6"]
    assert vlan["h2", "h16"] == vlan["h1", "h2"] == "101"
    assert "adaptive: the fullest link is " in lines[-2]
    assert "cyclic: the fullest link is " in lines[-1]


@pytest.mark.parametrize(
    ("pairs", "arguments", "words"),
    [
        ("h1 h99\n", [], "pairs.txt:1: receiver: no host 'h99'"),
        ("h1 h5 x\n", [], "pairs.txt:1: rate_bps: must be a number"),
        ("", [], "pairs.txt: has no pairs"),
        (
            "h1 h5\n",
            ["--table", "spread"],
            "--table: unknown 'spread'; choose from adaptive, cyclic",
        ),
        ("h1 h5\n", ["-o", "/dev/null/x"], "-o /dev/null/x: Not a directory"),
    ],
)
def test_refusals(
    topology: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pairs: str,
    arguments: list[str],
    words: str,
) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text(pairs)
    assert run(str(topology), "--pairs", str(path), *arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_hosts_of_separate_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "apart.yaml"
    nic = [{"name": "p0", "switch": "s0", "rate_bps": 1}]
    other = [{"name": "p0", "switch": "s1", "rate_bps": 1}]
    hosts = {"a": {"nics": nic}, "b": {"nics": nic}, "c": {"nics": other}}
    path.write_text(
        yaml.safe_dump({"name": "apart", "switches": {"s0": None, "s1": None}, "hosts": hosts})
    )
    (tmp_path / "pairs.txt").write_text("a b\n")
    assert run(str(path), "--pairs", str(tmp_path / "pairs.txt")) == 0
    assert "no pair has a link between switches" in capsys.readouterr().out
    (tmp_path / "pairs.txt").write_text("a b\na c\n")
    assert run(str(path), "--pairs", str(tmp_path / "pairs.txt")) == 2
    assert "a and c share no network" in capsys.readouterr().err
