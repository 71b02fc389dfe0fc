# SPDX-License-Identifier: Apache-2.0
"""`ri2n doctor --kernel uml|virtual`: examine whether this machine can run labs in guests."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from ri2n_lab.guests.fpu import ROOM_BYTES, host_fpu_bytes
from ri2n_lab.guests.guest import Guest
from ri2n_lab.guests.kernels import find_kernel
from ri2n_sdn.cli.finding import Finding
from ri2n_sdn.errors import NotAvailable

__all__ = ["examine_guest"]

LIMIT_S = 600.0
COMMAND = ("uname", "-r")


def examine_guest(name: str, command: Sequence[str] = COMMAND) -> list[Finding]:
    """Examine the guests' kernel, and return the findings.

    Is it there, does it have room for this CPU's FPU state, and does it boot and run `command`?
    Raises BadInput when `name` is no kernel of guests.
    """
    host = platform.node()
    try:
        kernel = find_kernel(name)
    except NotAvailable as error:
        return [Finding(host, "guest kernel", "bad", "not built", str(error))]
    findings = [Finding(host, "guest kernel", "ok", str(kernel.image)), _fpu(host)]
    try:
        with Guest(kernel, command, limit_s=LIMIT_S) as guest:
            result = guest.wait()
            words = f"{guest.stdout} {guest.stderr}".split()
    except NotAvailable as error:
        advice = "the text is the end of its console; RI2N_GUEST_KERNEL names another image"
        return [*findings, Finding(host, "guest boots", "bad", str(error), advice)]
    if result.returncode != 0:
        return [
            *findings,
            Finding(
                host,
                "guest boots",
                "bad",
                " ".join(words)[-300:],
                "look at ri2n_lab/guests/kernel/",
            ),
        ]
    return [
        *findings,
        Finding(host, "guest boots", "ok", f"Linux {' '.join(words)}, after {result.real_s:.1f} s"),
    ]


def _fpu(host: str) -> Finding:
    """Whether the guests' kernel has room for this CPU's FPU state."""
    try:
        size = host_fpu_bytes()
    except NotAvailable as error:
        return Finding(
            host, "FPU state", "warning", str(error), "root may ask; guests need ptrace, too"
        )
    seen = f"{size} of {ROOM_BYTES} bytes"
    if size >= ROOM_BYTES:
        return Finding(
            host,
            "FPU state",
            "bad",
            seen,
            "raise HOST_FP_SIZE in ri2n_lab/guests/kernel/fpu-state.patch and build again",
        )
    return Finding(host, "FPU state", "ok", seen)
