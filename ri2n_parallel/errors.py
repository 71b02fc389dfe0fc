"""What a user can cause or cure, each one clear line.

What goes wrong with a connection is an OSError as well.
"""

from __future__ import annotations

__all__ = [
    "AllLinksLost",
    "BadInput",
    "HandshakeRefused",
    "NotAvailable",
    "ParallelError",
    "ProtocolError",
    "TokenRefused",
    "UserError",
]


class UserError(Exception):
    """Base of all errors that a command shows as one line; it then exits with 2."""

    def format_message(self) -> str:
        """The line.

        Commands that know nothing of this package find it by this name, as click's errors have it.
        """
        return str(self)


class BadInput(UserError):
    """An argument or a file is wrong; the text names it."""


class NotAvailable(UserError):
    """What the work needs is missing (a server, a permission); the text says what to do."""


class ParallelError(UserError, OSError):
    """Base of the errors of parallel connections."""


class ProtocolError(ParallelError):
    """The peer speaks something else, another version, or breaks the rules; the text says how."""


class HandshakeRefused(ParallelError):
    """The server said no: it is full, knows no such session, or has another version."""


class TokenRefused(HandshakeRefused):
    """The two ends do not have the same token, or one of them has none."""


class AllLinksLost(ParallelError):
    """No link was left for the time allowed; the text names each and why."""
