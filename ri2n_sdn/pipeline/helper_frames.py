# SPDX-License-Identifier: Apache-2.0
"""Frames between the controller and a helper: write control frames, read reports.

They are types 4 and 5 of docs/wire-format.md. Each function returns or takes a whole Ethernet
frame, without the tag (VLAN ID 4094) that it has on the wire port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from ri2n_sdn.fabric.helper_links import MAX_HELPER_LINKS, MAX_PORT
from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.layout import ETH_STRIPED

__all__ = [
    "CONTROLLER_MAC",
    "HELPER_MAC",
    "MAX_CHANNEL",
    "NO_LIMIT",
    "WHOLE_WEIGHT_PPM",
    "HelperChannel",
    "HelperLink",
    "HelperNic",
    "Mode",
    "Report",
    "ReportEntry",
    "channels",
    "decode_report",
    "gone",
    "peer",
    "this_host",
]

NO_LIMIT = 0xFFFFFFFF
"""A rate in kbit/s that means "no limit". It is the highest number, so it compares correctly."""

WHOLE_WEIGHT_PPM = 1_000_000

CONTROLLER_MAC = "02:52:49:32:4e:01"
HELPER_MAC = "02:52:49:32:4e:02"

MAX_CHANNEL = 63
"""The highest number of a job's channel to a peer; the lowest is 1."""

_MAX_CHANNELS_IN_FRAME = 48
_MAX_ENTRIES = 36
_MIN_FRAME = 60
_NAME_BYTES = 16
_HEAD_OF_ALL = Struct("!6s6sHBBI")
_HEAD_OF_CONTROL = Struct("!BBI6s")
_HEAD_OF_REPORT = Struct("!BxI6sI")
_NIC = Struct("!BBxxI16s")
_LINK = Struct("!BBBBIII4x")
_CHANNEL = Struct("!B3xIQIII")
_ENTRY = Struct("!6sBB8I")
_CONTROL = 0x34
_REPORT = 0x35
_CHECKSUM = slice(16, 20)
_MACS = 12
_THIS_HOST, _PEER, _GONE, _CHANNELS = 1, 2, 3, 4
_HEARD, _USABLE, _STRIPING = 1, 2, 4
_STRIPE, _BESIDE = 1, 2


class Mode(IntEnum):
    """How a helper sends: at granted rates, or by the weights of a strategy."""

    PACED = 0
    ROUND_ROBIN = 1
    RI2N_PLUS = 2
    RI2N_PLUS_PLUS = 3

    @classmethod
    def of_strategy(cls, name: str) -> Mode:
        """The mode for the name of a weight strategy. `max_min` is the strategy with rates."""
        return cls.PACED if name == "max_min" else cls[name.upper()]


@dataclass(frozen=True, slots=True)
class HelperNic:
    """A NIC of the helper's own host. `port` is its number at the bridge, 1..62."""

    port: int
    up: bool
    rate_kbps: int
    name: str

    def encode(self) -> bytes:
        """The entry on the wire. A name is cut to 16 bytes at most, between two characters.

        Raises ValueError for a port number that does not fit.
        """
        name = self.name.encode()[:_NAME_BYTES].decode(errors="ignore").encode()
        return _NIC.pack(_port(self.port), self.up, _kbps(self.rate_kbps), name)


@dataclass(frozen=True, slots=True)
class HelperLink:
    """A helper link to a peer, between a NIC of the helper's host and a NIC of the peer.

    The helper begins with `rate_kbps` and never exceeds `limit_kbps`.
    """

    number: int
    own_port: int
    peer_port: int
    alive: bool
    rate_kbps: int
    limit_kbps: int
    weight_ppm: int

    def encode(self) -> bytes:
        """The entry on the wire; ValueError for a number, port or weight that does not fit."""
        if not 0 <= self.weight_ppm <= WHOLE_WEIGHT_PPM:
            raise ValueError(
                f"link {self.number}: the weight must be 0..{WHOLE_WEIGHT_PPM} ppm, "
                f"is {self.weight_ppm} ppm"
            )
        return _LINK.pack(
            _link(self.number),
            _port(self.own_port),
            _port(self.peer_port),
            self.alive,
            _kbps(self.rate_kbps),
            _kbps(self.limit_kbps),
            self.weight_ppm,
        )


