# SPDX-License-Identifier: Apache-2.0
"""Pure: the rules of many users, as a job's host has them and as the paper's hosts had them.

Each function makes text for one program (`nft -f`, `iptables-restore`, `ip -batch`). The user who
sends stands in the middle of all users: of a list that is walked until a rule matches, that user's
packets walk half, as an average user's do.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "BRIDGE_TABLE",
    "CLASSES",
    "CLASS_MAC",
    "CLASS_MAC_MASK",
    "SENDER_UID",
    "TABLE",
    "bridge_rows",
    "jobs",
    "more_users",
    "no_owner_rules",
    "owner_rules",
    "path_rules",
    "users",
]

CLASSES = 63
"""How many classes a host has for its jobs."""

CLASS_MAC = "02:52:4a:00:00:00"
CLASS_MAC_MASK = "ff:ff:ff:ff:ff:c0"
"""A class goes to the bridge in the last six bits of such a source address."""

SENDER_UID = 1_000_000
"""The user who sends: an id that no account of a machine has."""

TABLE = "ri2n_jobs_bench"
"""The nft table of the verdict map."""

BRIDGE_TABLE = 1
FIRST_PATH_TABLE = 1000


def users(rules: int) -> range:
    """The ids of so many users; the sender is in the middle of them, unless there are none."""
    first = SENDER_UID - rules // 2
    return range(first, first + rules)


def jobs(rules: int) -> list[tuple[int, int]]:
    """(class, user's id) of the jobs that a host has: one in each class, the sender's among them.

    There are fewer with fewer users.
    """
    every = users(rules)
    first = max(0, len(every) // 2 - CLASSES // 2)
    return list(enumerate(every[first : first + CLASSES], start=1))


def more_users(rules: int) -> str:
    """What makes members of the verdict map of all users who have no job of their own in `jobs`.

    They share its classes. For `nft -f`, after the rules of the jobs.
    """
    taken = {uid for _, uid in jobs(rules)}
    others = [uid for uid in users(rules) if uid not in taken]
    if not others:
        return ""
    members = (f"{uid} : goto class_{uid % CLASSES + 1}" for uid in others)
    return f"add element netdev {TABLE} users {{ {', '.join(members)} }}\n"


def owner_rules(rules: int) -> str:
    """One rule for each user, which marks by the owner of the sending socket (the paper's)."""
    return _mangle(
        f"-A OUTPUT -m owner --uid-owner {uid} -j MARK --set-mark {number}"
        for number, uid in enumerate(users(rules), start=1)
    )


def no_owner_rules() -> str:
    """The same without any rule."""
    return _mangle(())


def path_rules(rules: int, verb: str, device: str, subnet: str, address: str) -> list[str]:
    """For each user a rule that chooses a routing table by the mark, and its route (the paper's).

    `verb` is add or del.
    """
    lines = []
    for number in range(1, rules + 1):
        table = FIRST_PATH_TABLE + number
        lines.append(f"rule {verb} priority {table} fwmark {number} table {table}")
        lines.append(f"route {verb} {subnet} dev {device} src {address} table {table}")
    return lines


def bridge_rows(port: int, mac: str) -> list[str]:
    """OpenFlow rows of a host's bridge with one port.

    The first table makes a register of the class and gives the host its address `mac` back; what
    has no class takes the same way. All methods have the same rows.
    """
    return [
        f"table=0,priority=20,in_port=LOCAL,dl_src={CLASS_MAC}/{CLASS_MAC_MASK},"
        "actions=move:NXM_OF_ETH_SRC[0..5]->NXM_NX_REG6[0..5],"
        f"set_field:{mac}->eth_src,resubmit(,{BRIDGE_TABLE})",
        f"table=0,priority=10,actions=resubmit(,{BRIDGE_TABLE})",
        f"table={BRIDGE_TABLE},in_port=LOCAL,actions=output:{port}",
        f"table={BRIDGE_TABLE},in_port={port},actions=LOCAL",
    ]


def _mangle(rules: Iterable[str]) -> str:
    return "\n".join(["*mangle", ":OUTPUT ACCEPT [0:0]", *rules, "COMMIT"]) + "\n"
