# SPDX-License-Identifier: Apache-2.0
"""A probe, and what `Wiring` knows of one NIC: its network, and when each direction was heard.

Times are seconds of the caller's clock; -1e9 stands for "never".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ri2n_sdn.fabric.model import NicId

__all__ = ["Direction", "NicState", "Probe"]

Direction: TypeAlias = Literal["tx", "rx"]
"""What a NIC sends, or what it receives."""

_FORGIVEN_S = 0.1
"""A NIC whose silence does not count is taken to have been heard this long ago."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe to send from NIC `sender`; to NIC `target`, or flooded into the network when None."""

    sender: NicId
    target: NicId | None


@dataclass
class NicState:
    """One NIC: `up` when it has carrier, `connected` when its host can be asked."""

    up: bool
    connected: bool
    since_s: float
    """When the NIC was made known."""
    network: int | None = None
    tx_ok: bool = True
    rx_ok: bool = True
    tx_s: float = -1e9
    """When another NIC of its network last received a probe from it."""
    rx_s: float = -1e9
    """When it last received a probe of its network."""
    beacon_s: float = -1e9
    """When it last received a beacon of its network."""
    tx_recovered: int = 0
    """Probes from it that were heard since its sending was taken for dead."""
    rx_recovered: int = 0
    """Probes that it heard since its receiving was taken for dead."""
    conflicts: int = 0
    """Beacons of other networks that it received in a row."""
    conflict_since_s: float = -1e9
    """When it received the first beacon of that row."""
    conflict_s: float = -1e9
    """When it received the last beacon of that row."""
    strange: int = 0
    """Probes of strangers that it received in the second after `strange_since_s`."""
    strange_since_s: float = -1e9
    flooded_s: float = -1e9
    """When it last received more probes of strangers than the limit."""

    @property
    def usable(self) -> bool:
        """The NIC can send and report probes, as far as its carrier and its host tell."""
        return self.up and self.connected

    @property
    def healthy(self) -> bool:
        """The NIC is usable, and no direction of it is dead."""
        return self.usable and self.tx_ok and self.rx_ok

    def join(self, network: int, now_s: float) -> None:
        """The NIC belongs to this network from now on, and both directions are taken to work."""
        self.network = network
        self.tx_ok = self.rx_ok = True
        self.conflicts = 0
        self.tx_s = self.rx_s = self.beacon_s = now_s

    def kill(self, direction: Direction) -> None:
        """The direction is dead until it is heard again."""
        if direction == "tx":
            self.tx_ok, self.tx_recovered = False, 0
        else:
            self.rx_ok, self.rx_recovered = False, 0

    def forgive_probes(self, now_s: float) -> None:
        """Probes that were not heard up to now do not count."""
        self.tx_s = max(self.tx_s, now_s - _FORGIVEN_S)
        self.rx_s = max(self.rx_s, now_s - _FORGIVEN_S)
