# SPDX-License-Identifier: Apache-2.0
"""What `ri2n bench parallel` measures, and how rows become speedups: pure, without a lab.

After section 4 of the Paradise paper ("Research on Parallel Networking for TCP/IP Communication"):
figures 7 and 8 are its transfers, figure 9 (a) is its mix.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_lab.bench.fair import GOODPUT_RATIO
from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.bench.rows import lasting_text, summarize
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "CONNECTIONS",
    "FAULTS",
    "FIGURES",
    "METHODS",
    "MIX_METHODS",
    "PARTS",
    "SETUPS",
    "SIZE_LIMITS",
    "ParallelSettings",
    "all_figures",
    "blank_row",
    "check",
    "compared",
    "contestants",
    "kinds",
    "narrowed",
    "parse_numbers",
    "parse_sizes",
    "samples",
    "size_text",
    "summarized",
    "total_seconds",
]

SERVER, CLIENT = "A", "B"
PARTS = ("transfer", "fault", "mix", "roundtrip")
METHODS = ("tcp", "tcps", "parallel", "mptcp", "trunk_packet", "trunk_flow")
"""How a transfer is made.

tcp: one connection over one link; tcps: one over each of so many links, all at once; trunk_...: one
connection over RI2N's trunk of all links, striped by the helper or not.
"""
TRUNKS = ("trunk_packet", "trunk_flow")
MIX_METHODS = ("tcp", "dns", "parallel")
"""Which link a connection of the mix takes.

tcp: all go to one address; dns: each goes to the next address; parallel: the server chooses.
"""
SETUPS = ("include", "early", "exclude")
"""Whether a transfer's time has connecting in it.

