"""Which host a connected switch is: its name and addresses, and whether they can be a host's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from ri2n_sdn.apps.channel import Close
from ri2n_sdn.apps.cluster import Member
from ri2n_sdn.apps.texts import printable
from ri2n_sdn.pipeline.plan import restoring_cookies

__all__ = [
    "certificate_fault",
    "claims",
    "name_fault",
    "own_fault",
    "printable",
    "refusal",
    "was_here",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_SHOWN = 64
_OTHER_MAC = "give one of the two another MAC address and run host-up there"


def name_fault(name: str) -> str | None:
    """Why a name cannot be a host's, and what to do; None when it can."""
    if _NAME.match(name):
        return None
    return f"its name {name[:_SHOWN]!a} is not valid: choose another with host-up --name"


def certificate_fault(name: str, names: Collection[str] | None) -> str | None:
    """Why a host's certificate is not its own; None when it is.

    It is the host's own when one of its `names` is the host's name, with or without a domain behind
    it. `names` is None when certificates are not checked; then there is no fault.
    """
    if names is None or any(
        name.lower() in (certified.lower(), certified.lower().partition(".")[0])
        for certified in names
    ):
        return None
    return (
        "its certificate is for "
        f"{', '.join(printable(certified, _SHOWN) for certified in sorted(names)[:4]) or 'nobody'}"
    )


def own_fault(member: Member) -> str | None:
    """Why a host's own addresses cannot be used, and what to do; None when they can.

    Rows distinguish NICs, and the host from its NICs, by their addresses, so all must differ. A
    bridge that `host-up` did not make has the address of one of its NICs.
    """
    seen: dict[str, str] = {}
    for label, mac in [
        ("its bridge", member.mac),
        *((port.name, port.mac) for port in member.ports.values()),
    ]:
        if _is_no_hosts(mac):
            return f"{label} has the MAC address {mac}, which no NIC may have: run host-up there"
        if mac in seen:
            return (
                f"{seen[mac]} and {label} have one MAC address, {mac}: give one of them another "
                "and run host-up there"
            )
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


def refusal(candidate: Member, rival: Member, new: str, old: str) -> tuple[str, Close]:
    """(text of the refusal, why the connection ends) of a host with another host's identity.

    `new` and `old` are the addresses from which the candidate and the rival connect.
    """
    shared, cure, why = "datapath ID", _OTHER_MAC, Close.DUPLICATE_DATAPATH_ID
    both = sorted(claims(candidate) & claims(rival))
    if rival.name == candidate.name:
        shared, cure = "name", "give one of the two another name with host-up --name"
        why = Close.DUPLICATE_NAME
    elif both:
        shared, why = f"MAC address {', '.join(both)}", Close.DUPLICATE_MAC
    return (
        f"{candidate.name} at {new} refused: {rival.name} at {old} has the same {shared}: {cure}",
        why,
    )


def _is_no_hosts(mac: str) -> bool:
    return mac == "00:00:00:00:00:00" or bool(int(mac[:2], 16) & 1)
