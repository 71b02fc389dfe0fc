# SPDX-License-Identifier: Apache-2.0
"""Pure: how two ends prove to each other that they know a token, without sending it.

docs/parallel.md has the format. `said` is what both ends have sent before the proofs: their
greetings, each with fresh random bytes. Every proof is a MAC of all of `said` and of a word that
says which end makes it and what for. So a proof is valid for one connection of one session only,
and no end can send a proof of the other one back. Control connections are proven with the token;
links are proven with the key of their session.
"""

from __future__ import annotations

import hmac

from ri2n_parallel.errors import BadInput

__all__ = [
    "NONCE_BYTES",
    "PROOF_BYTES",
    "is_same",
    "key_of",
    "proof_of_answer",
    "proof_of_client",
    "proof_of_server",
    "session_key",
]

NONCE_BYTES = 32
PROOF_BYTES = 32
PREFIX = b"ri2n-parallel 1 "


def key_of(token: str | bytes | None) -> bytes | None:
    """The key that a token gives for proofs; None without a token; BadInput for an empty one."""
    if token is None:
        return None
    key = token.encode("utf-8", "surrogateescape") if isinstance(token, str) else bytes(token)
    if not key:
        raise BadInput("token: is empty")
    return key


def proof_of_server(key: bytes, said: bytes) -> bytes:
    """The proof that the listening side knows the key: PROOF_BYTES."""
    return _mac(key, b"server", said)


def proof_of_client(key: bytes, said: bytes) -> bytes:
    """The proof that the connecting side knows the key: PROOF_BYTES."""
    return _mac(key, b"client", said)


def session_key(key: bytes, said: bytes) -> bytes:
    """The key of the session that is made now; its links are proven with it."""
    return _mac(key, b"session", said)


def proof_of_answer(key: bytes, answer: bytes) -> bytes:
    """The proof, with the session's key, that the server itself has sent its last answer.

    That answer has the server's addresses.
    """
    return _mac(key, b"answer", answer)


def is_same(one: bytes, other: bytes) -> bool:
    """Whether two proofs are the same; the time that this takes does not show where they differ."""
    return hmac.compare_digest(one, other)


def _mac(key: bytes, what: bytes, said: bytes) -> bytes:
    return hmac.digest(key, PREFIX + what + b"\0" + said, "sha256")
