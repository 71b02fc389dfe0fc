# SPDX-License-Identifier: Apache-2.0
"""The numbers of the helper links between pairs of hosts with helpers.

They are the same in both directions. A helper link keeps its number as long as it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ri2n_sdn.fabric.model import Fabric, HelperLinkNumbers, PathKey

__all__ = ["MAX_HELPER_LINKS", "MAX_PORT", "number_helper_links", "number_pair"]

MAX_HELPER_LINKS = 64
"""The largest number of helper links of a pair: a helper stores a set of them in 64 bits."""

MAX_PORT = 62
"""The highest port number of a NIC whose paths become helper links."""


def number_helper_links(fabric: Fabric, before: HelperLinkNumbers) -> HelperLinkNumbers:
    """The numbers for all pairs of hosts with a helper. `before` has the numbers so far."""
    names = sorted(name for name, host in fabric.hosts.items() if host.helper)
    result: dict[tuple[str, str], Mapping[PathKey, int]] = {}
    for place, low in enumerate(names):
        for high in names[place + 1 :]:
            paths = [path.key for path in fabric.paths(low, high)]
            if paths:
                result[low, high] = number_pair(paths, before.get((low, high), {}))
    return result


def number_pair(paths: Iterable[PathKey], before: Mapping[PathKey, int]) -> dict[PathKey, int]:
    """The numbers for the paths of one pair, in the order of the numbers.

    Paths in `before` keep their numbers. New paths get the lowest free numbers, in order. Paths
    beyond the 64th, and paths with a port above MAX_PORT, get no number.
    """
    wanted = sorted(path for path in paths if max(path[:2]) <= MAX_PORT)
    kept = {path: before[path] for path in wanted if path in before}
    free = iter(sorted(set(range(MAX_HELPER_LINKS)) - set(kept.values())))
    new = zip((path for path in wanted if path not in kept), free, strict=False)
    return dict(sorted({**kept, **dict(new)}.items(), key=lambda item: item[1]))
