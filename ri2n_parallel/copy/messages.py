# SPDX-License-Identifier: Apache-2.0
"""Pure: the messages of the copy protocol as plain data; encode them, and decode them strictly.

A message is four bytes of length (big endian) and one JSON object of at most MAX_MESSAGE_BYTES.
Unknown keys, missing keys, wrong types and numbers out of range are errors. docs/parallel-copy.md
has the whole conversation.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from ri2n_parallel.errors import UserError

__all__ = [
    "CODES",
    "HEADER_BYTES",
    "KINDS",
    "MAX_MESSAGE_BYTES",
    "VERSION",
    "Block",
    "Done",
    "End",
    "Entries",
    "Failed",
    "Get",
    "Got",
    "Have",
    "Hello",
    "List",
    "Message",
    "MkDir",
    "Next",
    "Offer",
    "Ok",
    "PeerRefused",
    "ProtocolViolation",
    "Put",
    "Refused",
    "Stat",
    "Status",
    "Stop",
    "Touch",
    "Wait",
    "Welcome",
    "decode",
    "encode",
    "length_of",
    "pages",
]

VERSION = 2
HEADER = struct.Struct("!I")
HEADER_BYTES = HEADER.size
MAX_MESSAGE_BYTES = 64 << 10
PAGE_BYTES = 48 << 10
MAX_SIZE_BYTES = (1 << 63) - 1
MAX_NAME_CHARACTERS = 4096
MAX_TEXT_CHARACTERS = 2000
DIGEST_BYTES = 32
MAX_DIGESTS = 64
KINDS = ("none", "file", "directory", "other")
CODES = (
    "busy",
    "version",
    "protocol",
    "name",
    "missing",
    "permission",
    "read_only",
    "kind",
    "space",
    "changed",
    "checksum",
    "io",
)
"""Why something is refused; each has a counter in the server."""


class Refused(UserError):
    """The peer, or this end, will not do what was asked.

    `code` is one of CODES, the text is one line.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class PeerRefused(Refused):
    """The peer has refused: it has sent Failed."""


class ProtocolViolation(Refused):
    """The peer has sent what is not this protocol; the conversation ends."""

    def __init__(self, text: str) -> None:
        super().__init__("protocol", text)


Check: TypeAlias = Callable[[Any], Any]
"""Takes a value from JSON and returns what the message holds; ValueError for a wrong one."""


def _number(low: int, high: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"must be a number from {low} to {high}")
        return value

    return check


def _text(max_characters: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or len(value) > max_characters:
            raise ValueError(f"must be a text of at most {max_characters} characters")
        return value

    return check


def _hex(size_bytes: int) -> Check:
    def check(value: Any) -> str:
        if (
            not isinstance(value, str)
            or len(value) != 2 * size_bytes
            or set(value) - set("0123456789abcdef")
        ):
            raise ValueError(f"must be {2 * size_bytes} digits 0-9, a-f")
        return value

    return check


def _one_of(choices: tuple[str, ...]) -> Check:
    def check(value: Any) -> str:
        if value not in choices or not isinstance(value, str):
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return check


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _many(check: Check, max_items: int) -> Check:
    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) > max_items:
            raise ValueError(f"must be a list of at most {max_items}")
        return tuple(check(item) for item in value)

    return checked


def _entry(value: Any) -> tuple[str, str, int]:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError("must be [name, kind, size]")
    return _NAME(value[0]), _KIND(value[1]), _SIZE(value[2])


_NAME, _KIND, _SIZE = _text(MAX_NAME_CHARACTERS), _one_of(KINDS), _number(0, MAX_SIZE_BYTES)
_INDEX = _number(0, MAX_SIZE_BYTES)
_MODE, _MTIME = _number(0, 0o777), _number(-MAX_SIZE_BYTES, MAX_SIZE_BYTES)


def _as(check: Check) -> Any:
    return field(metadata={"check": check})


