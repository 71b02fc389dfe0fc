# SPDX-License-Identifier: Apache-2.0
"""Names from peers reach nothing outside of the directory; HOST:NAME of a command line."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel.copy.messages import Refused
from ri2n_parallel.copy.names import (
    MAX_COMPONENT_BYTES,
    Remote,
    check_name,
    is_part_name,
    join,
    parse_remote,
    part_name,
    printable,
)
from ri2n_parallel.errors import BadInput

PIECES = st.sampled_from(
    [
        "..",
        ".",
        "",
        "/",
        "a",
        "b.txt",
        "\0",
        "x" * 254,
        "é" * 120,
        "\udcff",
        "\ud800",
        "~",
        "-r",
        "\n",
    ]
)
NAMES = st.one_of(
    st.text(max_size=300),
    st.lists(PIECES, max_size=120).map("/".join),
    st.lists(PIECES).map("".join),
)


@given(NAMES)
def test_a_name_is_refused_or_stays_below(name: str) -> None:
    try:
        parts = check_name(name)
    except Refused as error:
        assert error.code == "name" and "\n" not in str(error) and len(str(error)) < 400
        return
    for part in parts:
        assert part not in ("", ".", "..") and "/" not in part and "\0" not in part
        assert len(os.fsencode(part)) <= MAX_COMPONENT_BYTES
    resolved = os.path.normpath(os.path.join("/served", name))  # noqa: PTH118 (a name, not a path of this machine)
    assert PurePosixPath(resolved) == PurePosixPath("/served", *parts)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/etc/passwd",
            "..",
            "../x",
            "a/../../b",
            "a/..",
            "\0",
            "a\0b",
            "\ud800",
            "x" * 256,
            "é" * 128,
            "a/" * 101,
        ),
        *("/".join(["x" * 200] * 21), ".a.ri2n-part", "d/.a.ri2n-part", ".a.ri2n-part/x", "//x"),
    ],
    ids=lambda name: printable(name)[:20],
)
def test_dangerous_names_are_refused(name: str) -> None:
    with pytest.raises(Refused):
        check_name(name)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("", ()),
        (".", ()),
        ("a/./b//c/", ("a", "b", "c")),
        ("...", ("...",)),
        ("-r\n\udcff", ("-r\n\udcff",)),
        ("x" * 255, ("x" * 255,)),
        ("é" * 127, ("é" * 127,)),
        ("a/" * 100, ("a",) * 100),
        (".a/a.ri2n-part", (".a", "a.ri2n-part")),
    ],
    ids=lambda value: printable(value)[:20] if isinstance(value, str) else "",
)
def test_odd_names_that_are_harmless_are_taken(name: str, parts: tuple[str, ...]) -> None:
    assert check_name(name) == parts


@given(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=255))
def test_an_unfinished_copy_has_a_name_that_can_be_made_and_that_nobody_can_ask_for(
    name: str,
) -> None:
    part = part_name(name)
    assert len(os.fsencode(part)) <= MAX_COMPONENT_BYTES and "/" not in part
    assert is_part_name(part)
    with pytest.raises(Refused):
        check_name(part)


def test_long_names_that_differ_at_the_end_have_different_parts() -> None:
    assert part_name("x" * 254 + "a") != part_name("x" * 254 + "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:a", Remote("host", 7000, "a")),
        ("host:", Remote("host", 7000, "")),
        ("host:7001:a/b", Remote("host", 7001, "a/b")),
        ("host:7001:", Remote("host", 7001, "")),
        ("host:7001", Remote("host", 7000, "7001")),
        ("host:a:b", Remote("host", 7000, "a:b")),
        ("[::1]:7001:a", Remote("::1", 7001, "a")),
        ("[::1]:a", Remote("::1", 7000, "a")),
        ("10.0.0.1:7001:a\nb", Remote("10.0.0.1", 7001, "a\nb")),
        ("./host:a", None),
        ("/x/host:a", None),
        ("plain", None),
    ],
)
def test_what_is_remote(text: str, expected: Remote | None) -> None:
    assert parse_remote(text) == expected


@pytest.mark.parametrize(
    "text", [":a", "host:0:a", "host:65536:a", "host:99999999999999999999:a", "[]:a"]
)
def test_places_that_cannot_be(text: str) -> None:
    with pytest.raises(BadInput):
        parse_remote(text)


def test_joined_names_and_what_is_shown_of_them() -> None:
    assert [join("", "a"), join("d", "a"), join("d/", "a"), join("/", "a")] == [
        "a",
        "d/a",
        "d/a",
        "a",
    ]
    assert printable("a\x1b[31m\nb\udcff") == "a?[31m?b?"
    assert len(printable("x" * 10_000)) < 200
    assert str(Remote("::1", 7, "x")) == "[::1]:7"
