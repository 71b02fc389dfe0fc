# SPDX-License-Identifier: Apache-2.0
"""What a controller's lines must look like, so that nobody else has to ask. Pure.

The web process believes the controller's facts. But a broken or strange line must not become an
exception in the middle of a page: parts and entries that are not as `contract.documents` says are
left out, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from typing_extensions import NotRequired

from ri2n_sdn.contract.documents import Controller, Documents, Name

__all__ = ["EMPTY", "PARTS", "checked"]

Form = Callable[[object], bool]


def _form(of: Any) -> Form:
    """Whether something has a form. Keys that a later controller adds are good."""
    validator = TypeAdapter(of).validator
    return lambda value: validator.isinstance_python(value, strict=True)


def _keys(document: Any) -> dict[str, Any]:
    """The form of each key of a document, whether it must be there or not."""
    hints = get_type_hints(document, include_extras=True)
    return {
        key: get_args(hint)[0] if get_origin(hint) is NotRequired else hint
        for key, hint in hints.items()
    }


_ENTRIES: Mapping[str, Form] = {
    part: _form(get_args(form)[-1] if form is not Controller else Any)
    for part, form in _keys(Documents).items()
}
_FACTS: Mapping[str, Form] = {fact: _form(form) for fact, form in _keys(Controller).items()}
_name = _form(Name)

PARTS = tuple(part for part in _ENTRIES if part != "events")
"""The maps of a state. `events` is a list."""

EMPTY = cast(Documents, {part: {} for part in PARTS if part != "tokens"} | {"events": []})
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
            good: Any = [each for each in entries if _ENTRIES[part](each)]
        elif part in PARTS and isinstance(entries, dict):
            good = {
                key: each
                for key, each in entries.items()
                if _name(key) and (each is None or _form_of(part, key)(each))
            }
        else:
            dropped += 1
            continue
        dropped += len(entries) - len(good)
        found[part] = good
    return found, dropped


def _form_of(part: str, key: str) -> Form:
    """The form of an entry. A later controller may know more facts of itself."""
    return _FACTS.get(key, _ENTRIES[part]) if part == "controller" else _ENTRIES[part]
