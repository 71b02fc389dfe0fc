# SPDX-License-Identifier: Apache-2.0
"""Recorded traffic matrices (CSV or JSON lines), and lists of pairs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.model import PairKey
from ri2n_sdn.fabric.yamlfile import read_text
from ri2n_sdn.rates.arrays import FloatArray, IntArray

__all__ = ["PairList", "TrafficMatrix", "read_matrix", "read_pairs", "write_matrix"]

KEYS = ("sender", "receiver", "bytes")
HEADER = ",".join(KEYS)
INTERVAL = re.compile(r"#\s*interval_s\s*=\s*(\S+)\s*")


@dataclass(frozen=True, eq=False)
class TrafficMatrix:
    """What each of P directed pairs sent."""

    pairs: tuple[PairKey, ...]
    """P (sender, receiver), each pair once."""
    sent_bytes: IntArray
    """(P,)"""
    interval_s: float | None = None
    """Over how many seconds it was recorded; None when that is not known."""

    @property
    def sent_bits(self) -> FloatArray:
        """(P,) what they sent, in bits."""
        return self.sent_bytes.astype(np.float64) * 8.0


@dataclass(frozen=True, eq=False)
class PairList:
    """P directed pairs, each once, and the rates that they want."""

    pairs: tuple[PairKey, ...]
    rate_bps: FloatArray
    """(P,); inf: as much as the pair can get."""
    relative: bool = False
    """The rates are only ratios, since they are bytes without an interval."""


def read_matrix(path: Path, hosts: Collection[str] | None = None) -> TrafficMatrix:
    """Read a recorded matrix: CSV with the header `sender,receiver,bytes`, or JSON lines.

    JSON lines have these three keys. Empty lines and everything after a `#` are skipped, but a line
    `# interval_s=SECONDS` says how long was recorded. When `hosts` is given, there must be no
    others. BadInput, with file and line, for everything else: other columns or keys, unknown hosts,
    a pair that is there twice, a host paired with itself, bytes that are no whole number from 0 on.
    """
    return _matrix(path, read_text(path).splitlines(), hosts)


def read_pairs(path: Path, hosts: Collection[str] | None = None) -> PairList:
    """Read lines `sender receiver [rate_bps]`, or a recorded matrix (`read_matrix`).

    The first line tells which of the two it is. A pair without a rate wants as much as it can get.
    BadInput as in `read_matrix`.
    """
    lines = read_text(path).splitlines()
    first = next((text for _, text in _content(lines)), "")
    if first.startswith("{") or "," in first:
        matrix = _matrix(path, lines, hosts)
        relative = matrix.interval_s is None
        return PairList(matrix.pairs, matrix.sent_bits / (matrix.interval_s or 1.0), relative)
    rate_of: dict[PairKey, float] = {}
    line_of: dict[PairKey, int] = {}
    for number, text in _content(lines):
        where = f"{path}:{number}"
        words = text.split()
        if len(words) not in (2, 3):
            raise BadInput(f"{where}: must be `sender receiver [rate_bps]`, has {len(words)} words")
        pair = _pair(where, words[0], words[1], hosts, line_of, number)
        rate_of[pair] = math.inf
        if len(words) == 3:
            rate_of[pair] = _number(words[2])
            if not 0.0 <= rate_of[pair] < math.inf:
                raise _wrong(where, "rate_bps", "a number from 0 on", words[2])
    if not rate_of:
        raise BadInput(f"{path}: has no pairs")
    return PairList(tuple(rate_of), np.array(list(rate_of.values()), dtype=np.float64))


def write_matrix(path: Path, matrix: TrafficMatrix) -> None:
    """Write the matrix as CSV, as `read_matrix` reads it; BadInput when that cannot be done."""
    lines = [] if matrix.interval_s is None else [f"# interval_s={matrix.interval_s:g}"]
    lines.append(HEADER)
    counts = matrix.sent_bytes.tolist()
    lines += [f"{s},{r},{sent}" for (s, r), sent in zip(matrix.pairs, counts, strict=True)]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _content(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(Line number, text) of each line that is more than a comment."""
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if text:
            yield number, text


