# SPDX-License-Identifier: Apache-2.0
"""What `ri2n top` shows: rows of a controller's state, sorted and filtered. All of it is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ri2n_sdn.cli.common import check_choice
from ri2n_sdn.cli.tables import Column, or_dash, yes_no
from ri2n_sdn.cli.views import STYLES
from ri2n_sdn.contract.fair import part_of_fair, worst_of
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.contract.said import Line, worst_first
from ri2n_sdn.contract.units import age_text, short_rate
from ri2n_sdn.errors import BadInput

if TYPE_CHECKING:
    from ri2n_sdn.contract.answers import Pair
    from ri2n_sdn.contract.documents import Documents

__all__ = ["TABLES", "Looks", "View", "check_view", "document", "press", "problems_of", "screen"]

_Row = dict[str, Any]

TABLES = ("hosts", "nics", "pairs", "jobs")
_KEYS = {"h": "hosts", "n": "nics", "p": "pairs", "j": "jobs"}

# Of a row, how bad it is: the rows that need somebody come first unless another order is asked for.
_BAD, _WARNING, _FINE = 0, 1, 2
_STATES = {_BAD: STYLES["bad"], _WARNING: STYLES["warning"], _FINE: ""}

# Problems may take this part of the screen, and at least this many lines.
_PROBLEM_SHARE, _MIN_PROBLEMS = 3, 2
_FIXED_LINES = 4  # the headline, the table's headings, the line below, and one to spare
_HELP = """\
h n p j   hosts, NICs, pairs, jobs        s S   sort by the next, the former column
/         show rows with a text (Enter)   r     turn the order
Up Down   scroll; also Page Up, Page Down b     back to the worst first
space     stop and go on                  q     quit (also Ctrl-C)"""


@dataclass(frozen=True)
class Looks:
    """What is known at one moment, Unix time `now_s`: the state of op `watch`, and the pairs.

    `away` says why the controller does not answer now, since `away_s`; None when it does.
    `pairs_sampled_s` is when the rates of the pairs were read.
    """

    state: Documents
    pairs: Sequence[Pair] = ()
    pairs_total: int = 0
    away: str | None = None
    away_s: float = 0.0
    now_s: float = 0.0
    pairs_sampled_s: float | None = None


@dataclass(frozen=True)
class View:
    """What somebody wants to see. `sort` "" is the worst first. `typing` is a filter in the making.

    `turned` is the opposite of a column's usual order, `first` the first row that is shown.
    """

    table: str = "hosts"
    sort: str = ""
    turned: bool = False
    wanted: str = ""
    first: int = 0
    paused: bool = False
    typing: str | None = None
    helping: bool = False


def check_view(view: View) -> None:
    """Raises BadInput when there is no such table, or it has no such column."""
    check_choice(view.table, TABLES, "TABLE")
    names = [column.key for column in _COLUMNS[view.table]]
    if view.sort and view.sort not in names:
        raise BadInput(
            f"--sort: {view.table} has no column {view.sort!r}; choose from {', '.join(names)}"
        )


def press(view: View, key: str) -> View | None:
    """The view after a key was pressed; None: the user wants to quit. Other keys do nothing."""
    if view.typing is not None:
        if key == "enter":
            return replace(view, wanted=view.typing, typing=None, first=0)
        if key == "escape":
            return replace(view, typing=None)
        if key == "backspace":
            return replace(view, typing=view.typing[:-1])
        return replace(view, typing=view.typing + key) if len(key) == 1 else view
    if key in ("q", "Q"):
        return None
    if key in _KEYS:
        return View(_KEYS[key], wanted=view.wanted, paused=view.paused)
    if key in ("s", "S", ">", "<"):
        names = ["", *(column.key for column in _COLUMNS[view.table])]
        step = 1 if key in ("s", ">") else -1
        place = (names.index(view.sort) + step) % len(names)
        return replace(view, sort=names[place], turned=False, first=0)
    moves = {"up": -1, "down": 1, "page up": -10, "page down": 10}
    if key in moves:
        return replace(view, first=max(0, view.first + moves[key]))
    changes: dict[str, Callable[[], View]] = {
        "r": lambda: replace(view, turned=not view.turned, first=0),
        "b": lambda: replace(view, sort="", turned=False, first=0),
        "/": lambda: replace(view, typing=""),
        "escape": lambda: replace(view, wanted="", helping=False, first=0),
        " ": lambda: replace(view, paused=not view.paused),
        "?": lambda: replace(view, helping=not view.helping),
    }
    return changes[key]() if key in changes else view


def problems_of(state: Documents) -> list[Line]:
    """The problems of a state, the worst first."""
    listed = sorted(state.get("problems", {}).values(), key=lambda each: each.get("rank", 0))
    return worst_first(
        Line.of(each) for each in listed if each.get("severity") in ("bad", "warning")
    )


def document(looks: Looks, view: View) -> _Row:
    """What `--json` prints: the controller, the problems, and the rows under the table's name.

    `sampled_s` is when the rates of the rows were read.
    """
    return {
        "sampled_s": _sampled_s(looks, view),
        "controller": dict(looks.state.get("controller", {})),
        "problems": [each._asdict() for each in problems_of(looks.state)],
        view.table: [
            {key: value for key, value in row.items() if key != "rank"}
            for row in _chosen(looks, view)
        ],
    }


def screen(looks: Looks, view: View, width: int, height: int | None) -> RenderableType:
    """The screen: what is wrong, the headline, and as many rows as there is room for.

    `height` None: all of them.
    """
    parts: list[RenderableType] = []
    if looks.away is not None:
        text = f"the controller is away for {looks.away_s:.0f} s: {looks.away}"
        parts.append(_line(text, STYLES["bad"], width))
    problems = problems_of(looks.state)
    room = len(problems)
    if height is not None:
        room = min(room, max(_MIN_PROBLEMS, height // _PROBLEM_SHARE))
    for problem in problems[:room]:
        parts.append(_line(str(problem), STYLES[problem.severity], width))
    if len(problems) > room:
        parts.append(_line(f"{len(problems) - room} more: see ri2n status", "yellow", width))
    parts.append(_headline(looks, view, width))
    if view.helping:
        parts.append(Text(_HELP))
    rows = _chosen(looks, view)
    used = len(parts) + _FIXED_LINES + (_HELP.count("\n") if view.helping else 0)
    count = len(rows) if height is None else max(1, height - used)
    first = max(0, min(view.first, len(rows) - count))
    parts.append(_table(rows[first : first + count], view, width, old=looks.away is not None))
    parts.append(_foot(looks, view, len(rows), first, count, width))
    return Group(*parts)


# ---- rows


def _hosts(looks: Looks) -> list[_Row]:
    rows = []
    rates = looks.state.get("rates", {})
    jobs = Counter(host for job in looks.state.get("jobs", {}).values() for host in job["hosts"])
    for name, host in looks.state.get("hosts", {}).items():
        nics = host["nics"].values()
        usable = sum(bool(nic["up"] and nic["alive"]) for nic in nics)
        helper = host.get("helper")
        helping = None if helper is None else bool(helper["running"] and helper["reports"])
        connected = bool(host["connected"])
        rank, state = _FINE, "ok"
        if not connected:
            rank, state = _BAD, "away"
        elif not usable:
            rank, state = _BAD, "cut off"
        elif usable < len(nics):
            rank, state = _WARNING, "NIC dead"
        elif helping is False:
            rank, state = _WARNING, "no helper"
        known = rates.get(name)
        fair = looks.state.get("fair", {}).get(name)
        rows.append(
            {
                **{"rank": rank, "name": name, "state": state},
                **{"usable": usable if connected else None, "nics": len(nics)},
                "sending": None if known is None else sum(each[0] for each in known.values()),
                "receiving": None if known is None else sum(each[1] for each in known.values()),
                "fair": None if fair is None else fair["fair_bps"],
                "of fair": None if fair is None else worst_of(fair),
                **{"helper": helping, "jobs": jobs[name], "address": host["address"]},
            }
        )
    return rows


def _nics(looks: Looks) -> list[_Row]:
    rows = []
    for name, host in looks.state.get("hosts", {}).items():
        rates = looks.state.get("rates", {}).get(name, {})
        for nic_name, nic in host["nics"].items():
            rank, state = _FINE, "ok"
            if not host["connected"]:
                rank, state = _BAD, "away"
            elif not nic["up"]:
                rank, state = _WARNING, "down"
            elif not nic["alive"]:
                rank, state = _WARNING, "dead"
            sending, receiving = rates.get(nic_name, (None, None))
            speed = nic["speed_bps"]
            busiest = max(sending or 0, receiving or 0)
            rows.append(
                {
                    **{"rank": rank, "name": f"{name}:{nic_name}", "state": state},
                    **{"network": nic["network"], "speed": speed},
                    **{"sending": sending, "receiving": receiving},
                    "load": None if sending is None or not speed else busiest / speed,
                    **{"switch": nic.get("switch"), "mac": nic["mac"]},
                }
            )
    return rows


def _together(rates: Iterable[float | None]) -> float | None:
    """The sum of the rates that are known; None when none is."""
    known = [rate_bps for rate_bps in rates if rate_bps is not None]
    return sum(known) if known else None


def _pairs(looks: Looks) -> list[_Row]:
    rows = []
    for pair in looks.pairs:
        paths = pair["paths"]
        alive = sum(bool(path["alive"]) for path in paths)
        rank = _FINE if alive == len(paths) else _WARNING if alive else _BAD
        rows.append(
            {
                **{"rank": rank, "name": f"{pair['src']} > {pair['dst']}"},
                "state": {_FINE: "ok", _WARNING: "path dead", _BAD: "no path"}[rank],
                **{"alive": alive, "paths": len(paths)},
                "sending": _together(path.get("tx_bps") for path in paths),
                "arriving": _together(path.get("rx_bps") for path in paths),
                "fair": pair.get("fair_bps"),
                "of fair": part_of_fair(pair.get("tx_bps"), pair.get("fair_bps")),
                "largest": max((path["share"] for path in paths), default=None),
                "striped": bool(pair.get("striped")),
            }
        )
    return rows


def _jobs(looks: Looks) -> list[_Row]:
    rows = []
    for key, job in looks.state.get("jobs", {}).items():
        rank = _WARNING if job["state"] == "waiting" else _FINE
        if job.get("failed") or job["state"] == "refused":
            rank = _BAD
        rows.append(
            {
                **{"rank": rank, "name": key, "state": job["state"], "user": job["user"]},
                **{"hosts": len(job["hosts"]), "policy": job.get("policy")},
                **{"min": job.get("min_rate_bps"), "max": job.get("max_rate_bps")},
                **{"lanes": len(job.get("lanes", ())), "why": job.get("why") or ""},
            }
        )
    return rows


_ROWS: dict[str, Callable[[Looks], list[_Row]]] = {
    **{"hosts": _hosts, "nics": _nics, "pairs": _pairs, "jobs": _jobs}
}


def _percent(value: Any) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


_NAME, _STATE = Column("name"), Column("state")
_SENDING = Column("sending", written=short_rate, right=True)
_RECEIVING = Column("receiving", written=short_rate, right=True)
_OF_FAIR = Column("of fair", written=_percent, right=True)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "hosts": (
        *(_NAME, _STATE),
        Column("usable", written=or_dash, right=True),
        Column("NICs", "nics", right=True),
        *(_SENDING, _RECEIVING, _OF_FAIR),
        Column("fair", written=short_rate, right=True, wide=True),
        Column("helper", written=yes_no),
        Column("jobs", right=True),
        Column("address", written=or_dash, wide=True),
    ),
    "nics": (
        *(_NAME, _STATE),
        Column("network", written=or_dash),
        Column("speed", written=short_rate, right=True),
        *(_SENDING, _RECEIVING),
        Column("load", written=_percent, right=True),
        Column("switch", written=or_dash, wide=True),
        Column("MAC", "mac", or_dash, wide=True),
    ),
    "pairs": (
        *(_NAME, _STATE),
        Column("alive", right=True),
        Column("paths", right=True),
        _SENDING,
        Column("arriving", written=short_rate, right=True),
        Column("fair", written=short_rate, right=True),
        _OF_FAIR,
        Column("largest share", "largest", _percent, right=True, wide=True),
        Column("striped", written=yes_no, wide=True),
    ),
    "jobs": (
        *(_NAME, _STATE),
        Column("user"),
        Column("hosts", right=True),
        Column("policy", written=or_dash),
        Column("min rate", "min", short_rate, right=True),
        Column("max rate", "max", short_rate, right=True),
        Column("lanes", right=True),
        Column("why", wide=True),
    ),
}

_WIDE_COLUMNS = 100


def _chosen(looks: Looks, view: View) -> list[_Row]:
    """The rows that fit the filter, in the order that is asked for."""
    wanted = (view.wanted if view.typing is None else view.typing).casefold()
    rows = [
        row
        for row in _ROWS[view.table](looks)
        if not wanted
        or any(wanted in str(value).casefold() for key, value in row.items() if key != "rank")
    ]
    rows.sort(key=lambda row: str(row["name"]))
    if not view.sort:
        rows.sort(key=lambda row: (row["rank"], -(row.get("sending") or 0)), reverse=view.turned)
        return rows
    column = next(each for each in _COLUMNS[view.table] if each.key == view.sort)
    known = [row for row in rows if row[view.sort] is not None]
    known.sort(
        key=lambda row: row[view.sort] if column.right else str(column.written(row[view.sort])),
        reverse=column.right != view.turned,
    )
    # What is not known has no place in an order: it comes last in both.
    return [*known, *(row for row in rows if row[view.sort] is None)]


# ---- the screen: names come from hosts, and may hold anything that changes a terminal


def _line(text: str, style: str, width: int) -> Text:
    line = Text(printable(text, 4 * width), style=style, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line


def _sampled_s(looks: Looks, view: View) -> float | None:
    """When the rates that a view shows were read."""
    of_state = looks.state.get("controller", {}).get("sampled_s")
    return looks.pairs_sampled_s if view.table == "pairs" else of_state


def _worst(looks: Looks) -> str:
    """The sender that gets the smallest part of what is fair for it; nothing without any."""
    known = [(worst_of(entry) or 0.0, host) for host, entry in looks.state.get("fair", {}).items()]
    if not known:
        return ""
    part, host = min(known)
    return f"; worst {_percent(part)} of fair: {host}"


def _headline(looks: Looks, view: View, width: int) -> Text:
    about, hosts = looks.state.get("controller", {}), looks.state.get("hosts", {})
    connected = sum(bool(host["connected"]) for host in hosts.values())
    mode = "settled" if about.get("settled") else "settling"
    if not about.get("in_charge", True):
        mode = f"standing by, {about.get('waits_because', '')}"
    rates = [rate for nics in looks.state.get("rates", {}).values() for rate in nics.values()]
    text = (
        f"{about.get('strategy', '?')}, {mode}; {connected} of {len(hosts)} hosts; "
        f"{about.get('active_pairs', 0)} active pairs; {len(looks.state.get('jobs', {}))} jobs; "
        f"sent {short_rate(sum(rate[0] for rate in rates))}bit/s{_worst(looks)}"
    )
    good = about.get("settled") and connected == len(hosts) and looks.away is None
    return _line(text, "bold" if good else "bold yellow", width)


def _table(rows: Sequence[_Row], view: View, width: int, *, old: bool) -> Table:
    """The rows; `old` ones, of a controller that does not answer, are dim whatever they say."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold reverse")
    columns = [
        column for column in _COLUMNS[view.table] if not column.wide or width >= _WIDE_COLUMNS
    ]
    for column in columns:
        mark = ("^" if column.right == view.turned else "v") if column.key == view.sort else ""
        table.add_column(
            column.heading + mark,
            justify="right" if column.right else "left",
            # Names give way where there is no room, so that no value is cut off.
            no_wrap=column is not _NAME,
            overflow="ellipsis",
        )
    for row in rows:
        cells = [column.cell(row) for column in columns]
        for cell in cells:
            cell.no_wrap = True
        table.add_row(*cells, style="dim" if old else _STATES[row["rank"]])
    return table


def _foot(looks: Looks, view: View, rows: int, first: int, count: int, width: int) -> Text:
    if view.typing is not None:
        return _line(f"/{view.typing}_   Enter: show these; Escape: leave it", "bold", width)
    shown = f"{min(rows, first + 1)}-{min(rows, first + count)} of {rows} {view.table}"
    if not rows:
        shown = f"no {view.table}"
    if view.table == "pairs" and looks.pairs_total > len(looks.pairs):
        shown += f" (the busiest of {looks.pairs_total})"
    age = age_text(_sampled_s(looks, view), looks.now_s)
    parts = [shown, f"rates {age}", f"sorted by {view.sort or 'what is worst'}"]
    if view.wanted:
        parts.append(f"with {view.wanted!r}")
    if view.paused:
        parts.append("STOPPED (space)")
    return _line("; ".join([*parts, "? help, q quit"]), "dim", width)