early: it has, and the call to connect gets the first bytes, which only `parallel` can do.
"""
CONNECTIONS = ("fresh", "warm")
FAULTS = ("one_down", "one_own_down", "one_blackhole", "all_but_one", "all_then_one")
FAULT_METHODS = ("parallel", "mptcp")
SIZE_LIMITS = (1 << 10, 1 << 30)
SHORT_BYTES = 1 << 16
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

LAB_S, TRUNK_LAB_S, MIX_LEAD_S, FAULT_S = 6.0, 14.0, 3.0, 8.0
PING_S = 8.0

KEY = ("part", "method", "links", "streams", "size_bytes")
GROUPS = (*KEY, "connection", "setup", "fault", "short", "awake")
"""Keys of a row that say what was measured; those that do not belong to its part are None."""
FIGURES = {
    "transfer": (
        Figure("goodput_bps", "goodput", "Mbit/s", show=".1f", scale=1e-6),
        Figure("time_ms", show=".3f"),
        Figure("speedup", "speedup", show=".2f", when_measured=True),
        Figure("of_one_link"),
        Figure("of_tcps", "of TCPs", show=".2f", when_measured=True),
    ),
    "fault": (
        Figure("completed", "completed", show=lasting_text, kind=bool | None),
        Figure("intact", "every byte right", show=lasting_text, kind=bool | None),
        Figure("stall_s", "stall", "s", show=".2f"),
        Figure("total_s", "in all", "s", show=".2f"),
        Figure("links_lost"),
        Figure("links_suspected"),
        Figure("resent_bytes", "sent again", "MiB", show=".1f", scale=1 / (1 << 20)),
    ),
    "mix": (
        Figure("goodput_bps"),
        Figure("speedup", "goodput", show=".2f"),
        Figure("served_per_min", "connections per minute"),
        Figure("failed"),
        Figure("uneven", "difference of links, connections", show=".1f"),
    ),
    "roundtrip": (
        Figure("rtt_us", "round trip", "us", show=".1f"),
        Figure("rtt_p99_us", "99th percentile", "us", show=".1f"),
        Figure("over_tcp_us", "over plain TCP", "us", show=".1f"),
    ),
}


def all_figures() -> tuple[Figure, ...]:
    """The figures of all parts, each name once."""
    first: dict[str, Figure] = {}
    for figures in FIGURES.values():
        for figure in figures:
            first.setdefault(figure.name, figure)
    return tuple(first.values())


Json = dict[str, Any]


@dataclass(frozen=True)
class ParallelSettings:
    """What to run; sizes in bytes, times in seconds.

    `topology` has a server A, a client B and, for the mix, all others as clients, with one NIC per
    network. `links` of its networks are used. Of sizes up to SHORT_BYTES each row has the median of
    `samples` transfers, each over connections of its own, since a frame more or less on the way
    shows in them. `baseline` False: another guest measures plain TCP.
    """

    topology: Topology
    links: int = 6
    sizes: tuple[int, ...] = (1 << 20,)
    streams: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    methods: tuple[str, ...] = METHODS
    parts: tuple[str, ...] = PARTS
    setups: tuple[str, ...] = SETUPS
    connections: tuple[str, ...] = CONNECTIONS
    faults: tuple[str, ...] = FAULTS
    fault_bytes: int = 64 << 20
    mix_methods: tuple[str, ...] = MIX_METHODS
    shorts: tuple[int, ...] = (0, 2, 4, 6, 8)
    processes: int = 8
    unit_bytes: int = 56 << 10
    times: int = 1000
    window_s: float = 10.0
    round_trips: int = 2000
    repeat: int = 3
    samples: int = 1
    baseline: bool = True

    def described(self) -> Json:
        """As JSON, with the topology whole."""
        return {**asdict(self), "topology": self.topology.model_dump(mode="json")}


# ---- what people write


def parse_sizes(text: str, option: str = "--sizes") -> tuple[int, ...]:
    """Sizes in bytes: `2K`, `2K,56K`, and ranges by powers of two, `2K..256M`; K, M, G are binary.

    BadInput else.
    """
    found: list[int] = []
    for word in text.split(","):
        begin, dots, end = word.strip().partition("..")
        low, high = _size(begin, option), _size(end if dots else begin, option)
        if high < low:
            raise BadInput(f"{option} {word.strip()}: ends before it begins")
        sizes = [low]
        while sizes[-1] < high:
            sizes.append(sizes[-1] * 2)
        if sizes[-1] != high:
            raise BadInput(f"{option} {word.strip()}: doubling {begin} never gives {end}")
        found += sizes
    return tuple(sorted(set(found)))


def parse_numbers(text: str, option: str, low: int, high: int) -> tuple[int, ...]:
    """Whole numbers from `low` to `high`: `3`, `1,4`, `1..6`; BadInput for anything else."""
    found: list[int] = []
    for word in text.split(","):
        begin, dots, end = (part.strip() for part in word.partition(".."))
        ends = [begin, end if dots else begin]
        if not all(each.isascii() and each.isdigit() and low <= int(each) <= high for each in ends):
            raise BadInput(
                f"{option} {text}: must be numbers from {low} to {high}, like 1,4 or 1..6"
            )
        if int(ends[1]) < int(ends[0]):
            raise BadInput(f"{option} {word.strip()}: ends before it begins")
        found += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(sorted(set(found)))


def size_text(size_bytes: int) -> str:
    """`56K`, `256M`: as `parse_sizes` reads it."""
    unit = next(unit for unit in ("G", "M", "K", "") if size_bytes % UNITS[unit] == 0)
    return f"{size_bytes // UNITS[unit]}{unit}"


def _size(text: str, option: str) -> int:
    digits = text.strip().upper().rstrip("KMG")
    unit = text.strip().upper()[len(digits) :]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12 and unit in UNITS):
        raise BadInput(
            f"{option} {text or repr(text)}: must be sizes in bytes, like 2K, 1M or 2K..256M"
        )
    size = int(digits) * UNITS[unit]
    if not SIZE_LIMITS[0] <= size <= SIZE_LIMITS[1]:
        raise BadInput(
            f"{option} {text}: must be from {size_text(SIZE_LIMITS[0])} to "
            f"{size_text(SIZE_LIMITS[1])}"
        )
    return size


# ---- what a topology gives


def check(settings: ParallelSettings) -> None:
    """BadInput for a topology that lacks what the parts need, or settings that measure nothing."""
    topology = settings.topology
    clients = (
        [CLIENT]
        if not {"mix"} & set(settings.parts)
        else [host for host in topology.hosts if host != SERVER]
    )
    for host in (SERVER, CLIENT, *clients):
        if host not in topology.managed_hosts():
            raise BadInput(f"topology {topology.name}: has no managed host {host}")
    switches = [nic.switch for nic in topology.hosts[SERVER].nics]
    if len(set(switches)) < len(switches):
        raise BadInput(f"topology {topology.name}: {SERVER} has two NICs on one switch")
    for host in clients:
        own = [nic.switch for nic in topology.hosts[host].nics]
        if own != switches:
            raise BadInput(
                f"topology {topology.name}: {host} is not on the same networks as {SERVER}, in "
                "their order"
            )
    if settings.links > len(switches):
        raise BadInput(f"--links {settings.links}: topology {topology.name} has {len(switches)}")
    if "transfer" in settings.parts and max(settings.streams) > settings.links:
        raise BadInput(
            f"--streams {max(settings.streams)}: at most one for each of {settings.links} links"
        )
    if "fault" in settings.parts and settings.links < 2:
        raise BadInput("--links 1: faults need at least 2")
    if any(short > settings.processes for short in settings.shorts):
        raise BadInput(f"--short: a client has {settings.processes} processes")
    if (
        "transfer" in settings.parts
        and settings.connections == ("warm",)
        and "exclude" not in settings.setups
    ):
        raise BadInput(
            f"--setup {','.join(settings.setups)}: a warm connection has been set up before"
        )
    if "transfer" in settings.parts and settings.setups == ("early",):
        raise BadInput("--setup early: is measured beside include")


def narrowed(topology: Topology, links: int, hosts: Sequence[str]) -> Topology:
    """The topology with the first `links` networks and these hosts alone."""
    networks = [nic.switch for nic in topology.hosts[SERVER].nics][:links]
    return topology.model_copy(
        update={
            "description": f"{len(hosts)} hosts on {links} networks",
            "switches": {
                name: spec for name, spec in topology.switches.items() if name in networks
            },
            "hosts": {
                name: spec.model_copy(update={"nics": spec.nics[:links]})
                for name, spec in topology.hosts.items()
                if name in hosts
            },
        }
    )


def contestants(settings: ParallelSettings) -> list[tuple[str, int]]:
    """(method, streams) of every kind of transfer.

    Plain TCP first, unless another guest measures it.
    """
    found = [("tcp", 1)] if settings.baseline or "tcp" in settings.methods else []
    for method in METHODS:
        if method in settings.methods and method != "tcp":
            found += [(method, count) for count in ((1,) if method in TRUNKS else settings.streams)]
    return found


# ---- how long it takes


def total_seconds(settings: ParallelSettings) -> float:
    """About how long `run_parallel` takes, for the progress bar."""
    found = 0.0
    if "transfer" in settings.parts:
        pairs = contestants(settings)
        found += LAB_S + TRUNK_LAB_S * sum(method in TRUNKS for method, _ in pairs)
        found += sum(
            transfer_seconds(settings, *pair, size) for pair in pairs for size in settings.sizes
        )
    if "fault" in settings.parts:
        methods = [method for method in FAULT_METHODS if method in settings.methods]
        found += LAB_S + len(methods) * len(settings.faults) * settings.repeat * FAULT_S
    if "mix" in settings.parts:
        found += LAB_S + len(mix_runs(settings)) * settings.repeat * mix_seconds(settings)
    if "roundtrip" in settings.parts:
        found += LAB_S + 2 * settings.repeat * PING_S
    return found


def kinds(settings: ParallelSettings, method: str) -> list[tuple[str, str]]:
    """(connection, setup) of every time that is taken of that method's transfers."""
    fresh = [
        ("fresh", setup) for setup in settings.setups if setup != "early" or method == "parallel"
    ]
    warm = [("warm", "exclude")] if "exclude" in settings.setups else []
    return [each for each in [*fresh, *warm] if each[0] in settings.connections]


