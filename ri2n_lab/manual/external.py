# SPDX-License-Identifier: Apache-2.0
"""Whether the links of the documentation to other servers lead somewhere.

`./dev docs --external` runs this. CI does not, because it must not depend on other servers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ri2n_lab.manual.links import links_in

__all__ = ["main"]

LIMIT_S = 20.0


def main() -> int:
    """Ask for each address once; print what is wrong, and return 1 when something is."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], capture_output=True, text=True, check=True
    )
    by_address: dict[str, list[str]] = {}
    for name in filter(None, listed.stdout.split("\0")):
        for link in links_in(Path(name).read_text(encoding="utf-8")):
            if link.path.startswith(("http:", "https:")):
                by_address.setdefault(link.path, []).append(name)
    broken = 0
    for address, names in sorted(by_address.items()):
        fault = _fault(address)
        if fault is not None:
            broken += 1
            print(f"{', '.join(names)}: {address}: {fault}", file=sys.stderr)
    print(f"external links: {len(by_address)}, of which {broken} lead nowhere")
    return min(broken, 1)


def _fault(address: str) -> str | None:
    """Why nothing answers there, in one line; None when something does."""
    try:
        with urlopen(Request(address, headers={"User-Agent": "ri2n-docs"}), timeout=LIMIT_S):
            return None
    except HTTPError as error:
        # A server that wants a login or has had enough of us is there all the same.
        return None if error.code in (401, 403, 429) else f"HTTP {error.code}"
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
