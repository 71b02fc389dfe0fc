# SPDX-License-Identifier: Apache-2.0
"""The controller's local protocol: a JSON object a line, requests one way and answers the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ri2n_sdn.contract.refusals import error_of, refusal

__all__ = ["MAX_LINE_BYTES", "SILENT_S", "answer_in", "object_in", "request_line"]

MAX_LINE_BYTES = 64 << 20
"""A reader takes no longer line."""

SILENT_S = 20.0
"""A controller that says nothing for so long has ended: watchers get a sign of life every 5 s."""


def request_line(op: str, arguments: Mapping[str, Any], who: Mapping[str, Any] | None) -> bytes:
    """A request. `who` is for whom it is, on the socket of the web process alone."""
    request = {"op": op, **arguments, **({} if who is None else {"as": dict(who)})}
    return json.dumps(request).encode() + b"\n"


def object_in(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None when the line has none, or is not whole."""
    if not line.endswith(b"\n"):
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):  # json raises ValueError also for bytes that are not UTF-8
        return None
    return document if isinstance(document, dict) else None


def answer_in(line: bytes) -> dict[str, Any]:
    """The answer in a line.

    Raises the controller's own error when it refuses, and NotAvailable (`answer_wrong`) when the
    line is not the answer of a controller.
    """
    answer = object_in(line)
    if answer is None or not isinstance(answer.get("ok"), bool):
        raise refusal("answer_wrong")
    if not answer["ok"]:
        raise error_of(answer)
    return answer
