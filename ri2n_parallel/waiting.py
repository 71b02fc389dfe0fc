# SPDX-License-Identifier: Apache-2.0
"""A connection that has not said yet who it is: its greeting and its proof, as far as they came.

crowds.py bounds how many of these there are.
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
        # The greeting, once it is complete.
        self.greeting: Greeting | None = None
        # The answer to a greeting after which a proof has to follow, without this end's proof; the
        # key of these proofs; the name of the session.
        self.challenge = b""
        self.key = b""
        self.name = b""

    def hear(self) -> bool:
        """Read the greeting with its random bytes, or, after the challenge, the proof.

        True when that is complete, False when the client has closed the connection or speaks
        something else. Errors: BlockingIOError when more has to be received, ProtocolError for a
        greeting that makes no sense, OSError when the connection is gone.
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
        """Note the challenge that is sent: a proof with `key` has to follow."""
        self.challenge, self.key, self.name = challenge, key, name
        self.wanted += PROOF_BYTES

    @property
    def unproven(self) -> bool:
        """Whether the greeting asks for proofs and has not been answered by a challenge yet."""
        return self.greeting is not None and self.greeting.proves and not self.challenge

    @property
    def said(self) -> bytes:
        """All bytes that both ends have sent before the proofs, as far as they are sent."""
        return self.data[: GREETING.size + NONCE_BYTES] + self.challenge

    def is_proven(self) -> bool:
        """Whether the client's proof is right, or none was wanted."""
        if not self.challenge:
            return True
        return is_same(self.data[-PROOF_BYTES:], proof_of_client(self.key, self.said))
