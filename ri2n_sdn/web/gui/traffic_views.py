# SPDX-License-Identifier: Apache-2.0
"""What the page of traffic shows: hosts, pairs, shares, and charts of both. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ri2n_sdn.contract.answers import Pair, Path
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.fair import part_of_fair
from ri2n_sdn.contract.names import natural
from ri2n_sdn.contract.units import page_rate, percent_text
from ri2n_sdn.web.gui.fair_views import clients, part_text
from ri2n_sdn.web.gui.words import address, has_words, network_text

__all__ = [
    "ALL",
    "HOST_SORTS",
    "PAIR_SORTS",
    "PairSamples",
    "host_names",
    "host_row",
    "newest_rates",
    "pair_request",
    "pair_rows",
    "path_rows",
]

Row = dict[str, Any]

ALL = "all hosts"
"""The line of a chart that stands for all hosts together."""

HOST_SORTS = {
    "name": "Name",
    "worst": "Smallest part of what is fair first",
    "rate": "Highest rate first",
}

PAIR_SORTS = {
    "src": "Sender",
    "dst": "Receiver",
    "rate": "Highest rate first",
    "slow": "Lowest rate first",
}

MAX_POINTS = 450
"""15 minutes with a sample every 2 s."""


def host_names(state: Documents, sort: str = "name", search: str = "") -> list[str]:
    """The hosts whose names have all words of a search, in an order of HOST_SORTS.

    Hosts that no link limits come last where the order is that of what is fair.
    """
    names = sorted((name for name in state["hosts"] if has_words(search, name)), key=natural)
    if sort == "worst":
        places = {name: place for place, name in enumerate(clients(state))}
        names.sort(key=lambda name: places.get(name, len(places)))
    elif sort == "rate":
        rates = state["rates"]
        names.sort(key=lambda name: -max(_sums(rates.get(name, {}))))
    return names


def host_row(state: Documents, name: str, *, old: bool = False) -> Row:
    """The row of one host. What is `old` says how it was, and not how it is."""
    host = state["hosts"][name]
    tx_bps, rx_bps = _sums(state["rates"].get(name, {}))
    nics = host["nics"].values()
    works = sum(1 for nic in nics if nic["alive"])
    usable_bps = sum(nic["speed_bps"] or 0 for nic in nics if nic["alive"])
    there = host["connected"]
    return {
        "id": name,
        "id_href": address("/", host=name),
        "tx": page_rate(tx_bps) if there else "-",
        "rx": page_rate(rx_bps) if there else "-",
        "part": part_text(state.get("fair", {}).get(name) if there else None),
        "load": percent_text(max(tx_bps, rx_bps) / usable_bps) if usable_bps else "-",
        "nics": f"{works} of {len(nics)} {'worked' if old else 'work'}"
        if there
        else ("was " if old else "") + "away",
        "bad": not there or works < len(nics),
        "actions": "show",
    }


def newest_rates(state: Documents, host: str, direction: str) -> dict[str, float | None]:
    """What each NIC of a host sends (`tx`) or receives, in a state; without a host, all together.

    The names are those of the lines of the chart.
    """
    side, rates = ("tx", "rx").index(direction), state["rates"]
    if host not in state["hosts"]:
        return {ALL: sum((_sums(nics)[side] for nics in rates.values()), 0.0)}
    of_host = rates.get(host, {})
    return {
        nic: of_host[nic][side] if nic in of_host else None for nic in state["hosts"][host]["nics"]
    }


def _sums(nics: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    tx_bps = rx_bps = 0.0
    for sent, received in nics.values():
        tx_bps += sent
        rx_bps += received
    return tx_bps, rx_bps


# Pairs


def pair_request(
    *, sort: str, host: str = "", active: bool = True, offset: int = 0, limit: int = 50
) -> dict[str, Any]:
    """The arguments of the operation `pairs` for a page of the table."""
    wanted: dict[str, Any] = {"offset": offset, "limit": limit}
    if active:
        wanted["active"] = True
    if host:
        wanted["host"] = host
    if sort == "slow":
        # The controller sorts by the lowest rate among active pairs alone.
        return {**wanted, "sort": "rate", "descending": False, "active": True}
    return {**wanted, "sort": sort if sort in ("rate", "src", "dst") else "src"}


def pair_rows(pairs: Sequence[Pair]) -> list[Row]:
    """A page of pairs, as the operation `pairs` answers."""
    return [
        {
            "key": f"{pair['src']} {pair['dst']}",
            "src": pair["src"],
            "dst": pair["dst"],
            "src_href": address("/", host=pair["src"]),
            "dst_href": address("/", host=pair["dst"]),
            "rate": page_rate(pair.get("tx_bps")),
            "part": percent_text(part_of_fair(pair.get("tx_bps"), pair.get("fair_bps"))),
            "shares": ", ".join(
                f"{_way(path)} {percent_text(path['share'])}" for path in pair["paths"][:4]
            )
            + (f" and {len(pair['paths']) - 4} more" if len(pair["paths"]) > 4 else ""),
            "state": "striped" if pair["striped"] else "active" if pair["active"] else "idle",
            "bad": not all(path["alive"] for path in pair["paths"]),
            "actions": "show",
        }
        for pair in pairs
    ]


def path_rows(pair: Pair) -> list[Row]:
    """The paths of a pair with the weight and the share of each."""
    slots = sum(path["slots"] for path in pair["paths"])
    return [
        {
            "key": _way(path),
            "way": _way(path),
            "network": network_text(path["network"], path["vlan"]),
            "weight": f"{path['slots']:,} of {slots:,} slots",
            "share": percent_text(path["share"]),
            "tx": page_rate(path["tx_bps"]),
            "planned": page_rate(path["rate_bps"]),
            "speed": page_rate(path.get("speed_bps")),
            "alive": "works" if path["alive"] else "dead",
            "bad": not path["alive"],
        }
        for path in pair["paths"]
    ]


def _way(path: Path) -> str:
    way = f"{path['own']} to {path['peer']}"
    return f"{way} (VLAN {path['vlan']})" if path["vlan"] else way


@dataclass
class PairSamples:
    """Rates and weights of one pair while somebody looks at it: MAX_POINTS samples at most.

    The controller keeps no history of pairs, since there are as many as hosts squared.
    """

    times: list[float] = field(default_factory=list)
    rates: dict[str, list[float | None]] = field(default_factory=dict)
    weights: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, time_s: float, pair: Pair) -> None:
        """Add a sample. Times that do not grow are left out."""
        if self.times and time_s <= self.times[-1]:
            return
        slots = sum(path["slots"] for path in pair["paths"]) or 1
        for series, values in (
            (self.rates, {_way(path): path["tx_bps"] for path in pair["paths"]}),
            (self.weights, {_way(path): path["slots"] / slots for path in pair["paths"]}),
        ):
            for name in {**series, **values}:
                known = series.setdefault(name, [None] * len(self.times))
                known.append(values.get(name))
                del known[:-MAX_POINTS]
        self.times.append(time_s)
        del self.times[:-MAX_POINTS]
