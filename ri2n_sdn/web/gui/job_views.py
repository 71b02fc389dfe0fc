# SPDX-License-Identifier: Apache-2.0
"""What the page of jobs shows, and the requests that its forms make. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ri2n_sdn.contract.choices import one_of
from ri2n_sdn.contract.documents import Documents, EndedJob, Job, PolicyOf, Reservation, Route
from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.contract.names import job_id, natural
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import counted, duration_text, page_rate, page_time
from ri2n_sdn.web.gui.words import address, network_text, parse_names, rate_of_field, time_of_field
from ri2n_sdn.web.who import Who

__all__ = [
    "KINDS",
    "PolicyForm",
    "history_rows",
    "job_actions",
    "job_row",
    "jobs_found",
    "order_request",
    "owns",
    "policy_request",
    "policy_rows",
    "policy_text",
    "reservation_request",
    "reservation_rows",
    "right_request",
    "right_rows",
    "route_rows",
]

Row = dict[str, Any]
Json = dict[str, Any]

KINDS = {
    "shared": "the common paths",
    "paths": "only the paths that are named",
    "exclusive": "lanes of its own between its hosts",
    "isolated": "hosts of its own, which talk to each other and to named services alone",
}
"""The kinds of policies, and what a job with one of them may use."""

MAX_HOSTS_SHOWN = 4
"""A row names so many hosts. The details name all."""

_DSCP = re.compile(r"([0-9]{1,2})=(.+)\Z")
_ORDER = {"refused": 0, "waiting": 1}
_EVERYBODY = "*"


@dataclass
class PolicyForm:
    """What a person has filled in about a policy. Empty texts ask for nothing.

    `named` is the name of a named policy, and then the other fields do not count. `tables` has
    lines `DSCP=NAME,...`.
    """

    named: str = ""
    kind: str = "shared"
    paths: str = ""
    tables: str = ""
    services: str = ""
    min_rate: str = ""
    max_rate: str = ""


def owns(who: Who, document: Job | Reservation) -> bool:
    """Whether somebody may change a job or reservation. The controller decides the same again."""
    if who.role == "admin":
        return True
    return who.role == "user" and document["user"] == who.user


def job_actions(job: Job, who: Who) -> list[str]:
    """What somebody may do with a job: `move`, `back`, `end`.

    What a host's job manager has begun ends there, so there is no `end` for it.
    """
    if not owns(who, job):
        return []
    actions = ["move"]
    if job.get("moved"):
        actions.append("back")
    if job["source"] == "order":
        actions.append("end")
    return actions


def jobs_found(state: Documents, search: str = "") -> list[Job]:
    """The jobs that fit a search: those with a problem first, then the newest first.

    A search fits an id, a user, a host, a state or a policy.
    """
    jobs = [job for job in state["jobs"].values() if _fits(job, search)]
    jobs.sort(key=lambda job: (_ORDER.get(job["state"], 2), -job["begin_s"], natural(job["id"])))
    return jobs


def job_row(job: Job, who: Who, now_s: float, *, old: bool = False) -> Row:
    """The row of one job. What is `old` says how it was, and not how it is."""
    state = f"was {job['state']}" if old else job["state"]
    return {
        "id": job["id"],
        "id_href": address("/", job=job["id"]),
        "user": job["user"],
        "hosts": _hosts_text(job["hosts"]),
        "paths": _lanes_text(job),
        "rates": rates_text(job),
        "since": page_time(job["begin_s"]),
        "since_s": job["begin_s"],
        "until": _until_text(job["end_s"], now_s),
        "state": f"{state}: {job['why']}" if job["why"] else state,
        "bad": job["state"] != "installed",
        "actions": " ".join(["details", *job_actions(job, who)]),
    }


def reservation_rows(state: Documents, who: Who, now_s: float, search: str = "") -> list[Row]:
    """The reservations that fit a search, in order of their begin."""
    kept = [each for each in state["reservations"].values() if _fits(each, search)]
    kept.sort(key=lambda each: (each["begin_s"], each["id"]))
    return [
        {
            "id": each["id"],
            "user": each["user"],
            "hosts": _hosts_text(each["hosts"]),
            "paths": policy_text(each),
            "rates": page_rate(each["rate_bps"]) if each["rate_bps"] else rates_text(each),
            "since": page_time(each["begin_s"]),
            "until": _until_text(each["end_s"], now_s),
            "state": "holds its paths now" if each["begin_s"] <= now_s else "to come",
            "actions": "remove" if owns(who, each) else "",
        }
        for each in kept
    ]


def history_rows(jobs: Sequence[EndedJob], search: str = "") -> list[Row]:
    """Jobs that have ended, as the controller lists them (the newest first)."""
    return [
        {
            "key": f"{job['id']} {job['begin_s']}",
            "id": job["id"],
            "user": job["user"],
            "hosts": _hosts_text(job["hosts"]),
            "paths": policy_text(job),
            "since": page_time(job["begin_s"]),
            "until": page_time(job["end_s"]),
            "until_s": job["end_s"],
            "why": job["why"],
        }
        for job in jobs
        if _fits(job, search)
    ]


def policy_rows(state: Documents, who: Who) -> list[Row]:
    """The named policies in order of names."""
    return [
        {
            "id": name,
            "paths": policy_text(policy),
            "rates": rates_text(policy),
            "services": ", ".join(policy["services"]) or "-",
            "actions": "remove" if who.role == "admin" else "",
        }
        for name, policy in sorted(state["policies"].items())
    ]


def right_rows(state: Documents, who: Who) -> list[Row]:
    """The rights of users, those of everybody last."""
    rights = sorted(
        state["rights"].values(),
        key=lambda each: (each["user"] == _EVERYBODY, each["user"]),
    )
    return [
        {
            "id": right["user"],
            "user": "everybody else" if right["user"] == _EVERYBODY else right["user"],
            "policies": ", ".join(kind for kind in KINDS if kind in right["policies"]) or "none",
            "rate": "no limit"
            if right["max_rate_bps"] is None
            else page_rate(right["max_rate_bps"]),
            "hosts": "no limit" if right["max_hosts"] is None else f"{right['max_hosts']:,}",
            "reserve": "yes" if right["reserve"] else "no",
            "actions": "change remove" if who.role == "admin" else "",
        }
        for right in rights
    ]


def route_rows(routes: Sequence[Route]) -> list[Row]:
    """The paths of a job from each of its hosts to the others, as `job_show` lists them."""
    return [
        {
            "key": number,
            "src": route["src"],
            "dst": route["dst"],
            "dscp": "any" if route["dscp"] is None else str(route["dscp"]),
            "way": f"{route['own']} to {route['peer']}",
            "network": network_text(route["network"], route["vlan"]),
            "alive": "works" if route["alive"] else "dead",
        }
        for number, route in enumerate(routes)
    ]


def policy_text(policy: PolicyOf) -> str:
    """A policy's kind with its paths, and its tables of paths, for people."""
    kind, paths = str(policy["policy"]), ", ".join(policy["paths"])
    parts = [f"{kind}: {paths}" if paths else kind]
    parts += [f"DSCP {table['dscp']}: {', '.join(table['paths'])}" for table in policy["tables"]]
    return "; ".join(parts)


