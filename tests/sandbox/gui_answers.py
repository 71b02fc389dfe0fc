# SPDX-License-Identifier: Apache-2.0
"""What the controller of the GUI's tests answers to single requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ANSWERS"]


def _path(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "own": f"eth{number}",
        "peer": f"eth{number}",
        "network": f"n{number}",
        "vlan": None,
        "alive": True,
        **facts,
    }


def _explain(request: dict[str, Any]) -> dict[str, Any]:
    source, target = request["src"], request["dst"]
    if not source.startswith("h"):
        raise ValueError(f"{source}: no such host; known are h0001, h0002")
    one = "flow" in request
    measured = {"slots": 8, "share": 0.5, "tx_bps": 4.2e8, "rx_bps": 4.2e8, "rate_bps": 10**9}
    measured |= {"speed_bps": 10**9}
    return {
        "src": source,
        "dst": target,
        "kind": "managed",
        "reason": "the pair carries traffic",
        "why": [
            f"{source} -> {target}: the pair carries traffic: it has a slot table of its own",
            *(["its hash is 5, and slot 5 is eth1"] if one else []),
        ],
        "slots": [["eth0", "eth0", None], ["eth1", "eth1", None]] * 8,
        "slot": 5 if one else None,
        "striped": False,
        "paths": [_path(number, link=None, helper=None, **measured) for number in (0, 1)],
        "path": {key: _path(1)[key] for key in ("own", "peer", "vlan", "network")} if one else None,
        "flow": "tcp 10.0.0.1:4000 -> 10.0.0.2:80" if one else None,
    }


def _job(request: dict[str, Any]) -> dict[str, Any]:
    routes = [{"src": "h0001", "dst": "h0002", "dscp": None, **_path(0)}]
    return {"job": {"id": request["id"], "classes": {}, "routes": routes}}


ANSWERS: Mapping[str, Any] = {"explain": _explain, "job_show": _job}
