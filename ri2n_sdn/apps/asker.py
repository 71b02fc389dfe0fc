# SPDX-License-Identifier: Apache-2.0
"""Who asks at a socket of the controller, and what that user may ask for."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from dataclasses import dataclass

from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal

__all__ = ["ROOT", "Asker", "asker_of"]

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Asker:
    """Who asks: the user at the other end of the socket."""

    uid: int
    name: str

    def check_owner(self, user: str, uid: int | None, what: str) -> None:
        """Raise BadInput when something is not the asker's own and the asker is not root."""
        if self.uid != 0 and (user != self.name or uid not in (None, self.uid)):
            raise refusal("not_yours", what=what, owner=shown(user), asker=self.name)

    def check_root(self, what: str) -> None:
        """Raise BadInput when the asker is not root. `what` is what only root may change."""
        if self.uid != 0:
            raise refusal("root_only", what=what)


ROOT = Asker(0, "root")


def asker_of(connection: socket.socket) -> Asker:
    """Who is at the other end of a Unix socket. Raises OSError when it has gone.

    The kernel says so, so nobody can ask in another one's name. The user that the controller runs
    as may do all that root may.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Asker(0 if uid == os.geteuid() else uid, name)
