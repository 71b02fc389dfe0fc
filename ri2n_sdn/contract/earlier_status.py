# SPDX-License-Identifier: Apache-2.0
"""The keys that `status` had before version 2, made from the state; they go with version 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ri2n_sdn.contract.answers import EarlierStatus, StatusHost, StatusProblem
from ri2n_sdn.contract.documents import Documents, HostEntry

__all__ = ["earlier_status"]

_NOTHING = (None, None)


def earlier_status(
    state: Documents,
    reports: Mapping[str, tuple[float | None, float]],
) -> EarlierStatus:
    """The keys that follow from a state.

    `reports`: by host whose helper has reported, (the last report's age, the helper's time since
    its start) in seconds; the age is None when the report is too old to say anything.
    """
    about = state["controller"]
    return {
        "settled": about["settled"],
        "in_charge": about["in_charge"],
        "strategy": about["strategy"],
        "hbspan_s": about["hbspan_s"],
        "cycle_s": about["cycle_s"],
        "waits_because": about.get("waits_because"),
        "pid": about["pid"],
        "hosts": [
            _host(name, host, state["rates"].get(name, {}), reports.get(name, _NOTHING))
            for name, host in sorted(state["hosts"].items())
        ],
        "networks": [
            {"id": name, "nics": network["nics"]} for name, network in state["networks"].items()
        ],
        "cables": sorted(
            {(min(cable["ends"]), max(cable["ends"])) for cable in state["cables"].values()}
        ),
        "problems": [
            cast(
                StatusProblem,
                {"id": name, **{key: value for key, value in problem.items() if key != "rank"}},
            )
            for name, problem in state["problems"].items()
        ],
        "counters": state["counters"],
        "slots_moved": state["counters"].get("slots_moved", 0),
    }


def _host(
    name: str,
    host: HostEntry,
    rates: Mapping[str, Sequence[float]],
    report: tuple[float | None, float | None],
) -> StatusHost:
    helper = host["helper"]
    return {
        "name": name,
        "dpid": host["dpid"],
        "mac": host["mac"],
        "address": host["address"],
        "connected": host["connected"],
        "ovs": host["ovs"],
        "datapath": host["datapath"],
        "helper": helper
        and {"running": helper["running"], "report_age_s": report[0], "running_s": report[1]},
        "nics": [
            {
                "name": own,
                **nic,
                "tx_bps": rates.get(own, _NOTHING)[0],
                "rx_bps": rates.get(own, _NOTHING)[1],
            }
            for own, nic in host["nics"].items()
        ],
    }
