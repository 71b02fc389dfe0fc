# SPDX-License-Identifier: Apache-2.0
"""What `ri2n bench helper` runs, which figures a row has, and how rows are compared; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.bench.rows import summarize

__all__ = [
    "CALM_CPUS",
    "CONTENDERS",
    "DATAPATHS",
    "FIGURES",
    "LAB_S",
    "MEMORY",
    "MEMORY_S",
    "PARTS",
    "PLAIN",
    "WARMUP_S",
    "HelperSettings",
    "Load",
    "Place",
    "beside",
    "blank_row",
    "loads",
    "round_seconds",
    "speed_rows",
    "summarized",
    "total_seconds",
]

PLAIN = "veth"
"""The contender that all others are compared with."""

CONTENDERS = {
    PLAIN: "one link, no RI2N: Linux alone",
    "mptcp": "Multipath TCP over all links",
    "ovs_bond": "bridges with a bond of Open vSwitch at both ends, balance-tcp",
    "autonomous": "the helper on the NICs, without Open vSwitch",
    "flow": "the bridges alone, flow mode",
    "flow_fast": "flow mode, with the fast path beside the bridges",
    "packet": "the bridges and the helper",
    "packet_fast": "the same, with TCP striped beside the bridges",
}
"""{contender: what it is}, in the order in which a round measures them."""

DATAPATHS = {
    "netdev": "the userspace datapath",
    "netdev-tso": "the same with Open vSwitch's userspace TSO",
    "system": "the kernel datapath",
}
"""{datapath: what it is} of the contenders that have bridges."""

ON_DATAPATHS = {
    "ovs_bond": ("netdev", "system"),
    "flow": ("netdev", "netdev-tso", "system"),
    "flow_fast": ("netdev", "system"),  # no super-packet meets the bridge
    "packet": ("netdev", "netdev-tso", "system"),
    "packet_fast": ("netdev", "system"),
}

CALM_CPUS = 0.2
"""Up to so many CPUs, what foreign programs use is not in the way of a load."""

LAB_S = 12.0
MEMORY_S = 10.0
WARMUP_S = 1
STREAMS = "streams"
ROUND_TRIPS = "round trips"
RATES = "rates"
MEMORY = "memory"
PARTS = (MEMORY, STREAMS, ROUND_TRIPS, RATES)
"""The parts of the bench, each with figures of its own."""

GROUPS = ("part", "what", "datapath", "load")

FIGURES = (
    Figure("packets_per_s", "packets/s", show=",.0f", when_measured=True),
    Figure("goodput_bps", "goodput", "Gbit/s", show=".2f", scale=1e-9, when_measured=True),
    Figure("per_s", "a second", show=",.0f", when_measured=True),
    Figure("of_veth", "of a plain veth", show=".3f", when_measured=True),
    Figure("cpu_s_per_gbit", "CPU s per Gbit", show=".3f", when_measured=True),
    Figure("cpu_us_each", "CPU us each", show=".1f", when_measured=True),
    Figure("cpu_of_veth", "times a veth's CPU", show=".2f", when_measured=True),
    Figure("retransmits", "retransmits", when_measured=True),
    Figure("median_us", "median", "us", show=".1f", when_measured=True),
    Figure("p99_us", "99th percentile", "us", when_measured=True),
    Figure("times_veth", "times a veth's", show=".2f", when_measured=True),
    Figure("over_veth_us", "over a veth", "us", show=".1f", when_measured=True),
    Figure("foreign_cpus", "CPUs of others", show=".2f", when_measured=True),
)
COMPARED = {
    "of_veth": ("goodput_bps", "per_s"),
    "cpu_of_veth": ("cpu_s_per_gbit", "cpu_us_each"),
    "times_veth": ("median_us",),
}
"""{ratio: the figures that it is of}; a row has one of them at most."""

Json = dict[str, Any]
Place = tuple[str, str | None]
"""A contender, and its datapath; None for one without bridges."""


@dataclass(frozen=True)
class Load:
    """What is measured in a lab at a time.

    `kind` is "streams", "ping", "request", "connections" or "packets". `streams` go each way that
    there is. `awake`: idle CPUs do not sleep.
    """

    kind: str
    streams: int = 1
    both_ways: bool = False
    awake: bool = False

    @property
    def part(self) -> str:
        """The part of the bench, one of PARTS."""
        return {
            "streams": STREAMS,
            "ping": ROUND_TRIPS,
            "request": ROUND_TRIPS,
        }.get(self.kind, RATES)

    @property
    def name(self) -> str:
        """What rows say of it."""
        if self.kind == "streams":
            text = "1 stream" if self.streams == 1 else f"{self.streams} streams"
            return f"{text} each way" if self.both_ways else text
        text = {
            "ping": "ping",
            "request": "request of 1 KB",
            "connections": "short connections",
            "packets": "UDP packets",
        }[self.kind]
        return f"{text}, CPUs awake" if self.awake else text


@dataclass(frozen=True)
class HelperSettings:
    """What to run: `links` links between the two hosts, `seconds` of each load.

    `streams` are numbers of TCP streams; each is measured one way and both ways. `tries`: a load is
    measured again, up to so many times, while programs outside of the lab use more than CALM_CPUS.
    """

    what: tuple[str, ...] = tuple(CONTENDERS)
    links: int = 2
    seconds: int = 5
    repeat: int = 3
    streams: tuple[int, ...] = (1, 8)
    datapaths: tuple[str, ...] = tuple(DATAPATHS)
    tries: int = 1

    @property
    def places(self) -> list[Place]:
        """Every lab, in the order in which a round measures them."""
        return [
            (what, datapath)
            for what in self.what
            for datapath in (
                [each for each in ON_DATAPATHS[what] if each in self.datapaths]
                if what in ON_DATAPATHS
                else [None]
            )
        ]

    def described(self) -> Json:
        """As JSON."""
        return asdict(self)


def loads(settings: HelperSettings) -> list[Load]:
    """What is measured in each lab, in order.

    What fills queues comes last: it is not to be seen in another figure.
    """
    return [
        *(Load(kind, awake=awake) for awake in (False, True) for kind in ("ping", "request")),
        Load("connections"),
        *(
            Load("streams", streams=streams, both_ways=both_ways)
            for streams in settings.streams
            for both_ways in (False, True)
        ),
        Load("packets"),
    ]


def total_seconds(settings: HelperSettings) -> float:
    """About how long `run_helper` takes, for the progress bar."""
    each_s = LAB_S + settings.repeat * round_seconds(settings)
    return MEMORY_S + len(settings.places) * each_s


def round_seconds(settings: HelperSettings) -> float:
    """About how long one lab takes in one round."""
    return sum(
        settings.seconds + (WARMUP_S + 2.0 if load.kind in ("streams", "packets") else 0.5)
        for load in loads(settings)
    )


# ---- rows


def blank_row(place: Place, load: Load, repeat: int) -> Json:
    """A row without any figure yet."""
    what, datapath = place
    key = {"part": load.part, "what": what, "datapath": datapath, "load": load.name}
    return {**key, "repeat": repeat, **dict.fromkeys(names(FIGURES))}


def speed_rows(output: str) -> list[Json]:
    """Rows from lines of JSON {"what": ..., "packets_per_s": ...} of the speed program.

    Other lines are ignored.
    """
    rows = []
    for line in output.splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            key = {"part": MEMORY, "what": str(found["what"]), "datapath": None, "load": None}
            row = {**key, "repeat": 1, **dict.fromkeys(names(FIGURES))}
            rows.append({**row, "packets_per_s": round(float(found["packets_per_s"]))})
    return rows


def beside(rows: Iterable[Json]) -> list[Json]:
    """The rows with their ratios to the plain veth, and with times over the veth's.

    A row is compared with the veth's row of the same round, which was measured minutes before or
    after it: other load on the machine changes, and is then in both. None where there is none.
    """
    rows = list(rows)
    plain = {_moment(row): row for row in rows if row["what"] == PLAIN}
    found = []
    for row in rows:
        veth = plain.get(_moment(row), {})
        made = dict(row)
        for ratio, figures in COMPARED.items():
            made[ratio] = next(
                (
                    round(row[figure] / veth[figure], 4)
                    for figure in figures
                    if row.get(figure) is not None and veth.get(figure)
                ),
                None,
            )
        known = row.get("median_us") is not None and veth.get("median_us") is not None
        made["over_veth_us"] = round(row["median_us"] - veth["median_us"], 1) if known else None
        found.append(made)
    return found


def _moment(row: Json) -> tuple[Any, ...]:
    return row["part"], row["load"], row["repeat"]


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows."""
    return summarize(beside(rows), GROUPS, FIGURES)