def samples(settings: ParallelSettings, size: int) -> int:
    """How many transfers of that size each row has the median of."""
    return settings.samples if size <= SHORT_BYTES else 1


def transfer_seconds(settings: ParallelSettings, method: str, streams: int, size: int) -> float:
    """About how long all repeats of one transfer take, fresh, warming up and warm."""
    links = settings.links if method == "trunk_packet" else streams
    each_s = size * 8 / (one_link_bps(settings) * links)
    early_s = each_s if ("fresh", "early") in kinds(settings, method) else 0.0
    return (
        settings.repeat
        * samples(settings, size)
        * (0.05 + early_s + each_s * (3 if "warm" in settings.connections else 1))
    )


def mix_seconds(settings: ParallelSettings) -> float:
    """About how long one run of the mix takes."""
    return settings.window_s + MIX_LEAD_S + 2.0


def one_link_bps(settings: ParallelSettings) -> float:
    """The most that TCP could carry over the slowest link, in bit/s."""
    nics = settings.topology.hosts[SERVER].nics[: settings.links]
    return min(nic.rate_bps for nic in nics) * GOODPUT_RATIO


def mix_runs(settings: ParallelSettings) -> list[tuple[str, int]]:
    """(method, short processes of each client) of every mix.

    One address with long ones alone is what 1 means.
    """
    pairs = [(method, short) for method in settings.mix_methods for short in settings.shorts]
    return pairs if not settings.baseline or ("tcp", 0) in pairs else [("tcp", 0), *pairs]


