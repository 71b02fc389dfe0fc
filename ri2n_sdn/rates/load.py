# SPDX-License-Identifier: Apache-2.0
"""The load that path rates put on links, and the load from which a link counts as full."""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray

__all__ = ["FULL", "link_load"]

FULL = 0.85
"""A link is full when it carries this part of its capacity.

From there on its pairs may want more than they get, and another pair only divides the link further.
"""


def link_load(rate: FloatArray, path_links: IntArray, links: int) -> FloatArray:
    """The load (E,) of each of `links` links: the sum of the rates of the paths that cross it.

    `rate` (...) has the rate of each path. `path_links` (..., L) has the links of each path, padded
    with -1.
    """
    used = path_links >= 0
    weights = np.broadcast_to(rate[..., None], path_links.shape)[used]
    return np.asarray(
        np.bincount(path_links[used], weights=weights, minlength=links), dtype=np.float64
    )
