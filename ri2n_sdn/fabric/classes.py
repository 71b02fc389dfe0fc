# SPDX-License-Identifier: Apache-2.0
"""Classes of traffic that keep one link per flow, also between hosts whose helpers run."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROTOCOLS", "TrafficClass"]

PROTOCOLS = {"tcp": (6,), "udp": (17,), "icmp": (1, 58)}
"""The IP protocol numbers by name. ICMP has the numbers for IPv4 and for IPv6."""


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """IP packets of one protocol, from or to one port, with one DSCP mark.

    `proto` is a name of PROTOCOLS, `dscp` is 0..63. None stands for any value.
    """

    proto: str | None = None
    port: int | None = None
    dscp: int | None = None

    def has(self, protocol: int, source_port: int, target_port: int) -> bool:
        """Whether an unmarked packet of this IP protocol number and these ports is in the class."""
        return (
            self.dscp in (None, 0)
            and (self.proto is None or protocol in PROTOCOLS[self.proto])
            and self.port in (None, source_port, target_port)
        )
