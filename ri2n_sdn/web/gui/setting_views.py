# SPDX-License-Identifier: Apache-2.0
"""What the page of settings shows, and what a change of them would do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ri2n_sdn.contract.answers import AuditEntry, Parameter
from ri2n_sdn.contract.choices import ROLES, one_of
from ri2n_sdn.contract.documents import Documents, Event, TokenEntry
from ri2n_sdn.contract.limits import MAX_TOKEN_DAYS
from ri2n_sdn.contract.names import token_name
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import counted, number_text, page_rate, page_time
from ri2n_sdn.contract.wording import fill
from ri2n_sdn.web.gui.words import has_words, rate_of_field, sentence
from ri2n_sdn.web.who import Who

__all__ = [
    "STRATEGIES",
    "audit_entry_rows",
    "audit_rows",
    "consequences",
    "fact_rows",
    "parameter_rows",
    "parameter_value",
    "token_request",
    "token_rows",
]

Row = dict[str, Any]

STRATEGIES = {
    "round_robin": "Each path gets the same share.",
    "ri2n_plus": "Each path gets a share in proportion to the rate of its slower NIC.",
    "ri2n_plus_plus": "As ri2n_plus, and paths to a receiver that several senders share get less.",
    "max_min": "Shares follow the max-min fair rates of all pairs that are active.",
}
"""What each strategy does, in one sentence."""

_RATE = "bit/s"
# What a person has done, by the code of the event that tells of it.
_DONE = {
    "parameter_set_by": "set {parameter} to {value}",
    "job_moved": "moved job {job} of {user}",
    "job_moved_back": "moved job {job} of {user} back",
    "job_ended_by": "ended job {job} of {user}",
}
_NAMED = re.compile(r"{(\w+)}")


def consequences(state: Documents, strategy: str) -> list[str]:
    """What will happen when the strategy is changed, in sentences for the confirmation."""
    controller = state["controller"]
    hosts = sum(1 for host in state["hosts"].values() if host["connected"])
    pairs = int(controller.get("active_pairs") or 0)
    hbspan_s = controller.get("hbspan_s")
    when = f"Within {hbspan_s:g} s" if isinstance(hbspan_s, int | float) else "In the next round"
    sentences = [
        f"The strategy changes from {controller.get('strategy', 'unknown')} to {strategy} for the "
        f"whole cluster ({counted(hosts, 'connected host')}).",
        STRATEGIES.get(strategy, ""),
        f"{when}, the weights of {counted(pairs, 'active pair')} are computed anew. Where they "
        "differ, flows change over to other paths. Connections go on; packets may come out of "
        "order for a moment.",
        "Paths of jobs stay as they are.",
        "The change lasts until the controller starts again. What shall last is in cluster.yaml.",
    ]
    return [sentence for sentence in sentences if sentence]


def parameter_rows(parameters: Sequence[Parameter], who: Who) -> list[Row]:
    """The parameters but for the strategy, with range and default."""
    return [
        {
            "id": each["name"],
            "about": sentence(each["about"])
            + ("" if each["live"] else " It is changed in cluster.yaml alone."),
            "value": _with_unit(each["value"], each),
            "default": _with_unit(each["default"], each),
            "range": _range(each),
            "changed": each["value"] != each["default"],
            "actions": ("change reset" if each["value"] != each["default"] else "change")
            if each["live"] and who.role == "admin"
            else "",
        }
        for each in parameters
        if each["name"] != "strategy"
    ]


def parameter_value(parameter: Parameter, text: str) -> int | float | str:
    """The value that a person has typed. Raises BadInput with the parameter's name."""
    name, kind = parameter["name"], parameter["kind"]
    if kind == "choice":
        if text not in parameter["choices"]:
            raise refusal("not_one_of", name, choices=list(parameter["choices"]))
        return text
    if parameter["unit"] == _RATE and (rate_bps := rate_of_field(text, name)) is not None:
        text = str(rate_bps)
    typed = text.strip().replace(",", "")
    code = "not_whole_within" if kind == "integer" else "not_number_within"
    try:
        value: int | float = int(typed) if kind == "integer" else float(typed)
        low, high = parameter["min"], parameter["max"]
        if low is None or high is None or not low <= value <= high:
            raise ValueError
    except (ValueError, OverflowError):
        raise refusal(code, name, range=_range(parameter)) from None
    return value


