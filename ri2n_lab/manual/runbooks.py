# SPDX-License-Identifier: Apache-2.0
"""Where alerts lead: the address of the documentation, in the rules for Prometheus and their tests.

`python -m ri2n_lab.manual.runbooks --docs https://ri2n.example.org/docs/` writes another address
into the files.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

__all__ = ["DOCS_URL", "FILES", "with_docs"]

DOCS_URL = "http://127.0.0.1:8420/docs/"
"""The documentation that `ri2n web` serves, at the address where it listens by default."""

FILES = ("ri2n-rules.yaml", "ri2n-rules-test.yaml")

_FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
_RUNBOOK = re.compile(r"^( +runbook_url: ).*#(\w+)$", re.M)


def with_docs(text: str, docs_url: str) -> str:
    """A file of rules or of their tests, whose alerts lead to the documentation at `docs_url`."""
    page = f"{docs_url.rstrip('/')}/alerts.html"
    return _RUNBOOK.sub(lambda found: f"{found[1]}{page}#{found[2]}", text)


def main() -> None:
    """Write the address into the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", default=DOCS_URL, metavar="URL", help="Default: %(default)s")
    docs_url: str = parser.parse_args().docs
    for name in FILES:
        path = _FOLDER / name
        path.write_text(with_docs(path.read_text(encoding="utf-8"), docs_url), encoding="utf-8")


if __name__ == "__main__":
    main()
