# SPDX-License-Identifier: Apache-2.0
"""The commands `cp` and `serve`, of `ri2n` or, without it, of `ri2n-parallel`.

They need typer and rich.
"""

__all__ = ["COMMANDS"]

_COPY = "Copy over several links"
COMMANDS = {
    "cp": (_COPY, "copy files to or from a host that serves", "ri2n cp results.tar B:"),
    "serve": (_COPY, "serve one folder to `ri2n cp`", "ri2n serve /scratch"),
}
"""What `ri2n --help` shows of the commands: heading, line, example."""
