# SPDX-License-Identifier: Apache-2.0
"""The errors that a user can cause or cure. A user sees one clear line, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BadInput", "NotAvailable", "Ri2nError"]


class Ri2nError(Exception):
    """The base of all errors that are shown to a user as one line.

    The line is for people. Programs read the other fields, which `contract/refusals.py` explains:
    `code` (empty for an error that never leaves its process), `kind`, `key`, `subject`, `values`,
    and `what`, the line without the key that it begins with. The command line exits with 2, and
    REST answers with the status of the kind.
    """

    kind = "bad_input"

    def __init__(
        self,
        text: str = "",
        *,
        code: str = "",
        kind: str | None = None,
        key: str | None = None,
        subject: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        what: str | None = None,
    ) -> None:
        super().__init__(text)
        self.code, self.key, self.what = code, key, text if what is None else what
        self.kind = self.kind if kind is None else kind
        self.subject: Mapping[str, str] = subject or {}
        self.values: Mapping[str, Any] = values or {}


class BadInput(Ri2nError):
    """A file, key or argument is wrong. The text names it: `FILE: path.of.key: what is wrong`."""


class NotAvailable(Ri2nError):
    """Something that is needed is missing: root, a program, a port, a controller.

    The text says what to do.
    """

    kind = "unavailable"
