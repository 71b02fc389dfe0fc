# SPDX-License-Identifier: Apache-2.0
"""Who asks at a socket of the controller, and what that user may ask for.

At two of the sockets the kernel says who asks. At the third one, every request says for whom it is,
under `as`. The controller believes that, because only the web process can connect, and refuses what
that user may not do.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from ri2n_sdn.contract.choices import ROLES, Role, one_of
from ri2n_sdn.contract.limits import MAX_UID
from ri2n_sdn.contract.names import user_name
from ri2n_sdn.contract.operations import OPERATIONS, Request
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import NotAvailable

__all__ = ["ROOT", "Asker", "Speaker", "asker_of", "give_to_group", "speaker_of"]

_CREDENTIALS = struct.Struct("3i")
# In place of the uid of a user whom this machine does not know, and of who may only look.
_NOBODYS_UID = -1
_KEYS = {"user", "uid", "role"}


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


@dataclass(frozen=True)
class Speaker:
    """For whom the web process asks. `uid` None: it does not know the uid."""

    user: str
    uid: int | None
    role: Role

    def asker(self) -> Asker:
        """The one who asks, as operations on jobs see them. Raises BadInput.

        An admin may do what root may. A user whose uid is not given is looked up on this machine.
        One whom it does not know owns nothing that belongs to a uid.
        """
        if self.role == "admin":
            return Asker(0, self.user)
        uid = self.uid if self.uid is not None else _uid_of(self.user)
        if self.role == "user" and uid == 0:
            raise refusal("uid_is_root", "as", user=shown(self.user))
        return Asker(uid if self.role == "user" else _NOBODYS_UID, self.user)

    def check(self, operation: str) -> None:
        """Raise BadInput when the role does not include an operation."""
        needed = OPERATIONS[operation].needs
        if ROLES.index(self.role) < ROLES.index(needed):
            raise refusal(
                "role_too_low", op=operation, needed=needed, user=self.user, role=self.role
            )


def speaker_of(request: Request) -> Speaker:
    """For whom a request is. Raises BadInput when it does not say so, or makes no sense."""
    said = request.get("as")
    if not isinstance(said, dict) or said.keys() != _KEYS:
        raise refusal("as_not_object", "as")
    user, uid = said["user"], said["uid"]
    if not isinstance(user, str):
        raise refusal("not_user_name", "as.user")
    if uid is not None and (type(uid) is not int or not 0 <= uid <= MAX_UID):
        raise refusal("uid_out_of_range", "as.uid", high=MAX_UID)
    return Speaker(user_name(user, "as.user"), uid, one_of(said["role"], ROLES, "as.role"))


def give_to_group(path: Path, group: str) -> None:
    """Let the members of a group use a socket, besides its owner.

    A process whose own group it is needs no privilege for that, and not even the system call.
    Raises NotAvailable when there is no such group, or when this process may not do that.
    """
    try:
        number = grp.getgrnam(group).gr_gid
        if path.stat().st_gid != number:
            os.chown(path, -1, number)
        path.chmod(0o660)
    except KeyError:
        raise NotAvailable(f"--web-group {group}: there is no such group") from None
    except OSError as error:
        raise NotAvailable(f"--web-group {group}: {path}: {error.strerror}") from None


def _uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return _NOBODYS_UID
