# SPDX-License-Identifier: Apache-2.0
"""Virtual time: a link carries its rate, whatever else the machine does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ri2n_lab.guests.guest import Guest
from ri2n_lab.guests.kernels import Kernel

D = Path(__file__).resolve().parents[2] / "topologies" / "fig4" / "d.yaml"
MEASURE = """
import sys
from pathlib import Path
from ri2n_sdn.fabric.topology import load_topology
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun
with Lab.create(load_topology(Path(sys.argv[1]))) as lab:
    run = IperfRun(lab, "A", ["B"], streams=4, seconds=2)
    print(run.results(skip_s=0.5, window_s=1)["B"].goodput_bps)
"""


@pytest.mark.timeout(700)
def test_a_link_carries_its_rate(virtual: Kernel) -> None:
    with Guest(virtual, [sys.executable, "-c", MEASURE, str(D)], limit_s=600) as guest:
        result = guest.wait()
        assert result.returncode == 0, guest.stderr
        goodput_bps = float(guest.stdout.split()[-1])
    assert 94.5e6 < goodput_bps < 96e6  # of 100 Mbit/s, TCP's data has 95.6