def _matrix(path: Path, lines: list[str], hosts: Collection[str] | None) -> TrafficMatrix:
    interval_s = None
    for number, line in enumerate(lines, start=1):
        match = INTERVAL.fullmatch(line.strip())
        if match:
            if interval_s is not None:
                raise BadInput(f"{path}:{number}: interval_s is there twice")
            interval_s = _number(match[1])
            if not 0.0 < interval_s < math.inf:
                raise _wrong(f"{path}:{number}", "interval_s", "a number above 0", match[1])
    content = list(_content(lines))
    if not content:
        raise BadInput(f"{path}: is empty; the first line must be {HEADER}")
    as_json = content[0][1].startswith("{")
    if not as_json:
        number, text = content.pop(0)
        if [word.strip() for word in text.split(",")] != list(KEYS):
            raise BadInput(f"{path}:{number}: the first line must be {HEADER}, is {text[:60]!r}")
    sent_bytes: dict[PairKey, int] = {}
    line_of: dict[PairKey, int] = {}
    for number, text in content:
        where = f"{path}:{number}"
        sender, receiver, sent = _from_json(where, text) if as_json else _from_csv(where, text)
        if not 0 <= sent < 2**63:
            raise BadInput(f"{where}: bytes: must be a whole number from 0 to {2**63 - 1}")
        sent_bytes[_pair(where, sender, receiver, hosts, line_of, number)] = sent
    return TrafficMatrix(
        tuple(sent_bytes), np.array(list(sent_bytes.values()), dtype=np.int64), interval_s
    )


def _from_csv(where: str, text: str) -> tuple[str, str, int]:
    words = [word.strip() for word in text.split(",")]
    if len(words) != 3:
        raise BadInput(f"{where}: must have 3 columns ({HEADER}), has {len(words)}")
    if not (words[2].isascii() and words[2].isdigit()):
        raise _wrong(where, "bytes", "a whole number from 0 on", words[2])
    return words[0], words[1], int(words[2]) if len(words[2]) < 20 else 2**63


def _from_json(where: str, text: str) -> tuple[str, str, int]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{where}: is not JSON") from None
    if not isinstance(data, dict):
        raise BadInput(f"{where}: must be an object with the keys {', '.join(KEYS)}")
    for key in data:
        if key not in KEYS:
            raise BadInput(f"{where}: {key[:40]}: unknown key")
    for key in KEYS:
        if key not in data:
            raise BadInput(f"{where}: {key}: is missing")
    for key in KEYS[:2]:
        if not isinstance(data[key], str):
            raise BadInput(f"{where}: {key}: must be a host's name")
    if not isinstance(data["bytes"], int) or isinstance(data["bytes"], bool):
        raise _wrong(where, "bytes", "a whole number from 0 on", str(data["bytes"]))
    return data["sender"], data["receiver"], data["bytes"]


def _wrong(where: str, key: str, wanted: str, text: str) -> BadInput:
    return BadInput(f"{where}: {key}: must be {wanted}, is {text[:40]!r}")


def _number(text: str) -> float:
    """The number; nan when it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _pair(
    where: str,
    sender: str,
    receiver: str,
    hosts: Collection[str] | None,
    line_of: dict[PairKey, int],
    number: int,
) -> PairKey:
    """The pair, which is entered in `line_of`; BadInput when it is not allowed."""
    for key, host in (("sender", sender), ("receiver", receiver)):
        if not host:
            raise BadInput(f"{where}: {key}: is empty")
        if hosts is not None and host not in hosts:
            raise BadInput(f"{where}: {key}: no host {host[:40]!r}")
    if sender == receiver:
        raise BadInput(f"{where}: {sender} is both sender and receiver")
    if (sender, receiver) in line_of:
        raise BadInput(
            f"{where}: pair {sender} {receiver} is in line {line_of[sender, receiver]} already"
        )
    line_of[sender, receiver] = number
    return sender, receiver
