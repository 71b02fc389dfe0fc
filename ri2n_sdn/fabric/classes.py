"""Classes of traffic that stay with one link per flow, also between hosts whose helpers run."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROTOCOLS", "TrafficClass"]

PROTOCOLS = {"tcp": (6,), "udp": (17,), "icmp": (1, 58)}
"""IP protocol numbers by name; ICMP is that of IPv4 and of IPv6."""


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """IP packets of `proto` (a name of PROTOCOLS), from or to `port`, marked `dscp` (0..63); None:

    any.
    """

    proto: str | None = None
    port: int | None = None
    dscp: int | None = None

    def has(self, protocol: int, source_port: int, target_port: int) -> bool:
        """Whether an unmarked packet of this IP protocol number and these ports belongs to it."""
        return (
            self.dscp in (None, 0)
            and (self.proto is None or protocol in PROTOCOLS[self.proto])
            and self.port in (None, source_port, target_port)
        )
