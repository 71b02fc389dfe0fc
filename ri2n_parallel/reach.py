"""Pure: which of the addresses that a server names a client connects to.

A server could otherwise have its clients knock at any door: at programs that listen for their own
host only, or at hosts that the server itself cannot reach. So links go to the address that the
program has asked for, and to hosts in the networks of own interfaces, where the other NICs of a
cluster's servers are; where these are behind routers, the program says in which networks. Never to
loopback unless the server is asked there, nor to own addresses unless it is this host.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ri2n_parallel.errors import BadInput
from ri2n_parallel.frames import Endpoint

__all__ = ["Address", "Interface", "Network", "networks_of", "sensible"]

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
Interface: TypeAlias = "ipaddress.IPv4Interface | ipaddress.IPv6Interface"


def networks_of(texts: Sequence[str]) -> tuple[Network, ...]:
    """What a program has named; BadInput for what is no network."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise BadInput(
                f"networks: {text}: is no network such as 10.1.0.0/16 or fd00:1::/32"
            ) from None
    return tuple(found)


def sensible(
    named: Sequence[Endpoint],
    asked: Endpoint,
    interfaces: Callable[[int], Sequence[Interface]],
    networks: Sequence[Network] = (),
) -> list[Endpoint]:
    """Those of `named` to connect to, in their order, after a connection to `asked`; if there are
    none, that itself.

    `interfaces` are this host's of an IP version, and are looked up only where they are needed.
    """
    own = functools.cache(interfaces)
    server = _address(asked.address)

    @functools.cache
    def is_sensible(text: str) -> bool:
        return _address(text) == server or _is_sensible(_address(text), server, own, networks)

    return [one for one in named if is_sensible(one.address)] or [asked]


def _is_sensible(
    address: Address,
    server: Address,
    interfaces: Callable[[int], Sequence[Interface]],
    networks: Sequence[Network],
) -> bool:
    if address.is_loopback:
        return server.is_loopback
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        return False
    own = interfaces(address.version)
    if any(address == each.ip for each in own):
        return server.is_loopback or any(server == each.ip for each in interfaces(server.version))
    return any(_is_host_of(address, each) for each in [*(one.network for one in own), *networks])


def _is_host_of(address: Address, network: Network) -> bool:
    """In it, and no broadcast: those are its first and last address, unless it has but two or
    one.
    """
    if address.version != network.version or address not in network:
        return False
    return network.num_addresses <= 2 or address not in (
        network.network_address,
        network.broadcast_address,
    )


@functools.lru_cache(1024)
def _address(text: str) -> Address:
    found = ipaddress.ip_address(text.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found if mapped is None else mapped
