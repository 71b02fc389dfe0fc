"""Connections that have not said who they are yet: how far each has come, and how many there may be."""

from __future__ import annotations

import ipaddress
import ssl
from collections import Counter
from collections.abc import Iterator

from ri2n_sdn.parallel.frames import GREETING, MAGIC, Greeting
from ri2n_sdn.parallel.link import Stream
from ri2n_sdn.parallel.proof import NONCE_BYTES, PROOF_BYTES, is_same, proof_of_client

__all__ = ["Pending", "Waiting", "crowd_of"]

SITE_BITS = 64  # of IPv6 addresses: the rest of one is whatever a host likes


class Pending:
    """A connection whose greeting, or whose proof, is not complete."""

    def __init__(self, stream: Stream, crowd: str, deadline_s: float) -> None:
        self.stream, self.crowd, self.deadline_s = stream, crowd, deadline_s
        self.data = b""
        self.wanted = GREETING.size
        self.shaking_hands = isinstance(stream, ssl.SSLSocket)
        self.greeting: Greeting | None = None  # once it is complete
        self.challenge = b""  # what it was answered, if there has to be a proof
        self.key = b""  # of that proof
        self.name = b""  # of the session

    def hear(self) -> bool:
        """Read up to what has to be decided next: the greeting, with its random bytes if it has any, or the proof.

        False at the end, or when this is something else. BlockingIOError when more has to come, ProtocolError for a
        greeting that is none, OSError.
        """
        while True:
            while len(self.data) < self.wanted:
                part = self.stream.recv(self.wanted - len(self.data))
                self.data += part
                if not part or self.data[: len(MAGIC)] != MAGIC[: len(self.data)]:
                    return False
            if self.greeting is not None:
                return True
            self.greeting = Greeting.unpack(self.data)
            if self.greeting.proves:
                self.wanted += NONCE_BYTES

    def challenged(self, challenge: bytes, key: bytes, name: bytes) -> None:
        """A proof is wanted next."""
        self.challenge, self.key, self.name = challenge, key, name
        self.wanted += PROOF_BYTES

    @property
    def unproven(self) -> bool:
        """Whether proofs are wanted by a greeting that has not been answered yet."""
        return self.greeting is not None and self.greeting.proves and not self.challenge

    @property
    def said(self) -> bytes:
        """What both have said before the proofs, of this end as much as there is."""
        return self.data[: GREETING.size + NONCE_BYTES] + self.challenge

    def is_proven(self) -> bool:
        """Whether the client's proof is right, or none was asked for."""
        if not self.challenge:
            return True
        return is_same(self.data[-PROOF_BYTES:], proof_of_client(self.key, self.said))


class Waiting:
    """All of them by descriptor, oldest first; bounded in all and for each address.

    When one more comes, the one that has waited for longest makes room: of the address that has as many as one may
    have, or, when there are too many in all, of the address that has the most. So whoever connects and connects takes
    the places of nobody else.
    """

    def __init__(self, most: int, of_one: int) -> None:
        self.most, self.of_one = most, of_one
        self._all: dict[int, Pending] = {}
        self._crowds: Counter[str] = Counter()

    def in_the_way(self, crowd: str) -> int | None:
        """Whose place one more from there takes: a descriptor, None while there is room."""
        if self._crowds[crowd] < self.of_one:
            if len(self._all) < self.most:
                return None
            crowd = max(self._crowds, key=self._crowds.__getitem__)
        return next(fd for fd, one in self._all.items() if one.crowd == crowd)

    def add(self, fd: int, one: Pending) -> None:
        self._all[fd] = one
        self._crowds[one.crowd] += 1

    def pop(self, fd: int) -> Pending:
        one = self._all.pop(fd)
        self._crowds[one.crowd] -= 1
        if not self._crowds[one.crowd]:
            del self._crowds[one.crowd]
        return one

    def late(self, now_s: float) -> list[int]:
        """Those whose time is over."""
        return [fd for fd, one in self._all.items() if now_s > one.deadline_s]

    def get(self, fd: int) -> Pending | None:
        return self._all.get(fd)

    def __iter__(self) -> Iterator[Pending]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)


def crowd_of(address: str) -> str:
    """What counts as one address: of IPv6 the network part, since a host has all addresses of it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(found) >> SITE_BITS << SITE_BITS, SITE_BITS)))
    return str(found)
