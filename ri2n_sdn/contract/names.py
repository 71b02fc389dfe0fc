# SPDX-License-Identifier: Apache-2.0
"""What names of jobs, hosts, users, paths and tokens look like, and their checks.

The patterns are ones that Python, pydantic and bash read alike, and none is anchored.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ri2n_sdn.contract.choices import KINDS
from ri2n_sdn.contract.limits import MAX_VLAN
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal

__all__ = [
    "HOST_NAME",
    "JOB_ID",
    "PATH_NAME",
    "PATH_WORD",
    "TOKEN_NAME",
    "USER_NAME",
    "host_name",
    "is_host_name",
    "job_id",
    "natural",
    "path_name",
    "policy_name",
    "token_name",
    "user_name",
]

JOB_ID = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"
HOST_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
USER_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.@+\\-]{0,63}\$?"
TOKEN_NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
PATH_WORD = r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}"
PATH_NAME = rf"(vlan:([0-9]{{1,4}})|{PATH_WORD}(/([0-9]{{1,4}})|:{PATH_WORD})?)"
"""The second and the fourth group are the VLAN. What begins with `vlan:` has one."""


def job_id(text: str, where: str = "id") -> str:
    """The id of a job or reservation. Raises BadInput, which begins with `where`."""
    return _of_64(JOB_ID, "._:-", text, where)


def token_name(text: object, where: str = "name") -> str:
    """The name of a token. Raises BadInput, which begins with `where`."""
    return _of_64(TOKEN_NAME, "._@-", text, where)


def is_host_name(text: str) -> bool:
    """Whether a text can be the name of a host."""
    return re.fullmatch(HOST_NAME, text) is not None


def host_name(text: str, where: str = "hosts") -> str:
    """The name of a host. Raises BadInput, which begins with `where`."""
    if not is_host_name(text):
        raise refusal("host_not_name", where, value=shown(text))
    return text


def user_name(text: str, where: str = "user") -> str:
    """The name of a user, or a uid in digits. Raises BadInput, which begins with `where`."""
    if not re.fullmatch(USER_NAME, text):
        raise refusal("user_not_name", where, value=shown(text))
    return text


def policy_name(text: str, where: str = "name") -> str:
    """The name of a named policy. Raises BadInput, which begins with `where`.

    The name of a kind of policies is none, since people would take one for the other.
    """
    if text in KINDS:
        raise refusal("policy_name_is_kind", where, name=text)
    return job_id(text, where)


def path_name(text: str, where: str = "paths") -> str:
    """A name of paths: NETWORK, NETWORK/VLAN, vlan:VLAN, HOST:NIC or NIC (jobs.lanes).

    Raises BadInput, which begins with `where`.
    """
    found = re.fullmatch(PATH_NAME, text)
    if not found or (text.startswith("vlan:") and found[2] is None):
        raise refusal("path_name_form", where, value=shown(text))
    vlan = found[2] or found[4]
    if vlan is not None and int(vlan) > MAX_VLAN:
        raise refusal("vlan_too_high", where, value=shown(text), high=MAX_VLAN)
    return text


@lru_cache(maxsize=4096)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which net2 comes before net10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.findall(r"[0-9]{1,18}|[^0-9]+", text)
    )


def _of_64(pattern: str, marks: str, text: object, where: str) -> str:
    if not isinstance(text, str) or not re.fullmatch(pattern, text):
        raise refusal("name_form", where, value=shown(text), marks=marks)
    return text
