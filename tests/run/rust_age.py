# SPDX-License-Identifier: Apache-2.0
"""Says whether all packages that Cargo.lock names build with the Rust that Debian 12 has.

A newer compiler builds them in any case, so on most machines nothing else would notice.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.run.tiers import CARGO_MINOR, ROOT

__all__ = ["too_new"]

PLATFORM = "x86_64-unknown-linux-gnu"


def too_new() -> list[str]:
    """The packages that need a newer Rust than 1.`CARGO_MINOR`."""
    argv = ["cargo", "metadata", "--locked", "--format-version", "1"]
    argv += ["--filter-platform", PLATFORM]
    said = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = []
    for package in json.loads(said)["packages"]:
        wanted = package["rust_version"] or "1.0"
        if int(wanted.split(".")[1]) > CARGO_MINOR:
            found.append(f"{package['name']} {package['version']} needs Rust {wanted}")
    return found


if __name__ == "__main__":
    if wrong := too_new():
        sys.exit("\n".join([*wrong, "cargo update NAME --precise VERSION chooses an older one"]))