@dataclass(frozen=True)
class Message:
    """Base of all messages."""


@dataclass(frozen=True)
class Hello(Message):
    """Client: its first message. `protocol` is `ri2n-copy`."""

    version: int = _as(_number(VERSION, VERSION))
    protocol: str = _as(_one_of(("ri2n-copy",)))


@dataclass(frozen=True)
class Welcome(Message):
    """Server: its first message; the client may send requests now."""

    version: int = _as(_number(VERSION, VERSION))
    read_only: bool = _as(_truth)


@dataclass(frozen=True)
class Failed(Message):
    """The reason of a refusal: `code` of CODES, and `text`, a line for people.

    In the middle of a transfer it is answered by Stop.
    """

    code: str = _as(_one_of(CODES))
    text: str = _as(_text(MAX_TEXT_CHARACTERS))


@dataclass(frozen=True)
class Stat(Message):
    """Client: what is `name`? Answered by Status."""

    name: str = _as(_NAME)


@dataclass(frozen=True)
class Status(Message):
    """What has a name: its size in bytes, permission bits, time of last change in ns since 1970."""

    kind: str = _as(_KIND)
    size: int = _as(_SIZE)
    mode: int = _as(_MODE)
    mtime_ns: int = _as(_MTIME)


@dataclass(frozen=True)
class List(Message):
    """Client: what is in the directory `name`? Answered by Entries, again as long as `more`."""

    name: str = _as(_NAME)


@dataclass(frozen=True)
class Entries(Message):
    """Some entries of a directory: [name, kind, size in bytes]."""

    entries: tuple[tuple[str, str, int], ...] = _as(_many(_entry, 1 << 14))
    more: bool = _as(_truth)


@dataclass(frozen=True)
class MkDir(Message):
    """Client: make the directory `name`, unless it is there. Answered by Ok."""

    name: str = _as(_NAME)


@dataclass(frozen=True)
class Touch(Message):
    """Client: set mode and mtime of the directory `name`. Answered by Ok."""

    name: str = _as(_NAME)
    mode: int = _as(_MODE)
    mtime_ns: int = _as(_MTIME)


@dataclass(frozen=True)
class Ok(Message):
    """Server: the request is done."""


@dataclass(frozen=True)
class Put(Message):
    """Client: a file follows; its transfer begins with the server's Have.

    If `mtime_ns` is None, mode and mtime are not kept.
    """

    name: str = _as(_NAME)
    size: int = _as(_SIZE)
    mode: int = _as(_MODE)
    mtime_ns: int | None = _as(_or_none(_MTIME))


@dataclass(frozen=True)
class Get(Message):
    """Client: send the file `name`. Answered by Offer."""

    name: str = _as(_NAME)


@dataclass(frozen=True)
class Offer(Message):
    """Server: the file that was asked for; its transfer begins with the client's Have."""

    size: int = _as(_SIZE)
    mode: int = _as(_MODE)
    mtime_ns: int = _as(_MTIME)


@dataclass(frozen=True)
class Have(Message):
    """Receiver: the digests of the blocks that are there, from block `first` on.

    With `more`, another group follows after the sender's Next.
    """

    first: int = _as(_INDEX)
    digests: tuple[str, ...] = _as(_many(_hex(DIGEST_BYTES), MAX_DIGESTS))
    more: bool = _as(_truth)


@dataclass(frozen=True)
class Next(Message):
    """Sender: every block of the group that differs has been sent."""


@dataclass(frozen=True)
class Block(Message):
    """Sender: `bytes` raw bytes of block `index` follow, then the DIGEST_BYTES of their digest."""

    index: int = _as(_INDEX)
    bytes: int = _as(_number(1, 4 << 20))


@dataclass(frozen=True)
class Got(Message):
    """Receiver: block `index` is written; `right` says whether its digest was right."""

    index: int = _as(_INDEX)
    right: bool = _as(_truth)


