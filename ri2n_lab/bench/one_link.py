# SPDX-License-Identifier: Apache-2.0
"""One link of a set and nothing else, in the form of a peer: what several links are measured by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from ri2n_lab.bench.peers.base import no_common_network, pings
from ri2n_lab.cluster import Lab
from ri2n_sdn.fabric.topology import Topology

__all__ = ["ONE_LINK", "OneLink", "with_shares"]

ONE_LINK = "one_link"

Json = dict[str, Any]


class OneLink:
    """The first NIC of every host, with the kernel alone."""

    name = ONE_LINK
    title = "one link, plain TCP"
    software = "none"
    prefix: tuple[str, ...] = ()
    udp = True

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why not: a client's first NIC is on another switch than the server's."""
        return no_common_network(self.topology(topology), server, clients)

    def lacks(self) -> str | None:
        """It lacks nothing and needs nothing."""
        return None

    def topology(self, topology: Topology) -> Topology:
        """Hosts with one NIC each, and the switches that those are on."""
        hosts = {
            name: host.model_copy(update={"nics": host.nics[:1]})
            for name, host in topology.hosts.items()
        }
        used = {host.nics[0].switch for host in hosts.values()}
        switches = {name: switch for name, switch in topology.switches.items() if name in used}
        return topology.model_copy(update={"hosts": hosts, "switches": switches})

    def set_up(self, lab: Lab) -> None:
        """Do nothing: the address is on the NIC."""

    def mend(self, lab: Lab) -> None:
        """Do nothing: there is no other link."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when the server answers, else what is wrong."""
        return (
            None
            if pings(lab, client, lab.address(server))
            else f"packets from {client} to {server} are lost"
        )


def with_shares(rows: Iterable[Json], links_mbps: Mapping[str, Sequence[int]]) -> list[Json]:
    """The rows with `of_links`: goodput, of what plain TCP had over one link times the links.

    Of the same run. With links of several rates a link counts by its rate; `links_mbps` has the
    rates of each set, the measured link's first. None where nothing was measured over one link, or
    with another protocol or congestion control.
    """
    rows = list(rows)
    alone: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["strategy"] == ONE_LINK and row["goodput_bps"]:
            alone.setdefault((row["links_mbps"], row["proto"], row["cc"]), []).append(
                row["goodput_bps"]
            )
    found = []
    for row in rows:
        plain = alone.get((row["links_mbps"], row["proto"], row["cc"]))
        share = None
        if plain and row["goodput_bps"] is not None:
            rates = links_mbps[row["links_mbps"]]
            share = round(row["goodput_bps"] / (median(plain) * sum(rates) / rates[0]), 4)
        found.append({**row, "of_links": share})
    return found
