# SPDX-License-Identifier: Apache-2.0
"""What an earlier controller knew, until its hosts are back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ri2n_sdn.fabric.model import HelperLinkNumbers, NicId, PathKey
from ri2n_sdn.store.rows import HostRow, LinksRow, State

__all__ = ["FORGET_S", "NIC_FAULTS", "Remembered", "links_row", "nic_text", "remembered"]

FORGET_S = 300.0
"""A host that has not come back for this time after a start is not waited for any more."""

NIC_FAULTS = ("link", "tx", "rx")
"""What may not work of a NIC, as the store names it: its carrier, and each direction."""


@dataclass
class Remembered:
    """Hosts by name, the networks of their NICs, and numbers of helper links.

    All of it are beliefs. `hosts` has only those that have not come back, `rows` all of them.
    `expected` are the names of those that were connected when the earlier controller ended, and
    `away` of the others. `faults` are what does not work of each NIC: some of NIC_FAULTS.
    """

    hosts: dict[str, HostRow] = field(default_factory=dict)
    networks: Mapping[NicId, str] = field(default_factory=dict)
    links: HelperLinkNumbers = field(default_factory=dict)
    rows: Mapping[str, HostRow] = field(init=False)
    expected: set[str] = field(init=False)
    away: frozenset[str] = field(init=False)
    faults: Mapping[NicId, Collection[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = dict(self.hosts)
        self.away = frozenset(
            name for name, row in self.hosts.items() if row.away_since_s is not None
        )
        self.expected = self.hosts.keys() - self.away
        self.faults = {
            (name, number): text.split()
            for name, row in self.hosts.items()
            for number, text in row.nic_faults.items()
        }

    def came(
        self, name: str, datapath_id: str, mac: str, nics: Mapping[int, tuple[str, str]]
    ) -> Collection[NicId]:
        """A host has connected; returns its NICs of which nothing may be believed any more.

        `nics` are (name, MAC address) by port. What was known of the host under another name ends
        with it: the datapath ID is the host's own.
        """
        former = self.hosts.pop(name, None)
        for other, row in list(self.hosts.items()):
            if row.datapath_id == datapath_id:
                del self.hosts[other]
                self.expected.discard(other)
        if former is None:
            return ()
        known = (former.datapath_id, former.mac.lower()) == (datapath_id, mac.lower())
        return [
            (name, port)
            for port in former.nic_names.keys() | nics.keys()
            if not known
            or nics.get(port)
            != (former.nic_names.get(port, ""), former.nic_macs.get(port, "").lower())
        ]


def remembered(state: State) -> Remembered:
    """What a store's rows say. Rows that make no sense are left out."""
    networks = {}
    for name, network in state.networks.items():
        for text in network.nics:
            host, _, port = text.rpartition(":")
            if host in state.hosts and port.isdecimal():
                networks[host, int(port)] = name
    links = {}
    for key, row in state.links.items():
        numbers = {
            path: number
            for text, number in row.numbers.items()
            if (path := _path(text)) is not None
        }
        if key[0] < key[1] and len(set(numbers.values())) == len(numbers):
            links[key] = numbers
    return Remembered(dict(state.hosts), networks, links)


def nic_text(nic: NicId) -> str:
    """A NIC as the store writes it."""
    return f"{nic[0]}:{nic[1]}"


def links_row(pair: tuple[str, str], numbers: Mapping[PathKey, int]) -> LinksRow | None:
    """The row of a pair's helper links; None when their numbers are those of a new start.

    Those are 0, 1, 2 ... in the order of the paths (fabric.helper_links).
    """
    if list(numbers) == sorted(numbers) and list(numbers.values()) == list(range(len(numbers))):
        return None
    return LinksRow(*pair, {"/".join(map(str, path)): number for path, number in numbers.items()})


def _path(text: str) -> PathKey | None:
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])
