# SPDX-License-Identifier: Apache-2.0
"""What many users' rules cost on the hosts: this software's, the paper's, and none, in one run.

Every row has the figures of one method, and what these are of the same without rules, measured at
the same time: pairs of hosts take slices of a fraction of a second by turns. A second pair without
rules (`again`) shows by what two measurements of one thing differ. In every row each method was on
each pair.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import fmean, geometric_mean, median
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.rows import missing_row, summarize
from ri2n_lab.bench.rules_pair import OVERS, Pairs, owner_program
from ri2n_lab.cluster.run import CommandFailed
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = [
    "FIGURES",
    "MAX_RULES",
    "METHODS",
    "NONE",
    "OWN",
    "PAPER",
    "PaperFigures",
    "RulesSettings",
    "Slice",
    "block_rows",
    "check",
    "pairs_of_turn",
    "parse_counts",
    "run_rules",
    "summarized",
    "total_seconds",
]

NONE, AGAIN, OWN, OWNER = "none", "again", "map", "owner"
METHODS = {
    NONE: "no rules",
    AGAIN: "no rules, measured once more",
    OWN: "one verdict map from user to class, as `job-begin` marks",
    OWNER: "an owner rule and an ip rule for each user, as in the paper",
}
"""{method: what it is}."""

MAX_RULES = 20_000
"""The paper's method takes a second or two for each host to load so many."""

ROUND_TRIPS_S, TRANSFER_S = 0.05, 0.1
SETUP_S = {"veth": 1.0, "gigabit": 1.0, "bridge": 3.0}
LOAD_S_PER_RULE = 4e-4
MIN_LOAD_S = 0.2
GROUPS = ("over", "method", "rules")

