# SPDX-License-Identifier: Apache-2.0
"""What `ri2n demo`, `ri2n lab` and `ri2n bench` do first: remove labs that belong to nobody."""

from __future__ import annotations

import os
import sys

from ri2n_sdn.cli.common import note

__all__ = ["remove_unowned"]


def remove_unowned() -> None:
    """Remove what demos, benches and tests have left whose process was killed; a line for each.

    Nothing happens without root, and when the user asks for help only.
    """
    if os.geteuid() != 0 or {"-h", "--help"} & set(sys.argv):
        return
    from ri2n_lab.cluster import owners, state

    # Most of the time there is nothing to remove, and then nothing more is imported.
    if any(map(owners.is_unowned, state.all_states())):
        from ri2n_lab.cluster import manage

        manage.remove_unowned(note)
    if any(state.ROOT.glob("*/guest.json")):
        from ri2n_lab.guests import labs as guest_labs

        for guest in guest_labs.sweep():
            note(f"removed lab {guest.name} of {guest.owner}: the keeper of its guest has ended")
    state.sweep()