def token_rows(
    tokens: Mapping[str, TokenEntry], who: Who, now_s: float, search: str = ""
) -> list[Row]:
    """The tokens in order of names. No hash is among the columns."""
    rows = []
    for name, token in sorted(tokens.items()):
        if not has_words(search, f"{name} {token['role']} {token['user'] or ''}"):
            continue
        expires_s = token["expires_s"]
        over = expires_s is not None and expires_s <= now_s
        rows.append(
            {
                "id": name,
                "role": token["role"],
                "user": token["user"] or "-",
                "expires": "has expired" if over else page_time(expires_s, "never"),
                "own": name == who.name,
                "bad": over,
                "actions": "remove" if who.role == "admin" else "",
            }
        )
    return rows


def token_request(name: str, role: str, user: str, days: str) -> dict[str, Any]:
    """The arguments of an operation `token_add` but for the hash. Raises BadInput."""
    name, user, days = token_name(name.strip(), "Name"), user.strip(), days.strip()
    one_of(role, ROLES, "Role")
    if role == "user" and not user:
        raise refusal("token_user_missing", "User")
    wanted: dict[str, Any] = {"name": name, "role": role}
    if user:
        wanted["user"] = user
    if days:
        if not (days.isascii() and days.isdigit() and 1 <= int(days[:6]) <= MAX_TOKEN_DAYS):
            raise refusal("days_form", "Days", high=MAX_TOKEN_DAYS)
        wanted["days"] = int(days)
    return wanted


def audit_rows(events: Sequence[Event], search: str = "") -> list[Row]:
    """Who changed what, by the events that say so and fit a search, the newest first."""
    rows = []
    for event in reversed(events):
        template = _DONE.get(event.get("code", ""))
        args = {**event.get("args", {}), **event.get("subject", {})}
        if template is None or not {"by", *_NAMED.findall(template)} <= args.keys():
            continue
        row = {
            "key": event["seq"],
            "time": page_time(event["time_s"]),
            "time_s": event["time_s"],
            "who": str(args["by"]),
            "what": fill(template, args),
            "result": "done",
        }
        if has_words(search, f"{row['who']} {row['what']}"):
            rows.append(row)
    return rows


def audit_entry_rows(entries: Sequence[AuditEntry], search: str = "") -> list[Row]:
    """The entries of the controller's audit trail that have all words of a search, newest first."""
    rows = [
        {
            "key": entry["seq"],
            "time": page_time(entry["time_s"]),
            "time_s": entry["time_s"],
            "who": f"{entry['user']} ({entry['role']}, {entry['via']})",
            "what": f"{entry['op']} {entry['what']}".strip(),
            "result": "done" if entry["ok"] else f"refused: {entry['error']}",
            "bad": not entry["ok"],
        }
        for entry in reversed(entries)
    ]
    return [row for row in rows if has_words(search, f"{row['who']} {row['what']} {row['result']}")]


def fact_rows(state: Documents, web_version: str) -> list[Row]:
    """Versions and what else tells one controller from another."""
    controller = state["controller"]
    store = controller.get("store") or {}
    kept = {"none": "nothing is kept", "own": "of its own", "common": "in common with others"}
    facts = {
        "Version of the controller": controller.get("version", "-"),
        "Version of the web process": web_version,
        "Config hash": controller.get("config_hash") or "-",
        "In charge": "no: " + controller["waits_because"]
        if controller.get("waits_because")
        else "yes",
        "Running since": page_time(controller.get("started_s")),
        "Process": controller.get("pid", "-"),
        "Store": kept.get(store.get("kind", ""), "-")
        + (f"; {store['problem']}" if store.get("problem") else ""),
        "Open vSwitch of the hosts": ", ".join(
            sorted({host["ovs"] for host in state["hosts"].values() if host["ovs"]})
        )
        or "-",
    }
    return [{"id": name, "value": str(value)} for name, value in facts.items()]


def _range(parameter: Parameter) -> str:
    if parameter["choices"]:
        return ", ".join(parameter["choices"])
    if parameter["unit"] == _RATE:
        return f"{page_rate(parameter['min'])} to {page_rate(parameter['max'])}"
    text = f"{number_text(parameter['min'])} to {number_text(parameter['max'])}"
    return f"{text} {parameter['unit']}".strip()


def _with_unit(value: object, parameter: Parameter) -> str:
    if parameter["unit"] == _RATE and isinstance(value, int | float):
        return page_rate(value)
    return f"{number_text(value)} {parameter['unit']}".strip()
