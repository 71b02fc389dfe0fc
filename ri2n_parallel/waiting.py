"""A connection that has not said who it is yet: how far it has come with that (crowds.py:

how many may be there).
"""

from __future__ import annotations

import ssl

from ri2n_parallel.frames import GREETING, MAGIC, Greeting
from ri2n_parallel.link import Stream
from ri2n_parallel.proof import NONCE_BYTES, PROOF_BYTES, is_same, proof_of_client

__all__ = ["Pending"]


class Pending:
    """A connection whose greeting, or whose proof, is not complete."""

    def __init__(self, stream: Stream, deadline_s: float) -> None:
        self.stream, self.deadline_s = stream, deadline_s
        self.data = b""
        self.wanted = GREETING.size
        self.shaking_hands = isinstance(stream, ssl.SSLSocket)
        self.greeting: Greeting | None = None  # once it is complete
        self.challenge = b""  # what it was answered, if there has to be a proof
        self.key = b""  # of that proof
        self.name = b""  # of the session

    def hear(self) -> bool:
        """Read up to what has to be decided next: the greeting, with its random bytes if it has
        any, or the proof.

        False at the end, or when this is something else. BlockingIOError when more has to come,
        ProtocolError for a greeting that is none, OSError.
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
