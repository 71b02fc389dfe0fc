# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can cause or cure, each with a text of one clear line.

Those of a connection are OSErrors as well.
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
    """Base of all errors that a command shows as one line before it exits with code 2."""

    def format_message(self) -> str:
        """The line that a command shows.

        The method has the name that click's errors use, so that commands which do not import this
        package find it.
        """
        return str(self)


class BadInput(UserError):
    """An argument or a file is wrong; the text names it."""


class NotAvailable(UserError):
    """Something needed is missing (a server, a permission); the text says what to do."""


class ParallelError(UserError, OSError):
    """Base of the errors of parallel connections."""


class ProtocolError(ParallelError):
    """The peer speaks another protocol or version, or breaks the rules; the text says how."""


class HandshakeRefused(ParallelError):
    """The server refuses: it is full, does not know the session, or speaks another version."""


class TokenRefused(HandshakeRefused):
    """The two ends do not have the same token, or one of them has none."""


class AllLinksLost(ParallelError):
    """No link was up for longer than is allowed; the text names every link and why it is down."""
