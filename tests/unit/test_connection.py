"""What a host says of itself when it connects."""

from __future__ import annotations

import pytest

from ri2n_sdn.apps.connection import _datapath


@pytest.mark.parametrize(
    ("serial", "found"),
    [
        ("netdev/1", ("netdev", 0)),  # its symmetric hash leaves UDP ports out
        ("system/0", ("system", 0)),
        ("system/1", ("system", 1)),
        ("system/1\0\0\0", ("system", 1)),
        ("system/", ("system", 0)),
        ("None", ("", 0)),
        ("", ("", 0)),
        ("system/x", ("system", 0)),
    ],
)
def test_the_serial_number_tells_the_datapath(serial: str, found: tuple[str, int]) -> None:
    assert _datapath(serial) == found
