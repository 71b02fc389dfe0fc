# SPDX-License-Identifier: Apache-2.0
"""The keys that `status` had before version 2, made from the state; they go with version 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["earlier_status"]

_NOTHING: tuple[None, None] = (None, None)


def earlier_status(
    state: Mapping[str, Any],
    rates: Mapping[str, Mapping[str, tuple[float, float]]],
    reports: Mapping[str, tuple[float | None, float]],
) -> dict[str, Any]:
    """The keys that follow from a state.

    `rates`: by host and NIC, (sent, received) in bit/s, with the fractions that the state lacks.
    `reports`: by host whose helper has reported, (the last report's age, the helper's time since
    its start) in seconds; the age is None when the report is too old to say anything.
    """
    about = state["controller"]
    return {
        **{key: about[key] for key in ("settled", "in_charge", "strategy", "hbspan_s", "cycle_s")},
        "waits_because": about.get("waits_because"),
        "pid": about["pid"],
        "hosts": [
            _host(name, host, rates.get(name, {}), reports.get(name, _NOTHING))
            for name, host in sorted(state["hosts"].items())
        ],
        "networks": [
            {"id": name, "nics": network["nics"]} for name, network in state["networks"].items()
        ],
        "cables": sorted({tuple(sorted(cable["ends"])) for cable in state["cables"].values()}),
        "problems": [
            {"id": name, **{key: value for key, value in problem.items() if key != "rank"}}
            for name, problem in state["problems"].items()
        ],
        "counters": state["counters"],
        "slots_moved": state["counters"].get("slots_moved", 0),
    }


def _host(
    name: str,
    host: Mapping[str, Any],
    rates: Mapping[str, tuple[float, float]],
    report: tuple[float | None, float | None],
) -> dict[str, Any]:
    helper = host["helper"]
    nics = []
    for own, nic in host["nics"].items():
        tx_bps, rx_bps = rates.get(own, _NOTHING)
        nics.append({"name": own, **nic, "tx_bps": tx_bps, "rx_bps": rx_bps})
    return {
        "name": name,
        **{key: value for key, value in host.items() if key != "certificate_ends_s"},
        "helper": helper
        and {"running": helper["running"], "report_age_s": report[0], "running_s": report[1]},
        "nics": nics,
    }
