"""Who a connected switch is:

its name and addresses, whether they can be a host's, and whose they were before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

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


def name_fault(name: str) -> str | None:
    """Why a name cannot be a host's, and what helps; None when it can."""
    if _NAME.match(name):
        return None
    return f"its name {name[:_SHOWN]!a} is not one: give it another with host-up --name"


def certificate_fault(name: str, names: Collection[str] | None) -> str | None:
    """Why a host's certificate is not its own; None when it is, or none was asked for (`names`
    None).

    A certificate speaks for a host when one of its names is the host's, with or without a domain
    behind it.
    """
    if names is None or any(
        name.lower() in (each.lower(), each.lower().partition(".")[0]) for each in names
    ):
        return None
    return (
        "its certificate is for "
        f"{', '.join(printable(each, _SHOWN) for each in sorted(names)[:4]) or 'nobody'}"
    )


def own_fault(member: Member) -> str | None:
    """What makes a host's own addresses unusable, and what helps; None when they are in order.

    Rows tell NICs apart by their addresses, and the host from its NICs; a stock bridge has the
    address of one of them.
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
                f"{seen[mac]} and {label} have one MAC address, {mac}: give one another and run "
                "host-up there"
            )
        seen[mac] = label
    return None


def claims(member: Member) -> frozenset[str]:
    """The MAC addresses that a host says are its own."""
    return frozenset({member.mac.lower(), *(port.mac.lower() for port in member.ports.values())})


def was_here(member: Member, contested: Collection[str], others: Iterable[Member]) -> bool:
    """Whether rows of other hosts, made by an earlier controller or this one, show that these
    addresses are `member`'s.

    Rows restore a host's own address on frames with its NIC's, so each binds the two. Of the NICs,
    those with a contested address count, or all when none is (two hosts of one name). What a host
    says of itself is no proof.
    """
    nics = [port for port in member.ports.values() if port.mac.lower() in contested] or [
        *member.ports.values()
    ]
    cookies = [other.installed.cookies.keys() for other in others if other.installed is not None]
    return any(restoring_cookies(member.mac, nic.mac) & known for nic in nics for known in cookies)


def refusal(candidate: Member, rival: Member, new: str, old: str) -> tuple[str, str]:
    """What is said of a host that another one's identity keeps out, and what the two share."""
    shared, cure = "datapath ID", "give one of the two another MAC address and run host-up there"
    both = sorted(claims(candidate) & claims(rival))
    if rival.name == candidate.name:
        shared, cure = "name", "give one of the two another with host-up --name"
    elif both:
        shared, cure = (
            f"MAC address {', '.join(both)}",
            "give one of the two another and run host-up there",
        )
    return (
        f"{candidate.name} at {new} refused: {rival.name} at {old} has the same {shared}: {cure}",
        shared,
    )


def _is_no_hosts(mac: str) -> bool:
    return mac == "00:00:00:00:00:00" or bool(int(mac[:2], 16) & 1)
