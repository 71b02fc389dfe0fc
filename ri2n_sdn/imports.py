# SPDX-License-Identifier: Apache-2.0
"""Imports without the work of the garbage collector, which finds nothing among them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["imports_that_stay"]


@contextmanager
def imports_that_stay() -> Iterator[None]:
    """Import modules within this: what they make stays until the process ends.

    The collector looks at all objects again and again while more and more are made, which is a
    tenth of the time of a large import. Here it rests meanwhile. Afterwards it leaves alone what
    there is, so that its later passes, which hold up all threads, are shorter.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
