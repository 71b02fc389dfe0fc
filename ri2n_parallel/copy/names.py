# SPDX-License-Identifier: Apache-2.0
"""Pure: names that come from a peer, names of unfinished files, and HOST:NAME on command lines."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass

from ri2n_parallel.copy.messages import Refused
from ri2n_parallel.errors import BadInput

__all__ = [
    "DEFAULT_PORT",
    "Remote",
    "check_name",
    "is_part_name",
    "join",
    "parse_remote",
    "part_name",
    "printable",
]

DEFAULT_PORT = 7000
PART_SUFFIX = ".ri2n-part"
MAX_COMPONENT_BYTES = 255
"""The longest name of one file or directory in Linux (NAME_MAX)."""
MAX_NAME_BYTES = 4096
MAX_DEPTH = 100
"""Directories in one name."""
MAX_SHOWN_CHARACTERS = 200
"""A longer text is shortened where it is shown."""


@dataclass(frozen=True)
class Remote:
    """A place on a server: its host and port, and a name below the directory that it serves."""

    host: str
    port: int
    name: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_remote(text: str) -> Remote | None:
    """The place that `HOST[:PORT]:NAME` or `[IPV6][:PORT]:NAME` names; None for a local path.

    A path is local when it has no colon, or a slash before the first one. Digits between two colons
    are a port: write `host:7000:12:x` for a file `12:x`. BadInput when the host is missing, or for
    a port out of range.
    """
    bracketed = re.fullmatch(r"\[([^\]]*)\]:(.*)", text, flags=re.S)
    if bracketed is not None:
        host, rest = bracketed.groups()
    else:
        host, colon, rest = text.partition(":")
        if not colon or "/" in host:
            return None
    if not host:
        raise BadInput(
            f"{printable(text)}: the host is missing before the colon; write ./NAME for a local "
            "file"
        )
    port = DEFAULT_PORT
    with_port = re.fullmatch(r"([0-9]{1,20}):(.*)", rest, flags=re.S)
    if with_port is not None:
        port, rest = int(with_port[1]), with_port[2]
        if not 1 <= port <= 65535:
            raise BadInput(f"{printable(text)}: the port must be from 1 to 65535")
    return Remote(host, port, rest)


def check_name(name: str) -> tuple[str, ...]:
    """The components of a name; each may be looked up below the one before it.

    An empty tuple is the served directory itself. A `.` and doubled or trailing slashes are
    dropped. Refused `name` for absolute names, `..`, NUL, a name that is too long or too deep or
    that no file system can hold, and for the names of unfinished files.
    """
    shown = printable(name)
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        raise Refused("name", f"{shown}: is no name of a file") from None
    if b"\0" in encoded:
        raise Refused("name", f"{shown}: has a NUL in it")
    if name.startswith("/"):
        raise Refused("name", f"{shown}: must be relative to the directory that is served")
    if len(encoded) > MAX_NAME_BYTES:
        raise Refused("name", f"{shown}: is longer than {MAX_NAME_BYTES} bytes")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    for part in parts:
        if part == "..":
            raise Refused("name", f"{shown}: must not contain `..`")
        if len(os.fsencode(part)) > MAX_COMPONENT_BYTES:
            raise Refused("name", f"{shown}: has a part longer than {MAX_COMPONENT_BYTES} bytes")
        if is_part_name(part):
            raise Refused("name", f"{shown}: is the name of an unfinished copy")
    if len(parts) > MAX_DEPTH:
        raise Refused("name", f"{shown}: is deeper than {MAX_DEPTH} directories")
    return parts


def is_part_name(component: str) -> bool:
    """Whether this is a name of an unfinished file."""
    return component.startswith(".") and component.endswith(PART_SUFFIX)


def part_name(component: str) -> str:
    """The name that a file has until it is whole: `.NAME.ri2n-part`.

    A NAME that is too long for that is replaced by its digest.
    """
    name = f".{component}{PART_SUFFIX}"
    if len(os.fsencode(name)) <= MAX_COMPONENT_BYTES:
        return name
    return f".{hashlib.blake2b(os.fsencode(component), digest_size=16).hexdigest()}{PART_SUFFIX}"


def join(directory: str, name: str) -> str:
    """`directory/name`, or `name` alone in the served directory itself."""
    return f"{directory.rstrip('/')}/{name}" if directory.strip("/") else name


def printable(text: str) -> str:
    """The text as it may be shown on a terminal or in a log: one line, not too long.

    Characters that cannot be printed become `?`; a long text is cut in the middle.
    """
    shown = "".join(character if character.isprintable() else "?" for character in text)
    if len(shown) <= MAX_SHOWN_CHARACTERS:
        return shown
    return f"{shown[: MAX_SHOWN_CHARACTERS // 2]}...{shown[-40:]}"
