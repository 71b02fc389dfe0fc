"""Names that come from a peer, names of unfinished files, and HOST:PATH of a command line
(pure).
"""

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
MAX_COMPONENT_BYTES = 255  # NAME_MAX
MAX_NAME_BYTES = 4096
MAX_DEPTH = 100
TEXT_CHARACTERS = 200


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
    """`HOST[:PORT]:NAME` or `[IPV6][:PORT]:NAME`; None when it is a local path: no colon, or a
    slash before it.

    Digits between two colons are a port: write `host:7000:12:x` for a file `12:x`. BadInput for a
    port out of range.
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
    found = re.fullmatch(r"([0-9]{1,20}):(.*)", rest, flags=re.S)
    if found is not None:
        port, rest = int(found[1]), found[2]
        if not 1 <= port <= 65535:
            raise BadInput(f"{printable(text)}: the port must be from 1 to 65535")
    return Remote(host, port, rest)


def check_name(name: str) -> tuple[str, ...]:
    """The components of a name that is safe to look up step by step below a directory; () is the
    directory itself.

    Refused (code `name`) for absolute names, `..`, NUL, what is too long or too deep, what no file
    system can hold, and the names of unfinished files. A `.` and doubled or trailing slashes are
    dropped.
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
    """Whether this is how unfinished files are called."""
    return component.startswith(".") and component.endswith(PART_SUFFIX)


def part_name(component: str) -> str:
    """Where a file is kept until it is whole:

    `.NAME.ri2n-part`, with a digest in place of a NAME that is too long.
    """
    name = f".{component}{PART_SUFFIX}"
    if len(os.fsencode(name)) <= MAX_COMPONENT_BYTES:
        return name
    return f".{hashlib.blake2b(os.fsencode(component), digest_size=16).hexdigest()}{PART_SUFFIX}"


def join(directory: str, name: str) -> str:
    """`directory/name`; `name` alone below the served directory itself."""
    return f"{directory.rstrip('/')}/{name}" if directory.strip("/") else name


def printable(text: str) -> str:
    """The text fit for a terminal and a line of a log: no control characters, not too long."""
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return (
        shown
        if len(shown) <= TEXT_CHARACTERS
        else f"{shown[: TEXT_CHARACTERS // 2]}...{shown[-40:]}"
    )
