# SPDX-License-Identifier: Apache-2.0
"""Tokens of the web process: what is kept of them, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from ri2n_sdn.apps import tokens as tokens_module
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.contract.limits import MAX_TOKEN_DAYS
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.store.rows import Change, Put, State, TokenRow
from tests.unit.refused import refused

HASH = 64 * "a"


class FakeStore:
    """A store that keeps tokens, and that may refuse."""

    active = True

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
    assert tokens.rows() is tokens.rows()
    tokens.remove({"name": "t1"})
    assert list(tokens.documents()) == ["t0"]
    with refused("no_such_token", name="t1"):
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
    with refused("tokens_full", "name", most=2):
        tokens.add(request(name="t9", hash=64 * "9"))


@pytest.mark.parametrize(
    ("more", "key", "code", "values"),
    [
        *(
            ({"name": name}, "name", "name_form", {})
            for name in ("", "../x", "x" * 65, "a\n", None)
        ),
        ({"role": "root"}, "role", "value_not_one_of", {"value": "'root'"}),
        ({"role": None}, "role", "value_not_one_of", {}),
        ({"role": "user"}, "user", "token_user_missing", {}),
        ({"user": ""}, "user", "user_not_name", {"value": "''"}),
        ({"user": 5}, "user", "not_user_name", {}),
        ({"user": "a b"}, "user", "user_not_name", {"value": "'a b'"}),
        ({"days": 0}, "days", "out_of_range", {"low": 1, "high": 3650}),
        *(({"days": days}, "days", "out_of_range", {}) for days in (MAX_TOKEN_DAYS + 1, True, "7")),
        *(
            ({"hash": digest}, "hash", "token_hash_form", {})
            for digest in (HASH[1:], 64 * "A", HASH + "\n", None)
        ),
        ({"token": "secret"}, None, "unknown_key", {"name": "'token'"}),
    ],
)
def test_a_wrong_token_is_one_line_that_names_the_key(
    more: dict[str, Any], key: str | None, code: str, values: dict[str, Any]
) -> None:
    tokens = Tokens(None)
    with refused(code, key, **values):
        tokens.add(request(**more))
    assert tokens.documents() == {}


def test_a_name_or_a_hash_is_there_once() -> None:
    tokens = Tokens(None)
    tokens.add(request())
    with refused("token_exists", "name", token="t1"):
        tokens.add(request(hash=64 * "b"))
    with refused("token_hash_exists", "hash"):
        tokens.add(request(name="t2"))
