# SPDX-License-Identifier: Apache-2.0
"""The hash of the examples of the wire format, which the helper and its readers share."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

__all__ = ["vectors"]

VECTORS = Path(__file__).parents[2] / "reorder" / "tests" / "vectors.json"


def vectors() -> str:
    """The SHA-256 of the vectors of the wire format, and how many there are of each kind."""
    content = VECTORS.read_bytes()
    kinds = json.loads(content)
    counted = [f"{name}: {len(each)}\n" for name, each in kinds.items() if isinstance(each, list)]
    return f"sha256 {hashlib.sha256(content).hexdigest()}\n" + "".join(counted)