@dataclass(frozen=True, slots=True)
class HelperChannel:
    """The channel of a job between a helper's host and a peer.

    The helpers at both ends are told the same `number` (1..63) and the same `tag` (32 bits), which
    names the job in the whole cluster. `links` are the numbers of the helper links that the
    channel's frames to the peer may use. The channel never sends more than `max_kbps` (`NO_LIMIT`
    if there is no such limit), and has `min_kbps` before others share the rest. The helper sets
    `min_in_kbps` aside for the channel's frames from the peer. Rates are kbit/s of frames as the
    host sees them.
    """

    number: int
    tag: int
    links: frozenset[int]
    max_kbps: int = NO_LIMIT
    min_kbps: int = 0
    min_in_kbps: int = 0

    def encode(self) -> bytes:
        """The entry on the wire; ValueError for values that a helper would refuse."""
        if not 1 <= self.number <= MAX_CHANNEL:
            raise ValueError(f"channel {self.number}: the number must be 1..{MAX_CHANNEL}")
        if not 0 <= self.tag <= 0xFFFFFFFF:
            raise ValueError(f"channel {self.number}: the tag {self.tag} does not fit 32 bits")
        if not self.links:
            raise ValueError(f"channel {self.number}: there must be a link that it may use")
        maximum, minimum = _kbps(self.max_kbps), _kbps(self.min_kbps)
        if maximum == 0 or minimum > maximum:
            raise ValueError(
                f"channel {self.number}: the guaranteed rate of {minimum} kbit/s must not exceed "
                f"the highest rate of {maximum} kbit/s, which must not be 0"
            )
        if NO_LIMIT in (minimum, _kbps(self.min_in_kbps)):
            raise ValueError(f"channel {self.number}: a guaranteed rate must be finite")
        return _CHANNEL.pack(
            self.number, self.tag, _mask(self.links), maximum, minimum, _kbps(self.min_in_kbps)
        )


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """The state of one helper link to a peer.

    Numbers of frames are counted since the helper began, and wrap round at 2**32.
    """

    peer: str
    link: int
    heard: bool
    usable: bool
    striping: bool
    sent: int
    received: int
    lost: int
    repeated: int
    skew_us: int
    rtt_us: int
    rate_kbps: int
    demand_kbps: int
    """The rate that would be sent to the peer; `NO_LIMIT` means more than is granted."""


@dataclass(frozen=True, slots=True)
class Report:
    """A helper's report, or a part of one. All parts of a report have the same time.

    `time_ms` is the time since the helper began. The helper refuses control frames of a generation
    that is lower than `generation`.
    """

    time_ms: int
    mac: str
    generation: int
    entries: tuple[ReportEntry, ...]


def this_host(generation: int, mac: str, mode: Mode, nics: Sequence[HelperNic]) -> bytes:
    """The frame that tells a helper its host's own MAC, how to send, and its NICs.

    Raises ValueError for values that do not fit, and for two NICs with the same port.
    """
    if len({nic.port for nic in nics}) < len(nics):
        raise ValueError(f"{mac}: two NICs have the same port in {nics}")
    entries = [nic.encode() for nic in nics]
    return _control(_THIS_HOST, generation, mac, bytes([mode, 0, 0, 0]), entries)


def peer(
    generation: int, mac: str, stripe: bool, links: Sequence[HelperLink], beside: bool = False
) -> bytes:
    """The frame that tells a helper the helper links to the peer with the address `mac`.

    `stripe` says whether to stripe over them. `beside`: the peer puts TCP in order that comes
    without a header, so programs may stripe it beside the bridge. Raises ValueError for values that
    do not fit, and for two links with the same number.
    """
    if len({link.number for link in links}) < len(links):
        raise ValueError(f"{mac}: two links have the same number in {links}")
    entries = [link.encode() for link in sorted(links, key=lambda link: link.number)]
    flags = stripe * _STRIPE | beside * _BESIDE
    return _control(_PEER, generation, mac, bytes([flags, 0, 0, 0]), entries)


def gone(generation: int, mac: str) -> bytes:
    """The frame that tells a helper that the peer with the address `mac` is gone."""
    return _control(_GONE, generation, mac, b"", [])


def channels(
    generation: int,
    mac: str,
    wanted: Sequence[HelperChannel],
    common: frozenset[int] | None = None,
) -> tuple[bytes, ...]:
    """The frames that tell a helper all its channels to the peer with the address `mac`.

    Channels that are not in `wanted` do not exist any more. `common` are the numbers of the helper
    links that frames of no job may use; None means all. There is one frame for up to 48 entries,
    and two for more. The helper must know the peer already. Raises ValueError for values that do
    not fit, and for two channels with the same number.
    """
    if len({channel.number for channel in wanted}) < len(wanted):
        raise ValueError(f"{mac}: two channels have the same number in {wanted}")
    if common is not None and not common:
        raise ValueError(f"{mac}: there must be a link that frames of no job may use")
    entries = {channel.number: channel.encode() for channel in wanted}
    if common is not None:
        entries[0] = _CHANNEL.pack(0, 0, _mask(common), NO_LIMIT, 0, 0)
    numbers = sorted(entries)
    first, rest = numbers[:_MAX_CHANNELS_IN_FRAME], numbers[_MAX_CHANNELS_IN_FRAME:]
    parts = [(0, MAX_CHANNEL, first)]
    if rest:
        parts = [(0, first[-1], first), (first[-1] + 1, MAX_CHANNEL, rest)]
    frames = []
    for low, high, part in parts:
        of_part = [entries[number] for number in part]
        frames.append(_control(_CHANNELS, generation, mac, bytes([low, high, 0, 0]), of_part))
    return tuple(frames)


