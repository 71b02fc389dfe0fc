# SPDX-License-Identifier: Apache-2.0
"""The tables of `ri2n bench jobs`: what two users' jobs get, beside what the paper measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from ri2n_lab.bench.drawing import Bar
from ri2n_lab.bench.figure import spread, spread_text
from ri2n_lab.bench.jobs_plan import EXCHANGES, ISOLATED, NO_POLICY
from ri2n_lab.bench.paper import BORDER_PAPER
from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, Notes, figure_table
from ri2n_lab.bench.report_pictures import Picture
from ri2n_lab.bench.report_rows import JobsRow, figures_of

__all__ = ["EXCHANGES_EXPLAINED", "EXPLAINED", "body", "exchange_matrix", "matrix"]

# (figure, what it is, when the promise is broken). The bounds are those of the tests of jobs.
PROMISES: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
    ("of_min_rate", "The slowest host with a min_rate has", lambda share: share < 0.97),
    (
        "second_of_max_rate",
        "In its fullest second, the fastest host with a max_rate sends",
        lambda share: share > 1.02,
    ),
)
EXPLAINED = (
    "Two users' jobs send from the same hosts to the same hosts: job one a TCP stream for each "
    "pair of hosts, job two several. `exclusive`: job one has a path of its own. `min_rate`: job "
    "one has the common paths and a min_rate of half of a NIC, so as many paths of its own as that "
    "needs; on fat trees at most what a lane carries between the switches, and each host sends no "
    "more than that. `max_rate`: job two may send half of a NIC at each host. `isolated`: each job "
    "has half of the hosts, and job one's are closed to everybody else; *apart* is the same "
    "without a policy."
)
EXCHANGES_EXPLAINED = (
    "Job one exchanges messages by MPI on all of its hosts: `is` is all-to-all, as in IS of the "
    "NAS Parallel Benchmarks, `cg` is with the next rank and the last one, as in CG and MG. Job "
    "two sends TCP streams from half of the same hosts to the others, as before. In real time, on "
    "the userspace datapath, and over slow links, so that they are what is short."
)


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each topology, exchange, policy and job, alone and beside the other."""
    del drawn
    exchanges = any(row.exchange for row in measurement.jobs)
    explained = EXCHANGES_EXPLAINED if exchanges else EXPLAINED
    yield from prose(
        f"{explained} Of alone: what the job gets, of what it gets when the other does not send "
        "and there is no policy"
        + (
            ": exchanges per second of job one, goodput of job two, in the same round. CPUs busy: "
            "how many of the machine's had work in the window, with whatever else ran there. When "
            "it is all of them, exchanges also wait for a CPU, and small differences mean nothing."
            if exchanges
            else ". Of its min_rate, of its max_rate: frames on the wire at each host."
        )
    )
    groups: dict[tuple[str, str, str, str, str, str], list[JobsRow]] = {}
    for row in measurement.jobs:
        beside = ("yes" if row.beside else "no") + (", apart" if row.apart else "")
        key = (row.topology, row.mode, row.exchange or "", row.policy, row.job, beside)
        groups.setdefault(key, []).append(row)
    lines = [
        Line(
            [
                *(cell(topology), mode, *([code(exchange)] if exchanges else [])),
                *(code(policy), job, beside),
            ],
            f"{policy} on {topology}",
            members,
        )
        for (topology, mode, exchange, policy, job, beside), members in groups.items()
    ]
    heads = (
        *("topology", "mode", *(["exchange"] if exchanges else [])),
        *("policy of job one", "job", "beside the other"),
    )
    yield from figure_table(heads, lines, figures_of("jobs"))


def matrix(rows: Sequence[JobsRow]) -> Iterator[str]:
    """Policies by topologies: `job one / job two`, each of what it has alone."""
    notes = Notes()
    columns = list(dict.fromkeys((row.topology, row.mode) for row in rows))
    lines = []
    for policy, apart in _policies(rows):
        cells = [f"{code(policy)}{', apart' if apart and policy == NO_POLICY else ''}"]
        for topology, mode in columns:
            members = [
                row
                for row in rows
                if row.beside
                and (row.topology, row.mode, row.policy, row.apart)
                == (topology, mode, policy, apart)
            ]
            cells.append(_both(members) or notes.cell(f"{policy} on {topology}", members))
        lines.append(cells)
    yield from table(("", *(cell(f"{topology}, {mode}") for topology, mode in columns)), lines)
    yield from notes.lines()
    yield from _meaning(rows)


def exchange_matrix(rows: Sequence[JobsRow]) -> Iterator[str]:
    """How many times as long an exchange takes as alone, and below it the paper's figures."""
    notes = Notes()
    columns = [
        (topology, exchange)
        for topology in dict.fromkeys(row.topology for row in rows)
        for exchange in EXCHANGES
        if any((row.topology, row.exchange) == (topology, exchange) for row in rows)
    ]
    lines = []
    for policy, beside in dict.fromkeys(
        (row.policy, row.beside)
        for row in rows
        if row.job == "one" and (row.beside or row.policy != NO_POLICY)
    ):
        cells = [code(policy), "sends" if beside else "does not"]
        for topology, exchange in columns:
            members = [
                row
                for row in rows
                if (row.topology, row.exchange, row.policy, row.beside)
                == (topology, exchange, policy, beside)
            ]
            cells.append(_times(members) or notes.cell(f"{policy} on {topology}", members))
        lines.append(cells)
    heads = (f"{cell(topology)}, {code(exchange)}" for topology, exchange in columns)
    yield from table(("policy of job one", "job two", *heads), lines)
    yield from notes.lines()
    yield from _exchange_meaning(rows)
    yield from _paper(rows)