def rates_text(policy: PolicyOf) -> str:
    """A policy's rates for people; `-` when it has none."""
    least, most = policy["min_rate_bps"], policy["max_rate_bps"]
    parts = [f"at least {page_rate(least)}"] if least is not None else []
    parts += [f"at most {page_rate(most)}"] if most is not None else []
    return ", ".join(parts) or "-"


# Requests


def order_request(
    name: str,
    hosts: str,
    user: str,
    uid: str,
    until: str,
    *,
    policy: PolicyForm,
    who: Who,
    now_s: float,
    uid_of: Callable[[str], int | None] = lambda user: None,
) -> Json:
    """The `job` of an operation `job_begin`, from what a person has filled in.

    `uid_of` finds the uid of a user of this machine; `uid` is needed for others. A user begins jobs
    of his own alone. Raises BadInput, which begins with the field's name.
    """
    job = _ordered(name, hosts, user, who)
    job["uid"] = _uid(uid, job["user"], uid_of)
    job |= policy_request(policy)
    end_s = time_of_field(until, now_s, "Ends")
    if end_s is not None:
        if end_s <= now_s:
            raise refusal("not_later_than_now", "Ends")
        job["end_s"] = end_s
    return job


def reservation_request(
    name: str,
    hosts: str,
    user: str,
    begin: str,
    until: str,
    rate: str,
    *,
    policy: PolicyForm,
    who: Who,
    now_s: float,
) -> Json:
    """The `reservation` of an operation `reserve_add`, from what a person has filled in.

    Raises BadInput, which begins with the field's name.
    """
    begin_s = now_s if not begin.strip() else time_of_field(begin, now_s, "Begins")
    end_s = time_of_field(until, now_s, "Ends")
    if end_s is None:
        raise refusal("end_missing", "Ends")
    if begin_s is not None and end_s <= max(begin_s, now_s):
        raise refusal("not_later_than_begin", "Ends")
    wanted = _ordered(name, hosts, user, who) | {"begin_s": begin_s, "end_s": end_s}
    wanted |= policy_request(policy)
    rate_bps = rate_of_field(rate, "Rate")
    if rate_bps is not None:
        wanted["rate_bps"] = rate_bps
    return wanted


