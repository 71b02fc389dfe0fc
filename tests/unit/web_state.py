# SPDX-License-Identifier: Apache-2.0
"""What the web process sees, without a controller: states of any size, and a feed of them."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from ri2n_sdn.contract.choices import Role
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.events import Event
from ri2n_sdn.contract.operations import Answer, Operation
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.state import merge
from ri2n_sdn.contract.wording import Subject
from ri2n_sdn.web.auth import hash_of
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.history import History
from ri2n_sdn.web.shape import EMPTY
from ri2n_sdn.web.who import Who

__all__ = ["NOW_S", "TOKENS", "FakeFeed", "cluster_state", "event", "token_document"]

NOW_S = 1_795_730_000.0
"""The time of the states, in Unix seconds."""

TOKENS: Mapping[str, str] = {
    "admin": "a" * 43,
    "user": "u" * 43,
    "viewer": "v" * 43,
}
"""The text of a token of each role; that of the role `user` is for alice."""

_GBIT = 1_000_000_000


def token_document(
    token: str, role: Role, user: str | None = None, expires_s: float | None = None
) -> Any:
    """A token as the operation `watch` of the web socket has it."""
    return {"hash": hash_of(token), "role": role, "user": user, "expires_s": expires_s}


def state_of(**parts: Any) -> Any:
    """A state in which nothing is known but these parts."""
    return {**EMPTY, **parts}


def cluster_state(
    hosts: int = 4,
    nics: int = 2,
    jobs: int = 2,
    *,
    events: int = 3,
    reservations: int = 1,
    switched: bool = True,
    dead: tuple[tuple[str, str], ...] = (),
    away: tuple[str, ...] = (),
    strategy: str = "max_min",
) -> Any:
    """A state in the form of the operation `watch`, without tokens, which tests may change.

    Hosts are h0001, ... with NICs eth0, ... NIC number i is in the network n<i>, and behind the
    switch s<i> if `switched`. `dead` are (host, NIC) that carry nothing, `away` hosts that are not
    connected. Jobs are j1, ... of alice and bob in turn, on two hosts each.
    """
    names = [f"h{number:04d}" for number in range(1, hosts + 1)]
    alive = {
        name: {f"eth{index}": (name, f"eth{index}") not in dead for index in range(nics)}
        for name in names
    }
    problems: dict[str, Any] = {}
    moved = {"host": "h0001", "nic": "eth0"}
    for host, nic in dead:
        _add_problem(problems, Problem("nic_hears_nothing", {"host": host, "nic": nic}))
    for host in away:
        _add_problem(problems, Problem("host_away", {"host": host}))
    return {
        "controller": _controller(strategy, hosts),
        "hosts": {
            name: _host(number, name not in away, alive[name], switched)
            for number, name in enumerate(names, 1)
        },
        "networks": {
            f"n{index}": {
                "nics": [f"{name}:eth{index}" for name in names],
                "switches": [f"s{index}", f"t{index}"] if switched else [],
            }
            for index in range(nics)
        },
        "cables": {
            f"s{index}/48-t{index}/48": {
                "ends": [f"s{index}", f"t{index}"],
                "ports": [48, 48],
                "rate_bps": _GBIT,
                "alive": True,
                "vlans": [1, 101 + index],
            }
            for index in range(nics if switched else 0)
        },
        "switches": {
            f"{kind}{index}": {"network": f"n{index}"}
            for index in range(nics if switched else 0)
            for kind in "st"
        },
        "rates": {
            name: {
                f"eth{index}": [
                    (number * 1_000_003 * (index + 1)) % _GBIT if alive[name][f"eth{index}"] else 0,
                    (number * 7_000_003 * (index + 1)) % _GBIT if alive[name][f"eth{index}"] else 0,
                ]
                for index in range(nics)
            }
            for number, name in enumerate(names, 1)
            if name not in away
        },
        "bytes": {
            name: {f"eth{index}": [10**9 * number + index, 10**8 * number] for index in range(nics)}
            for number, name in enumerate(names, 1)
            if name not in away
        },
        "activity": {
            name: {
                **{"active_pairs": 1, "reweights": 2, "slots_moved": 3},
                "slots": {f"eth{index}": 64 // nics for index in range(nics)},
            }
            for name in names
        },
        "outages": {
            host: {nic: {"count": 1, "seconds": 0.0, "since_s": NOW_S - 60.0}} for host, nic in dead
        },
        "lengths": {
            key: {"bounds_s": [0.01, 1.0], "counts": [40, 2, 0], "sum_s": 0.5}
            for key in ("cycle", "cycle_cpu", "outage")
        },
        "openflow": {"received": {"packet_in": 900}, "sent": {"flow_mod": 12}},
        "helpers": {
            name: {
                **{"links": nics, "usable": nics, "striping": 0, "sent": 1000, "received": 990},
                **{"lost": 0, "repeated": 1},
            }
            for name in names[:1]
        },
        "counters": {"nic_deaths": len(dead), "slots_moved": 12, "reweights": 3},
        "problems": problems,
        "jobs": {f"j{number}": _job(number, names) for number in range(1, jobs + 1)},
        "reservations": {
            f"r{number}": _reservation(number, names) for number in range(1, reservations + 1)
        },
        "rights": {
            "*": {
                **{"user": "*", "policies": ["shared", "paths"], "max_rate_bps": None},
                **{"max_hosts": None, "reserve": False},
            },
            "alice": {
                **{"user": "alice", "policies": ["exclusive", "paths"], "max_rate_bps": 10**9},
                **{"max_hosts": 8, "reserve": True},
            },
        },
        "policies": {"quiet": {"name": "quiet", **_policy("exclusive")}},
        "events": [
            event(number, "nic_moved", moved, before=f"n{number}", network="n0")
            for number in range(1, events + 1)
        ],
    }


class FakeFeed(Feed):
    """A feed that a test fills in place of a controller.

    `asked` has all requests: (op, who, arguments). They are answered from `answers`, by op: a
    document, an exception to be raised, or a function of (who, arguments) that returns a document.
    An op that is not there is refused with BadInput.
    """

    def __init__(self, state: Any = None, answers: Mapping[str, Any] | None = None) -> None:
        self.state = cluster_state() if state is None else state
        self.tokens = {
            role: token_document(text, role, "alice" if role == "user" else None)  # type: ignore[arg-type]
            for role, text in TOKENS.items()
        }
        self.seq = 1
        self.connected, self.known = True, True
        self.why: str | None = None
        self.since_s = NOW_S
        self.heard_s = NOW_S
        self._clock = lambda: NOW_S
        self.counters = Counter()
        self.history = History()
        self.history.add(NOW_S, self.state)
        self.samples = deque([self.state])
        self.answers: dict[str, Any] = dict(answers or {})
        self.asked: list[tuple[str, Who, dict[str, Any]]] = []

    async def start(self) -> None:
        """Nothing is to be begun."""

    async def stop(self) -> None:
        """Nothing is to be ended."""

    def change(self, changed: Mapping[str, Any]) -> None:
        """Merge a change, in the form of the operation `watch`."""
        self.state = cast(Documents, merge(self.state, changed))
        self.seq += 1

    def disconnect(self, why: str = "the controller has ended the stream") -> None:
        """The controller is away from now on."""
        self.connected, self.why, self.since_s = False, why, time.time()
        self.seq += 1

    def connect(self, state: Any = None) -> None:
        """The controller is there again."""
        self.state = self.state if state is None else state
        self.connected, self.why, self.since_s = True, None, time.time()
        self.seq += 1

    async def changed(self, after: int, timeout_s: float) -> int:
        """As Feed; it looks every 5 ms."""
        deadline_s = time.monotonic() + timeout_s
        while self.seq == after and time.monotonic() < deadline_s:
            await asyncio.sleep(0.005)
        return self.seq

    async def request(self, op: Operation[Answer], who: Who, **arguments: Any) -> Answer:
        """As Feed, from `answers`."""
        self.asked.append((op.name, who, arguments))
        if op.name not in self.answers:
            raise refusal("not_one_of", "op", choices=list(self.answers))
        answer = self.answers[op.name]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            made: Callable[[Who, dict[str, Any]], dict[str, Any]] = answer
            answer = made(who, arguments)
        return cast(Answer, copy.deepcopy(answer))


def _controller(strategy: str, hosts: int) -> dict[str, Any]:
    return {
        "in_charge": True,
        "settled": True,
        "strategy": strategy,
        "parameters": {
            **{"strategy": strategy, "slots": 64, "hbspan_min_s": 0.25, "hbspan_max_s": 4.0},
            **{"hbspan_idle_s": 1.0, "active_bps": 64000.0, "inactive_after_s": 10.0},
            **{"hysteresis": 0.04, "settle_s": 1.25, "loss_min_part": 0.04},
            **{"loss_window_s": 20.0, "loss_min_packets": 400, "loss_max_load": 0.8},
        },
        "hbspan_s": 0.25,
        "cycle_s": 0.012,
        "started_s": NOW_S - 3600.0,
        "active_pairs": hosts,
        "pid": 4711,
        "version": "0.1.0",
        "config_hash": "04980fbe67dcd7ea",
        "store": {"kind": "own", "active": True, "epoch": 1, "problem": None},
    }


def _host(number: int, connected: bool, alive: Mapping[str, bool], switched: bool) -> Any:
    high, low = divmod(number, 256)
    return {
        "dpid": f"{number:016x}",
        "mac": f"06:00:00:00:{high:02x}:{low:02x}",
        "address": f"192.0.{2 + high}.{low}" if connected else None,
        "connected": connected,
        "ovs": "3.1.0",
        "datapath": "netdev",
        "helper": {"running": True, "reports": True} if number == 1 else None,
        "fast": {
            **{"state": "in_force", "filter": "in_force"},
            **{"peers": {"carried": 2, "striped": 1}, "dropped": 0},
        }
        if number == 2
        else None,
        "nics": {
            name: {
                "port": port,
                "mac": f"04:00:00:{port:02x}:{high:02x}:{low:02x}",
                "network": f"n{port - 1}",
                "switch": f"s{port - 1}" if switched else None,
                "speed_bps": _GBIT,
                "up": True if connected else None,
                "alive": lives if connected else None,
            }
            for port, (name, lives) in enumerate(alive.items(), 1)
        },
    }


def _policy(kind: str, *paths: str) -> dict[str, Any]:
    return {
        **{"policy": kind, "paths": list(paths), "tables": [], "services": []},
        **{"min_rate_bps": None, "max_rate_bps": None},
    }


def _job(number: int, names: list[str]) -> dict[str, Any]:
    first = (2 * (number - 1)) % max(1, len(names))
    user, uid = (("alice", 20001), ("bob", 20002))[(number - 1) % 2]
    return {
        "id": f"j{number}",
        "user": user,
        "uid": uid,
        "hosts": names[first : first + 2] or names[:2],
        **_policy("paths", "n0"),
        "begin_s": NOW_S - 600.0,
        "end_s": NOW_S + 3600.0,
        "source": "order",
        "state": "installed",
        "why": "",
        "failed": {},
        "moved": None,
        "lanes": ["n0"],
    }


def _reservation(number: int, names: list[str]) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "user": "alice",
        "hosts": names[:2],
        "begin_s": NOW_S + 7200.0 * number,
        "end_s": NOW_S + 7200.0 * number + 3600.0,
        "rate_bps": 400_000_000,
        **_policy("exclusive"),
    }


def event(seq: int, code: str, subject: Subject | None = None, **args: Any) -> Any:
    """The document of an event, ten seconds after the one before it."""
    return {"seq": seq, "time_s": NOW_S + 10.0 * seq, **Event(code, subject or {}, args).document()}


def _add_problem(problems: dict[str, Any], problem: Problem) -> None:
    problems[problem.id] = {**problem.document(), "rank": len(problems)}
