"""How a sentence is made of a template and its arguments. Sentences are for people alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Args", "Subject", "fill"]

Args = Mapping[str, Any]
"""What a template needs, by name: JSON values, so that programs read them without the sentence."""

Subject = Mapping[str, str]
"""What something is about, by kind: `{"host": "n1"}`, `{"host": "n1", "nic": "eth0"}`,
`{"job": "17"}`, `{"user": "alice"}`. Empty where it is about the whole cluster."""


def fill(template: str, args: Args) -> str:
    """The sentence that a template of `str.format` makes of its arguments; lists joined by commas.

    Raises KeyError when an argument of the template is missing.
    """
    shown = {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        for name, value in args.items()
    }
    return template.format_map(shown)
