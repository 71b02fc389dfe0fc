# SPDX-License-Identifier: Apache-2.0
"""The options that a lab gives host-up and the helper, and where it finds the helper's program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ri2n_lab.cluster import helpers
from ri2n_sdn.errors import BadInput, NotAvailable
from tests.topology_text import parse_topology

TOPOLOGY = """
name: t
switches: {s0: , s1: }
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 1000000000},
             {name: eth1, switch: s1, rate_bps: 2500000}]}
  B: {helper: false, nics: [{name: eth0, switch: s0, rate_bps: 100000}]}
  C: {nics: [{name: eth0, switch: s0, rate_bps: 100000}]}
  R: {managed: false, nics: [{name: eth0, switch: s1, rate_bps: 100}]}
"""


def test_who_has_a_helper() -> None:
    topology = parse_topology(TOPOLOGY)
    assert topology.helper_hosts() == ["A", "C"]
    assert topology.managed_hosts() == ["A", "B", "C"]
    with pytest.raises(BadInput, match=r"hosts\.B\.helper: "):
        parse_topology(TOPOLOGY.replace("helper: false", "helper: perhaps"))


def test_what_host_up_and_the_helper_are_told() -> None:
    topology = parse_topology(TOPOLOGY)
    assert helpers.host_up_options(topology, "A") == ["--helper", "--rate-mbps", "1002"]
    assert helpers.host_up_options(topology, "C") == ["--helper", "--rate-mbps", "1"]
    options = helpers.autonomous_options(topology, "A")
    assert options[options.index("--wire") + 1] == "eth0=1000000000,eth1=2500000"
    commands = "\n".join(helpers.autonomous_commands(topology, "A"))
    assert "address 06:00:00:00:01:01 mtu 1478" in commands
    assert "txqueuelen 412" in commands  # 5 ms at 1.0025 Gbit/s, in full frames
    assert "10.77.0.1/24" in commands and "fd77::1/64" in commands
    assert "txqueuelen 16" in "\n".join(helpers.autonomous_commands(topology, "C"))


def test_where_the_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(folder: str) -> Path:
        path = tmp_path / folder / "ri2n-reorder"
        path.parent.mkdir()
        path.touch(0o755)
        return path

    monkeypatch.delenv("RI2N_REORDER", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    with pytest.raises(NotAvailable, match=r"^ri2n-reorder is missing: [^\n]*$"):
        helpers.find_program()
    on_path = program("on-path")
    assert helpers.find_program() == on_path
    beside = program("beside")
    assert helpers.find_program() == beside
    named = program("named")
    monkeypatch.setenv("RI2N_REORDER", str(named))
    assert helpers.find_program() == named
    monkeypatch.setenv("RI2N_REORDER", str(tmp_path / "none"))
    with pytest.raises(NotAvailable, match=r"^RI2N_REORDER=[^\n]*: there is no such program$"):
        helpers.find_program()
