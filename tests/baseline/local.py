# SPDX-License-Identifier: Apache-2.0
"""Transcripts of the controller's local interface: every operation, and a watch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.local_vlans import Leases
from ri2n_sdn.contract.operations import READING
from ri2n_sdn.errors import BadInput
from tests.baseline.controllers import fat, flat, serving, stands_by
from tests.baseline.requests import FAT, FLAT, LINES, OF_USERS, STANDS_BY, Asked
from tests.baseline.text import pretty
from tests.unit.test_web_socket import ADMIN, ALICE, BOB, TRIED, VIEWER

__all__ = ["local", "normalised"]

NEAR_S = 1e8
"""A number that is as near to the present Unix time is a time that follows from it."""

_DAY_S = 86_400
_CHANGING = {
    *("seq", "pid", "version", "config_hash", "uptime_s", "report_age_s", "cycle_s"),
    *("seconds", "sum_s"),
}


def local() -> str:
    """The transcripts of all controllers."""
    return "".join([*_of_root(), *_of_users(), *_of_the_web(), *_of_others()])


def normalised(value: Any, key: str = "") -> Any:
    """A document in which nothing is left that differs from one run to the next."""
    if isinstance(value, dict):
        return {name: normalised(each, name) for name, each in value.items()}
    if key == "slots" and isinstance(value, list):
        return [f"{len(list(same))} x {slot}" for slot, same in groupby(value)]
    if isinstance(value, list):
        return [normalised(each) for each in value]
    if key in _CHANGING and value is not None:
        return f"<{key}>"
    if isinstance(value, int | float) and abs(later_s := value - time.time()) < NEAR_S:
        return f"<now{round(later_s / _DAY_S):+} d>"
    return value


def _of_root() -> Iterator[str]:
    faults = [None, "cluster.yaml: hosts: is wrong"]

    def check() -> None:
        if (fault := faults.pop(0)) is not None:
            raise BadInput(fault)

    with serving(flat(), check) as api:
        for line in LINES:
            yield _exchange(f"a line: {line[:80]!r}", api.answer(line))
        yield from _asked("root", api, FLAT)


def _of_users() -> Iterator[str]:
    with serving(flat()) as api:
        for name, uid in (("alice", 20001), ("nobody", 65534)):
            for op, arguments in OF_USERS:
                answer = api.answer(_line(op, arguments), None, Asker(uid, name), False)
                yield _exchange(_title(f"{name}, at the socket for all", op, arguments), answer)
        right = {"user": "alice", "policies": ["shared", "exclusive"], "reserve": True}
        yield from _asked("root", api, [("rights_set", {"right": right})])
        for op, arguments in OF_USERS:
            answer = api.answer(_line(op, arguments), None, Asker(20001, "alice"), False)
            yield _exchange(_title("alice, with rights", op, arguments), answer)


def _of_the_web() -> Iterator[str]:
    """Every operation by everybody; what does something is tried by the admin last."""
    with serving(flat()) as api:
        names = list(api._operations(Leases(), ROOT, True, True))
        for wrong in (None, "alice", {**ALICE, "more": 1}, {**ALICE, "role": "none"}):
            yield _exchange(f"web, as {wrong}", _of_web(api, wrong, "job_list", {}))
        for who in (VIEWER, BOB, ALICE, ADMIN):
            for name in names:
                arguments = TRIED.get(name, {})
                title = _title(f"web, {who['user']} as {who['role']}", name, arguments)
                answer = _of_web(api, who, name, arguments)
                if who is not VIEWER and name in READING and answer["ok"]:
                    answer = {"ok": True, "and": sorted(answer)}  # as the viewer got it
                yield _exchange(title, answer)


def _of_others() -> Iterator[str]:
    with serving(fat()) as api:
        yield from _asked("root, a fat tree", api, FAT)
    with serving(stands_by()) as api:
        yield from _asked("root, standing by", api, STANDS_BY)


def _asked(who: str, api: LocalApi, requests: Iterable[Asked]) -> Iterator[str]:
    leases = Leases()
    for op, arguments in requests:
        yield _exchange(_title(who, op, arguments), api.answer(_line(op, arguments), leases))


def _of_web(api: LocalApi, who: object, op: str, arguments: dict[str, Any]) -> dict[str, Any]:
    said = {} if who is None else {"as": who}
    answer = api.answer(_line(op, {**said, **arguments}), None, web=True)
    if "watcher" in answer:
        api._watching.leave(answer["watcher"])
        return {**answer, "watcher": "<watcher>"}
    return answer


def _line(op: str, arguments: dict[str, Any]) -> bytes:
    return json.dumps({"op": op, **arguments}).encode()


def _title(who: str, op: str, arguments: dict[str, Any]) -> str:
    return f"{who}: {op} {json.dumps(arguments)}"


def _exchange(request: str, answer: dict[str, Any]) -> str:
    """A request and its answer, as they would be on the socket."""
    return f"> {request}\n{pretty(normalised(json.loads(json.dumps(answer))))}\n\n"
