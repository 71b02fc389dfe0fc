# SPDX-License-Identifier: Apache-2.0
"""The addresses of a flow that names none: those of its two hosts, where there is no doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address

from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.pipeline.dphash import PROTOCOLS, Flow

__all__ = ["with_addresses"]

_VERSIONS = (4, 6)
_VERSION_OF = {PROTOCOLS["icmp"]: 4, PROTOCOLS["icmp6"]: 6}


def with_addresses(
    flow: Flow, source: tuple[str, Sequence[str]], target: tuple[str, Sequence[str]]
) -> Flow:
    """The flow with both addresses; those that it has already stay.

    `source` and `target` are the hosts' names and the addresses that the hosts tell. An address
    decides on the NIC, so none is guessed: a host must have exactly one of the flow's IP version.
    The version is that of an address of the flow, or that of ICMP; otherwise IPv4 where both hosts
    have it, and IPv6 where only that is common. Raises BadInput where a host has no address of that
    version or several: the refusal says how to name the one that is meant.
    """
    sources = [flow.src_ip] if flow.src_ip else source[1]
    targets = [flow.dst_ip] if flow.dst_ip else target[1]
    version = _version(flow, sources, targets)
    return replace(
        flow,
        src_ip=_only(source[0], _of(version, sources), version, "src_ip", "source"),
        dst_ip=_only(target[0], _of(version, targets), version, "dst_ip", "destination"),
    )


def _version(flow: Flow, sources: Sequence[str], targets: Sequence[str]) -> int:
    """The IP version of a flow between two of these addresses."""
    if flow.src_ip or flow.dst_ip:
        return ip_address(flow.src_ip or flow.dst_ip).version
    if flow.protocol in _VERSION_OF:
        return _VERSION_OF[flow.protocol]
    common = (each for each in _VERSIONS if _of(each, sources) and _of(each, targets))
    return next(common, _VERSIONS[0])


def _of(version: int, addresses: Sequence[str]) -> list[str]:
    return [address for address in addresses if ip_address(address).version == version]


def _only(host: str, addresses: Sequence[str], version: int, key: str, end: str) -> str:
    """The only one of a host's addresses. Raises BadInput."""
    if len(addresses) == 1:
        return addresses[0]
    option = f"--{key.replace('_', '-')}"
    asked = {"host": host, "family": f"IPv{version}", "end": end, "option": option}
    if not addresses:
        raise refusal("address_unknown", f"flow.{key}", **asked)
    raise refusal("address_ambiguous", f"flow.{key}", **asked, addresses=list(addresses))
