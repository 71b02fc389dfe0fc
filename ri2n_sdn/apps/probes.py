"""Probe frames:

by them the controller learns which NICs share a network and which ways through switches work.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

from ri2n_sdn.apps.codec import mac_bytes, tagged, untagged
from ri2n_sdn.fabric.model import UNTAGGED
from ri2n_sdn.pipeline.layout import ETH_RI2N

__all__ = ["Probe", "ProbeCodec", "ProbeKind"]


class ProbeKind(IntEnum):
    """What a probe asks: from NIC to NIC on one switch, from a network's beacon to all, from NIC to
    NIC in one VLAN.

    LEARNING is a step of discovery.vlan_check's test of how a switch learns: its numbers stand for
    test and step.
    """

    RING = 0
    FLOODED = 1
    TREE = 2
    LEARNING = 3


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe that came in:

    the switch and port that sent it, and the VLAN that it was sent and came in with.
    """

    kind: ProbeKind
    dpid: int
    port: int
    vlan: int


class ProbeCodec:
    """Probe frames, signed with a key of this run, so that nobody else's frame changes what is
    known of the wiring.
    """

    MULTICAST = "03:00:00:52:49:32"
    MAX_AGE_S = 2.0
    MAX_LAG_S = 10.0
    _HEAD = struct.Struct("!4sBBHQIQ")  # magic, version, kind, VLAN, dpid, port, time in ns
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
        """A frame from NIC (dpid, port), to `target_mac` or flooded (None), with a tag unless
        `vlan` is UNTAGGED.
        """
        ethernet = (
            mac_bytes(target_mac or self.MULTICAST)
            + mac_bytes(source_mac)
            + struct.pack("!H", ETH_RI2N)
        )
        body = self._HEAD.pack(self._MAGIC, self._VERSION, kind, vlan, dpid, port, int(now_s * 1e9))
        return tagged(ethernet + body + self._tag(body), vlan)

    def age_s(self, frame: bytes, now_s: float) -> float | None:
        """How long ago one of our own probes was sent; None when it is not one."""
        body, tag, _ = self._parts(frame)
        if len(tag) < self._TAG or not hmac.compare_digest(tag, self._tag(body)):
            return None
        return now_s - float(self._HEAD.unpack(body)[6]) / 1e9

    def decode(self, frame: bytes, now_s: float, lag_s: float = 0.0) -> Probe:
        """The probe in a frame; raises ValueError with the name of a drop counter.

        `lag_s` is how far this machine is behind with reading probes: they may be older by that, up
        to `MAX_LAG_S`. If it dropped what it comes to late, it would have them all sent again, and
        come to those later still.
        """
        body, tag, came_with = self._parts(frame)
        if len(tag) < self._TAG:
            raise ValueError("probe_truncated")
        magic, version, kind, vlan, dpid, port, sent_ns = self._HEAD.unpack(body)
        if magic != self._MAGIC or version != self._VERSION:
            raise ValueError("probe_unknown")
        if not hmac.compare_digest(tag, self._tag(body)):
            raise ValueError("probe_forged")
        if not 0 <= now_s - sent_ns / 1e9 <= self.MAX_AGE_S + min(lag_s, self.MAX_LAG_S):
            raise ValueError("probe_old")
        if came_with != vlan:
            raise ValueError("probe_in_another_vlan")
        return Probe(ProbeKind(kind), dpid, port, vlan)

    def _parts(self, frame: bytes) -> tuple[bytes, bytes, int]:
        """(body, signature, VLAN ID of the frame's tag)."""
        plain, vlan = untagged(frame)
        end = 14 + self._HEAD.size
        return plain[14:end], plain[end : end + self._TAG], vlan

    def _tag(self, body: bytes) -> bytes:
        return blake2b(body, key=self._key, digest_size=self._TAG).digest()