FIGURES = (
    Figure("rtt_us", "round trip", "us", show=".1f"),
    Figure("rtt_over_none_us", "over none", "us", show="+.1f"),
    Figure("rtt_of_none", "of none", show=".3f"),
    Figure("goodput_bps", "goodput", "Gbit/s", show=".2f", scale=1e-9),
    Figure("goodput_of_none", "goodput of none", show=".3f"),
    Figure("cpu_s_per_gbit", "CPU s per Gbit", show=".4f"),
    Figure("cpu_of_none", "CPU of none", show=".3f"),
    Figure("load_s", "loaded in", "s", show=".2f"),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class PaperFigures:
    """What the paper measured with so many rules; None what it does not say."""

    rtt_ms: float
    tcp_mbps: float | None = None
    cpu_percent: float | None = None


PAPER: Mapping[int, PaperFigures] = {
    0: PaperFigures(0.119, 938.0, 25.8),
    1: PaperFigures(0.136),
    10: PaperFigures(0.141),
    50: PaperFigures(0.151),
    100: PaperFigures(0.168, 913.0, 98.4),
}
"""Per-user path switching by owner rules and ip rules, over 1 Gbit/s: {rules: figures}."""


@dataclass(frozen=True)
class RulesSettings:
    """What to run: `seconds` of each method in each block, a block for each count and link."""

    counts: tuple[int, ...] = (0, 1, 10, 100, 1000, 10000)
    over: tuple[str, ...] = OVERS
    seconds: float = 1.8
    repeat: int = 3

    @property
    def slices(self) -> int:
        """How many slices each method has in each turn of a block."""
        return max(1, round(self.seconds / len(METHODS) / (ROUND_TRIPS_S + TRANSFER_S)))

    def described(self) -> Json:
        """As JSON, with the program that loads the paper's rules."""
        return {**asdict(self), "owner_program": owner_program()}


@dataclass(frozen=True)
class Slice:
    """A moment of a method: a median round trip, and a transfer.

    `cpu_s` None: nobody can tell.
    """

    rtt_us: float
    bits: float
    seconds: float
    cpu_s: float | None

    @property
    def goodput_bps(self) -> float:
        """The rate of the transfer."""
        return self.bits / self.seconds


def parse_counts(text: str) -> tuple[int, ...]:
    """The numbers of `--counts`, each once, in ascending order; BadInput for anything else."""
    counts = set()
    for word in text.split(","):
        word = word.strip()
        if not (word.isascii() and word.isdigit() and int(word) <= MAX_RULES):
            raise BadInput(f"--counts {word or text}: must be a number from 0 to {MAX_RULES}")
        counts.add(int(word))
    return tuple(sorted(counts))


def total_seconds(settings: RulesSettings) -> float:
    """About how long `run_rules` takes, for the progress bar."""
    blocks = sum(_block_seconds(settings, rules) for rules in settings.counts)
    setup_s = sum(SETUP_S[over] for over in settings.over)
    return setup_s + settings.repeat * len(settings.over) * blocks


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows: a line for each link, method and number of rules."""
    return summarize(rows, GROUPS, FIGURES)


def check() -> None:
    """NotAvailable without what no part of this bench can do without."""
    if os.geteuid() != 0:
        raise NotAvailable("namespaces and rules need root: use sudo")
    if shutil.which("nft") is None:
        raise NotAvailable("nft is missing: apt install nftables")


def run_rules(settings: RulesSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding rows to `report` after each block.

    Hosts and rules are removed also when it is interrupted. Raises NotAvailable without what the
    hosts need. When a method's rules cannot be loaded, its rows say why.
    """
    check()
    with ExitStack() as stack:
        pairs: dict[str, Pairs] = {}
        for over in settings.over:
            progress.say(f"{over}: building the hosts")
            pairs[over] = stack.enter_context(Pairs(over, len(METHODS)))
            progress.done(SETUP_S[over])
        for repeat in range(1, settings.repeat + 1):
            for over in settings.over:
                for rules in settings.counts:
                    progress.say(f"{over}, {rules} rules, {repeat}/{settings.repeat}")
                    key = {"over": over, "beside": rules, "repeat": repeat}
                    _run_block(pairs[over], settings.slices, key, report)
                    progress.done(_block_seconds(settings, rules))
    report.finish()


def pairs_of_turn(turn: int) -> dict[str, int]:
    """Which pair of hosts each method has in a turn: a Latin square of methods and turns."""
    return {method: (index + turn) % len(METHODS) for index, method in enumerate(METHODS)}


def block_rows(key: Json, turns: Sequence[Mapping[str, Sequence[Slice]]]) -> list[Json]:
    """A row for each method of a block, from the slices of all methods in each of its turns.

    `key` is {over, beside, repeat}: `beside` is how many rules the methods with rules have. A
    figure is the median of all slices, and CPU time that of all of them. In a turn every method has
    a pair of hosts, and in a block every pair. So in the geometric mean of the turns' shares of
    none neither counts: not which pair is the faster one, nor which turn was the quieter one. By
    how much a round trip is longer is the mean over the turns.
    """
    rows = []
    for method in turns[0]:
        slices = [each for turn in turns for each in turn[method]]
        shares = [_shares(turn[method], turn[NONE]) for turn in turns]
        rows.append(
            {
                **_row_key(key, method),
                "rtt_us": round(median(each.rtt_us for each in slices), 2),
                "goodput_bps": round(median(each.goodput_bps for each in slices)),
                "cpu_s_per_gbit": _rounded(_cpu_s_per_gbit(slices), 5),
                "rtt_over_none_us": round(
                    fmean(_over_us(turn[method], turn[NONE]) for turn in turns), 2
                ),
                **{name: _mean([each[name] for each in shares]) for name in shares[0]},
            }
        )
    return rows


def _over_us(own: Sequence[Slice], none: Sequence[Slice]) -> float:
    """By how many us a method's round trips are longer in one turn."""
    return median(each.rtt_us - base.rtt_us for each, base in zip(own, none, strict=True))


def _shares(own: Sequence[Slice], none: Sequence[Slice]) -> dict[str, float | None]:
    """What a method has in one turn, of what the hosts without rules have in it."""
    both = list(zip(own, none, strict=True))
    cpu_s, base_s = _cpu_s_per_gbit(own), _cpu_s_per_gbit(none)
    return {
        "rtt_of_none": median(each.rtt_us / base.rtt_us for each, base in both),
        "goodput_of_none": median(each.goodput_bps / base.goodput_bps for each, base in both),
        "cpu_of_none": None if cpu_s is None or base_s is None else cpu_s / base_s,
    }


def _run_block(pairs: Pairs, slices: int, key: Json, report: Report) -> None:
    """Measure one number of rules: as many turns as there are pairs, then the rows."""
    methods = list(METHODS)
    turns = []
    load_s: dict[str, list[float]] = {}
    missing: list[Json] = []
    for turn in range(len(METHODS)):
        places = pairs_of_turn(turn)
        for method in tuple(methods):
            place = places[method]
            try:
                load_s.setdefault(method, []).append(pairs.load(place, method, key["beside"]))
            except (CommandFailed, NotAvailable) as error:
                if method not in (OWN, OWNER):
                    raise
                pairs.forget(place)
                methods.remove(method)
                missing.append(missing_row(_row_key(key, method), str(error), names(FIGURES)))
        turns.append(_turn(pairs, {method: places[method] for method in methods}, slices))
        for place in places.values():
            pairs.unload(place)
    whole = [{method: turn[method] for method in methods} for turn in turns]
    for row in (*block_rows(key, whole), *missing):
        method = row["method"]
        loaded_s = (
            round(median(load_s[method]), 4) if row["rules"] and not row.get("why_not") else None
        )
        row = {**row, "load_s": loaded_s}
        raw = {**row, "turns": [[asdict(e) for e in turn.get(method, [])] for turn in turns]}
        report.add(row, raw, summarized([*report.rows, row]))


def _turn(pairs: Pairs, places: Mapping[str, int], slices: int) -> dict[str, list[Slice]]:
    """So many slices of each method."""
    methods = list(places)
    found: dict[str, list[Slice]] = {method: [] for method in methods}
    for number in range(slices):
        # Each is first as often as the others: what comes after a slow one may be slower.
        first = number % len(methods)
        for method in (*methods[first:], *methods[:first]):
            found[method].append(_slice(pairs, places[method]))
    return found


def _slice(pairs: Pairs, pair: int) -> Slice:
    trips = pairs.measure(pair, "round_trips", ROUND_TRIPS_S)
    sent = pairs.measure(pair, "transfer", TRANSFER_S)
    return Slice(trips["rtt_us"], sent["bytes"] * 8, sent["seconds"], sent["cpu_s"])


def _row_key(key: Json, method: str) -> Json:
    """What a row is of: the methods without rules have 0 of them, whatever they stand beside."""
    rules = key["beside"] if method in (OWN, OWNER) else 0
    return {"over": key["over"], "method": method, "rules": rules, **key}


def _cpu_s_per_gbit(slices: Sequence[Slice]) -> float | None:
    known = [(each.cpu_s, each.bits) for each in slices if each.cpu_s is not None]
    return (
        sum(cpu_s for cpu_s, _ in known) / sum(bits for _, bits in known) * 1e9 if known else None
    )


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return round(geometric_mean(known), 4) if known else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _block_seconds(settings: RulesSettings, rules: int) -> float:
    measured_s = settings.slices * (ROUND_TRIPS_S + TRANSFER_S) * len(METHODS)
    return len(METHODS) * (measured_s + MIN_LOAD_S + rules * LOAD_S_PER_RULE)
