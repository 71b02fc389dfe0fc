"""The kernels a lab can run on: this machine's own, and the images for guests with another one or with virtual time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["GUEST", "KERNELS", "Kernel", "build_script", "find_kernel"]

KERNELS = ("host", "uml", "virtual")
GUEST = "RI2N_GUEST"
"""Environment variable that names the kernel, in a guest."""


@dataclass(frozen=True)
class Kernel:
    """An image of user-mode Linux; with `virtual`, its clock moves only while everything in it sleeps."""

    name: str
    image: Path
    virtual: bool

    @property
    def environment(self) -> dict[str, str]:
        """What programs in the guest should know: its kernel's name, and BATCH_READS of iperf.py."""
        library = Path(f"{self.image}.batch-reads.so")
        known = {GUEST: self.name}
        if self.virtual and library.exists():
            known["RI2N_BATCH_READS"] = str(library)
        return known


def find_kernel(name: str) -> Kernel:
    """The image of this name, "uml" or "virtual"; NotAvailable, with what to do, when it is not here.

    BadInput for another name ("host" is no guest).
    """
    if name == "uml":
        image = shutil.which("linux.uml")
        if image is None:
            raise NotAvailable("kernel uml: linux.uml is missing: apt install user-mode-linux")
        return Kernel(name, Path(image), virtual=False)
    if name == "virtual":
        script = build_script()
        image = subprocess.run([script, "--print-path"], capture_output=True, text=True, check=True).stdout.strip()
        if not os.access(image, os.X_OK):
            raise NotAvailable(f"kernel virtual: {image} is not there: {script} builds it (about 5 minutes, once)")
        return Kernel(name, Path(image), virtual=True)
    raise BadInput(f"kernel {name!r}: must be one of {', '.join(KERNELS)}")


def build_script() -> Path:
    """The script that builds the kernel with virtual time: of the checkout, else where the package installed it."""
    beside = Path(__file__).resolve().parents[2] / "lab-kernels"
    for folder in (beside, Path(sys.prefix) / "share" / "ri2n" / "lab-kernels"):
        if (folder / "build-virtual-kernel").exists():
            return folder / "build-virtual-kernel"
    raise NotAvailable(f"{beside}/build-virtual-kernel is missing: run from a checkout, or install the package")
