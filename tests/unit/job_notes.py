# SPDX-License-Identifier: Apache-2.0
"""The other side of notes about jobs: what hosts write, and how they read answers."""

from __future__ import annotations

import json

from ri2n_sdn.jobs.declaration import Answer, Declaration, write_order

__all__ = ["declaration_note", "read_answer"]


def declaration_note(declaration: Declaration) -> bytes:
    """The note of a declaration, without padding: an order's keys, and the class in its place."""
    document = json.loads(write_order(declaration.job))
    del document["order"]
    return json.dumps({**document, "class": declaration.number}, separators=(",", ":")).encode()


def read_answer(note: bytes) -> Answer:
    """The answer in the note of a row of table 247."""
    return Answer(**json.loads(note.rstrip(b"\0")))
