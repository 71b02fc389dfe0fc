# SPDX-License-Identifier: Apache-2.0
"""Which host a connected switch is: its name and addresses, and whether they can be a host's."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ri2n_sdn.apps.channel import Close
from ri2n_sdn.apps.cluster import Member
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.pipeline.plan import restoring_cookies

__all__ = [
    "MAX_SHOWN",
    "address_of",
    "certificate_fault",
    "claims",
    "own_fault",
    "refusal",
    "was_here",
]

MAX_SHOWN = 64
"""So many characters of a strange name are shown."""


def address_of(member: Member, unknown: str = "?") -> str:
    """The address from which a host connects; `unknown` for a host that is away."""
    return member.channel.address if member.channel is not None else unknown


def certificate_fault(name: str, address: str, names: Collection[str] | None) -> Problem | None:
    """The refusal of a host whose certificate is not its own; None when it is.

    It is the host's own when one of its `names` is the host's name, with or without a domain behind
    it. `names` is None when certificates are not checked; then there is no fault.
    """
    if names is None or any(
        name.lower() in (certified.lower(), certified.lower().partition(".")[0])
        for certified in names
    ):
        return None
    shown = [printable(certified, MAX_SHOWN) for certified in sorted(names)[:4]] or ["nobody"]
    return Problem("host_certificate_foreign", {"host": name}, {"address": address, "names": shown})


def own_fault(member: Member) -> Problem | None:
    """The refusal of a host whose own addresses cannot be used; None when they can.

    Rows distinguish NICs, and the host from its NICs, by their addresses, so all must differ. A
    bridge that `host-up` did not make has the address of one of its NICs.
    """
    seen: dict[str, str] = {}
    for label, mac in [
        ("its bridge", member.mac),
        *((port.name, port.mac) for port in member.ports.values()),
    ]:
        args = {"address": address_of(member), "device": label, "mac": mac}
        if mac == "00:00:00:00:00:00" or int(mac[:2], 16) & 1:
            return Problem("host_mac_impossible", {"host": member.name}, args)
        if mac in seen:
            args |= {"device": seen[mac], "other_device": label}
            return Problem("host_macs_equal", {"host": member.name}, args)
        seen[mac] = label
    return None


def claims(member: Member) -> frozenset[str]:
    """The MAC addresses that a host says are its own."""
    return frozenset({member.mac.lower(), *(port.mac.lower() for port in member.ports.values())})


def was_here(member: Member, contested: Collection[str], others: Iterable[Member]) -> bool:
    """Whether rows of other hosts show that `contested` addresses belong to `member`.

    Other hosts have rows that restore a host's own address on frames with its NIC's address, so
    each such row ties the two. An earlier controller may have made them, or this one. Only NICs
    with a contested address count, or all NICs when none is contested (two hosts of one name). What
    a host says about itself is no proof.
    """
    nics = [port for port in member.ports.values() if port.mac.lower() in contested] or [
        *member.ports.values()
    ]
    cookies = [other.installed.cookies.keys() for other in others if other.installed is not None]
    return any(restoring_cookies(member.mac, nic.mac) & held for nic in nics for held in cookies)


def refusal(candidate: Member, rival: Member, new: str, old: str) -> tuple[Problem, Close]:
    """(the refusal, why the connection ends) of a host with another host's identity.

    `new` and `old` are the addresses from which the candidate and the rival connect.
    """
    code, why = "host_datapath_taken", Close.DUPLICATE_DATAPATH_ID
    both = sorted(claims(candidate) & claims(rival))
    if rival.name == candidate.name:
        code, why = "host_name_taken", Close.DUPLICATE_NAME
    elif both:
        code, why = "host_mac_taken", Close.DUPLICATE_MAC
    args = {"address": new, "other": rival.name, "other_address": old, "macs": both}
    return Problem(code, {"host": candidate.name}, args), why
