# SPDX-License-Identifier: Apache-2.0
"""The command lines that do what the GUI does, to be copied into a terminal or a script. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from ri2n_sdn.contract.units import time_text
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.words import rate_input

__all__ = ["command_of", "copyable"]

Json = Mapping[str, Any]

_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp"}
_REMOVALS = {
    "job_end": ("job", "end", "id"),
    "reserve_remove": ("reserve", "rm", "id"),
    "policy_remove": ("policy", "rm", "name"),
    "rights_remove": ("rights", "rm", "user"),
    "token_remove": ("token", "rm", "name"),
}


def command_of(op: str, url: str = "", **arguments: Any) -> str | None:
    """The command that asks the controller for the same as an operation with these arguments.

    It is None where no command does exactly that. `parameters_set` has no command: a line for curl
    stands for it, and wants `url`, the server's address.
    """
    if op == "parameters_set":
        return _curl(url=url, **arguments)
    if op in _REMOVALS:
        group, verb, key = _REMOVALS[op]
        words: list[str] | None = [group, verb, str(arguments[key])]
    else:
        words = _MAKERS[op](**arguments)
    return None if words is None else shlex.join(["ri2n", *words])


def copyable(command: str, where: str = "") -> Markup:
    """A command as it is shown: with a button that copies it (gui.js), and `where` it is typed.

    Without `where`, the command itself says that.
    """
    button = tag(
        "button",
        "Copy",
        type="button",
        class_="plain copy",
        data_copy=command,
        aria_label="Copy the command",
    )
    if not where:
        where = "In a shell that has your token in TOKEN:"
        if not command.startswith("curl "):
            where = "On the controller's machine, as root or as the user whose job it is:"
    return text(
        tag("p", where, class_="muted"),
        tag("div", tag("code", command), " ", button, class_="command"),
    )


def _job_begin(job: Json) -> list[str]:
    plain = dict(job)
    if plain.get("policy") == "shared":
        del plain["policy"]  # It is the default of this command.
    end_s = job.get("end_s")
    until = _given(until=None if end_s is None else time_text(int(end_s)))
    return ["job", "begin", job["id"], *_between(job), *_policy(plain), *until]


def _job_move(id: str, job: Json | None = None, back: bool = False) -> list[str]:
    return ["job", "move", id, *(["--back"] if back else _policy(job or {}))]


def _reserve_add(reservation: Json) -> list[str] | None:
    # The command knows no other kind, and no rates of a policy.
    others = ("tables", "services", "min_rate_bps", "max_rate_bps")
    if reservation.get("policy", "exclusive") != "exclusive" or any(map(reservation.get, others)):
        return None
    plain = {key: value for key, value in reservation.items() if key != "policy"}
    begin, end = (time_text(int(reservation[key])) for key in ("begin_s", "end_s"))
    options = _given(begin=begin, end=end, rate=_rate(reservation.get("rate_bps")))
    return ["reserve", "add", reservation["id"], *_between(plain), *options, *_policy(plain)]


def _policy_add(name: str, policy: Json) -> list[str]:
    return ["policy", "add", name, *_policy(policy)]


def _rights_set(right: Json) -> list[str] | None:
    rate_bps, hosts = right["max_rate_bps"], right["max_hosts"]
    if not right["policies"] or rate_bps == 0 or hosts == 0:
        return None  # The command has no words for none.
    policies = ",".join(right["policies"])
    options = _given(policies=policies, max_rate=_rate(rate_bps), max_hosts=hosts)
    return ["rights", "set", right["user"], *options, *(["--reserve"] if right["reserve"] else [])]


def _token_add(name: str, role: str, user: str | None = None, days: int | None = None) -> list[str]:
    return ["token", "add", name, *_given(role=role, user=user, days=days)]


def _explain(src: str, dst: str, flow: Json | None = None, job: str | None = None) -> list[str]:
    ports = dict(flow or {})
    number = ports.pop("protocol", None)
    proto = _PROTOCOLS.get(number, number)
    return ["explain", src, dst, *_given(proto=proto, **ports, job=job)]


_MAKERS: Mapping[str, Callable[..., list[str] | None]] = {
    "job_begin": _job_begin,
    "job_move": _job_move,
    "reserve_add": _reserve_add,
    "policy_add": _policy_add,
    "rights_set": _rights_set,
    "token_add": _token_add,
    "explain": _explain,
}


def _between(wanted: Json) -> list[str]:
    return _given(hosts=",".join(wanted["hosts"]), user=wanted["user"])


def _policy(policy: Json) -> list[str]:
    """The options that say which policy."""
    if "named" in policy:
        return _given(named=policy["named"])
    words = _given(policy=policy.get("policy"), paths=",".join(policy.get("paths") or ()) or None)
    for each in policy.get("tables") or ():
        words += _given(table=f"{each['dscp']}={','.join(each['paths'])}")
    for each in policy.get("services") or ():
        words += _given(service=each)
    rates = {f"{key}_rate": _rate(policy.get(f"{key}_rate_bps")) for key in ("min", "max")}
    return words + _given(**rates)


def _given(**options: object) -> list[str]:
    """The options that have a value."""
    given = {key: value for key, value in options.items() if value is not None}
    return [word for key in given for word in (f"--{key.replace('_', '-')}", str(given[key]))]


def _rate(rate_bps: int | None) -> str | None:
    return None if rate_bps is None else rate_input(rate_bps)


def _curl(name: str, value: object, url: str) -> str:
    path = "strategy" if name == "strategy" else f"parameters/{name}"
    body = json.dumps({"name" if name == "strategy" else "value": value})
    address = f"{url.rstrip('/')}/api/v1/{path}"
    token = '"Authorization: Bearer $TOKEN"'  # The shell fills it in.
    rest = shlex.join(["-H", "If-Match: *", "--json", body, address])
    return f"curl -X PUT -H {token} {rest}"
