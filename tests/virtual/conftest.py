# SPDX-License-Identifier: Apache-2.0
"""The kernel with virtual time, for the tests that need it."""

from __future__ import annotations

import pytest

from ri2n_lab.guests.kernels import Kernel, find_kernel
from ri2n_sdn.errors import NotAvailable


@pytest.fixture(scope="session")
def virtual() -> Kernel:
    """The kernel; a test without it is skipped with the reason."""
    try:
        return find_kernel("virtual")
    except NotAvailable as error:
        pytest.skip(str(error))
