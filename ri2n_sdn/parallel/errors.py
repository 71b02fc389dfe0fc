"""What can go wrong with a parallel connection; each is one clear line, and an OSError as for other sockets."""

from __future__ import annotations

from ri2n_sdn.errors import Ri2nError

__all__ = ["AllLinksLost", "HandshakeRefused", "ParallelError", "ProtocolError", "TokenRefused"]


class ParallelError(Ri2nError, OSError):
    """Base of the errors of parallel connections."""


class ProtocolError(ParallelError):
    """The peer speaks something else, another version, or breaks the rules; the text says how."""


class HandshakeRefused(ParallelError):
    """The server said no: it is full, knows no such session, or has another version."""


class TokenRefused(HandshakeRefused):
    """The two ends do not have the same token, or one of them has none."""


class AllLinksLost(ParallelError):
    """No link was left for the time allowed; the text names each and why."""
