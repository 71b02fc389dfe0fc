# SPDX-License-Identifier: Apache-2.0
"""The transcript of a watch: the first state, and what each of some changes makes of it.

A minute of a real watch would say when things change. Here each change is made by hand, and the
transcript says by what it shows. How changes are spread over lines is left to the controller.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

from ri2n_sdn.apps import watching
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.measured import PathRates
from ri2n_sdn.contract.state import merge
from tests.baseline.controllers import flat, serving
from tests.baseline.local import normalised
from tests.baseline.text import pretty
from tests.unit.fake_hosts import plan

__all__ = ["watch"]

PATIENCE_S = 600.0
EVERY_S = 0.02
OUTAGE_S = 1000.0
MARK = "baseline_step"
_ORDER = {"id": "w1", "user": "alice", "uid": 20001, "hosts": ["A", "C"], "policy": "shared"}


class _Stream:
    """A watch over the socket, as any client has it."""

    def __init__(self, cluster: Cluster) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(str(cluster.socket_path))
        self._socket.sendall(b'{"op": "watch"}\n')
        self._lines = self._socket.makefile("rb")
        first = self._next()
        self.keys = set(first)
        self.state: dict[str, Any] = first["state"]

    def until(self, mark: int) -> dict[str, Any]:
        """What has changed, part by part, up to the step of that number."""
        before = self.state
        while self.state["counters"].get(MARK) != mark:
            line = self._next()
            self.keys |= set(line)
            self.state = merge(self.state, line["changed"])
        return {
            part: changed
            for part in sorted(self.state)
            if (changed := _changed(part, before[part], self.state[part]))
        }

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        assert line, "the stream has ended"
        return cast(dict[str, Any], json.loads(line))


def watch() -> str:
    """The transcript."""
    every_s, watching._EVERY_S = watching._EVERY_S, EVERY_S
    try:
        with serving(flat()) as api:
            return "".join(_told(api))
    finally:
        watching._EVERY_S = every_s


def _told(api: LocalApi) -> Iterator[str]:
    cluster = api._cluster
    stream = _Stream(cluster)
    try:
        yield f"the first state:\n{pretty(normalised(stream.state))}\n\n"
        for number, (name, change) in enumerate(_STEPS.items(), start=1):
            change(api)
            with cluster.lock:
                cluster.counters.add(MARK)
            found = stream.until(number)
            yield f"{name}:\n{pretty(normalised(found))}\n\n"
        yield f"keys of lines: {', '.join(sorted(stream.keys))}\n"
    finally:
        stream.close()


def _changed(part: str, before: Any, after: Any) -> Any:
    """What is new in a part of the state; None stands for what is gone."""
    if part == "events":
        return [event for event in after if event not in before]
    new = {
        key: value for key, value in after.items() if key != MARK and before.get(key, ...) != value
    }
    return new | dict.fromkeys(before.keys() - after.keys())


def _locked(change: Callable[[Cluster], object]) -> Callable[[LocalApi], None]:
    """A change of the cluster as its apps make it, under the lock."""

    def made(api: LocalApi) -> None:
        with api._cluster.lock:
            change(api._cluster)

    return made


def _asked(op: str, **arguments: Any) -> Callable[[LocalApi], None]:
    def made(api: LocalApi) -> None:
        answer = api.answer(json.dumps({"op": op, **arguments}).encode())
        assert answer["ok"], answer

    return made


def _leaves(cluster: Cluster) -> None:
    cluster.members["C"].channel = None
    cluster.note("host_disconnected", {"host": "C"})
    cluster.topology_changed()


def _dies(cluster: Cluster) -> None:
    cast(Any, cluster.wiring)._dead.add(("A", 1))
    cluster.topology_changed()


def _revives(cluster: Cluster) -> None:
    outage = cluster.measured.tallies.outages.nics["A", "eth0"]
    assert outage.since_s is not None
    outage.since_s -= OUTAGE_S
    cast(Any, cluster.wiring)._dead.discard(("A", 1))
    cluster.topology_changed()


def _no_helper(cluster: Cluster) -> None:
    cluster.members["A"].taps = dict.fromkeys(cluster.members["A"].taps, False)
    del cluster.measured.reports["A"]
    cluster.topology_changed()


def _carries(cluster: Cluster) -> None:
    port = cluster.members["B"].ports[1]
    port.tx_bps, port.rx_bps, port.tx_bytes = 5e7, 6e7, 2 * 10**6
    measured, pair = cluster.measured, ("A", "B")
    measured.rates = {**measured.rates, pair: {(1, 1, 0): PathRates(5e7, 5e7, 1.0, 9e7)}}
    measured.fair_bps = {**measured.fair_bps, pair: 1e8}
    plan(cluster, {("A", "B"): ((1, 1, 0),) * 64})


def _fails(cluster: Cluster) -> None:
    cluster.faults["slot_tables_undecided"] = "ValueError: for a reason"
    cluster.members["B"].faults["rows_not_planned"] = "KeyError: 5"
    cluster.members["B"].repairs = 3
    cluster.counters.add("host_faults")


def _refuses(cluster: Cluster) -> None:
    cluster.jobs.failed["A"] = {"w1": "no room for it"}
    cluster.jobs.states = {**cluster.jobs.states, "w1": ("refused", "for a reason")}


def _stands_by(cluster: Cluster) -> None:
    cluster.stand_by("controller-2 is in charge")


def _forgets(cluster: Cluster) -> None:
    cluster.forget(cluster.members["Z"], "host_alone")


_STEPS: dict[str, Callable[[LocalApi], None]] = {
    "a host leaves": _locked(_leaves),
    "a NIC dies": _locked(_dies),
    "it is alive again": _locked(_revives),
    "a helper ends": _locked(_no_helper),
    "traffic grows, and a pair becomes active": _locked(_carries),
    "something fails": _locked(_fails),
    "a job is ordered": _asked("job_begin", job={**_ORDER, "end_s": 3.9e9}),
    "a host cannot carry it out": _locked(_refuses),
    "the job ends": _asked("job_end", id="w1"),
    "a right is given": _asked("rights_set", right={"user": "alice", "policies": ["shared"]}),
    "a policy gets a name": _asked("policy_add", name="p1", policy={"policy": "exclusive"}),
    "a parameter is set": _asked("parameters_set", name="hysteresis", value=0.2),
    "a token is made": _asked("token_add", name="t1", role="viewer", hash=64 * "a"),
    "a right is taken away": _asked("rights_remove", user="alice"),
    "a host is forgotten": _locked(_forgets),
    "another controller takes over": _locked(_stands_by),
}