# ---- rows


def blank_row(
    part: str, method: str, links: int, streams: int, size_bytes: int, **more: object
) -> Json:
    """A row of that part whose figures are all None; `more` are further keys."""
    row: Json = dict.fromkeys((*GROUPS, "repeat", *names(all_figures()), "why_not"))
    return {
        **row,
        **dict(zip(KEY, (part, method, links, streams, size_bytes), strict=True)),
        "repeat": 0,
        **more,
    }


def compared(rows: Iterable[Json]) -> list[Json]:
    """The rows with speedups over the medians of plain TCP in the same run; None without plain TCP.

    Only all rows together tell them. `speedup`: over plain TCP over one link with the same size,
    connection and set-up; early ones have the set-up in it too (of a mix: over one address with
    long connections alone). `of_one_link`: over the fastest that plain TCP was at any size, the
    paper's "1". `of_tcps`: of what as many plain TCPs got at that size. `over_tcp_us`: the round
    trip minus that of plain TCP.
    """
    rows = list(rows)
    transfers = [row for row in rows if row["part"] == "transfer"]
    mixes = [row for row in rows if row["part"] == "mix"]
    tcp = _medians((row for row in transfers if row["method"] == "tcp"), "goodput_bps", _transfer)
    tcps = _medians(
        (row for row in transfers if row["method"] in ("tcp", "tcps")), "goodput_bps", _many
    )
    mix = _medians(
        (row for row in mixes if row["method"] == "tcp" and row["short"] == 0),
        "goodput_bps",
        lambda _: (),
    )
    trips = (row for row in rows if row["part"] == "roundtrip" and row["method"] == "tcp")
    trip = _medians(trips, "rtt_us", lambda row: (row["awake"], row["repeat"]))
    best = max(tcp.values(), default=None)
    found = []
    for row in rows:
        bps, made = row["goodput_bps"], dict(row)
        if row["part"] == "transfer":
            made["speedup"] = _ratio(bps, tcp.get(_transfer(row)))
            made["of_one_link"] = _ratio(bps, best)
            made["of_tcps"] = (
                _ratio(bps, tcps.get(_many(row))) if row["method"] == "parallel" else None
            )
        elif row["part"] == "mix":
            made["speedup"] = _ratio(bps, mix.get(()))
        elif row["part"] == "roundtrip" and row["rtt_us"] is not None and row["method"] != "tcp":
            beside = trip.get((row["awake"], row["repeat"]))
            made["over_tcp_us"] = None if beside is None else round(row["rtt_us"] - beside, 2)
        found.append(made)
    return found


def summarized(rows: Sequence[Json]) -> list[Json]:
    """The report's summary of these rows, part by part."""
    found: list[Json] = []
    for part in PARTS:
        members = compared(row for row in rows if row["part"] == part)
        found += summarize(members, GROUPS, FIGURES[part])
    return found


def _transfer(row: Json) -> tuple[object, ...]:
    return (
        row["size_bytes"],
        row["connection"],
        "include" if row["setup"] == "early" else row["setup"],
    )


def _many(row: Json) -> tuple[object, ...]:
    return (row["streams"], *_transfer(row))


def _medians(
    rows: Iterable[Json], figure: str, key: Callable[[Json], tuple[object, ...]]
) -> dict[tuple[object, ...], float]:
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        if row[figure] is not None:
            groups.setdefault(key(row), []).append(row[figure])
    return {found: statistics.median(values) for found, values in groups.items()}


def _ratio(value: float | None, base: float | None) -> float | None:
    return round(value / base, 4) if value is not None and base else None
