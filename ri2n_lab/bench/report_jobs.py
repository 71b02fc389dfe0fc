"""The tables of `ri2n bench jobs`: what two users' jobs get on the same hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.figure import spread
from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, Notes, figure_table
from ri2n_lab.bench.report_pictures import Picture
from ri2n_lab.bench.report_rows import JobsRow, figures_of

__all__ = ["EXPLAINED", "body", "matrix"]

EXPLAINED = (
    "Two users' jobs send from the same hosts to the same hosts: job one a TCP stream for each "
    "pair of hosts, job two several."
)


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each topology, policy and job, alone and beside the other."""
    del drawn
    yield from prose(
        f"{EXPLAINED} Of alone: goodput, of what the job gets when the other does not send and "
        "there is no policy. With `exclusive` job one has a path of its own, and nobody else uses "
        "it between the job's hosts."
    )
    groups: dict[tuple[str, str, str, str, bool], list[JobsRow]] = {}
    for row in measurement.jobs:
        key = (row.topology, row.mode, row.policy, row.job, row.beside)
        groups.setdefault(key, []).append(row)
    lines = [
        Line(
            [cell(topology), mode, code(policy), job, "yes" if beside else "no"],
            f"{policy} on {topology}",
            members,
        )
        for (topology, mode, policy, job, beside), members in groups.items()
    ]
    heads = ("topology", "mode", "policy of job one", "job", "beside the other")
    yield from figure_table(heads, lines, figures_of("jobs"))


def matrix(rows: Sequence[JobsRow]) -> Iterator[str]:
    """Policies by topologies: `job one / job two`, each of what it has alone."""
    notes = Notes()
    columns = list(dict.fromkeys((row.topology, row.mode) for row in rows))
    lines = []
    for policy in dict.fromkeys(row.policy for row in rows if row.beside):
        cells = [code(policy)]
        for topology, mode in columns:
            members = [
                row
                for row in rows
                if row.beside and (row.topology, row.mode, row.policy) == (topology, mode, policy)
            ]
            cells.append(_both(members) or notes.cell(f"{policy} on {topology}", members))
        lines.append(cells)
    yield from table(("", *(cell(f"{topology}, {mode}") for topology, mode in columns)), lines)
    yield from notes.lines()


def _both(rows: Sequence[JobsRow]) -> str | None:
    texts = []
    for job in ("one", "two"):
        share = spread(row.figure("of_alone") for row in rows if row.job == job)
        if share is None:
            return None
        texts.append(f"{share.value:.2f}")
    return " / ".join(texts)
