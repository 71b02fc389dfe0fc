# SPDX-License-Identifier: Apache-2.0
"""What is refused, by its code: tests of what programs see name no sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from ri2n_sdn.contract.refusals import REFUSALS, error_of
from ri2n_sdn.errors import Ri2nError

__all__ = ["not_yours", "refused", "refused_as"]


@contextmanager
def refused(code: str, key: str | None = None, /, **values: Any) -> Iterator[None]:
    """What the block does is refused with that code, at that key, with these values at least.

    The error is of the code's kind, and is one line.
    """
    with pytest.raises(Ri2nError) as caught:
        yield
    error, kind = caught.value, REFUSALS[code].kind
    assert (error.code, error.kind, error.key) == (code, kind, key), error
    assert type(error) is type(error_of({"kind": kind}))
    assert values.items() <= error.values.items(), error.values
    assert "\n" not in str(error) and str(error).startswith("" if key is None else f"{key}: ")


def refused_as(answer: Mapping[str, Any]) -> tuple[str, str | None, dict[str, Any]]:
    """The code, the key and the values of an answer that refuses."""
    assert not answer["ok"], answer
    return answer["code"], answer["key"], answer["args"]


def not_yours(answer: Mapping[str, Any], asker: str) -> bool:
    """Whether an answer refuses, since what is asked for is another user's."""
    code, _, values = refused_as(answer)
    return code == "not_yours" and values["asker"] == asker
