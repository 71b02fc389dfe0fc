# SPDX-License-Identifier: Apache-2.0
"""The batches of `ri2n host rollout`, and the commands that it runs."""

from __future__ import annotations

import os
import signal

import pytest

from ri2n_sdn.cli.rollout import _run_command, batches
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


def test_of_what_a_command_says_without_end_the_last_part_is_kept() -> None:
    much = "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo last"
    code, said = _run_command(["sh", "-c", much], 60)
    assert code == 0 and said.endswith("x\nlast\n") and len(said) < 1 << 17


def test_a_command_that_does_not_end_is_ended() -> None:
    code, said = _run_command(["sh", "-c", "echo begun; exec sleep 600"], 1.0)
    assert (code, said) == (None, "begun\n")


def test_what_a_command_leaves_behind_is_not_waited_for() -> None:
    """Such as a program that it has started for good."""
    code, said = _run_command(["sh", "-c", "sleep 600 & echo $!; exit 3"], 60)
    try:
        assert code == 3 and said.endswith("\n")
    finally:
        os.kill(int(said), signal.SIGKILL)
