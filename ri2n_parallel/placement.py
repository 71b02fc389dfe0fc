# SPDX-License-Identifier: Apache-2.0
"""Pure: which of a server's interfaces a new connection gets; all rules have one signature.

The paper's rule (Paradise, section 3.2.2) is `least_connections`: the interface with the fewest
established connections, and of equal ones the first. A rule is called for each data connection of a
session in turn; the connections before it count already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["RULES", "InterfaceLoad", "Rule", "least_bytes", "least_connections", "order", "weights"]


@dataclass
class InterfaceLoad:
    """The load of one interface.

    `connections` are established, `bytes` have been carried by them and by those before, `weight`
    is that of the rule `weights`.
    """

    connections: int = 0
    bytes: int = 0
    weight: float = 1.0


Rule: TypeAlias = Callable[[Sequence[InterfaceLoad]], int]
"""Takes the loads of all interfaces, and returns the place of the one for the next connection."""


def least_connections(loads: Sequence[InterfaceLoad]) -> int:
    """The interface with the fewest connections; of equal ones the first."""
    return min(range(len(loads)), key=lambda place: (loads[place].connections, place))


def least_bytes(loads: Sequence[InterfaceLoad]) -> int:
    """The interface with the fewest bytes; of equal ones the one with the fewest connections."""
    return min(
        range(len(loads)), key=lambda place: (loads[place].bytes, loads[place].connections, place)
    )


def weights(loads: Sequence[InterfaceLoad]) -> int:
    """The interface with the fewest connections per weight, the new one counted.

    An interface of weight 0 gets none as long as another one has a weight.
    """

    def key(place: int) -> tuple[bool, float, int]:
        load = loads[place]
        return (
            load.weight <= 0,
            (load.connections + 1) / load.weight if load.weight > 0 else 0.0,
            place,
        )

    return min(range(len(loads)), key=key)


RULES: dict[str, Rule] = {
    "least_connections": least_connections,
    "least_bytes": least_bytes,
    "weights": weights,
}


def order(rule: Rule, loads: Sequence[InterfaceLoad], count: int) -> list[int]:
    """The places of the interfaces of the next `count` connections of one client.

    No interface is used twice before all are used once, and so on. `loads` is not changed.
    """
    expected = [InterfaceLoad(load.connections, load.bytes, load.weight) for load in loads]
    chosen: list[int] = []
    while len(chosen) < count and expected:
        rounds = len(chosen) // len(expected)
        free = [place for place in range(len(expected)) if chosen.count(place) == rounds]
        place = free[rule([expected[place] for place in free])]
        expected[place].connections += 1
        chosen.append(place)
    return chosen