@dataclass(frozen=True)
class End(Message):
    """Sender: all blocks are sent; `digest` is that of the whole file (`blocks.root`)."""

    digest: str = _as(_hex(DIGEST_BYTES))


@dataclass(frozen=True)
class Done(Message):
    """Receiver: the whole file is right, on the disk, and has its name."""


@dataclass(frozen=True)
class Wait(Message):
    """The disk of this end is still busy; it may come before any answer but the first."""


@dataclass(frozen=True)
class Stop(Message):
    """The answer to Failed in the middle of a transfer: nothing more of the transfer follows."""


TYPES: dict[str, type[Message]] = {
    kind.__name__.lower(): kind
    for kind in (
        *(Hello, Welcome, Failed, Stat, Status, List, Entries, MkDir, Touch, Ok, Put, Get, Offer),
        *(Have, Next, Block, Got, End, Done, Wait, Stop),
    )
}


def encode(message: Message) -> bytes:
    """The bytes of a message, with its length before it.

    Raises ProtocolViolation when the message breaks the rules or is too long.
    """
    document: dict[str, Any] = {"type": type(message).__name__.lower()}
    for item in fields(message):
        document[item.name] = _checked(document["type"], item, getattr(message, item.name))
    text = json.dumps(document, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_MESSAGE_BYTES:
        raise ProtocolViolation(
            f"{document['type']}: {len(text)} bytes, at most {MAX_MESSAGE_BYTES}"
        )
    return HEADER.pack(len(text)) + text


def length_of(header: bytes | bytearray | memoryview) -> int:
    """How many bytes of JSON follow these HEADER_BYTES.

    Raises ProtocolViolation when no message has that length.
    """
    size: int = HEADER.unpack(header)[0]
    if not 2 <= size <= MAX_MESSAGE_BYTES:
        raise ProtocolViolation(
            f"a message of {size} bytes, 2 to {MAX_MESSAGE_BYTES} are allowed: no copy protocol"
        )
    return size


def decode(text: bytes | bytearray | memoryview) -> Message:
    """The message in these bytes, which do not have its length.

    Raises ProtocolViolation for what is no message, and Refused `version` for the first message of
    a peer with another version.
    """
    try:
        document = json.loads(bytes(text), object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"not a message: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise ProtocolViolation("not a message: must be an object")
    name = document.pop("type", None)
    kind = TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolViolation("not a message: unknown type")
    version = document.get("version")
    if (
        kind in (Hello, Welcome)
        and type(version) is int
        and 0 <= version < 1 << 16
        and version != VERSION
    ):
        raise Refused(
            "version",
            f"the peer speaks version {version} of the copy protocol, this end version {VERSION}",
        )
    wanted = {item.name: item for item in fields(kind)}
    for key in document:
        if key not in wanted:
            raise ProtocolViolation(f"{name}: unknown key")
    for key in wanted:
        if key not in document:
            raise ProtocolViolation(f"{name}.{key}: is missing")
    return kind(**{key: _checked(str(name), item, document[key]) for key, item in wanted.items()})


def pages(entries: Iterable[tuple[str, str, int]]) -> Iterator[Entries]:
    """The entries of a directory as messages, none of which is too long; the last has no `more`."""
    page: list[tuple[str, str, int]] = []
    used_bytes = 0
    for entry in entries:
        size_bytes = len(json.dumps(entry))
        if page and used_bytes + size_bytes > PAGE_BYTES:
            yield Entries(tuple(page), True)
            page, used_bytes = [], 0
        page.append(entry)
        used_bytes += size_bytes
    yield Entries(tuple(page), False)


def _checked(kind: str, item: Any, value: Any) -> Any:
    try:
        return item.metadata["check"](value)
    except ValueError as error:
        raise ProtocolViolation(f"{kind}.{item.name}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("has a key twice")
    return document


def _no_constant(name: str) -> None:
    raise ValueError(name)
