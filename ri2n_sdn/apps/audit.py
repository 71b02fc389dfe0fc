# SPDX-License-Identifier: Apache-2.0
"""Who has changed what through the controller's sockets, and who was refused: the audit trail.

It is kept in memory, in bounded lists, and each entry is a line of the log as well, which lasts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ri2n_sdn.contract.answers import AuditEntry, AuditTrail
from ri2n_sdn.contract.operations import AUDIT, OPERATIONS, READING, TOKEN_LIST
from ri2n_sdn.contract.printing import shown

__all__ = ["MAX_DONE", "MAX_REFUSED", "Audit"]

MAX_DONE = 500
"""So many changes are kept, of jobs and reservations and of everything else each."""

MAX_REFUSED = 200
"""So many requests are kept that were refused. They cannot push out what was done."""

_LOG = logging.getLogger("ri2n.audit")
_MAX_WHAT = 200
# These change nothing, or are told by others.
_QUIET = READING | {AUDIT.name, TOKEN_LIST.name}
# The values of these keys say what an operation was about. A token's hash is not among them.
_TOLD = (
    *("name", "value", "id", "user", "role", "days", "owner", "policy", "named", "hosts", "back"),
    *("force", "dry_run"),
)
_INSIDE = ("job", "reservation", "right", "policy")


class Audit:
    """The entries, with the newest of each kind."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` tells the Unix time."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seq = 0
        self._kinds: Mapping[str, deque[AuditEntry]] = {
            "settings": deque(maxlen=MAX_DONE),
            "jobs": deque(maxlen=MAX_DONE),
            "refused": deque(maxlen=MAX_REFUSED),
        }

    def note(
        self,
        user: str,
        role: str,
        via: Literal["cli", "jobs", "web"],
        request: Mapping[str, Any],
        error: str | None = None,
    ) -> None:
        """Note a request that was carried out, or refused because of `error`.

        Reading is no entry, and neither is a dry run, which changes nothing. A dry run that was
        refused is one, with `dry_run=True` in what it is about.
        `via` is the socket: `cli`, `jobs` or `web`.
        """
        op = request.get("op")
        if not isinstance(op, str) or op in _QUIET:
            return
        if error is None and request.get("dry_run") is True:
            return
        with self._lock:
            self._seq += 1
            entry: AuditEntry = {
                "seq": self._seq,
                "time_s": self._clock(),
                "user": user,
                "role": role,
                "via": via,
                "op": op[:40] if op.isprintable() else shown(op),
                "what": _what(request),
                "ok": error is None,
                "error": error,
            }
            own = op in OPERATIONS and OPERATIONS[op].needs == "user"
            kind = "refused" if error is not None else "jobs" if own else "settings"
            self._kinds[kind].append(entry)
        # Anybody may be refused as often as they like, and must not fill the log.
        level = logging.INFO if error is None else logging.DEBUG
        told = (user, role, via, entry["op"], entry["what"], error or "done")
        _LOG.log(level, "audit: %s (%s, %s) %s %s: %s", *told)

    def document(self) -> AuditTrail:
        """All entries that are kept, the oldest first."""
        with self._lock:
            entries = [entry for kind in self._kinds.values() for entry in kind]
        return {"entries": sorted(entries, key=lambda entry: entry["seq"])}


def _what(request: Mapping[str, Any]) -> str:
    """What a request is about, in one short line: `name=hysteresis value=0.2`."""
    parts = []
    for key, value in request.items():
        if key in _INSIDE and isinstance(value, Mapping):
            parts += [f"{each}={_short(value[each])}" for each in _TOLD if each in value]
        elif key in _TOLD:
            parts.append(f"{key}={_short(value)}")
    text = " ".join(parts)
    return text if len(text) <= _MAX_WHAT else f"{text[: _MAX_WHAT - 3]}..."


def _short(value: object) -> str:
    if isinstance(value, list):
        return ",".join(_short(each) for each in value[:8]) + ",..." * (len(value) > 8)
    if value is None or isinstance(value, bool | float):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a large number"
    if isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value:
        return value[:64]
    return shown(value)
