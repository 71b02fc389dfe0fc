# SPDX-License-Identifier: Apache-2.0
"""Who may do what: tokens, roles, and the sessions of the GUI that are made from tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from typing import Any

from ri2n_sdn.addresses import is_loopback
from ri2n_sdn.contract.documents import TokenEntry
from ri2n_sdn.errors import Ri2nError
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.settings import WebSettings
from ri2n_sdn.web.who import Who

__all__ = ["ANONYMOUS", "Auth", "Denied", "hash_of", "new_token"]

ANONYMOUS = Who("anonymous", "viewer")
"""Everybody on this machine, as long as tokens are not required."""

SESSION_TOKEN, SESSION_MARK = "token", "token_mark"
"""The keys of a session: a token's name, and the first digits of its hash."""

TOKEN_BYTES = 32
"""The random bytes of a token, as of those that `ri2n token add` makes."""

MAX_TOKEN_CHARS = 512
_MARK_DIGITS = 16


class Denied(Ri2nError):
    """Somebody may not do something: 401 without a good token, 403 when the role is too small.

    503 means that it cannot be known yet, because the controller has not been reached.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def hash_of(token: str) -> str:
    """What is kept of a token: its SHA-256.

    A token has 256 random bits, so nobody can guess it, and neither salt nor a slow hash is needed.
    """
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def new_token() -> tuple[str, str]:
    """The text of a new token, and its hash."""
    text = secrets.token_urlsafe(TOKEN_BYTES)
    return text, hash_of(text)


class Auth:
    """Finds out who asks, by the tokens that the controller knows at that moment."""

    def __init__(self, feed: Feed, settings: WebSettings) -> None:
        self._feed, self._settings = feed, settings

    def who_of_bearer(self, header: str | None, address: str) -> Who:
        """Who asks, by the header `Authorization` and the address they ask from. Raises Denied.

        Without the header, everybody on this machine is a viewer, unless tokens are required.
        """
        if header is None:
            who = self.anonymous(address)
            if who is None:
                raise Denied(401, "a token is needed: Authorization: Bearer TOKEN")
            return who
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Denied(401, "the header must be: Authorization: Bearer TOKEN")
        who = self.who_of_token(token.strip())
        if who is None:
            if not self._feed.known:
                raise Denied(503, "the controller has not been reached yet, so no token is known")
            raise Denied(401, "this token is not known, or has expired")
        return who

    def anonymous(self, address: str) -> Who | None:
        """Who one without any credential is, by the address they ask from; None: nobody."""
        return ANONYMOUS if not self._settings.require_tokens and is_loopback(address) else None

    def who_of_token(self, token: str) -> Who | None:
        """Whose token this is; None when nobody's, or when it has expired.

        Every stored hash is compared, in constant time and whatever the ones before it said. So how
        long it takes says nothing about the tokens but their number.
        """
        found = self._find(token)
        return None if found is None else self._who(found)

    def session_of_token(self, token: str) -> dict[str, str] | None:
        """What a session of the GUI keeps of a token; None when the token is not good.

        It says which token it was, and is none itself: whoever reads it cannot log in with it.
        """
        name = self._find(token)
        if name is None:
            return None
        return {SESSION_TOKEN: name, SESSION_MARK: self._feed.tokens[name]["hash"][:_MARK_DIGITS]}

    def who_of_session(self, session: Mapping[str, Any]) -> Who | None:
        """Whose session it is; None when it has none, or when its token is not good any more.

        To be asked before each action, so a session ends with its token. A new token of the same
        name is another one.
        """
        name, mark = session.get(SESSION_TOKEN), session.get(SESSION_MARK)
        if not isinstance(name, str) or not isinstance(mark, str):
            return None
        token = self._feed.tokens.get(name)
        if token is None or _expired(token, time.time()):
            return None
        if not hmac.compare_digest(token["hash"][:_MARK_DIGITS].encode(), mark.encode()):
            return None
        return self._who(name)

    def _find(self, token: str) -> str | None:
        digest = hash_of(token[:MAX_TOKEN_CHARS]).encode()
        fits = len(token) <= MAX_TOKEN_CHARS
        now_s = time.time()
        found: str | None = None
        for name, known in self._feed.tokens.items():
            same = hmac.compare_digest(known["hash"].encode(), digest)
            if same & fits & (not _expired(known, now_s)):
                found = name
        return found

    def _who(self, name: str) -> Who:
        token = self._feed.tokens[name]
        return Who(name, token["role"], token["user"])


def _expired(token: TokenEntry, now_s: float) -> bool:
    return token["expires_s"] is not None and token["expires_s"] <= now_s
