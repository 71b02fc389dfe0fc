# SPDX-License-Identifier: Apache-2.0
"""`./dev baseline`: compares what the product does with what is written down, or renews that."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ri2n_sdn.errors import NotAvailable

__all__ = ["PARTS", "QUICK", "main"]

DATA = Path(__file__).parent / "data"
MAX_SHOWN_LINES = 200


class Part(NamedTuple):
    """A part of the baseline: the module and the function that make its text, and its file."""

    module: str
    function: str
    file: str
    about: str
    quick: bool = True

    def made(self) -> str:
        """The text as it is now. Raises NotAvailable where this machine cannot make it."""
        function: Callable[[], str] = getattr(
            import_module(f"tests.baseline.{self.module}"), self.function
        )
        return function()


PARTS = {
    "rows": Part("rows", "rows", "rows.txt", "what plan_host plans: small and drawn fabrics"),
    "rows-large": Part(
        "rows", "large_rows", "rows-large.txt", "the same for the larger topologies", False
    ),
    "local": Part("local", "local", "local.txt", "requests to the controller, and its answers"),
    "watch": Part("watched", "watch", "watch.txt", "a watch: the first state, and changes"),
    "openapi": Part("rest", "openapi", "openapi.json", "openapi.json of the REST application"),
    "metrics": Part("rest", "metrics", "metrics.txt", "names, types and labels of /metrics"),
    "dryrun": Part("dryrun", "dry_runs", "dryrun.txt", "--dry-run of the host scripts", False),
    "virtual": Part(
        "virtual", "virtual", "virtual.txt", "labs in virtual time, by seed (minutes)", False
    ),
    "vectors": Part("wire", "vectors", "vectors.txt", "the hash of reorder/tests/vectors.json"),
}
QUICK = [name for name, part in PARTS.items() if part.quick]
"""The parts that tests/unit/test_baseline.py compares."""


def main(argv: list[str]) -> int:
    """Compare or renew some parts; 1 when any differs."""
    parser = argparse.ArgumentParser(
        prog="./dev baseline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="parts:\n" + "\n".join(f"  {name:12}{part.about}" for name, part in PARTS.items()),
    )
    parser.add_argument("--write", action="store_true", help="renew the files")
    parser.add_argument("part", nargs="*", metavar="PART", help="only these (default: all)")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.part if name not in PARTS]:
        parser.error(f"{unknown[0]}: no such part; there are {', '.join(PARTS)}")
    bad = False
    for name in options.part or PARTS:
        part, began_s = PARTS[name], time.monotonic()
        try:
            made = part.made()
        except NotAvailable as error:
            print(f"{name}: skipped: {error}")
            continue
        path = DATA / part.file
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        if options.write:
            path.write_text(made, encoding="utf-8")
        said = "the same" if made == written else "renewed" if options.write else "DIFFERENT"
        print(f"{name}: {said} ({time.monotonic() - began_s:.1f} s)")
        if made != written and not options.write:
            bad = True
            _show(path, written, made)
    if bad:
        print("if that is meant, run ./dev baseline --write, and say why in the commit")
    return int(bad)


def _show(path: Path, written: str, made: str) -> None:
    """Print how the text differs from the file, up to MAX_SHOWN_LINES lines."""
    where = f"tests/baseline/data/{path.name}"
    before, after = written.splitlines(), made.splitlines()
    lines = list(unified_diff(before, after, where, "now", lineterm=""))
    print("\n".join(lines[:MAX_SHOWN_LINES]))
    if len(lines) > MAX_SHOWN_LINES:
        print(f"... and {len(lines) - MAX_SHOWN_LINES} more lines")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
