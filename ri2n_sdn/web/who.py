# SPDX-License-Identifier: Apache-2.0
"""Who asks the web process for something, and what their role lets them do."""

from __future__ import annotations

import pwd
from dataclasses import dataclass

from ri2n_sdn.contract.choices import ROLES, Role

__all__ = ["Who", "uid_of"]


@dataclass(frozen=True)
class Who:
    """One who asks.

    * `name`: that of the token, or "anonymous".
    * `user`: whose jobs are their own. The controller looks the uid up.
    """

    name: str
    role: Role
    user: str | None = None

    def may(self, role: Role) -> bool:
        """Whether this one may do what needs `role`."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def said(self) -> dict[str, object]:
        """What the controller is told, under `as`."""
        return {"user": self.user or self.name, "uid": None, "role": self.role}


def uid_of(user: str) -> int | None:
    """The uid of a user of this machine; None when there is no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None
