"""Pure: how two ends prove to each other that they know a token, without telling it
(docs/parallel.md has the format).

Both sides' greetings, each with fresh random bytes, are what is `said`; every proof is a MAC of all
of it, of the role of who makes it and of what it is for. So a proof is good for one connection of
one session only, and none that a peer has made can be sent back to it. What the token was for the
session, the session's key is for its links.
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
    """What proofs are made with; None without a token. BadInput for an empty one."""
    if token is None:
        return None
    key = token.encode("utf-8", "surrogateescape") if isinstance(token, str) else bytes(token)
    if not key:
        raise BadInput("token: is empty")
    return key


def proof_of_server(key: bytes, said: bytes) -> bytes:
    """The listening side knows the key."""
    return _mac(key, b"server", said)


def proof_of_client(key: bytes, said: bytes) -> bytes:
    """The connecting side knows the key."""
    return _mac(key, b"client", said)


def session_key(key: bytes, said: bytes) -> bytes:
    """What the links of the session that is made by this will be proven with."""
    return _mac(key, b"session", said)


def proof_of_answer(key: bytes, answer: bytes) -> bytes:
    """With the session's key:

    what the server answers at last (its addresses above all) is from itself.
    """
    return _mac(key, b"answer", answer)


def is_same(one: bytes, other: bytes) -> bool:
    """Compared in the same time wherever they differ."""
    return hmac.compare_digest(one, other)


def _mac(key: bytes, what: bytes, said: bytes) -> bytes:
    return hmac.digest(key, PREFIX + what + b"\0" + said, "sha256")
