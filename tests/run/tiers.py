# SPDX-License-Identifier: Apache-2.0
"""The tiers: which tests each runs, by folder and marker, and what it needs of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ri2n_lab.guests.kernels import find_kernel
from ri2n_sdn.errors import NotAvailable

__all__ = ["CARGO_MINOR", "ROOT", "TIERS", "Tier", "marks", "of_a_tier", "select", "why_not"]

ROOT = Path(__file__).resolve().parents[2]
CARGO_MINOR = 85  # cargo must be 1.85 or newer, as in reorder/Cargo.toml and fast/Cargo.toml


@dataclass(frozen=True)
class Tier:
    """A set of tests that need the same things.

    `mark` and `mark_all` are for pytest's -m, in a default run and with --all. `does` is for
    `--help`. Tests that mostly wait, for a time or for processes, have several workers `per_cpu`.
    A worker imports all files of its tier first, which for `unit` is as much work as a hundred
    tests.
    """

    name: str
    folder: str
    does: str
    mark: str = "not long"
    mark_all: str = ""
    needs_root: bool = False
    needs_guests: bool = False
    per_cpu: float = 1


TIERS = (
    Tier("unit", "tests/unit", "nothing but Python"),
    Tier("sandbox", "tests/sandbox", "a private Open vSwitch, no root", per_cpu=1.5),
    Tier("rust", "reorder", "cargo test of the helper; with root on devices, too"),
    Tier(
        "lab",
        "tests/lab",
        "labs on this machine's kernel and netdev datapath, in real time",
        mark="not long and (not virtual or smoke)",
        needs_root=True,
        needs_guests=True,
        per_cpu=2,
    ),
    Tier(
        "kernel",
        "tests/lab",
        "labs on the kernel datapath, in guests with virtual time",
        mark="virtual and not long",
        mark_all="virtual",
        needs_root=True,
        needs_guests=True,
    ),
    Tier("virtual", "tests/virtual", "virtual time itself", needs_root=True, needs_guests=True),
)


def marks(tier: Tier, everything: bool, wanted: str = "") -> str:
    """The expression for pytest's -m: the tier's and, if there is one, `wanted`, the user's."""
    own = tier.mark_all if everything else tier.mark
    return " and ".join(f"({part})" for part in (own, wanted) if part)


def select(tier: Tier, paths: Sequence[str], *, asked: bool) -> list[str]:
    """Those of `paths` that the tier runs; without `paths`, its whole folder.

    `asked` says that the user named this tier. Tests of tests/lab belong to two tiers. With paths,
    the tier `kernel` runs them only when the user named it.
    """
    if not paths:
        return [tier.folder]
    if tier.name == "rust" or (tier.name == "kernel" and not asked):
        return []
    return [
        path
        for path in paths
        if path.rstrip("/") == tier.folder or path.startswith(tier.folder + "/")
    ]


def of_a_tier(path: str) -> bool:
    """Whether the file or folder exists in a tier's folder; `path` may end with `::test`."""
    file = path.partition("::")[0]
    return (ROOT / file).exists() and any(select(tier, [file], asked=True) for tier in TIERS)


def why_not(tier: Tier) -> str:
    """Why the tier cannot run on this machine; empty when it can."""
    if tier.name == "rust":
        return (
            ""
            if _cargo_is_new_enough()
            else f"needs cargo 1.{CARGO_MINOR} or newer: sudo ./dev setup"
        )
    if tier.needs_root and os.geteuid() != 0:
        return "needs root: sudo ./dev test"
    if (
        tier.needs_root
        and subprocess.run(
            ["unshare", "--net", "true"], capture_output=True, check=False
        ).returncode
    ):
        return "this machine does not allow network namespaces"
    if tier.name in ("kernel", "virtual"):
        try:
            find_kernel("virtual")
        except NotAvailable as error:
            return str(error)
    return ""


def _cargo_is_new_enough() -> bool:
    try:
        words = subprocess.run(
            ["cargo", "--version"], capture_output=True, text=True, check=True
        ).stdout.split()
        major, minor = (int(part) for part in words[1].split(".")[:2])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return False
    return (major, minor) >= (1, CARGO_MINOR)
