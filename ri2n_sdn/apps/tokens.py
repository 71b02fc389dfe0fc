# SPDX-License-Identifier: Apache-2.0
"""Tokens of the web process: who may do what with one. The store keeps their hashes alone.

A token is a random text of 256 bits, which whoever makes it shows once. So its hash needs no salt,
and says nothing about it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from typing import cast

from ri2n_sdn.apps.job_book import Storage
from ri2n_sdn.contract.answers import AllTokens, Nothing, OneToken
from ri2n_sdn.contract.choices import ROLES, Role, one_of
from ri2n_sdn.contract.documents import Token, TokenEntry
from ri2n_sdn.contract.limits import MAX_TOKEN_DAYS
from ri2n_sdn.contract.names import token_name, user_name
from ri2n_sdn.contract.operations import TOKEN_ADD, Request
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.store.rows import Change, Put, Remove, TokenRow

__all__ = ["MAX_TOKENS", "Tokens"]

MAX_TOKENS = 1000
"""At most so many tokens are kept."""

_HASH = re.compile(r"[0-9a-f]{64}\Z")
_DAY_S = 86_400.0


class Tokens:
    """The tokens by name. Without a store they last until the controller ends."""

    def __init__(self, storage: Storage | None) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._own: Mapping[str, TokenRow] = {}

    def rows(self) -> Mapping[str, TokenRow]:
        """The tokens as the store has them: the same object while nothing has changed."""
        return self._own if self._storage is None else self._storage.state().tokens

    def documents(self) -> dict[str, TokenEntry]:
        """What the web process needs to know of each token, by name."""
        return {
            name: {
                "hash": row.hash,
                "role": cast(Role, row.role),
                "user": row.user,
                "expires_s": row.expires_s,
            }
            for name, row in self.rows().items()
        }

    def add(self, request: Request) -> OneToken:
        """Keep a new token: `name`, `role`, `hash`, and where wanted `user` and `days`.

        `hash` is the SHA-256 of the token's text in hexadecimal digits. A token with the role
        `user` needs a `user`, whose jobs it is for. Raises BadInput when something is wrong,
        NotAvailable when the store does not acknowledge it.
        """
        row = _row(request, time.time())
        with self._lock:
            rows = self.rows()
            if row.name in rows:
                raise refusal("token_exists", "name", token=row.name)
            if any(row.hash == other.hash for other in rows.values()):
                raise refusal("token_hash_exists", "hash")
            if len(rows) >= MAX_TOKENS:
                raise refusal("tokens_full", "name", most=MAX_TOKENS)
            self._write(Put(row))
            if self._storage is None:
                self._own = {**self._own, row.name: row}
        return {"token": _listed(row)}

    def list(self) -> AllTokens:
        """All tokens without their hashes, in order of names."""
        return {"tokens": [_listed(row) for _, row in sorted(self.rows().items())]}

    def remove(self, request: Request) -> Nothing:
        """Remove the token called `name`. Raises BadInput when there is none, NotAvailable."""
        name = token_name(request.get("name"))
        with self._lock:
            row = self.rows().get(name)
            if row is None:
                raise refusal("no_such_token", name=name)
            self._write(Remove(row))
            self._own = {key: value for key, value in self._own.items() if key != name}
        return {}

    def _write(self, change: Change) -> None:
        if self._storage is not None:
            self._storage.write(change)


def _row(request: Request, now_s: float) -> TokenRow:
    """The token that a request describes. Raises BadInput."""
    for key in TOKEN_ADD.strange(request):
        raise refusal("unknown_key", name=shown(key))
    name, role = token_name(request.get("name")), one_of(request.get("role"), ROLES, "role")
    user, days, digest = request.get("user"), request.get("days"), request.get("hash")
    if user is not None:
        user = user_name(user) if isinstance(user, str) else ""
    if user == "":
        raise refusal("not_user_name", "user")
    if user is None and role == "user":
        raise refusal("token_user_missing", "user")
    if days is not None and (type(days) is not int or not 1 <= days <= MAX_TOKEN_DAYS):
        raise refusal("out_of_range", "days", low=1, high=MAX_TOKEN_DAYS)
    if not isinstance(digest, str) or not _HASH.match(digest):
        raise refusal("token_hash_form", "hash")
    return TokenRow(
        name, digest, role, user, now_s, None if days is None else now_s + days * _DAY_S
    )


def _listed(row: TokenRow) -> Token:
    return {
        "name": row.name,
        "role": cast(Role, row.role),
        "user": row.user,
        "created_s": row.created_s,
        "expires_s": row.expires_s,
    }
