# SPDX-License-Identifier: Apache-2.0
"""Hellos of other controllers: who was first, and what a lying switch cannot do."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps import wellformed
from ri2n_sdn.apps.counts import Dropped
from ri2n_sdn.apps.rivals import ETH_RI2N, MAX_RIVALS, SILENT_S, Hello, Rivals

OWN = Hello(100.0, "b", "me")
FIRST = Hello(50.0, "z", "other")
LATER = Hello(200.0, "a", "late")


def test_a_hello_is_the_same_after_its_frame() -> None:
    hello = Hello(12.5, "run-1", "host (10.0.0.1:6653)", "uuid")
    frame = hello.encode()
    assert Hello.decode(frame) == hello and Hello.decode(frame + bytes(10)).name == hello.name
    assert (Hello.decode(frame).name, Hello.decode(frame).store) == (hello.name, hello.store)
    assert struct.unpack_from("!H", frame, 12) == (ETH_RI2N,) and frame[0] & 1


def altered(**change: object) -> bytes:
    frame = OWN.encode()
    start = frame.index(b"{")
    return frame[:start] + json.dumps({**json.loads(frame[start:]), **change}).encode()


@pytest.mark.parametrize(
    ("frame", "counter"),
    [
        (b"", "dropped_hello_unknown"),
        (OWN.encode()[:20], "dropped_hello_unknown"),
        (OWN.encode()[:-1], "dropped_hello_malformed"),
        (altered(v=2), "dropped_hello_malformed"),
        (altered(name=5), "dropped_hello_malformed"),
        (altered(since_s="soon"), "dropped_hello_malformed"),
        (altered(since_s=-1), "dropped_hello_malformed"),
        (altered(since_s=1e300), "dropped_hello_malformed"),
        (altered(name="x" * 2000), "dropped_hello_too_long"),
        (OWN.encode()[:25] + b"[" * 900, "dropped_hello_malformed"),
        (OWN.encode()[:25] + b"[1]", "dropped_hello_malformed"),
    ],
)
def test_a_wrong_hello_is_counted(frame: bytes, counter: str) -> None:
    with pytest.raises(Dropped, match=f"^{counter}$"):
        Hello.decode(frame)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(tail: bytes) -> None:
    try:
        hello = Hello.decode(OWN.encode()[:25] + tail)
    except Dropped as error:
        assert str(error).startswith("dropped_hello_")
    else:
        assert hello.name.isprintable() and len(hello.name) <= 80


def test_names_are_printable_and_short() -> None:
    hello = Hello.decode(altered(name="\n\x1b" + "x" * 300))
    assert hello.name.isprintable() and len(hello.name) == 80


def test_who_was_there_first_is_the_same_for_both() -> None:
    rivals = Rivals()
    assert rivals.heard(FIRST, "A", 0.0) and not rivals.heard(FIRST, "A", 1.0)
    assert rivals.heard(FIRST, "B", 1.0), "another host shows it"
    rivals.heard(LATER, "A", 1.0)
    rivals.heard(LATER, "B", 1.0)
    assert rivals.first(OWN, {"A", "B"}, 1.0) == FIRST
    assert rivals.known({"A", "B"}, 1.0) == [FIRST, LATER]
    same = Hello(OWN.since_s, "a", "x")
    assert same < OWN, "the run decides between two of one time"


def test_a_single_host_of_several_stops_nobody() -> None:
    rivals = Rivals()
    rivals.heard(FIRST, "A", 0.0)
    assert rivals.first(OWN, {"A"}, 0.0) == FIRST
    assert rivals.first(OWN, {"A", "B"}, 0.0) is None
    assert rivals.first(OWN, {"A", "B", "C"}, 0.0) is None
    rivals.heard(FIRST, "B", 0.0)
    assert rivals.first(OWN, {"A", "B", "C"}, 0.0) == FIRST
    assert rivals.first(OWN, {"C", "D"}, 0.0) is None and rivals.known({"C"}, 0.0) == []
    assert rivals.known({"A", "C"}, 0.0) == [FIRST]


def test_one_that_is_silent_has_gone() -> None:
    rivals = Rivals()
    rivals.heard(FIRST, "A", 0.0)
    assert rivals.first(OWN, {"A"}, SILENT_S) == FIRST
    assert rivals.first(OWN, {"A"}, SILENT_S + 0.1) is None
    assert rivals.heard(FIRST, "A", SILENT_S + 0.2)


def test_there_is_room_for_so_many_and_again_when_they_have_gone() -> None:
    rivals = Rivals()
    for number in range(MAX_RIVALS):
        rivals.heard(Hello(1.0, f"run{number}", "x"), "A", 0.0)
    with pytest.raises(ValueError, match="dropped_hello_of_too_many"):
        rivals.heard(FIRST, "A", 1.0)
    assert rivals.heard(FIRST, "A", SILENT_S + 0.1)


@pytest.mark.parametrize("kind", [25, 30])
def test_a_message_about_roles_has_one_length(kind: int) -> None:
    def message(size: int) -> bytes:
        return struct.pack("!BBHI", 6, kind, size, 1) + bytes(size - 8)

    assert wellformed.check(6, kind, message(24))
    assert not wellformed.check(6, kind, message(32))
    with pytest.raises(ValueError):
        wellformed.check(6, kind, message(16))
