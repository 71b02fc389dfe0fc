"""Tables of the controller's answers, for people. All functions are pure."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ri2n_sdn.contract.said import Line, worst_first
from ri2n_sdn.contract.units import table_rate

__all__ = ["STYLES", "helper_table", "path_table", "status_view"]

STYLES = {"ok": "green", "warning": "yellow", "bad": "bold red"}

Json = dict[str, Any]


def status_view(status: Json) -> RenderableType:
    """The whole output of `ri2n status`, from the controller's answer.

    It has the problems, a headline, the hosts with their NICs, the active pairs with their shares,
    and the helper links.
    """
    parts: list[RenderableType] = [
        *_problems(status["state"]),
        _headline(status),
        _host_table(status["state"]),
        _pair_table(status),
    ]
    helpers = helper_table(
        [pair for pair in status["pairs"] if pair["active"] and pair.get("striped")]
    )
    if helpers is not None:
        parts.append(helpers)
    return Group(*parts)


def path_table(paths: list[Json], title: str | None = None) -> Table:
    """A table of the paths of one pair: their NICs, shares and rates."""
    table = Table(title=title, title_justify="left")
    for heading in (
        "own NIC",
        "peer's NIC",
        "network",
        "VLAN",
        "alive",
        "share",
        "slots",
        "sent",
        "arrived",
        "wanted rate",
    ):
        table.add_column(heading, justify="left" if heading.endswith("NIC") else "right")
    for path in paths:
        table.add_row(
            str(path["own"]),
            str(path["peer"]),
            str(path["network"]),
            str(path.get("vlan") or "-"),
            _mark(path["alive"]),
            f"{path['share']:.3f}",
            str(path["slots"]),
            table_rate(path.get("tx_bps")),
            table_rate(path.get("rx_bps")),
            table_rate(path.get("rate_bps")),
        )
    return table


def helper_table(pairs: list[Json]) -> Table | None:
    """A table of the helper links that helpers report; None when they report none."""
    table = Table(title="striped", title_justify="left")
    for heading in (
        "pair",
        "link",
        "heard",
        "usable",
        "rate",
        "wanted",
        "sent",
        "received",
        "lost",
        "repeated",
    ):
        table.add_column(
            heading, justify="left" if heading in ("pair", "link", "heard", "usable") else "right"
        )
    for heading in ("skew", "round trip"):
        table.add_column(heading, justify="right")
    for pair in pairs:
        name = f"{pair['src']} -> {pair['dst']}"
        for path in pair["paths"]:
            report = path.get("helper")
            if report is None:
                continue
            table.add_row(
                name,
                f"{path['link']}: {path['own']} -> {path['peer']}",
                _mark(report["heard"]),
                _mark(report["usable"]),
                table_rate(report["rate_bps"]),
                "all" if report["demand_bps"] is None else table_rate(report["demand_bps"]),
                *(str(report[count]) for count in ("sent", "received", "lost", "repeated")),
                *(f"{report[time] * 1000:.2f} ms" for time in ("skew_s", "rtt_s")),
            )
            name = ""
    return table if table.row_count else None


def _headline(status: Json) -> Text:
    state = status["state"]
    about, hosts = state["controller"], state["hosts"]
    connected = sum(bool(host["connected"]) for host in hosts.values())
    does = "settled" if about["settled"] else "settling"
    if not about["in_charge"]:
        does = f"standing by, {about['waits_because']}"
    moved = state["counters"].get("slots_moved", 0)
    text = (
        f"{about['strategy']}, {does}; {connected} of {len(hosts)} hosts connected; "
        f"HBSPAN {about['hbspan_s']:g} s; {moved} slots moved; up {status['uptime_s']:.0f} s"
    )
    jobs = status.get("jobs")
    if jobs:
        text += f"; jobs: {', '.join(f'{count} {state}' for state, count in sorted(jobs.items()))}"
    return Text(
        text, style="bold" if about["settled"] and connected == len(hosts) else "bold yellow"
    )


def _host_table(state: Json) -> Table:
    table = Table()
    for heading in (
        "host",
        "address",
        "OVS",
        "NIC",
        "network",
        "speed",
        "up",
        "alive",
        "sending",
        "receiving",
    ):
        table.add_column(
            heading, justify="right" if heading in ("speed", "sending", "receiving") else "left"
        )
    for name, host in sorted(state["hosts"].items()):
        label = Text(name, style="" if host["connected"] else "red")
        if not host["connected"]:
            label.append(" (away)")
        elif host["helper"]:
            label.append(" (helper)" if host["helper"]["running"] else " (helper down)")
        first: tuple[Text | str, str, str] = (
            label,
            str(host["address"] or "-"),
            str(host["ovs"] or "-"),
        )
        rates = state["rates"].get(name, {})
        for own, nic in host["nics"].items():
            table.add_row(
                *first,
                own,
                str(nic["network"] or "?"),
                table_rate(nic["speed_bps"]),
                _mark(nic["up"]),
                _mark(nic["alive"]),
                *map(table_rate, rates.get(own, (None, None))),
            )
            first = ("", "", "")
        if not host["nics"]:
            table.add_row(*first, *["-"] * 7)
    return table


def _pair_table(status: Json) -> RenderableType:
    active = [pair for pair in status["pairs"] if pair["active"]]
    idle = len(status["pairs"]) - len(active)
    if not active:
        return Text(f"no pair carries traffic ({idle} idle)")
    table = Table(caption=f"{idle} pairs are idle" if idle else None, caption_justify="left")
    for heading in (
        "pair",
        "path",
        "network",
        "VLAN",
        "alive",
        "share",
        "slots",
        "sent",
        "arrived",
    ):
        table.add_column(
            heading, justify="right" if heading in ("share", "slots", "sent", "arrived") else "left"
        )
    for pair in active:
        name = f"{pair['src']} -> {pair['dst']}" + (" striped" if pair.get("striped") else "")
        for path in pair["paths"]:
            table.add_row(
                name,
                f"{path['own']} -> {path['peer']}",
                str(path["network"]),
                str(path.get("vlan") or "-"),
                _mark(path["alive"]),
                f"{path['share']:.3f}",
                str(path["slots"]),
                table_rate(path["tx_bps"]),
                table_rate(path["rx_bps"]),
            )
            name = ""
    return table


def _problems(state: Json) -> list[Text]:
    problems = worst_first(map(Line.of, state["problems"].values()))
    return [Text(str(problem), style=STYLES[problem.severity]) for problem in problems]


def _mark(good: object) -> Text:
    """`yes`, `NO`, or `-` for None, which means that it is not known."""
    if good is None:
        return Text("-")
    return Text("yes") if good else Text("NO", style="bold red")
