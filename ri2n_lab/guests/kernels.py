# SPDX-License-Identifier: Apache-2.0
"""The kernels on which a lab can run: this machine's own, and one for guests.

The guests' kernel is built from this package, and runs in real or in virtual time.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["GUEST", "KERNELS", "Kernel", "build_script", "find_kernel"]

KERNELS = ("host", "uml", "virtual")
GUEST = "RI2N_GUEST"
"""The environment variable that names the kernel to programs in a guest."""


@dataclass(frozen=True)
class Kernel:
    """An image of user-mode Linux, and which clock it has.

    With `virtual`, the clock moves only while everything in the guest sleeps.
    """

    name: str
    image: Path
    virtual: bool

    @property
    def environment(self) -> dict[str, str]:
        """Variables for programs in the guest: the kernel's name, and BATCH_READS of iperf.py."""
        library = Path(f"{self.image}.batch-reads.so")
        known = {GUEST: self.name}
        if self.virtual and library.exists():
            known["RI2N_BATCH_READS"] = str(library)
        return known


def find_kernel(name: str) -> Kernel:
    """The guests' kernel with the clock of this name: "uml" (real time) or "virtual".

    One image is for both. Raises NotAvailable, with what to do, when the image is missing; BadInput
    for another name, also for "host", which is no guest.
    """
    if name not in ("uml", "virtual"):
        raise BadInput(f"kernel {name!r}: must be one of {', '.join(KERNELS)}")
    script = build_script()
    image = subprocess.run(
        [script, "--print-path"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.access(image, os.X_OK):
        raise NotAvailable(
            f"kernel {name}: {image} is not there: {script} builds it (2 to 5 minutes, once)"
        )
    return Kernel(name, Path(image), virtual=name == "virtual")


def build_script() -> Path:
    """The script that builds the guests' kernel, which comes with this package."""
    return Path(__file__).with_name("kernel") / "build-guest-kernel"
