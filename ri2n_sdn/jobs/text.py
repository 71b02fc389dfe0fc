# SPDX-License-Identifier: Apache-2.0
"""How people write services, path tables and lists of names, and how policies are shown."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.contract.names import host_name, path_name
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.jobs.model import PathTable, Policy, Service

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import PolicyOf

__all__ = [
    "once",
    "parse_dscp_table",
    "parse_hosts",
    "parse_paths",
    "parse_service",
    "policy_document",
    "service_text",
]


def parse_paths(text: str, where: str = "--paths") -> tuple[str, ...]:
    """The names in `net1,net2/12`. Raises BadInput, which begins with `where`."""
    return once((path_name(name.strip(" "), where) for name in text.split(",")), where)


def parse_hosts(text: str, where: str = "--hosts") -> tuple[str, ...]:
    """The names of hosts in `n1,n2`. Raises BadInput, which begins with `where`."""
    return once((host_name(name.strip(" "), where) for name in text.split(",")), where)


def parse_dscp_table(text: str, where: str = "--table") -> PathTable:
    """The table in `10=net2,net3`. Raises BadInput, which begins with `where`."""
    dscp, equals, names = text.partition("=")
    if not equals:
        raise refusal("table_form", where, value=shown(text))
    if not re.fullmatch(r"[0-9]{1,2}", dscp) or int(dscp) > MAX_DSCP:
        raise refusal("dscp_form", where, high=MAX_DSCP, value=shown(dscp))
    return PathTable(int(dscp), parse_paths(names, where))


def parse_service(text: str, where: str = "--service") -> Service:
    """The service in `10.0.0.9/tcp/2049` or `[fd77::9]/tcp/2049`.

    Raises BadInput, which begins with `where`.
    """
    parts = text.split("/")
    if len(parts) != 3:
        raise refusal("service_form", where, value=shown(text))
    address, proto, port = parts
    bare = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    try:
        if "%" in bare:
            raise ValueError
        plain = ipaddress.ip_address(bare)
    except ValueError:
        raise refusal("service_not_address", where, value=shown(address)) from None
    if bare != address and plain.version == 4:
        raise refusal("service_brackets", where, value=shown(address))
    if plain.is_multicast or plain.is_unspecified:
        raise refusal("service_no_host", where, value=shown(address))
    if proto not in ("tcp", "udp"):
        raise refusal("service_protocol", where, value=shown(proto))
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise refusal("service_port", where, value=shown(port))
    return Service(str(plain), proto, int(port))


def service_text(service: Service) -> str:
    """A service as `parse_service` reads it."""
    address = f"[{service.address}]" if ":" in service.address else service.address
    return f"{address}/{service.proto}/{service.port}"


def policy_document(policy: Policy) -> PolicyOf:
    """A policy for an answer, an order or a declaration."""
    return {
        "policy": policy.kind,
        "paths": list(policy.names(None)),
        "tables": [
            {"dscp": table.dscp, "paths": list(table.paths)}
            for table in policy.tables
            if table.dscp is not None
        ],
        "services": [service_text(service) for service in policy.services],
        "min_rate_bps": policy.min_rate_bps,
        "max_rate_bps": policy.max_rate_bps,
    }


def once(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The names. Raises BadInput, which begins with `where`, when one is there twice."""
    result: dict[str, None] = {}
    for name in names:
        if name in result:
            raise refusal("twice", where, what=name)
        result[name] = None
    return tuple(result)
