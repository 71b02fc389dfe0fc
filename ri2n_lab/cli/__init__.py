# SPDX-License-Identifier: Apache-2.0
"""The commands `ri2n lab`, `ri2n bench` and `ri2n demo`, and answers about labs.

The answers are for the product's commands (`ri2n_sdn.cli.labs`).
"""

from ri2n_sdn.cli.entries import TRY, Entry

__all__ = ["COMMANDS"]

COMMANDS = {
    "demo": Entry(TRY, "build a cluster, load it, compare the strategies", "sudo ri2n demo"),
    "lab": Entry(TRY, "a cluster of namespaces, which stays", "sudo ri2n lab up fig4/d"),
    "bench": Entry(TRY, "measure the papers' tables", "sudo ri2n bench fig4 --topologies d"),
}
"""What `ri2n --help` shows of the commands."""
