# SPDX-License-Identifier: Apache-2.0
"""Tokens of the web process: what is kept of them, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from ri2n_sdn.apps import tokens as tokens_module
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.contract.limits import MAX_TOKEN_DAYS
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.store.rows import Change, Put, State, TokenRow

HASH = 64 * "a"


class FakeStore:
    """A store that keeps tokens, and that may refuse."""

    def __init__(self) -> None:
        self.kept = State()
        self.refuses = False

    def write(self, *changes: Change) -> None:
        if self.refuses:
            raise NotAvailable("the store is away")
        rows = dict(self.kept.tokens)
        for change in changes:
            assert isinstance(change.row, TokenRow)
            rows.pop(change.row.name, None)
            if isinstance(change, Put):
                rows[change.row.name] = change.row
        self.kept = State(tokens=rows)

    def state(self) -> State:
        return self.kept


def request(**more: Any) -> dict[str, Any]:
    return {"op": "token_add", "name": "t1", "role": "viewer", "hash": HASH, **more}


@pytest.mark.parametrize("store", [FakeStore, lambda: None], ids=["store", "no store"])
def test_a_token_is_added_listed_and_removed(store: Any) -> None:
    tokens = Tokens(store())
    assert tokens.documents() == {} and tokens.list() == {"tokens": []}
    added = tokens.add(request(role="user", user="alice", days=2))["token"]
    assert added["expires_s"] is not None
    assert added["expires_s"] - added["created_s"] == 2 * 86_400
    tokens.add(request(name="t0", role="admin", hash=64 * "b"))
    assert [each["name"] for each in tokens.list()["tokens"]] == ["t0", "t1"]
    assert "hash" not in added and HASH not in str(tokens.list())
    assert tokens.documents()["t1"] == {
        **{"hash": HASH, "role": "user", "user": "alice"},
        "expires_s": added["expires_s"],
    }
    assert tokens.documents() is tokens.documents()
    tokens.remove({"name": "t1"})
    assert list(tokens.documents()) == ["t0"]
    with pytest.raises(BadInput, match="t1: no such token"):
        tokens.remove({"name": "t1"})


def test_tokens_survive_a_new_start_and_another_controller_sees_them() -> None:
    store = FakeStore()
    Tokens(store).add(request())
    assert list(Tokens(store).documents()) == ["t1"]


def test_what_the_store_does_not_acknowledge_is_not_done() -> None:
    store = FakeStore()
    tokens = Tokens(store)
    tokens.add(request())
    store.refuses = True
    with pytest.raises(NotAvailable):
        tokens.add(request(name="t2", hash=64 * "b"))
    with pytest.raises(NotAvailable):
        tokens.remove({"name": "t1"})
    assert list(tokens.documents()) == ["t1"]


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MAX_TOKENS", 2)
    tokens = Tokens(None)
    for number in range(2):
        tokens.add(request(name=f"t{number}", hash=64 * str(number)))
    with pytest.raises(BadInput, match="there are 2 tokens already"):
        tokens.add(request(name="t9", hash=64 * "9"))


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"name": ""}, "name"),
        ({"name": "../x"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": None}, "name"),
        ({"role": "root"}, "role: 'root' must be one of viewer, user, admin"),
        ({"role": None}, "role"),
        ({"role": "user"}, "user: is missing"),
        ({"user": ""}, "user"),
        ({"user": 5}, "user"),
        ({"user": "a b"}, "user"),
        ({"days": 0}, "days: must be 1 to 3650"),
        ({"days": MAX_TOKEN_DAYS + 1}, "days"),
        ({"days": True}, "days"),
        ({"days": "7"}, "days"),
        ({"hash": HASH[1:]}, "hash: must be the SHA-256"),
        ({"hash": 64 * "A"}, "hash"),
        ({"hash": HASH + "\n"}, "hash"),
        ({"hash": None}, "hash"),
        ({"token": "secret"}, "unknown key 'token'"),
    ],
)
def test_a_wrong_token_is_one_line_that_names_the_key(more: dict[str, Any], fault: str) -> None:
    tokens = Tokens(None)
    with pytest.raises(BadInput) as caught:
        tokens.add(request(**more))
    assert str(caught.value).startswith(fault) and "\n" not in str(caught.value)
    assert tokens.documents() == {}


def test_a_name_or_a_hash_is_there_once() -> None:
    tokens = Tokens(None)
    tokens.add(request())
    with pytest.raises(BadInput, match="name: there is a token t1 already"):
        tokens.add(request(hash=64 * "b"))
    with pytest.raises(BadInput, match="hash: there is a token with this hash"):
        tokens.add(request(name="t2"))
