# SPDX-License-Identifier: Apache-2.0
"""Probe frames: they show which NICs share a network and which paths through switches work."""

from __future__ import annotations

import hmac
import secrets
import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

from ri2n_sdn.apps.codec import mac_bytes, tagged, untagged
from ri2n_sdn.apps.counts import Dropped
from ri2n_sdn.fabric.model import UNTAGGED
from ri2n_sdn.pipeline.layout import ETH_RI2N

__all__ = ["Probe", "ProbeCodec", "ProbeKind"]


class ProbeKind(IntEnum):
    """What a probe is for.

    RING goes from NIC to NIC of one network. FLOODED goes from a network's beacon to all NICs. TREE
    goes from NIC to NIC in one VLAN. LEARNING is a step of a test of how a switch learns
    addresses (discovery.vlan_check); it carries the numbers of the test and the step in the places
    of datapath ID and port.
    """

    RING = 0
    FLOODED = 1
    TREE = 2
    LEARNING = 3


@dataclass(frozen=True, slots=True)
class Probe:
    """A received probe: which switch's port sent it, and in which VLAN it was sent and received."""

    kind: ProbeKind
    dpid: int
    port: int
    vlan: int


class ProbeCodec:
    """Encodes and decodes probe frames, which are signed with a key of this run.

    So nobody else's frame can change what is known about the wiring.
    """

    MULTICAST = "03:00:00:52:49:32"
    MAX_AGE_S = 2.0
    MAX_LAG_S = 10.0
    # Magic, version, kind, VLAN ID, datapath ID, port, time in ns.
    _HEAD = struct.Struct("!4sBBHQIQ")
    _MAGIC, _VERSION, _TAG = b"RI2P", 2, 16

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def encode(
        self,
        kind: ProbeKind,
        source_mac: str,
        target_mac: str | None,
        dpid: int,
        port: int,
        now_s: float,
        vlan: int = UNTAGGED,
    ) -> bytes:
        """A frame from the NIC (dpid, port) to `target_mac`; None stands for the probes' multicast.

        It is sent at `now_s`, on the monotonic clock, and has a tag unless `vlan` is UNTAGGED.
        """
        ethernet = (
            mac_bytes(target_mac or self.MULTICAST)
            + mac_bytes(source_mac)
            + struct.pack("!H", ETH_RI2N)
        )
        body = self._HEAD.pack(self._MAGIC, self._VERSION, kind, vlan, dpid, port, int(now_s * 1e9))
        return tagged(ethernet + body + self._tag(body), vlan)

    def age_s(self, frame: bytes, now_s: float) -> float | None:
        """How many seconds ago a probe of this run was sent; None when the frame is not one."""
        body, tag, _ = self._parts(frame)
        if len(tag) < self._TAG or not hmac.compare_digest(tag, self._tag(body)):
            return None
        return now_s - float(self._HEAD.unpack(body)[6]) / 1e9

    def decode(self, frame: bytes, now_s: float, lag_s: float = 0.0) -> Probe:
        """The probe in a frame. Raises Dropped.

        `lag_s` is how late this machine is in reading probes. They may be older by that time, up to
        `MAX_LAG_S`. If late probes were dropped, all of them would be sent again, and this machine
        would be even later in reading them.
        """
        body, tag, received_vlan = self._parts(frame)
        if len(tag) < self._TAG:
            raise Dropped("dropped_probe_truncated")
        magic, version, kind, vlan, dpid, port, sent_ns = self._HEAD.unpack(body)
        if magic != self._MAGIC or version != self._VERSION:
            raise Dropped("dropped_probe_unknown")
        if not hmac.compare_digest(tag, self._tag(body)):
            raise Dropped("dropped_probe_forged")
        if not 0 <= now_s - sent_ns / 1e9 <= self.MAX_AGE_S + min(lag_s, self.MAX_LAG_S):
            raise Dropped("dropped_probe_old")
        if received_vlan != vlan:
            raise Dropped("dropped_probe_in_another_vlan")
        return Probe(ProbeKind(kind), dpid, port, vlan)

    def _parts(self, frame: bytes) -> tuple[bytes, bytes, int]:
        """(body, signature, VLAN ID of the frame's tag)."""
        plain, vlan = untagged(frame)
        end = 14 + self._HEAD.size
        return plain[14:end], plain[end : end + self._TAG], vlan

    def _tag(self, body: bytes) -> bytes:
        return blake2b(body, key=self._key, digest_size=self._TAG).digest()
