# SPDX-License-Identifier: Apache-2.0
"""What the server's own addresses carry, and which of them the next data connections get.

The server chooses the interface of every data connection (Paradise, section 3.2.2; placement.py has
the rules).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ri2n_parallel.link import Link
from ri2n_parallel.placement import RULES, InterfaceLoad, order

__all__ = ["AddressLoads"]


class AddressLoads:
    """The loads of the server's addresses; the listener's lock is held in every call.

    `placement` is the name of a rule in RULES, `weights` are by address (1 where there is none).
    """

    def __init__(self, placement: str, weights: Mapping[str, float]) -> None:
        self._rule, self._weights = RULES[placement], dict(weights)
        self._loads: dict[str, InterfaceLoad] = {}

    @property
    def connections(self) -> dict[str, int]:
        """Data connections by own address: those that are established, and those reserved."""
        return {address: load.connections for address, load in self._loads.items()}

    def reserve(self, addresses: Sequence[str], count: int, links: Iterable[Link]) -> list[str]:
        """The addresses of the next `count` connections, which are reserved for them.

        The rule chooses among `addresses`. `links` are all that exist now: their bytes count too.
        """
        current_bytes = Counter[str]()
        for link in links:
            current_bytes[_host(link.local)] += link.sent_bytes + link.received_bytes
        loads = []
        for address in addresses:
            load = self._load(address)
            total_bytes = load.bytes + current_bytes[address]
            loads.append(InterfaceLoad(load.connections, total_bytes, load.weight))
        chosen = [addresses[place] for place in order(self._rule, loads, count)]
        for address in chosen:
            self._load(address).connections += 1
        return chosen

    def release(self, addresses: Iterable[str]) -> None:
        """Give up one reserved connection for each of these addresses."""
        for address in addresses:
            self._load(address).connections -= 1

    def link_joined(self, link: Link) -> None:
        """Count a link that has joined its session."""
        self._load(_host(link.local)).connections += 1

    def link_left(self, link: Link) -> None:
        """Count a link no longer, and keep how many bytes it carried."""
        load = self._load(_host(link.local))
        load.connections -= 1
        load.bytes += link.sent_bytes + link.received_bytes

    def _load(self, address: str) -> InterfaceLoad:
        return self._loads.setdefault(
            address, InterfaceLoad(weight=self._weights.get(address, 1.0))
        )


def _host(name: str) -> str:
    """The address in what `place_name` made."""
    return name.rsplit(":", 1)[0].strip("[]")
