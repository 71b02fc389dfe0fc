# SPDX-License-Identifier: Apache-2.0
"""The rows that the benches write, as far as the report needs them.

They are read strictly, and everything else is left out. What a row is a measurement of stands here;
its figures are those that its bench declares.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from ri2n_lab.bench import (
    cycle,
    demand,
    failover,
    fig4,
    fig9,
    helper_plan,
    jobs_plan,
    parallel_plan,
    rules,
    stream,
    vbft_rows,
    web,
)
from ri2n_lab.bench.figure import Figure, Number

__all__ = [
    "KINDS",
    "Client",
    "CycleRow",
    "DemandRow",
    "FailoverRow",
    "Fig4Row",
    "Fig9Row",
    "HelperRow",
    "JobsRow",
    "Number",
    "ParallelRow",
    "Phase",
    "Row",
    "RulesRow",
    "Sample",
    "StreamRow",
    "VbftRow",
    "figures_of",
    "row_model",
]


class Row(BaseModel):
    """Base of all rows: values are not coerced, the result is frozen, no number is infinite."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)

    def figure(self, name: str) -> Any:
        """The value of a figure; None when this row did not measure it."""
        return getattr(self, name, None)


class Client(Row):
    """One client of a run: bit/s, and its share of its max-min fair rate."""

    goodput_bps: Number
    share: Number


class Fig4Row(Row):
    """One run of a strategy or peer.

    Of a peer that cannot do the topology only `why_not`, without figures.
    """

    topology: str
    strategy: str
    peer: bool = False
    mode: str = "flow"
    streams: int
    repeat: int
    why_not: str | None = None
    clients: dict[str, Client]


class FailoverRow(Row):
    """One fault under UDP and under TCP.

    `strategy` is empty in files from before there were peers.
    """

    fault: str
    strategy: str = ""
    peer: bool = False
    mode: str = "flow"
    repeat: int
    why_not: str | None = None


class Fig9Row(Row):
    """One phase of figure 9."""

    phase: str


class CycleRow(Row):
    """The controller's rounds with one number of active pairs."""

    hosts: int
    active_pairs: int
    rounds: int


class StreamRow(Row):
    """One stream over all links of two hosts."""

    links_mbps: str
    strategy: str
    peer: bool = False
    mode: str | None = None
    proto: str
    cc: str | None = None
    repeat: int
    why_not: str | None = None


class DemandRow(Row):
    """A client stopped and began again; a time is None when that never happened."""

    topology: str
    strategy: str
    peer: bool = False
    repeat: int
    why_not: str | None = None


class HelperRow(Row):
    """What helper or fast path cost, in memory or end to end.

    `part` says which figures it has; `failed` says why it has none.
    """

    part: str
    what: str
    datapath: str | None
    load: str | None
    repeat: int
    why_not: str | None = None
    failed: str | None = None


class VbftRow(Row):
    """One pattern on one topology."""

    topology: str
    pattern: str
    table: str | None
    mode: str
    engine: str
    streams: int | None
    repeat: int


class ParallelRow(Row):
    """A transfer, a fault under one, a mix of connections, or round trips.

    `part` says which figures it has.
    """

    part: str
    method: str
    links: int
    streams: int
    size_bytes: int
    connection: str | None = None
    setup: str | None = None
    fault: str | None = None
    short: int | None = None
    awake: bool | None = None
    repeat: int
    why_not: str | None = None


class RulesRow(Row):
    """What a method to mark users' packets costs with so many users' rules."""

    over: str
    method: str
    rules: int
    beside: int
    repeat: int
    why_not: str | None = None


class JobsRow(Row):
    """What one of two jobs got, alone or beside the other."""

    topology: str
    mode: str
    policy: str
    job: str
    beside: bool
    apart: bool = False
    exchange: str | None = None
    repeat: int
    why_not: str | None = None


class WebRow(Row):
    """The controller's rounds while nobody or many look at the cluster."""

    watched: str
    hosts: int
    active_pairs: int
    repeat: int


class Sample(Row):
    """The weights at one moment, {client: {`own>peer`: share}}, on the clock of its phase."""

    time_s: Number
    hbspan_s: Number
    weights: dict[str, dict[str, Number]]


class Phase(Row):
    """The samples of one phase of figure 9."""

    phase: str
    began_s: Number
    samples: list[Sample]


_ROWS: dict[str, type[Row]] = {
    "fig4": Fig4Row,
    "stream": StreamRow,
    "demand": DemandRow,
    "failover": FailoverRow,
    "fig9": Fig9Row,
    "vbft": VbftRow,
    "parallel": ParallelRow,
    "cycle": CycleRow,
    "helper": HelperRow,
    "rules": RulesRow,
    "jobs": JobsRow,
    "web": WebRow,
}
_FIGURES: dict[str, Callable[[], tuple[Figure, ...]]] = {
    "fig4": lambda: (*fig4.FIGURES, *fig4.PING_FIGURES),
    "stream": lambda: stream.FIGURES,
    "demand": lambda: demand.FIGURES,
    "failover": lambda: failover.FIGURES,
    "fig9": lambda: fig9.FIGURES,
    "vbft": lambda: vbft_rows.FIGURES,
    "parallel": parallel_plan.all_figures,
    "cycle": lambda: cycle.FIGURES,
    "helper": lambda: helper_plan.FIGURES,
    "rules": lambda: rules.FIGURES,
    "jobs": lambda: jobs_plan.FIGURES,
    "web": lambda: web.FIGURES,
}
KINDS = tuple(_ROWS)


def figures_of(kind: str) -> tuple[Figure, ...]:
    """The figures of a kind of bench that are in a report, in the order of its rows."""
    return tuple(figure for figure in _FIGURES[kind]() if figure.kind is not None)


def row_model(kind: str) -> type[Row]:
    """What checks a row of that kind: what it is a measurement of, and its figures."""
    return _model(_ROWS[kind], figures_of(kind))


@cache
def _model(base: type[Row], figures: tuple[Figure, ...]) -> type[Row]:
    fields: dict[str, Any] = {
        figure.name: (figure.kind, ... if figure.required else None) for figure in figures
    }
    return create_model(base.__name__, __base__=base, **fields)
