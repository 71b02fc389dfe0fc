# SPDX-License-Identifier: Apache-2.0
"""Start a lab's controller and wait until all is settled, or say at once why it ended."""

from __future__ import annotations

import time

from ri2n_lab.cluster import Lab
from ri2n_sdn.errors import NotAvailable

__all__ = ["start_and_wait"]

SLICE_S = 1.0


def start_and_wait(lab: Lab, strategy: str, timeout_s: float = 60.0) -> None:
    """Start the controller.

    Raises NotAvailable when it ends (with its last words) or does not settle in time.
    """
    process = lab.start_controller(strategy=strategy)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            lab.wait_ready(SLICE_S)
            return
        except NotAvailable:
            if process.poll() is not None:
                words = (
                    (lab.run_dir / "controller.log")
                    .read_text(errors="replace")
                    .strip()
                    .splitlines()
                )
                raise NotAvailable(
                    f"the controller ended: {words[-1] if words else 'no word'}"
                ) from None
            if time.monotonic() > deadline:
                raise
