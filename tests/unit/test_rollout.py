"""The batches of `ri2n host rollout`."""

from __future__ import annotations

import pytest

from ri2n_sdn.cli.rollout import batches
from ri2n_sdn.errors import BadInput


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("1", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("2", [["a", "b"], ["c", "d"], ["e"]]),
        ("9", [["a", "b", "c", "d", "e"]]),
        ("50%", [["a", "b"], ["c", "d"], ["e"]]),
        ("1%", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("100%", [["a", "b", "c", "d", "e"]]),
    ],
)
def test_batches(size: str, expected: list[list[str]]) -> None:
    assert batches("abcde", size) == expected


@pytest.mark.parametrize("size", ["0", "-1", "", "x", "1.5", "101%", "%", "²"])
def test_wrong_batches(size: str) -> None:
    with pytest.raises(BadInput, match="--batch"):
        batches("abcde", size)
