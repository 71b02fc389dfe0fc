# SPDX-License-Identifier: Apache-2.0
"""Tables of the controller's answers, for people. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ri2n_sdn.cli.tables import Column, mark, or_dash, table
from ri2n_sdn.contract.fair import part_of_fair
from ri2n_sdn.contract.fast_words import fast_word
from ri2n_sdn.contract.said import Line, worst_first
from ri2n_sdn.contract.units import age_text, percent_text, short_rate, table_rate

if TYPE_CHECKING:
    from ri2n_sdn.contract.answers import Explained, Pair, Path, Status
    from ri2n_sdn.contract.documents import Documents

__all__ = ["STYLES", "helper_table", "path_table", "status_view"]

STYLES = {"ok": "green", "warning": "yellow", "bad": "bold red"}

_Row = dict[str, Any]


def status_view(status: Status, now_s: float) -> RenderableType:
    """The whole output of `ri2n status`, from the controller's answer, at Unix time `now_s`.

    It has the problems, a headline, the hosts with their NICs, the active pairs with their shares,
    and the helper links.
    """
    state = status["state"]
    problems = worst_first(map(Line.of, state["problems"].values()))
    striped = (pair for pair in status["pairs"] if pair["active"] and pair.get("striped"))
    parts: list[RenderableType] = [
        *(Text(str(problem), style=STYLES[problem.severity]) for problem in problems),
        _headline(status, now_s),
        _host_table(state),
        _pair_table(status["pairs"]),
        *helper_table(striped),
    ]
    return Group(*parts)


def path_table(paths: list[Path]) -> Table:
    """A table of the paths of one pair: their NICs, shares and rates."""
    columns = (
        Column("own NIC", "own"),
        Column("peer's NIC", "peer"),
        *(column._replace(right=True) for column in _PATH),
        Column("planned", "rate_bps", table_rate, right=True, short=short_rate),
        Column(
            "NIC rate",
            lambda path: table_rate(path.get("speed_bps")),
            right=True,
            wide=True,
        ),
    )
    return table(columns, paths)


def helper_table(pairs: Iterable[Pair | Explained]) -> Iterator[Table]:
    """A table of the helper links that helpers report, if they report any."""
    rows = [{**path, **path["helper"]} for path in _paths(pairs) if path.get("helper")]
    if rows:
        yield table(_HELPERS, rows, once=1, title="striped", title_justify="left")


def _headline(status: Status, now_s: float) -> Text:
    state = status["state"]
    about, hosts = state["controller"], state["hosts"]
    connected = sum(bool(host["connected"]) for host in hosts.values())
    does = "settled" if about["settled"] else "settling"
    if not about["in_charge"]:
        does = f"standing by, {about['waits_because']}"
    moved = state["counters"].get("slots_moved", 0)
    text = (
        f"{about['strategy']}, {does}; {connected} of {len(hosts)} hosts connected; "
        f"HBSPAN {about['hbspan_s']:g} s; {moved} slots moved; up {status['uptime_s']:.0f} s; "
        f"rates {age_text(status.get('sampled_s'), now_s)}"
    )
    if jobs := status["jobs"]:
        text += f"; jobs: {', '.join(f'{count} {state}' for state, count in sorted(jobs.items()))}"
    return Text(
        text, style="bold" if about["settled"] and connected == len(hosts) else "bold yellow"
    )


def _host_table(state: Documents) -> Table:
    no_nic = dict.fromkeys(("name", "speed_bps", "up", "alive", "tx_bps", "rx_bps"))
    rows: list[_Row] = []
    for name, host in sorted(state["hosts"].items()):
        rates = state["rates"].get(name, {})
        of_host = {"host": {**host, "name": name}}
        for own, nic in host["nics"].items():
            tx_bps, rx_bps = rates.get(own, (None, None))
            rows.append({**nic, **of_host, "name": own, "tx_bps": tx_bps, "rx_bps": rx_bps})
        if not host["nics"]:
            rows.append({**no_nic, **of_host, "network": "-"})
    return table(_NICS, rows, once=3)


def _pair_table(pairs: list[Pair]) -> RenderableType:
    active = [pair for pair in pairs if pair["active"]]
    idle = len(pairs) - len(active)
    if not active:
        return Text(f"no pair carries traffic ({idle} idle)")
    columns = (
        Column("pair", lambda path: path["pair"] + (" striped" if path["striped"] else "")),
        Column("fair", "fair_bps", table_rate, right=True, short=short_rate),
        Column("of fair", "part", percent_text, right=True),
        Column("path", _way),
        *_PATH,
    )
    caption = f"{idle} pairs are idle" if idle else None
    return table(columns, _paths(active), once=3, caption=caption, caption_justify="left")


def _paths(pairs: Iterable[Pair | Explained]) -> Iterator[_Row]:
    """The paths of pairs, each with its pair's name."""
    for pair in pairs:
        fair_bps = pair.get("fair_bps")
        of_pair = {
            **{"pair": f"{pair['src']} -> {pair['dst']}", "striped": pair.get("striped")},
            **{"fair_bps": fair_bps, "part": part_of_fair(pair.get("tx_bps"), fair_bps)},
        }
        yield from ({**path, **of_pair} for path in pair["paths"])


def _ms(time_s: float) -> str:
    return f"{time_s * 1000:.2f} ms"


def _way(path: _Row) -> str:
    return f"{path['own']} -> {path['peer']}"


def _host(row: _Row) -> Text:
    """The host of a NIC, and what is wrong with it or special."""
    host = row["host"]
    if not host["connected"]:
        return Text(f"{host['name']} (away)", style="red")
    words = []
    if host.get("helper"):
        words.append("helper" if host["helper"]["running"] else "helper down")
    if host.get("fast"):
        words.append(fast_word(host["fast"]))
    return Text(f"{host['name']} ({', '.join(words)})" if words else host["name"])


_NICS = (
    Column("host", _host),
    Column("address", lambda row: or_dash(row["host"]["address"]), wide=True),
    Column("OVS", lambda row: or_dash(row["host"]["ovs"]), wide=True),
    Column("NIC", "name", or_dash),
    Column("network", written=lambda network: network or "?"),
    Column("speed", "speed_bps", table_rate, right=True, short=short_rate),
    Column("up", written=mark),
    Column("alive", written=mark),
    Column("sending", "tx_bps", table_rate, right=True, short=short_rate),
    Column("receiving", "rx_bps", table_rate, right=True, short=short_rate),
)
_PATH = (
    Column("network"),
    Column("VLAN", "vlan", or_dash, wide=True),
    Column("alive", written=mark),
    Column("share", written="{:.3f}".format, right=True),
    Column("slots", right=True, wide=True),
    Column("sent", "tx_bps", table_rate, right=True, short=short_rate),
    Column("arrived", "rx_bps", table_rate, right=True, short=short_rate),
)
_HELPERS = (
    Column("pair"),
    Column("link", lambda path: f"{path['link']}: {_way(path)}"),
    Column("heard", written=mark, wide=True),
    Column("usable", written=mark),
    Column("rate", "rate_bps", table_rate, right=True, short=short_rate),
    Column(
        *("wanted", "demand_bps", lambda bps: "all" if bps is None else table_rate(bps)),
        right=True,
        short=lambda bps: "all" if bps is None else short_rate(bps),
    ),
    *(Column(count, right=True, wide=True) for count in ("sent", "received")),
    Column("lost", right=True),
    Column("repeated", right=True, wide=True),
    Column("skew", "skew_s", _ms, right=True, wide=True),
    Column("round trip", "rtt_s", _ms, right=True),
)