def policy_request(form: PolicyForm) -> Json:
    """The keys of a request that say which policy. Raises BadInput with the field's name."""
    if form.named:
        return {"named": form.named}
    one_of(form.kind, KINDS, "Policy")
    paths = parse_names(form.paths, "Paths")
    tables = [_table(line) for line in form.tables.splitlines() if line.strip()]
    if form.kind == "paths" and not paths and not tables:
        raise refusal("paths_missing", "Paths")
    result: Json = {
        "policy": form.kind,
        "paths": paths,
        "tables": tables,
        "services": parse_names(form.services, "Services"),
        "min_rate_bps": rate_of_field(form.min_rate, "At least"),
        "max_rate_bps": rate_of_field(form.max_rate, "At most"),
    }
    least, most = result["min_rate_bps"], result["max_rate_bps"]
    if least is not None and most is not None and least > most:
        raise refusal("least_above_most", "At least")
    return {key: value for key, value in result.items() if value not in (None, [])}


def right_request(
    user: str, policies: Collection[str], max_rate: str, max_hosts: str, reserve: bool
) -> Json:
    """The `right` of an operation `rights_set`, from what a person has filled in.

    Raises BadInput, which begins with the field's name.
    """
    user, hosts, rate = user.strip(), max_hosts.strip(), max_rate.strip()
    if not user:
        raise refusal("everybody_missing", "User")
    if hosts and not (hosts.isascii() and hosts.isdigit() and len(hosts) < 9):
        raise refusal("not_whole_or_no_limit", "Most hosts")
    return {
        "user": user,
        "policies": [kind for kind in KINDS if kind in policies],
        "max_rate_bps": 0 if rate == "0" else rate_of_field(rate, "Highest rate"),
        "max_hosts": int(hosts) if hosts else None,
        "reserve": reserve,
    }


def _table(line: str) -> Json:
    found = _DSCP.match("".join(line.split()))
    if not found or int(found[1]) > MAX_DSCP:
        raise refusal("tables_form", "Tables", high=MAX_DSCP)
    return {"dscp": int(found[1]), "paths": parse_names(found[2], "Tables")}


def _ordered(name: str, hosts: str, user: str, who: Who) -> Json:
    """What an order of a job has in common with a reservation.

    A user's own name stands there, whatever the form says.
    """
    if not name.strip():
        raise refusal("missing", "Name")
    wanted: Json = {"id": job_id(name.strip(), "Name"), "hosts": parse_names(hosts, "Hosts")}
    if not wanted["hosts"]:
        raise refusal("hosts_missing", "Hosts")
    own = who.user if who.role == "user" else None
    wanted["user"] = own or user.strip() or who.user
    if not wanted["user"]:
        raise refusal("missing", "User")
    return wanted


def _uid(text: str, user: str, uid_of: Callable[[str], int | None]) -> int:
    text = text.strip()
    if text:
        if not (text.isascii() and text.isdigit() and len(text) < 11):
            raise refusal("not_whole_number", "Uid")
        return int(text)
    uid = uid_of(user)
    if uid is None:
        raise refusal("uid_missing", "Uid", user=ascii(user)[:64])
    return uid


# How things are shown


def _fits(document: Job | Reservation | EndedJob, search: str) -> bool:
    """Whether each word of a search is in the id, user, policy or state, or begins a host."""
    words = search.casefold().split()
    if not words:
        return True
    texts = [str(document.get(key, "")) for key in ("id", "user", "policy", "state", "why")]
    text = " ".join(texts).casefold()
    hosts = [host.casefold() for host in document["hosts"]]
    return all(word in text or any(host.startswith(word) for host in hosts) for word in words)


def _hosts_text(hosts: Sequence[str]) -> str:
    if len(hosts) <= MAX_HOSTS_SHOWN:
        return ", ".join(hosts)
    more = counted(len(hosts) - MAX_HOSTS_SHOWN + 1, "more", "more")
    return f"{', '.join(hosts[: MAX_HOSTS_SHOWN - 1])} and {more}"


def _lanes_text(job: Job) -> str:
    """Which path a job has: its policy, and the lanes that it was given if they are others."""
    text = policy_text(job)
    other = job["lanes"] and sorted(job["lanes"]) != sorted(job["paths"])
    return f"{text} (has {', '.join(job['lanes'])})" if other else text


def _until_text(end_s: float | None, now_s: float) -> str:
    if end_s is None:
        return "until somebody ends it"
    left_s = end_s - now_s
    if left_s <= 0:
        return "is over"
    # Minutes are enough: what changes each second is sent each second.
    left = duration_text(left_s // 60 * 60) if left_s >= 60 else "less than 1 min"
    return f"{page_time(end_s)} (in {left})"
