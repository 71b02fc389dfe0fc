"""Pure: which of a server's interfaces a new connection gets; one signature for all rules.

The paper's rule (Paradise, section 3.2.2) is `least_connections`: the fewest established
connections, the lowest number on a tie. Called again for each data connection of a session, with
the ones before it counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["RULES", "InterfaceLoad", "Rule", "least_bytes", "least_connections", "order", "weights"]


@dataclass
class InterfaceLoad:
    """One interface:

    its established connections, bytes that its connections still carry or carried, its weight.
    """

    connections: int = 0
    bytes: int = 0
    weight: float = 1.0


Rule: TypeAlias = Callable[[Sequence[InterfaceLoad]], int]
"""The number of the interface that the next connection gets."""


def least_connections(loads: Sequence[InterfaceLoad]) -> int:
    """The fewest connections."""
    return min(range(len(loads)), key=lambda place: (loads[place].connections, place))


def least_bytes(loads: Sequence[InterfaceLoad]) -> int:
    """The fewest bytes, of equals the fewest connections."""
    return min(
        range(len(loads)), key=lambda place: (loads[place].bytes, loads[place].connections, place)
    )


def weights(loads: Sequence[InterfaceLoad]) -> int:
    """The fewest connections per weight, with the new one.

    Weight 0 gets none while another has any.
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
    """The interfaces of the next `count` connections of one client, each another one while there
    are any.

    The loads are as they are before; they are not changed.
    """
    now = [InterfaceLoad(load.connections, load.bytes, load.weight) for load in loads]
    found: list[int] = []
    while len(found) < count and now:
        free = [place for place in range(len(now)) if found.count(place) == len(found) // len(now)]
        place = free[rule([now[place] for place in free])]
        now[place].connections += 1
        found.append(place)
    return found
