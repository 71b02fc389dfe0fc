# SPDX-License-Identifier: Apache-2.0
"""Pure: which of the addresses that a server names a client connects to.

Without these rules a server could make its clients connect anywhere: to programs that listen for
their own host only, or to hosts that the server itself cannot reach. So a link goes to the address
that the program has named, or to a host in the network of an own interface, where the other NICs of
a cluster's servers are. If they are behind routers, the program names their networks. A link goes
to a loopback address only if the server was named by one, and to an own address only if the server
is this host.
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
    """The networks that a program has named; BadInput for a text that is no network."""
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise BadInput(
                f"networks: {text}: is no network such as 10.1.0.0/16 or fd00:1::/32"
            ) from None
    return tuple(networks)


def sensible(
    named: Sequence[Endpoint],
    asked: Endpoint,
    interfaces: Callable[[int], Sequence[Interface]],
    networks: Sequence[Network] = (),
) -> list[Endpoint]:
    """The endpoints of `named` that a client connects to, in their order; `asked` if there is none.

    `asked` is where the client has its control connection. `interfaces` gives the interfaces of
    this host for an IP version (4, 6); it is called only when they are needed.
    """
    own = functools.cache(interfaces)
    server = _address(asked.address)

    @functools.cache
    def is_sensible(text: str) -> bool:
        return _address(text) == server or _is_sensible(_address(text), server, own, networks)

    return [endpoint for endpoint in named if is_sensible(endpoint.address)] or [asked]


def _is_sensible(
    address: Address,
    server: Address,
    interfaces: Callable[[int], Sequence[Interface]],
    networks: Sequence[Network],
) -> bool:
    """Whether a client connects to an address other than the one that its program has named."""
    if address.is_loopback:
        return server.is_loopback
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        return False
    own = interfaces(address.version)
    if any(address == interface.ip for interface in own):
        return server.is_loopback or any(
            server == interface.ip for interface in interfaces(server.version)
        )
    reachable = [*(interface.network for interface in own), *networks]
    return any(_is_host_of(address, network) for network in reachable)


def _is_host_of(address: Address, network: Network) -> bool:
    """Whether an address is in the network and no broadcast address.

    Broadcast addresses are the first and the last one of a network with more than two.
    """
    if address.version != network.version or address not in network:
        return False
    return network.num_addresses <= 2 or address not in (
        network.network_address,
        network.broadcast_address,
    )


@functools.lru_cache(1024)
def _address(text: str) -> Address:
    """The address in a text; an IPv4 address in an IPv6 one (::ffff:192.0.2.1) counts as IPv4."""
    parsed = ipaddress.ip_address(text.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return parsed if mapped is None else mapped
