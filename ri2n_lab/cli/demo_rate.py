# SPDX-License-Identifier: Apache-2.0
"""The rate of the demo's links: one for all strategies, which this machine carries.

A strategy looks bad where links stay empty for want of computing time. So the demo sends for a
moment before the first strategy, and makes its links slower where the machine is too slow or busy.
The next demo begins with the rate of the last one, so that it need not build its lab twice.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ri2n_lab.bench.cpus import look, used_between
from ri2n_lab.cluster import state
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology

if TYPE_CHECKING:
    from ri2n_lab.cluster import Lab

__all__ = ["carried_bps", "carries_bps", "factor_for", "last_factor", "remember", "slower"]

FACTORS = (1.0, 0.5, 0.2, 0.1, 0.05)
"""By one of these, the rates of all links are multiplied."""

SPARE = 1.5
"""The machine must carry so many times what the links carry together: bursts need more than means.

With no more than the mean, a port's queue that fills in 10 ms drops what a late program brings.
"""

STAY_SPARE = 1.1
"""With less spare than this, links that are slower already are made slower still.

What a machine carries is extrapolated from what arrives. The slower the links, the fewer packets a
program finds at a time, so each packet costs more, and the result is too low. In a lab at half rate
it was two thirds of that at full rate. With the same bound for both, each demo would halve the rate
of the one before.
"""

WARM_UP_S, MEASURED_S = 0.7, 1.0
LEAST_BUFFER_BYTES = 32_768


def carries_bps(lab: Lab, server: str, clients: list[str], streams: int) -> float | None:
    """Send for a moment. Return what this machine carries; None where nothing can be measured."""
    from ri2n_lab.traffic.iperf import IperfRun

    seconds = WARM_UP_S + MEASURED_S
    try:
        run = IperfRun(lab, server, clients, streams=streams, seconds=seconds + 1.0)
    except NotAvailable:
        return None
    try:
        time.sleep(WARM_UP_S)  # the length of the warm-up, then that of the measurement
        first, bits, cpu_s = look(), _received_bits(lab, server), _cpu_s(lab)
        time.sleep(MEASURED_S)
        last, bits, cpu_s = look(), _received_bits(lab, server) - bits, _cpu_s(lab) - cpu_s
    finally:
        run.stop()
    took_s = last.at_s - first.at_s
    cpus = cpu_s / took_s
    return carried_bps(bits / took_s, cpus, used_between(first, last).idle_cpus)


def carried_bps(arrived_bps: float, lab_cpus: float, idle_cpus: float) -> float:
    """What the machine carries if the lab gets all idle CPUs, too.

    `lab_cpus` is the mean number of CPUs that carried `arrived_bps`. CPUs that other programs use
    are left to them.
    """
    if lab_cpus <= 0:
        return arrived_bps
    return arrived_bps * (lab_cpus + idle_cpus) / lab_cpus


def factor_for(carried: float, needed_bps: float, factor: float = 1.0) -> float:
    """The largest factor with which the machine has SPARE times what the links need.

    `needed_bps` is what the links at their full rates carry together. `factor` is the one of the
    lab in which `carried` was measured. It is kept down to STAY_SPARE.
    """
    fitting = [each for each in FACTORS if each * needed_bps * SPARE <= carried]
    if factor < 1 and factor * needed_bps * STAY_SPARE <= carried:
        fitting.append(factor)
    return max(fitting, default=FACTORS[-1])


def last_factor(topology: str) -> float:
    """The factor of the last demo with this topology since the machine started, else 1."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        factor = json.loads(_last().read_text())[topology]
        return factor if factor in FACTORS else 1.0
    return 1.0


def remember(topology: str, factor: float) -> None:
    """Let the next demo with this topology begin with this factor. Nothing fails without it."""
    with suppress(OSError):
        written = _last().with_suffix(".new")
        written.write_text(json.dumps({topology: factor}))
        written.replace(_last())


def _last() -> Path:
    return state.ROOT / ".demo-rate"


def slower(topology: Topology, factor: float) -> Topology:
    """The topology with all rates multiplied by `factor`.

    The queues of ports last as long as before, but for very short ones.
    """
    document = topology.model_dump(mode="json")
    for host in document["hosts"].values():
        for nic in host["nics"]:
            nic["rate_bps"] = max(1, round(nic["rate_bps"] * factor))
    for switch in document["switches"].values():
        before = switch["port_buffer_bytes"]
        switch["port_buffer_bytes"] = max(round(before * factor), min(before, LEAST_BUFFER_BYTES))
        for link in switch["links"]:
            link["rate_bps"] = max(1, round(link["rate_bps"] * factor))
    return Topology.model_validate(document)


def _received_bits(lab: Lab, host: str) -> float:
    """What the NICs of a host have received, in bits."""
    return 8.0 * sum(lab.nic_counters(host, "rx_bytes").values())


def _cpu_s(lab: Lab) -> float:
    """CPU seconds of all processes in the lab that are there now."""
    from ri2n_lab.bench.spinners import cpu_seconds
    from ri2n_lab.cluster.namespaces import processes_in

    total_s = 0.0
    for pid in processes_in(lab.namespace(host) for host in ("sw", "mgmt", *lab.hosts)):
        with suppress(OSError):  # it has ended
            total_s += cpu_seconds(Path(f"/proc/{pid}/stat").read_text())
    return total_s
