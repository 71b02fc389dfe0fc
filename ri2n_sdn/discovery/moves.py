# SPDX-License-Identifier: Apache-2.0
"""Tells when it is proven that a NIC was plugged into another network.

`Wiring` lets a NIC join another network at the first sign, so that traffic goes on. Such a sign is
also a probe that was lost or late, as at a start under load. A sentence about a wrong cable needs
more: for a span in which several floods of each network come, the NIC hears its new network, and
neither does it hear the former one nor is it heard there, although that one is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ri2n_sdn.discovery.nic_state import NicState
from ri2n_sdn.fabric.model import NicId

__all__ = ["Moves", "evidence_of"]


class Moves:
    """The NICs that may have moved.

    A NIC that has missed the first floods founds a network that nobody else is in, and leaves it
    when it hears a flood. So a founder has not moved, unless another NIC was in its network, too.
    """

    def __init__(self) -> None:
        """Nobody has moved."""
        self._founders: set[NicId] = set()
        # The former network of a NIC, and when the NIC left that.
        self._moving: dict[NicId, tuple[int, float]] = {}

    def founded(self, nic: NicId) -> None:
        """The NIC has founded a network, in which nobody else is known to be."""
        self._founders.add(nic)

    def met(self, nic: NicId) -> None:
        """Another NIC is in the NIC's network."""
        self._founders.discard(nic)

    def left(self, nic: NicId, former: int, network: int, now_s: float) -> None:
        """The NIC leaves a network for another one, at the first sign."""
        if nic in self._founders:
            self._founders.discard(nic)
            return
        earliest, _ = self._moving.pop(nic, (former, now_s))
        if earliest != network:
            self._moving[nic] = earliest, now_s

    def contact(self, nic: NicId, network: int | None) -> None:
        """The NIC and one of that network have heard each other."""
        if nic in self._moving and self._moving[nic][0] == network:
            del self._moving[nic]

    def merged(self, *networks: int) -> None:
        """These are one network, so nobody has moved from one of them to another."""
        for nic, (former, _) in list(self._moving.items()):
            if former in networks:
                del self._moving[nic]

    def gone(self, nic: NicId) -> None:
        """The NIC is not there any more."""
        self._founders.discard(nic)
        self._moving.pop(nic, None)

    def proven(
        self,
        now_s: float,
        span_s: float,
        heard_s: Callable[[NicId], float],
        alive_s: Callable[[int], float],
    ) -> Iterator[tuple[NicId, int]]:
        """(NIC, its former network) of each NIC for which it is proven now; each comes once.

        * `heard_s(nic)` is when the NIC last heard its new network, -1e9 when it has none.
        * `alive_s(network)` is up to when it is known that a network's floods were sent, -1e9 when
          nobody is left who would flood it.

        A NIC for which it is not proven after three spans is forgotten.
        """
        for nic, (former, since_s) in list(self._moving.items()):
            enough_s = since_s + span_s / 2
            if now_s - since_s < span_s:
                continue
            if heard_s(nic) > enough_s and alive_s(former) > enough_s:
                del self._moving[nic]
                yield nic, former
            elif now_s - since_s > 3 * span_s:
                del self._moving[nic]


def evidence_of(
    nics: Mapping[NicId, NicState], answered_s: Callable[[str], float], span_s: float
) -> tuple[Callable[[NicId], float], Callable[[int], float]]:
    """The functions `heard_s` and `alive_s` of `Moves.proven`.

    Floods of a network were sent when others in it have heard them. Where a single NIC is left,
    nobody hears it. Then it counts, a span later, that its host has done what it was asked.
    """

    def heard_s(nic: NicId) -> float:
        state = nics[nic]
        return -1e9 if state.network is None else max(state.beacon_s, state.rx_s)

    def alive_s(network: int) -> float:
        left = [nic for nic, state in nics.items() if state.network == network and state.usable]
        if len(left) == 1:
            return answered_s(left[0][0]) - span_s
        return max((nics[nic].beacon_s for nic in left), default=-1e9)

    return heard_s, alive_s