def decode_report(frame: bytes) -> Report:
    """Read a report. Raises ValueError, which says what is wrong with the frame."""
    if len(frame) < _MIN_FRAME:
        raise ValueError(f"report: {len(frame)} bytes are too few")
    _, _, ethertype, version_and_type, flags, checksum = _HEAD_OF_ALL.unpack_from(frame)
    if (ethertype, version_and_type, flags) != (ETH_STRIPED, _REPORT, 0):
        raise ValueError(
            f"not a report: EtherType {ethertype:#06x}, version and type {version_and_type:#04x}, "
            f"{flags=}"
        )
    if checksum != _checksum(frame):
        raise ValueError(f"report: the checksum {checksum:#010x} does not fit its bytes")
    count, time_ms, mac, generation = _HEAD_OF_REPORT.unpack_from(frame, _HEAD_OF_ALL.size)
    start = _HEAD_OF_ALL.size + _HEAD_OF_REPORT.size
    end = start + count * _ENTRY.size
    if count > _MAX_ENTRIES or len(frame) < end or len(frame) > max(end, _MIN_FRAME):
        raise ValueError(f"report: {count} entries do not fit a frame of {len(frame)} bytes")
    return Report(time_ms, _host_text(mac), generation, tuple(_entries(frame[start:end])))


def _entries(raw: bytes) -> Iterator[ReportEntry]:
    for peer_mac, link, flags, *numbers in _ENTRY.iter_unpack(raw):
        if flags & ~(_HEARD | _USABLE | _STRIPING):
            raise ValueError(f"report: a link has the unknown flags {flags:#04x}")
        heard, usable, striping = (bool(flags & bit) for bit in (_HEARD, _USABLE, _STRIPING))
        yield ReportEntry(_host_text(peer_mac), _link(link), heard, usable, striping, *numbers)


def _control(
    kind: int, generation: int, mac: str, parameters: bytes, entries: Sequence[bytes]
) -> bytes:
    head = _HEAD_OF_ALL.pack(
        _mac_bytes(HELPER_MAC), _mac_bytes(CONTROLLER_MAC), ETH_STRIPED, _CONTROL, 0, 0
    )
    raw = _mac_bytes(mac)
    _host_text(raw)
    about = _HEAD_OF_CONTROL.pack(kind, len(entries), generation & 0xFFFFFFFF, raw)
    frame = b"".join((head, about, parameters, *entries)).ljust(_MIN_FRAME, b"\0")
    return frame[: _CHECKSUM.start] + _checksum(frame).to_bytes(4, "big") + frame[_CHECKSUM.stop :]


def _checksum(frame: bytes) -> int:
    """CRC32C of the frame without its addresses and without the checksum itself."""
    return crc32c(frame[_MACS : _CHECKSUM.start] + frame[_CHECKSUM.stop :])


def _mac_bytes(mac: str) -> bytes:
    raw = bytes.fromhex(mac.replace(":", ""))
    if len(raw) != 6:
        raise ValueError(f"{mac!r} is not a MAC address")
    return raw


def _host_text(raw: bytes) -> str:
    """A MAC address that a host can have, as text."""
    if raw[0] & 1 or not any(raw):
        raise ValueError(f"{raw.hex(':')} cannot be the MAC address of a host")
    return raw.hex(":")


def _port(number: int) -> int:
    if not 1 <= number <= MAX_PORT:
        raise ValueError(f"port {number}: the port of a NIC must be 1..{MAX_PORT}")
    return number


def _link(number: int) -> int:
    if not 0 <= number < MAX_HELPER_LINKS:
        raise ValueError(f"link {number}: the number of a link must be 0..{MAX_HELPER_LINKS - 1}")
    return number


def _mask(links: frozenset[int]) -> int:
    return sum(1 << _link(link) for link in links)


def _kbps(rate: int) -> int:
    """The rate as it fits the field. A rate that is too high for it becomes `NO_LIMIT`."""
    return min(max(rate, 0), NO_LIMIT)
