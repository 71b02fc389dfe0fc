# SPDX-License-Identifier: Apache-2.0
"""What the page of traffic shows: hosts, pairs, shares, and charts of both. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ri2n_sdn.contract.answers import Pair, Path
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.units import counted, page_rate, page_time, percent_text
from ri2n_sdn.web.gui.words import address, has_words, network_text

__all__ = [
    "ALL",
    "HOST_SORTS",
    "PAIR_SORTS",
    "PairSamples",
    "chart_summary",
    "host_names",
    "host_row",
    "newest_rates",
    "pair_request",
    "pair_rows",
    "path_rows",
    "rate_chart",
    "share_chart",
    "thinned",
    "worst_client",
]

Row = dict[str, Any]

ALL = "all hosts"
"""The line of a chart that stands for all hosts together."""

ACTIVE_BPS = 1e5
"""A host that sends and receives less than this does not count as a client."""

HOST_SORTS = {
    "worst": "Worst client first",
    "best": "Best client first",
    "name": "Name",
}

PAIR_SORTS = {
    "rate": "Highest rate first",
    "slow": "Lowest rate first",
    "src": "Sender",
    "dst": "Receiver",
}

MAX_POINTS = 450
"""15 minutes with a sample every 2 s."""

CHART_POINTS = 150
"""A chart has so many points per line at most: no screen shows more, and all are sent each time."""

Lines = Mapping[str, Sequence[float | None]]
"""Values by the name of their line, one for each time; None where a value is not known."""

# Colours that people with any colour vision tell apart (Okabe and Ito). The blue and the green are
# a little lighter than in the source, for contrast on light and on dark ground.
_COLOURS = ("#2f7fc1", "#d55e00", "#0b9e73", "#cc79a7", "#b58900", "#56b4e9", "#7a6ff0", "#8a8a8a")
# The page's style gives texts the colour of its theme (listing.py), since nobody here knows it.
_INK, _GRID = "#6b7681", "#8a96a2"


def host_names(state: Documents, sort: str = "worst", search: str = "") -> list[str]:
    """The hosts whose names have all words of a search, in an order of HOST_SORTS.

    A client is a host that sends or receives at least ACTIVE_BPS. The worst client is the one with
    the lowest rate. Hosts that are no clients come last.
    """
    names = [name for name in state["hosts"] if has_words(search, name)]
    if sort == "name":
        return sorted(names)
    rates = state["rates"]
    sign = 1 if sort == "worst" else -1

    def rank(name: str) -> tuple[bool, float, str]:
        rate_bps = max(_sums(rates.get(name, {})))
        return rate_bps < ACTIVE_BPS, sign * rate_bps, name

    return sorted(names, key=rank)


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
        "load": percent_text(max(tx_bps, rx_bps) / usable_bps) if usable_bps else "-",
        "nics": f"{works} of {len(nics)} {'worked' if old else 'work'}"
        if there
        else ("was " if old else "") + "away",
        "bad": not there or works < len(nics),
        "actions": "show",
    }


def worst_client(state: Documents) -> str:
    """One sentence on the worst client."""
    sums = {name: _sums(nics) for name, nics in state["rates"].items() if name in state["hosts"]}
    clients = [(max(both), name) for name, both in sums.items() if max(both) >= ACTIVE_BPS]
    if not clients:
        return "No host sends or receives at this moment."
    worst, best = (f"{name}, {_larger(*sums[name])}" for _, name in (min(clients), max(clients)))
    if len(clients) == 1:
        return f"One client: {worst}."
    return f"Worst of {counted(len(clients), 'client')}: {worst}. Best: {best}."


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


def _larger(tx_bps: float, rx_bps: float) -> str:
    sends = tx_bps >= rx_bps
    return f"{'sends' if sends else 'receives'} {page_rate(tx_bps if sends else rx_bps)}"


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
    return {**wanted, "sort": sort if sort in ("rate", "src", "dst") else "rate"}


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
            "limit": page_rate(path["rate_bps"]),
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


# Charts


def rate_chart(
    title: str,
    times: Sequence[float],
    series: Lines,
) -> dict[str, Any]:
    """The options of an ECharts chart of rates over time, in Mbit/s, high ones in Gbit/s."""
    known = [value for values in series.values() for value in values if value is not None]
    factor, unit = (1e9, "Gbit/s") if max(known, default=0.0) >= 1e10 else (1e6, "Mbit/s")
    lines = {
        name: [None if value is None else value / factor for value in values]
        for name, values in series.items()
    }
    return _chart(title, times, lines, unit=unit, stacked=False)


def share_chart(
    title: str,
    times: Sequence[float],
    series: Lines,
) -> dict[str, Any]:
    """The options of a chart of what part each series has of their sum over time, in percent.

    At a time at which all are zero there is no point.
    """
    shares: dict[str, list[float | None]] = {name: [] for name in series}
    for at in range(len(times)):
        total = sum(values[at] or 0.0 for values in series.values())
        for name, values in series.items():
            value = values[at]
            shares[name].append(None if not total or value is None else 100 * value / total)
    options = _chart(title, times, shares, unit="%", stacked=True)
    options["yAxis"]["max"] = 100
    return options


def thinned(
    times: Sequence[float], lines: Lines, points: int = CHART_POINTS
) -> tuple[list[float], dict[str, list[float | None]]]:
    """Not more than so many points, each with the average of those that it stands for."""
    each = -(-len(times) // points) or 1
    # Groups end at the newest point, so that it is there at once.
    first = len(times) % each
    starts = ([0] if first else []) + list(range(first, len(times), each))
    groups = list(zip(starts, [*starts[1:], len(times)], strict=False))
    return [times[end - 1] for _, end in groups], {
        name: [_average(values[start:end]) for start, end in groups]
        for name, values in lines.items()
    }


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def chart_summary(
    what: str,
    times: Sequence[float],
    series: Lines,
    newest: Mapping[str, float | None],
    *,
    old: bool = False,
) -> str:
    """A chart in words, for those who do not see it.

    `newest` are the rates of the state that the page shows, so that they are those of its rows. A
    chart is drawn less often. What is `old` is last, and not now.
    """
    if not times:
        return f"{what}: nothing is known yet."
    parts = []
    for name, values in series.items():
        last_bps = newest.get(name)
        known = [value for value in (*values, last_bps) if value is not None]
        if known:
            parts.append(
                f"{name} {page_rate(last_bps)} {'last' if old else 'now'}, "
                f"{page_rate(sum(known) / len(known))} on average, {page_rate(max(known))} at most"
            )
    return f"{what} since {page_time(times[0])}: {'; '.join(parts) or 'nothing'}."


def _chart(
    title: str,
    times: Sequence[float],
    lines: Lines,
    *,
    unit: str,
    stacked: bool,
) -> dict[str, Any]:
    axis = {"axisLabel": {"color": _INK}, "splitLine": {"lineStyle": {"color": _GRID}}}
    return {
        "animation": False,
        "useUTC": True,
        "color": list(_COLOURS),
        "textStyle": {"color": _INK},
        "title": {"text": title, "textStyle": {"color": _INK, "fontSize": 14}},
        "legend": {"type": "scroll", "bottom": 0, "textStyle": {"color": _INK}},
        "tooltip": {"trigger": "axis", "confine": True},
        "grid": {"left": 8, "right": 16, "top": 48, "bottom": 58, "containLabel": True},
        "xAxis": {
            "type": "time",
            "name": "time (UTC)",
            "nameLocation": "middle",
            "nameGap": 26,
            "nameTextStyle": {"color": _INK},
            "axisLabel": {"color": _INK, "hideOverlap": True},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "name": unit,
            "nameTextStyle": {"color": _INK},
            **axis,
        },
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                # Not by its colour alone: lines beside each other have different dashes.
                "lineStyle": {"type": ("solid", "dashed", "dotted")[number % 3]},
                **({"stack": "all", "areaStyle": {"opacity": 0.6}} if stacked else {}),
                "data": [
                    [round(time_s * 1000), None if value is None else round(value, 3)]
                    for time_s, value in zip(times, values, strict=True)
                ],
            }
            for number, (name, values) in enumerate(lines.items())
        ],
    }
