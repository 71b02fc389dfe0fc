"""What a controller's lines must look like, so that nobody else has to ask. Pure.

The web process believes the controller's facts. But a broken or strange line must not become an
exception in the middle of a page: parts and entries of another form are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ri2n_sdn.web.who import ROLES

__all__ = ["EMPTY", "PARTS", "checked"]

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
            good = {
                key: each for key, each in entries.items() if each is None or _form(part, key)(each)
            }
        else:
            dropped += 1
            continue
        dropped += len(entries) - len(good)
        found[part] = good
    return found, dropped


def _form(part: str, key: object) -> Callable[[object], bool]:
    """The form of an entry of a part."""
    if part == "controller":
        return _OF_CONTROLLER.get(str(key), _anything)
    return _FORMS.get(part, _map)


def _number(value: object) -> bool:
    # Every JSON number that is not finite, and integers that do not fit into one, are none.
    return type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]


def _text(value: object) -> bool:
    return isinstance(value, str)


def _map(value: object) -> bool:
    return isinstance(value, dict)


def _anything(value: object) -> bool:
    return True


def _or_none(form: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or form(value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _record(**forms: Callable[[object], bool]) -> Callable[[object], bool]:
    """The form of a map that has these keys, and perhaps others."""

    def fits(value: object) -> bool:
        return isinstance(value, dict) and all(
            key in value and form(value[key]) for key, form in forms.items()
        )

    return fits


_nic = _record(
    port=_number,
    mac=_text,
    network=_or_none(_text),
    switch=_or_none(_text),
    speed_bps=_or_none(_number),
    up=_or_none(_flag),
    alive=_or_none(_flag),
)
_host = _record(mac=_text, address=_or_none(_text), connected=_flag, nics=_map)
_helper = _record(running=_flag, reports=_flag)
_event_form = _record(seq=_number, time_s=_number, text=_text)


def _event(value: object) -> bool:
    return _event_form(value)


def _whole_host(value: object) -> bool:
    return (
        _host(value)
        and _or_none(_helper)(value.get("helper"))  # type: ignore[attr-defined]
        and all(_nic(nic) for nic in value["nics"].values())  # type: ignore[index]
    )


def _rates(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(pair, list) and len(pair) == 2 and all(_number(rate) for rate in pair)
        for pair in value.values()
    )


def _counts(value: object) -> bool:
    return isinstance(value, dict) and all(_number(each) for each in value.values())


def _digest(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and len(value) == 64


def _length(value: object) -> bool:
    return _histogram(value) and len(value["counts"]) == len(value["bounds_s"]) + 1  # type: ignore[index]


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(_number(each) for each in value)


def _maps_of_counts(value: object) -> bool:
    return isinstance(value, dict) and all(_counts(each) for each in value.values())


_histogram = _record(bounds_s=_numbers, counts=_numbers, sum_s=_number)
_activity = _record(active_pairs=_number, reweights=_number, slots_moved=_number, slots=_counts)
_token = _record(
    hash=_digest, role=lambda role: role in ROLES, user=_or_none(_text), expires_s=_or_none(_number)
)

# Of the controller, each key has a form of its own; the other ones may be anything.
_OF_CONTROLLER: Mapping[str, Callable[[object], bool]] = {"store": _map, "parameters": _map}

_FORMS: Mapping[str, Callable[[object], bool]] = {
    "hosts": _whole_host,
    "networks": _record(nics=_texts, switches=_texts),
    "cables": _record(ends=_texts, alive=_flag, vlans=_numbers, rate_bps=_number),
    "rates": _rates,
    "bytes": _rates,
    "activity": _activity,
    "outages": _maps_of_counts,
    "lengths": _length,
    "openflow": _counts,
    "helpers": _counts,
    "counters": _number,
    "problems": _record(severity=_text, text=_text, advice=_text, rank=_number),
    "jobs": _record(id=_text, user=_text, hosts=_texts, policy=_text, state=_text),
    "reservations": _record(id=_text, user=_text, hosts=_texts, begin_s=_number, end_s=_number),
    "rights": _record(user=_text, policies=_texts),
    "policies": _record(name=_text, policy=_text),
    "tokens": _token,
}
