# SPDX-License-Identifier: Apache-2.0
"""Goodput of clients that do not begin at the same time, from files as iperf3 leaves them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.traffic.iperf import IperfRun, NotTogether


class Ended:
    """A process that has ended."""

    def wait(self, timeout: float) -> int:
        return 0


def run(folder: Path, clients: dict[str, tuple[float, list[float]]]) -> IperfRun:
    """A run that has written everything.

    It has, for each client, the time at which it began, and its goodput second by second.
    """
    made = IperfRun.__new__(IperfRun)
    made.server, made.clients, made.streams, made.seconds = "A", list(clients), 1, 14.0
    children: list[Any] = [Ended() for _ in range(2 * len(clients))]
    made._folder, made._first_port, made._children = folder, 5201, children
    made._reverse = False
    for port, (began_s, rates) in enumerate(clients.values(), start=5201):
        intervals = [
            {"sum": {"start": k, "end": k + 1, "bits_per_second": rate}}
            for k, rate in enumerate(rates)
        ]
        path = folder / f"iperf-server-{port}.json"
        path.write_text(json.dumps({"intervals": intervals}))
        os.utime(path, (began_s + len(rates), began_s + len(rates)))
        (folder / f"iperf-client-{port}.json").write_text(json.dumps({"end": {"sum_sent": {}}}))
    return made


def test_the_window_is_one_moment_for_all_clients(tmp_path: Path) -> None:
    """C begins a second later; from the 13th second on, B has ended and leaves it the link."""
    made = run(tmp_path, {"B": (1000.0, [9, 9, *[1] * 12]), "C": (1001.0, [*[1] * 13, 9])})
    results = made.results(skip_s=2, window_s=10)
    assert [results[name].goodput_bps for name in "BC"] == [1, 1]
    early = made.results(skip_s=0, window_s=2)
    # These are B's seconds 1 and 2, which are seconds 0 and 1 of C.
    assert early["B"].goodput_bps == pytest.approx(5)
    assert early["C"].goodput_bps == 1


def test_clients_that_began_far_apart_are_no_measurement(tmp_path: Path) -> None:
    made = run(tmp_path, {"B": (1000.0, [1] * 14), "C": (1003.0, [1] * 14)})
    with pytest.raises(NotTogether, match=r"iperf3 on C began 3.0 s after"):
        made.results(skip_s=2, window_s=10)
