# SPDX-License-Identifier: Apache-2.0
"""Imports scipy before the weights of a large network need it, so that no round waits for that."""

from __future__ import annotations

import logging
import threading

from ri2n_sdn.weights.split import MAX_DENSE_LINKS

__all__ = ["Solver"]

_LOG = logging.getLogger("ri2n.solver")
# Pairs have sent for this time before a controller of a small cluster imports scipy.
_AFTER_S = 30.0


class Solver:
    """Decides when scipy is imported, in a thread of its own.

    The import takes a third of a second of CPU and 30 MB. With many links, scipy is needed as soon
    as there is traffic. With few links, it is needed only where the usual cuts do not say all that
    limits the pairs, for example after several links have failed. So a controller that has just
    started, perhaps while hosts wait for it, does not spend that time at first: it imports scipy
    when there are many links, or when pairs have sent for a while. A round that needs scipy earlier
    imports it itself.
    """

    def __init__(self) -> None:
        self._active_since_s: float | None = None
        self._thread: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        """Whether the import has begun, so that there is nothing left to decide."""
        return self._thread is not None

    def look(self, now_s: float, *, links: int, active: bool) -> None:
        """Begin the import if it is time for it.

        `links` is the number of links in the cluster, `active` whether any pair sends now.
        """
        if self.begun:
            return
        if active and self._active_since_s is None:
            self._active_since_s = now_s
        sent_s = 0.0 if self._active_since_s is None else now_s - self._active_since_s
        if links > MAX_DENSE_LINKS or sent_s >= _AFTER_S:
            self._thread = threading.Thread(target=_load, name="solver", daemon=True)
            self._thread.start()


def _load() -> None:
    try:
        import scipy.optimize
        import scipy.sparse.linalg  # noqa: F401 - for rates.many_paths and weights.split
    except Exception:
        _LOG.exception("scipy cannot be imported; weights of large networks need it")
