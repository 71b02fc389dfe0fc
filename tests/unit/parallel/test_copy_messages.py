# SPDX-License-Identifier: Apache-2.0
"""The messages of the copy protocol.

What is encoded can be decoded, and nothing else is taken for a message.
"""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel.copy import messages as m

HEX = "0123456789abcdef"
SIZES = st.integers(0, m.MAX_SIZE_BYTES)
NAMES = st.text(max_size=50)


def hexes(size_bytes: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=size_bytes, max_size=size_bytes).map(bytes.hex)


ENTRIES = st.lists(st.tuples(NAMES, st.sampled_from(m.KINDS), SIZES), max_size=5).map(tuple)
MODES, TIMES = st.integers(0, 0o777), st.integers(-(2**62), 2**62)
BY_KIND: dict[type[m.Message], st.SearchStrategy[m.Message]] = {
    m.Hello: st.builds(m.Hello, st.just(m.VERSION), st.just("ri2n-copy")),
    m.Welcome: st.builds(m.Welcome, st.just(m.VERSION), st.booleans()),
    m.Failed: st.builds(m.Failed, st.sampled_from(m.CODES), NAMES),
    **{kind: st.builds(kind, NAMES) for kind in (m.Stat, m.List, m.MkDir, m.Get)},
    m.Status: st.builds(m.Status, st.sampled_from(m.KINDS), SIZES, MODES, TIMES),
    m.Entries: st.builds(m.Entries, ENTRIES, st.booleans()),
    m.Touch: st.builds(m.Touch, NAMES, MODES, TIMES),
    m.Put: st.builds(m.Put, NAMES, SIZES, MODES, st.none() | TIMES),
    m.Offer: st.builds(m.Offer, SIZES, MODES, TIMES),
    m.Have: st.builds(
        m.Have, SIZES, st.lists(hexes(32), max_size=m.MAX_DIGESTS).map(tuple), st.booleans()
    ),
    m.Block: st.builds(m.Block, SIZES, st.integers(1, 4 << 20)),
    m.Got: st.builds(m.Got, SIZES, st.booleans()),
    m.End: st.builds(m.End, hexes(32)),
    **{kind: st.builds(kind) for kind in (m.Ok, m.Next, m.Done, m.Wait, m.Stop)},
}
MESSAGES = st.one_of(*BY_KIND.values())


def document(message: m.Message) -> dict[str, object]:
    found: dict[str, object] = json.loads(m.encode(message)[m.HEADER_BYTES :])
    return found


@given(MESSAGES)
def test_what_is_written_can_be_read(message: m.Message) -> None:
    data = m.encode(message)
    assert m.length_of(data[: m.HEADER_BYTES]) == len(data) - m.HEADER_BYTES
    assert m.decode(data[m.HEADER_BYTES :]) == message


def test_every_kind_of_message_is_tried_above() -> None:
    assert set(BY_KIND) == set(m.TYPES.values()) == set(m.Message.__subclasses__())


@given(MESSAGES, st.data())
def test_an_unknown_a_missing_or_a_wrong_key_is_refused(
    message: m.Message, data: st.DataObject
) -> None:
    good = document(message)
    with pytest.raises(m.ProtocolViolation, match="unknown key"):
        m.decode(json.dumps({**good, "colour": 1}).encode())
    if fields(message):
        key = data.draw(st.sampled_from([item.name for item in fields(message)]))
        with pytest.raises(m.ProtocolViolation, match="is missing"):
            m.decode(
                json.dumps({name: value for name, value in good.items() if name != key}).encode()
            )
        wrong = data.draw(
            st.sampled_from([1.5, {}, {"a": 1}, -(2**70), 2**70, ["x", ["y"]], "z" * 5000])
        )
        with pytest.raises(m.ProtocolViolation, match=key):
            m.decode(json.dumps({**good, key: wrong}).encode())


@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(
        lambda x: json.dumps(x).encode()
    )
)
def test_anything_else_is_refused_and_nothing_worse(text: bytes) -> None:
    with pytest.raises(m.Refused):
        m.decode(text)


@given(MESSAGES, st.data())
def test_a_changed_byte_is_another_message_or_refused(
    message: m.Message, data: st.DataObject
) -> None:
    text = bytearray(m.encode(message)[m.HEADER_BYTES :])
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = m.decode(text)
    except m.Refused:
        return
    assert m.decode(m.encode(found)[m.HEADER_BYTES :]) == found


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 60_000,
        b'{"type":"ok","type":"ok"}',
        b'{"type":"block","index":' + b"9" * 5000 + b',"bytes":1}',
        b'{"type":"block","index":NaN,"bytes":1}',
        b'{"type":"block","index":true,"bytes":1}',
        b'{"type":["ok"]}',
        b'{"type":null}',
        b"\xff\xfe",
        b"null",
    ],
    ids=lambda text: text[:25],
)
def test_traps_of_json_are_refused(text: bytes) -> None:
    with pytest.raises(m.ProtocolViolation):
        m.decode(text)


def test_another_version_is_told_apart_even_when_it_has_other_keys() -> None:
    for name in ("hello", "welcome"):
        with pytest.raises(m.Refused, match="speaks version 1") as caught:
            m.decode(json.dumps({"type": name, "version": 1, "nonce": "00"}).encode())
        assert caught.value.code == "version"


@pytest.mark.parametrize("size_bytes", [0, 1, m.MAX_MESSAGE_BYTES + 1, 0x47455420, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_refused(size_bytes: int) -> None:
    with pytest.raises(m.ProtocolViolation):
        m.length_of(m.HEADER.pack(size_bytes))


ENTRY = st.tuples(st.text(max_size=255), st.sampled_from(m.KINDS), SIZES)


@given(st.lists(st.tuples(ENTRY, st.integers(1, 50)), max_size=8))
def test_pages_hold_every_entry_in_order_and_are_never_too_long(
    several: list[tuple[tuple[str, str, int], int]],
) -> None:
    entries = [entry for entry, count in several for _ in range(count)]
    found = list(m.pages(entries))
    assert [entry for page in found for entry in page.entries] == entries
    assert [page.more for page in found] == [True] * (len(found) - 1) + [False]
    assert all(len(m.encode(page)) <= m.MAX_MESSAGE_BYTES for page in found)


def test_the_longest_names_fit_in_pages() -> None:
    entries = [("\udcff" * 255, "file", m.MAX_SIZE_BYTES)] * 100
    assert sum(len(page.entries) for page in m.pages(entries) if m.encode(page)) == 100
