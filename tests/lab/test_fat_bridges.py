"""Switches that are the kernel's own bridges, configured by the files that `ri2n vlan switch-config` writes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from ri2n_sdn.cli.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.flooding import flooded_frames
from ri2n_sdn.lab.traffic import Stream

from .fat_trees import vbft
from .packets import all_reach_each_other, broadcasts_arrive_once


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab.create(vbft(2, 2, 1, plain=True, table="spread"), switches="linux-bridge")
    try:
        made.up()
    except NotAvailable as error:
        if "know no VLANs" in str(error):
            pytest.skip(str(error))
        raise
    try:
        made.start_controller()
        made.wait_ready()
        yield made
    finally:
        made.down()


def test_linux_bridges_carry_the_traffic(lab: Lab, stream_pps: float) -> None:
    all_reach_each_other(lab)
    broadcasts_arrive_once(lab)
    pairs = call(lab.controller_socket, "status")["pairs"]
    assert {path["vlan"] for pair in pairs for path in pair["paths"]} == {None, 102}
    assert all(path["alive"] for pair in pairs for path in pair["paths"])
    before = sum(flooded_frames(lab).values())
    for pair in (("n1", "n2"), ("n2", "n1")):
        got = Stream(lab, *pair, pps=stream_pps, seconds=1, flows=32).result()
        assert (got.lost, got.duplicates) == (0, 0), got
    assert sum(flooded_frames(lab).values()) == before


def test_the_files_can_be_run_again(lab: Lab, stream_pps: float) -> None:
    stream = Stream(lab, "n1", "n2", pps=stream_pps, seconds=3, flows=32)
    for switch in lab.topology.switches:
        done: subprocess.CompletedProcess[str] = lab.exec(
            "sw", ["bash", str(lab.run_dir / "switches" / f"{switch}.sh")]
        )
        assert done.returncode == 0
    got = stream.result()
    assert (got.lost, got.duplicates) == (0, 0), got
