# SPDX-License-Identifier: Apache-2.0
"""From when, and until when, certificates are valid."""

from __future__ import annotations

import base64
import re
import ssl
import struct
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

__all__ = ["certificate_times", "first_end_s", "peer_end_s"]


def first_end_s(*paths: Path | None) -> float | None:
    """The Unix time at which the first of all certificates in these PEM files ends.

    A path may be None. The result is None when there is no certificate that can be read.
    """
    ends = []
    for path in paths:
        try:
            if path is not None:
                ends.append(certificate_times(path)[1].timestamp())
        except (OSError, ValueError):
            continue
    return min(ends, default=None)


def peer_end_s(certificate: Mapping[str, Any]) -> float | None:
    """The Unix time, 0 at least, at which the certificate of a TLS peer ends.

    `certificate` is what `ssl.SSLSocket.getpeercert` returns. The result is None when it does not
    say that in a way that can be read.
    """
    try:
        return float(max(0, ssl.cert_time_to_seconds(certificate["notAfter"])))
    except (KeyError, TypeError, ValueError):
        return None


def certificate_times(path: Path) -> tuple[datetime, datetime]:
    """From when, and until when, all certificates of a PEM file are valid.

    Raises OSError when it cannot be read, ValueError when there is no certificate in it.
    """
    blocks = re.findall(
        r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----",
        path.read_text(encoding="ascii", errors="replace"),
        re.S,
    )
    if not blocks:
        raise ValueError("there is no certificate in it")
    times = [_validity(base64.b64decode("".join(block.split()))) for block in blocks]
    return max(begin for begin, _ in times), min(end for _, end in times)


def _validity(data: bytes) -> tuple[datetime, datetime]:
    """The two times of a certificate (RFC 5280, section 4.1).

    A certificate is SEQUENCE { tbs, ...}, and tbs is SEQUENCE { [0] version, serial number,
    algorithm, issuer, SEQUENCE { notBefore, notAfter }, ... }, where the version may be missing.
    """
    try:
        tbs = _parts(_parts(data)[0][1])[0][1]
        parts = _parts(tbs)
        if parts[0][0] == 0xA0:
            parts = parts[1:]
        begin, end = _parts(parts[3][1])[:2]
        return _time(*begin), _time(*end)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise ValueError("its certificate cannot be read") from None


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """The (tag, content) of what stands one after the other in DER."""
    found, at = [], 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise IndexError
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == 0x17:  # UTCTime: two digits of the year, from 1950 to 2049
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
