# SPDX-License-Identifier: Apache-2.0
"""What the benches share where helpers stripe: plain hosts, autonomous helpers, being ready."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ri2n_lab.bench.fast import FLOW_FAST, PACKET, PACKET_FAST
from ri2n_lab.bench.peers import PEERS, Peer
from ri2n_lab.bench.peers.base import no_common_network, pings
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.helpers import find_program
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "AUTONOMOUS",
    "MODES",
    "Autonomous",
    "await_striped",
    "contender",
    "links_between",
    "usable_links",
    "with_plain",
]

MODES = ("flow", FLOW_FAST, PACKET, PACKET_FAST)
"""How traffic is spread.

flow: whole flows, by hash; flow_fast: the same, by the fast path beside the bridges; packet: packet
by packet, by the helper ri2n-reorder; packet_fast: the same, and TCP by both, beside the bridges.
"""

AUTONOMOUS = "autonomous_"
"""Before a strategy's name: helpers follow it alone, without a controller and Open vSwitch."""

READY_S = 60.0
POLL_S = 0.05


class Autonomous:
    """Helpers alone as one way to use several links, in the form that peers have.

    It is ours, and no peer in rows.
    """

    software = "autonomous"
    prefix: tuple[str, ...] = ()
    udp = True

    def __init__(self, strategy: str) -> None:
        """`strategy` is as the helper's option takes it."""
        self.strategy = strategy
        self.name = f"{AUTONOMOUS}{strategy}"
        self.title = f"helpers without a controller, {strategy}"

    @property
    def options(self) -> list[str]:
        """More options of every helper."""
        return ["--strategy", self.strategy]

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why not: helpers reach only hosts that have a helper."""
        plain = [host for host in (server, *clients) if host not in topology.helper_hosts()]
        if plain:
            return (
                f"without Open vSwitch nobody speaks to hosts without a helper, and {plain[0]} "
                "has none"
            )
        return no_common_network(topology, server, clients)

    def lacks(self) -> str | None:
        """What may be missing: the helper's program."""
        try:
            find_program()
        except NotAvailable as error:
            return str(error)
        return None

    def topology(self, topology: Topology) -> Topology:
        """The same topology."""
        return topology

    def set_up(self, lab: Lab) -> None:
        """Tell helpers another strategy than the one that they begin with."""
        for host in lab.helpers.hosts:
            lab.helpers.restart(host, self.options)

    def mend(self, lab: Lab) -> None:
        """Start helpers that were killed, as systemd would."""
        for host in lab.helpers.hosts:
            if lab.helpers.pid(host) is None:
                lab.helpers.start(host, self.options)

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address, on its TAP."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when every link is in use and the server answers, else what is wrong."""
        missing = _missing(lab, client, server)
        if missing is None and not pings(lab, client, lab.address(server)):
            return f"packets from {client} to {server} are lost"
        return missing


def contender(name: str) -> Peer:
    """The peer of this name, or helpers without a controller."""
    strategy = name.removeprefix(AUTONOMOUS)
    return PEERS[name] if strategy == name else Autonomous(strategy)


def with_plain(topology: Topology, hosts: Iterable[str]) -> Topology:
    """`topology` where these hosts have no helper.

    BadInput for a host that it does not have, or that has none.
    """
    changed = dict(topology.hosts)
    for host in hosts:
        known = topology.helper_hosts()
        if host not in known:
            raise BadInput(
                f"--plain: {host} is none of {', '.join(known)} in topology {topology.name}"
            )
        changed[host] = changed[host].model_copy(update={"helper": False})
    return topology.model_copy(update={"hosts": changed})


def await_striped(
    lab: Lab, clients: Iterable[str], server: str, timeout_s: float = READY_S
) -> None:
    """Wait until the helpers of all clients that have one use every link to the server, and back.

    NotAvailable with what is missing when that takes longer.
    """
    deadline = time.monotonic() + timeout_s
    ready = lab.helpers.hosts
    for client in clients:
        if not {client, server} <= set(ready):
            continue
        for source, target in ((client, server), (server, client)):
            while (missing := _missing(lab, source, target)) is not None:
                if time.monotonic() > deadline:
                    raise NotAvailable(f"not striped after {timeout_s:g} s: {missing}")
                time.sleep(POLL_S)


def links_between(topology: Topology, one: str, other: str) -> int:
    """How many links the two have: pairs of NICs, one of each, on one switch."""
    there = [nic.switch for nic in topology.hosts[other].nics]
    return sum(there.count(nic.switch) for nic in topology.hosts[one].nics)


def usable_links(status: dict[str, Any], mac: str | None) -> int:
    """How many links a helper uses to the host with this MAC, from its status.

    0 when it does not stripe to it.
    """
    for peer in status.get("peers", ()):
        if peer["mac"] == mac and peer["striped"]:
            return sum(bool(link["usable"]) for link in peer["links"])
    return 0


def _missing(lab: Lab, source: str, target: str) -> str | None:
    """What keeps the two from using all their links, in words; None when nothing does."""
    wanted, found = links_between(lab.topology, source, target), 0
    with suppress(NotAvailable):  # it is being started again
        found = usable_links(lab.helpers.status(source), lab.helpers.status(target)["mac"])
    return None if found >= wanted else f"{source} uses {found} of {wanted} links to {target}"
