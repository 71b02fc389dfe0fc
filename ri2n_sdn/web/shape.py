# SPDX-License-Identifier: Apache-2.0
"""What a controller's lines must look like, so that nobody else has to ask. Pure.

The web process believes the controller's facts. But a broken or strange line must not become an
exception in the middle of a page: parts and entries of another form are left out, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ri2n_sdn.contract.choices import KINDS, ROLES, SOURCES
from ri2n_sdn.contract.limits import MAX_TIME_S
from ri2n_sdn.contract.said import SEVERITIES

__all__ = ["EMPTY", "PARTS", "checked"]

MAX_NAME, MAX_TEXT = 512, 16_384
"""A name has so many characters at most, and any other text."""

Form = Callable[[object], bool]
_SURROGATE = re.compile("[\ud800-\udfff]")

PARTS = (
    *("controller", "hosts", "networks", "cables", "switches", "rates", "helpers", "counters"),
    *("bytes", "activity", "outages", "lengths", "openflow"),
    *("problems", "jobs", "reservations", "rights", "policies", "tokens"),
)
"""The maps of a state. `events` is a list."""

EMPTY: Mapping[str, Any] = {part: {} for part in PARTS if part != "tokens"} | {"events": []}
"""The state before anything is known. Its maps are never changed."""


def checked(document: object) -> tuple[dict[str, Any], int]:
    """The good part of a state or of a change, and how many entries were left out.

    Each part is there only if `document` has it. None, which removes a key, is good everywhere.
    """
    if not isinstance(document, dict):
        return {}, 1
    found: dict[str, Any] = {}
    dropped = 0
    for part, entries in document.items():
        if part == "events" and isinstance(entries, list):
            good: Any = [each for each in entries if _event(each)]
        elif part in PARTS and isinstance(entries, dict):
            fits = _fact if part == "controller" else _of_entry(_FORMS.get(part, _map))
            good = {key: each for key, each in entries.items() if _name(key) and fits(key, each)}
        else:
            dropped += 1
            continue
        dropped += len(entries) - len(good)
        found[part] = good
    return found, dropped


def _of_entry(form: Form) -> Callable[[str, object], bool]:
    """Whether an entry has a form, whatever its key."""
    return lambda key, value: value is None or form(value)


def _fact(key: str, value: object) -> bool:
    """Whether a fact about the controller has the form of its key. A later one may have more."""
    return value is None or _FACTS.get(key, _anything)(value)


def _number(value: object) -> bool:
    # Every JSON number that is not finite, and integers that do not fit into one, are none.
    return type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]


def _whole(value: object) -> bool:
    return type(value) is int and abs(value) < 1 << 63


def _time(value: object) -> bool:
    return _number(value) and 0 <= value <= MAX_TIME_S  # type: ignore[operator]


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and _encodable(value)


def _name(value: str) -> bool:
    return len(value) <= MAX_NAME and _encodable(value)


def _encodable(value: str) -> bool:
    """Whether a text can be sent on. One half of a pair of surrogates can be in JSON alone."""
    return value.isascii() or not _SURROGATE.search(value)


def _map(value: object) -> bool:
    return isinstance(value, dict)


def _anything(value: object) -> bool:
    return True


def _or_none(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(_text(each) for each in value)


def _list(form: Form, count: int | None = None) -> Form:
    """The form of a list of so many values of one form."""
    return lambda value: (
        isinstance(value, list)
        and (count is None or len(value) == count)
        and all(form(each) for each in value)
    )


def _record(**forms: Form) -> Form:
    """The form of a map that has these keys, and perhaps others."""

    def fits(value: object) -> bool:
        return isinstance(value, dict) and all(
            key in value and form(value[key]) for key, form in forms.items()
        )

    return fits


_kind: Form = KINDS.__contains__

_nic = _record(
    port=_whole,
    mac=_text,
    network=_or_none(_text),
    switch=_or_none(_text),
    speed_bps=_or_none(_whole),
    up=_or_none(_flag),
    alive=_or_none(_flag),
)
_host = _record(
    dpid=_text,
    mac=_text,
    address=_or_none(_text),
    connected=_flag,
    ovs=_text,
    datapath=_or_none(_text),
    helper=_or_none(_record(running=_flag, reports=_flag)),
    nics=_map,
)
_event_form = _record(seq=_whole, time_s=_time, text=_text)
_problem = _record(
    severity=lambda value: value in ("bad", "warning"), text=_text, advice=_text, rank=_whole
)
_policy: Mapping[str, Form] = {
    "policy": _kind,
    "paths": _texts,
    "tables": _list(_record(dscp=_whole, paths=_texts)),
    "services": _texts,
    "min_rate_bps": _or_none(_whole),
    "max_rate_bps": _or_none(_whole),
}
_job = _record(
    id=_text,
    user=_text,
    uid=_whole,
    hosts=_texts,
    begin_s=_time,
    end_s=_or_none(_time),
    source=SOURCES.__contains__,
    state=_text,
    why=_text,
    failed=lambda value: (
        isinstance(value, dict) and all(_name(key) and _text(each) for key, each in value.items())
    ),
    moved=_or_none(
        _record(by=_text, at_s=_time, declared=_or_none(_record(**_policy))),
    ),
    lanes=_texts,
    **_policy,
)
_reservation = _record(
    id=_text,
    user=_text,
    hosts=_texts,
    begin_s=_time,
    end_s=_time,
    rate_bps=_or_none(_whole),
    **_policy,
)
_right = _record(
    user=_text,
    policies=_list(_kind),
    max_rate_bps=_or_none(_whole),
    max_hosts=_or_none(_whole),
    reserve=_flag,
)
_cable = _record(
    ends=_list(_text, 2),
    ports=_list(lambda value: value is None or _whole(value) or _text(value), 2),
    rate_bps=_number,
    alive=_flag,
    vlans=_list(_whole),
)


def _event(value: object) -> bool:
    return _event_form(value) and _said(value)


def _said(value: Any) -> bool:
    """Whether what is said has the form of its code; an earlier controller gives none."""
    return all(key not in value or form(value[key]) for key, form in _SAID.items())


def _argument(value: object) -> bool:
    """Whether a sentence can be made of it: a text, a number, or a list of them."""
    each = value if isinstance(value, list) else [value]
    return all(_text(one) or _number(one) or isinstance(one, bool) for one in each)


_SAID: Mapping[str, Form] = {
    "code": _text,
    "severity": lambda value: isinstance(value, str) and value in SEVERITIES,
    "subject": lambda value: isinstance(value, dict) and all(map(_text, (*value, *value.values()))),
    "args": lambda value: (
        isinstance(value, dict) and all(map(_name, value)) and all(map(_argument, value.values()))
    ),
    "advice": _text,
}


def _whole_host(value: object) -> bool:
    if not (isinstance(value, dict) and _host(value)):
        return False
    # An earlier controller has no such key.
    ends_s = value.get("certificate_ends_s")
    return _or_none(_time)(ends_s) and all(
        _name(name) and _nic(nic) for name, nic in value["nics"].items()
    )


_pair = _list(_number, 2)


def _rates(value: object) -> bool:
    return isinstance(value, dict) and all(
        _name(nic) and _pair(pair) for nic, pair in value.items()
    )


def _counts(value: object) -> bool:
    return isinstance(value, dict) and all(
        _name(key) and _number(each) for key, each in value.items()
    )


def _digest(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and len(value) == 64


def _length(value: object) -> bool:
    return _histogram(value) and len(value["counts"]) == len(value["bounds_s"]) + 1  # type: ignore[index]


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(_number(each) for each in value)


def _maps_of_counts(value: object) -> bool:
    return isinstance(value, dict) and all(
        _name(key) and _counts(each) for key, each in value.items()
    )


_histogram = _record(bounds_s=_numbers, counts=_numbers, sum_s=_number)
_activity = _record(active_pairs=_number, reweights=_number, slots_moved=_number, slots=_counts)
_token = _record(
    hash=_digest, role=lambda role: role in ROLES, user=_or_none(_text), expires_s=_or_none(_number)
)

_FACTS: Mapping[str, Form] = {
    "in_charge": _flag,
    "waits_because": _text,
    "settled": _flag,
    "strategy": _text,
    "parameters": lambda value: (
        isinstance(value, dict)
        and all(_name(key) and (_number(each) or _text(each)) for key, each in value.items())
    ),
    "hbspan_s": _number,
    "cycle_s": _number,
    "started_s": _time,
    "active_pairs": _whole,
    "pid": _whole,
    "version": _text,
    "config_hash": _text,
    "store": _record(kind=_text, active=_flag, epoch=_whole, problem=_or_none(_text)),
}

_FORMS: Mapping[str, Form] = {
    "hosts": _whole_host,
    "networks": _record(nics=_texts, switches=_texts),
    "cables": _cable,
    "switches": _record(network=_or_none(_text)),
    "rates": _rates,
    "bytes": _rates,
    "activity": _activity,
    "outages": _maps_of_counts,
    "lengths": _length,
    "openflow": _counts,
    "helpers": _counts,
    "counters": _whole,
    "problems": lambda value: _problem(value) and _said(value),
    "jobs": _job,
    "reservations": _reservation,
    "rights": _right,
    "policies": _record(name=_text, **_policy),
    "tokens": _token,
}
