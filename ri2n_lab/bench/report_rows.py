"""The rows that the benches write, as far as the report needs them:

read strictly, everything else is left out.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = [
    "KINDS",
    "ROWS",
    "Client",
    "CycleRow",
    "DemandRow",
    "FailoverRow",
    "Fig4Row",
    "Fig9Row",
    "HelperRow",
    "Number",
    "ParallelRow",
    "Phase",
    "Row",
    "Sample",
    "StreamRow",
    "VbftRow",
]

Number = int | float


class Row(BaseModel):
    """Base of all rows: values are not coerced, the result is frozen, no number is infinite."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


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
    total_of_optimum: Number | None
    worst_share: Number | None
    retransmits: Number | None
    weights: dict[str, dict[str, Number]]
    slots_moved: Number | None
    switch_drops: Number | None = None
    out_of_order: Number | None = None
    ping_idle_ms: Number | None = None
    ping_load_ms: Number | None = None
    ping_load_p99_ms: Number | None = None


class FailoverRow(Row):
    """One fault under UDP and under TCP; `strategy` is empty in files from before there were peers.

    `lasting`: packets were still lost when the stream ended; None where that was not looked at.
    """

    fault: str
    strategy: str = ""
    peer: bool = False
    mode: str = "flow"
    repeat: int
    why_not: str | None = None
    outage_ms: Number | None = None
    lost: Number | None = None
    sent: Number | None = None
    out_of_order: Number | None = None
    lasting: bool | None = None
    tcp_stall_ms: Number | None = None
    traffic_again_ms: Number | None = None
    striped_again_s: Number | None = None


class Fig9Row(Row):
    """One phase:

    seconds and HBSPANs until the weights stayed, and what they and the goodput were then.
    """

    phase: str
    settle_s: Number | None
    settle_hbspan: Number | None
    hbspan_s: Number
    weights: dict[str, dict[str, Number]]
    goodput_bps: dict[str, Number]


class CycleRow(Row):
    """The controller's rounds with one number of active pairs; wall clock and its own CPU seconds.

    Beside spinning programs also how it settled before.
    """

    hosts: int
    active_pairs: int
    rounds: int
    cycle_s: Number
    cycle_max_s: Number
    cpu_s: Number
    changed_tables: int
    change_cycle_s: Number
    change_cpu_s: Number
    settle_s: Number | None = None
    connections_dropped: int | None = None
    handler_errors: int | None = None
    nic_deaths: int | None = None


class StreamRow(Row):
    """One stream over all links of two hosts; `lost`, of `sent`, only of UDP, `retransmits` only of
    TCP.

    Beside spinning programs `of_links`, of plain TCP over one link times the links, and what was
    taken for dead.
    """

    links_mbps: str
    strategy: str
    peer: bool = False
    mode: str | None = None
    proto: str
    cc: str | None = None
    repeat: int
    why_not: str | None = None
    goodput_bps: Number | None
    of_sum: Number | None
    retransmits: Number | None
    lost: Number | None
    sent: Number | None
    out_of_order: Number | None
    switch_drops: Number | None
    of_links: Number | None = None
    link_deaths: Number | None = None
    nic_deaths: Number | None = None


class DemandRow(Row):
    """A client stopped and began again; times None:

    never, shares of the links and of the worst client's fair rate.
    """

    topology: str
    strategy: str
    peer: bool = False
    repeat: int
    why_not: str | None = None
    others_have_it_ms: Number | None
    all_fair_ms: Number | None
    others_after_stop: Number | None
    worst_after_start: Number | None


class HelperRow(Row):
    """What the helper costs:

    packets a second in memory, or one stream end to end beside a plain veth.
    """

    part: str
    what: str
    userspace_tso: bool | None
    repeat: int
    why_not: str | None = None
    packets_per_s: Number | None = None
    goodput_bps: Number | None = None
    of_veth: Number | None = None
    cpu_s_per_gbit: Number | None = None
    rtt_us: Number | None = None
    rtt_over_flow_us: Number | None = None
    rtt_awake_us: Number | None = None
    rtt_awake_over_flow_us: Number | None = None


class VbftRow(Row):
    """One pattern on one topology.

    Shares are of what one switch for all hosts gave in the same run.
    """

    topology: str
    pattern: str
    table: str | None
    mode: str
    engine: str
    streams: int | None
    repeat: int
    bytes_per_s: Number
    of_flat: Number | None
    bound_of_flat: Number | None
    worst_of_flat: Number | None
    worst_pair_of_flat: Number | None
    fair_of_flat: Number | None
    retransmits: Number | None
    flooded: Number | None
    switch_drops: Number | None
    settle_hbspan: Number | None


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
    goodput_bps: Number | None = None
    time_ms: Number | None = None
    speedup: Number | None = None
    of_one_link: Number | None = None
    of_tcps: Number | None = None
    completed: bool | None = None
    intact: bool | None = None
    stall_s: Number | None = None
    total_s: Number | None = None
    links_lost: Number | None = None
    links_suspected: Number | None = None
    resent_bytes: Number | None = None
    served_per_min: Number | None = None
    failed: Number | None = None
    uneven: Number | None = None
    rtt_us: Number | None = None
    rtt_p99_us: Number | None = None
    over_tcp_us: Number | None = None


class Sample(Row):
    """The weights at one moment, {client: {`own>peer`: share}}; seconds on the clock of its
    phase.
    """

    time_s: Number
    hbspan_s: Number
    weights: dict[str, dict[str, Number]]


class Phase(Row):
    """The samples of one phase of figure 9."""

    phase: str
    began_s: Number
    samples: list[Sample]


ROWS: dict[str, type[Row]] = {
    "fig4": Fig4Row,
    "stream": StreamRow,
    "demand": DemandRow,
    "failover": FailoverRow,
    "fig9": Fig9Row,
    "vbft": VbftRow,
    "parallel": ParallelRow,
    "cycle": CycleRow,
    "helper": HelperRow,
}
KINDS = tuple(ROWS)