def _meaning(rows: Sequence[JobsRow]) -> Iterator[str]:
    """What the table says, in sentences: the least and the most over topologies and modes."""
    for policy, apart in _policies(rows):
        if policy == NO_POLICY:
            continue
        pairs = [
            (job, _range(rows, policy, job, apart=apart), _range(rows, NO_POLICY, job, apart=apart))
            for job in ("one", "two")
        ]
        texts = [
            f"job {job} gets {own} of what it has alone{f' (without a policy {none})' * bool(none)}"
            for job, own, none in pairs
            if own
        ]
        if texts:
            yield from prose(f"With {code(policy)} {', and '.join(texts)}.", item=True)
    for name, words, broken in PROMISES:
        by_topology: dict[str, list[float]] = {}
        for row in rows:
            if (value := row.figure(name)) is not None:
                by_topology.setdefault(f"{row.topology}, {row.mode}", []).append(value)
        if by_topology:
            found = {place: median(values) for place, values in by_topology.items()}
            bad = [place for place, value in found.items() if broken(value)]
            text = f"{words} {_ends(found.values())} of it"
            text += f": **not kept** on {'; '.join(map(cell, bad))}." if bad else ": kept."
            yield from prose(text, item=True)
    yield ""


def _exchange_meaning(rows: Sequence[JobsRow]) -> Iterator[str]:
    texts = []
    for policy in dict.fromkeys(row.policy for row in rows if row.beside):
        shares = _medians(rows, policy, "one")
        if shares:
            words = "without a policy" if policy == NO_POLICY else f"with {code(policy)}"
            texts.append(f"{_ends(1 / share for share in shares)} times as long as alone {words}")
    if texts:
        yield from prose(f"Beside job two an exchange takes {', and '.join(texts)}.")


def _medians(rows: Sequence[JobsRow], policy: str, job: str, *, apart: bool = False) -> list[float]:
    """What a job gets of what it has alone, with a policy beside the other: one for each column."""
    columns: dict[tuple[str, str, str | None], list[float]] = {}
    for row in rows:
        same = (row.policy, row.job, row.apart, row.beside) == (policy, job, apart, True)
        share = row.figure("of_alone")
        if same and share:
            columns.setdefault((row.topology, row.mode, row.exchange), []).append(share)
    return [median(values) for values in columns.values()]


def _range(rows: Sequence[JobsRow], policy: str, job: str, *, apart: bool) -> str:
    return _ends(_medians(rows, policy, job, apart=apart))


def _ends(values: Iterable[float]) -> str:
    """`0.25 to 1.00`, or `0.25` where both are the same; empty without values."""
    texts = [f"{value:.2f}" for value in sorted(values)]
    return " to ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else ""


def _policies(rows: Sequence[JobsRow]) -> list[tuple[str, bool]]:
    """(policy, hosts apart) of the lines: isolated, and what it is compared with, come last."""
    found = dict.fromkeys((row.policy, row.apart) for row in rows if row.beside)
    return sorted(found, key=lambda each: (each[1], each[0] == ISOLATED))


def _both(rows: Sequence[JobsRow]) -> str | None:
    texts = []
    for job in ("one", "two"):
        share = _share(rows, job)
        if share is None:
            return None
        texts.append(f"{share.value:.2f}")
    return " / ".join(texts)


def _share(rows: Sequence[JobsRow], job: str) -> Bar | None:
    return spread(row.figure("of_alone") for row in rows if row.job == job)


def _times(rows: Sequence[JobsRow]) -> str | None:
    """`4.76 (4.50..5.01) / 0.88`: job one's time of alone, and job two's rate of alone."""
    shares = [share for row in rows if row.job == "one" and (share := row.figure("of_alone"))]
    if not shares:
        return None
    text = spread_text(spread(1 / share for share in shares), ".2f")
    other = _share(rows, "two")
    return f"{text} / {other.value:.2f}" if other else text


def _paper(rows: Sequence[JobsRow]) -> Iterator[str]:
    """The paper's two ways to choose a job's path, and ours: what they cost when nobody disturbs.

    The paper had no second job: its figures are the price of the switching itself. The ones of ours
    that can be compared are those of a job with a policy while the other does not send.
    """
    yield from prose(
        "The paper chose a user's path by rules in the node, or by a load balancer at the border, "
        "and measured what that costs, with nobody beside. NPB: times as long as without, of its "
        "programs (class B, 8 or 9 processes). All flows: the UDP payload that all of them "
        "together get through the device. Ours are exchanges of all kinds and topologies, with a "
        "policy and while job two does not send. Where the job has one of two lanes, that is in "
        "it; a cost of a few percent would be lost in this machine's noise."
    )
    lines = [
        [
            *(f"*{cell(each.what)}*", f"{each.rtt_ms:g}", f"{each.tcp_mbps:g}"),
            *("-" if each.all_flows_mbps is None else f"{each.all_flows_mbps:g}", each.npb_times),
        ]
        for each in BORDER_PAPER
    ]
    for policy in dict.fromkeys(row.policy for row in rows if row.policy != NO_POLICY):
        quiet = [row for row in rows if row.policy == policy and not row.beside]
        text = _times(quiet)
        if text is not None:
            lines.append([f"ours, {code(policy)}", "-", "-", "-", text])
    heads = ("", "round trip, ms", "TCP, Mbit/s", "all flows, Mbit/s", "NPB, times as long")
    yield from table(heads, lines)
