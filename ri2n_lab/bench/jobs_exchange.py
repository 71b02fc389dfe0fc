# SPDX-License-Identifier: Apache-2.0
"""A job that exchanges messages by MPI, timed while another job sends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ri2n_lab.bench.cpus import busy_s
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import CONGESTION_CONTROL, NotTogether
from ri2n_lab.traffic.mpi import MpiRun
from ri2n_sdn.errors import NotAvailable

__all__ = ["START_S", "Exchange", "choose_congestion_control", "figures"]

Json = dict[str, Any]

PROGRAM = Path(__file__).parents[1] / "traffic" / "mpi_exchanges.py"
START_S = 4.0
"""From the start of mpirun until the ranks of a few hosts exchange messages."""
LIMIT_S = 60.0
FABRIC = "10.77.0.0/24"


class Exchange:
    """A running exchange of one kind on a job's hosts; `result` waits for its end."""

    def __init__(
        self, lab: Lab, hosts: Sequence[str], kind: str, uid: int, warmup_s: float, window_s: float
    ) -> None:
        """Start it as a user.

        What counts is a window that begins `warmup_s` seconds from now. Raises NotAvailable without
        Open MPI.
        """
        self._begin_s = time.monotonic() + warmup_s
        self._end_s = self._begin_s + window_s
        plan = {"kind": kind, "begin_s": self._begin_s, "end_s": self._end_s}
        self._run = MpiRun(lab, hosts, PROGRAM, [json.dumps(plan)], uid=uid)

    def result(self) -> Json:
        """The figures of a row.

        Raises NotTogether when it was late, NotAvailable when it failed, when a message had other
        bytes than were sent, and when the window did not hold a whole exchange.
        """
        time.sleep(max(0.0, self._begin_s - time.monotonic()))
        began_s, cpu_s = time.monotonic(), busy_s(Path("/proc/stat").read_text())
        time.sleep(max(0.0, self._end_s - time.monotonic()))
        cpus = (busy_s(Path("/proc/stat").read_text()) - cpu_s) / (time.monotonic() - began_s)
        return figures(json.loads(self._run.output(LIMIT_S)), cpus)

    def stop(self) -> None:
        """End it now; to call it twice is no error."""
        self._run.stop()


def figures(found: Json, cpus: float) -> Json:
    """The figures of a row, from what the program printed and how many CPUs were busy meanwhile.

    Raises what `Exchange.result` raises.
    """
    if found["wrong"]:
        raise NotAvailable(f"{found['wrong']} MPI messages came with other bytes than were sent")
    if found["late"]:
        raise NotTogether("the MPI program began too late")
    if found["seconds"] is None:
        raise NotAvailable("not one exchange by MPI began and ended in the window: --seconds")
    return {
        "seconds": round(found["seconds"], 6),
        "goodput_bps": round(found["bytes"] * 8 / found["seconds"]),
        "cpus_busy": round(cpus, 2),
    }


def choose_congestion_control(lab: Lab, hosts: Sequence[str]) -> None:
    """Let every connection over the fabric have the congestion control that iperf3 asks for.

    MPI does not ask for one, and a namespace cannot have cubic as its default where the machine's
    tcp_allowed_congestion_control lacks it. A route can.
    """
    for host in hosts:
        route = lab.exec(host, ["ip", "route", "show", FABRIC]).stdout.strip()
        if "\n" in route or not route:
            raise NotAvailable(f"{host}: not one route to {FABRIC}")
        words = re.sub(r" (congctl (lock )?\S+|linkdown)", "", route).split()
        lab.exec(host, ["ip", "route", "change", *words, "congctl", CONGESTION_CONTROL])
