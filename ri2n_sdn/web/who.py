"""Who asks the web process for something, and what their role lets them do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["ROLES", "Role", "Who"]

Role = Literal["viewer", "user", "admin"]
"""A viewer changes nothing, a user acts on his own jobs and reservations, an admin does all."""

ROLES: tuple[Role, ...] = get_args(Role)
"""A role may do all that the ones before it may."""


@dataclass(frozen=True)
class Who:
    """One who asks.

    * `name`: that of the token, or "anonymous".
    * `user`, `uid`: whose jobs are their own. The controller looks a missing uid up.
    """

    name: str
    role: Role
    user: str | None = None
    uid: int | None = None

    def may(self, role: Role) -> bool:
        """Whether this one may do what needs `role`."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def said(self) -> dict[str, object]:
        """What the controller is told, under `as`."""
        return {"user": self.user or self.name, "uid": self.uid, "role": self.role}
