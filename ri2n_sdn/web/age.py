# SPDX-License-Identifier: Apache-2.0
"""How old the figures of a state are, and whether they still count. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.sample import is_old

__all__ = ["Age", "age_of"]


class Known(Protocol):
    """What is known of a controller, as the feed knows it."""

    @property
    def state(self) -> Documents: ...

    @property
    def connected(self) -> bool: ...

    @property
    def heard_s(self) -> float | None: ...


class Age(NamedTuple):
    """When the figures were read, and whether that is too long ago.

    * `read_s`: Unix time of the controller's last round. Of an earlier controller, which does not
      tell it, when something was heard of it last. None: nothing is known.
    * `old`: there will be no newer figures for now. Old ones say how it was, and not how it is.
    """

    read_s: float | None
    old: bool


def age_of(known: Known, now_s: float) -> Age:
    """The age of what is known now.

    All figures are old while the controller is away. They are also old when it is there and reads
    nothing: because it hangs, or because another one is in charge. While no host is connected there
    is nothing to read, and that all are away is true.
    """
    controller, hosts = known.state["controller"], known.state["hosts"]
    sampled_s = controller.get("sampled_s")
    read_s = known.heard_s if sampled_s is None else sampled_s
    if not known.connected or sampled_s is None:
        return Age(read_s, not known.connected and bool(controller or hosts))
    if not any(host["connected"] for host in hosts.values()):
        return Age(read_s, False)
    return Age(read_s, is_old(known.state, now_s))
