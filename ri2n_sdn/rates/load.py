"""What rates over paths add up to on their links, and from when a link counts as full."""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray

__all__ = ["FULL", "link_load"]

FULL = 0.85
"""Of a link's capacity:

from here on its pairs may want more than they get, and more of them only divide it further.
"""


def link_load(rate: FloatArray, path_links: IntArray, links: int) -> FloatArray:
    """(E,) the sum of path rates `rate` (...) on each of `links` links.

    `path_links` (..., L) is padded with -1.
    """
    used = path_links >= 0
    weights = np.broadcast_to(rate[..., None], path_links.shape)[used]
    return np.asarray(
        np.bincount(path_links[used], weights=weights, minlength=links), dtype=np.float64
    )
