# SPDX-License-Identifier: Apache-2.0
"""Pure: what `ri2n bench jobs` measures: its cases, what each job asks for, and its rows.

Job `one` is the one whose policy is measured; job `two` sends as much as it can. A policy is worth
what job one gets with it, of what it gets alone, and costs what job two then has less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from ri2n_lab.bench.fair import GOODPUT_RATIO
from ri2n_lab.bench.figure import Figure
from ri2n_lab.bench.patterns import Pair, phases
from ri2n_lab.bench.rows import summarize
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "EXCHANGES",
    "FIGURES",
    "GROUPS",
    "ISOLATED",
    "NO_POLICY",
    "PATTERN",
    "POLICIES",
    "USERS",
    "Case",
    "JobsSettings",
    "cases",
    "check_topologies",
    "compared",
    "kept",
    "pairs_of",
    "places",
    "promised_bps",
    "refusal",
    "summarized",
    "wishes",
]

Json = dict[str, Any]

NO_POLICY = "none"
MIN_RATE, MAX_RATE, ISOLATED = "min_rate", "max_rate", "isolated"
POLICIES = (NO_POLICY, "exclusive", MIN_RATE, MAX_RATE, ISOLATED)
"""What job one has.

none: no job is declared, everybody uses everything. exclusive: a path of its own. min_rate: shared,
with a min_rate; where networks have several switches, its max_rate is the same, since hosts of one
job that send more take it from each other. max_rate: shared, and job two is held to a max_rate.
isolated: hosts of its own, so that job two has others.
"""

EXCHANGES = ("is", "cg")
"""What job one does by MPI, in place of its streams (see ri2n_lab/traffic/mpi_exchanges.py)."""

USERS = {"one": 20001, "two": 20002}
"""{job: its user's id}."""

PATTERN = "bisection"
RATE_SHARE = 0.5
"""Both rates, of the slowest NIC: job one cannot have that without a policy, and two jobs can.

Links between switches may carry less (promised_bps).
"""

GROUPS = ("topology", "mode", "policy", "job", "beside", "apart", "exchange")

FIGURES = (
    Figure("goodput_bps", "goodput", "Mbit/s", show=".1f", scale=1e-6),
    Figure("seconds", "one exchange", "ms", show=".1f", scale=1e3, when_measured=True),
    Figure("of_alone", "of alone", show=".3f"),
    Figure("retransmits", "retransmits", when_measured=True),
    Figure("of_min_rate", "slowest host, of its min_rate", show=".3f", when_measured=True),
    Figure("of_max_rate", "fastest host, of its max_rate", show=".3f", when_measured=True),
    Figure("second_of_max_rate", "its fullest second", show=".3f", when_measured=True),
    Figure("cpus_busy", "CPUs busy", show=".2f", when_measured=True),
)


@dataclass(frozen=True)
class JobsSettings:
    """What to run; times in whole seconds.

    `streams`: TCP connections of job two for each pair of hosts. `exchanges`: what job one does by
    MPI in place of its own stream.
    """

    topologies: list[Topology]
    policies: tuple[str, ...] = POLICIES
    mode: str = "flow"
    streams: int = 8
    seconds: int = 10
    warmup: int = 3
    repeat: int = 3
    exchanges: tuple[str, ...] = ()

    def described(self) -> Json:
        """As JSON, with the topologies whole: a file may change later."""
        return {
            **asdict(self),
            "topologies": [topology.model_dump(mode="json") for topology in self.topologies],
        }


@dataclass(frozen=True)
class Case:
    """One measurement: a policy for job one, and the jobs that send.

    `apart`: each job has half of the hosts, for itself. Else both have all of them.
    """

    policy: str
    sending: tuple[str, ...]
    apart: bool = False

    @property
    def beside(self) -> bool:
        """Whether both jobs send."""
        return len(self.sending) > 1


def cases(policies: Sequence[str], topology: Topology, *, with_cost: bool = False) -> list[Case]:
    """Each job alone without a policy, then both at once with each policy.

    With `isolated`, the same once more on hosts apart, where the topology has enough of them.
    `with_cost`: before both, also job one alone with the policy, which is the policy's price.
    """
    found = []
    for case in _of_policies(policies, topology):
        if with_cost and case.policy != NO_POLICY:
            found.append(replace(case, sending=("one",)))
        found.append(case)
    return found


def _of_policies(policies: Sequence[str], topology: Topology) -> list[Case]:
    shared = [policy for policy in policies if policy != ISOLATED]
    found = [Case(NO_POLICY, (job,)) for job in USERS] if shared else []
    found += [Case(policy, tuple(USERS)) for policy in shared]
    if ISOLATED in policies:
        if refusal(ISOLATED, topology) is None:
            found += [Case(NO_POLICY, (job,), apart=True) for job in USERS]
            found.append(Case(NO_POLICY, tuple(USERS), apart=True))
        found.append(Case(ISOLATED, tuple(USERS), apart=True))
    return found


def check_topologies(settings: JobsSettings) -> None:
    """BadInput for a topology whose hosts cannot be halved."""
    for topology in settings.topologies:
        phases(PATTERN, topology.managed_hosts())


def refusal(policy: str, topology: Topology) -> str | None:
    """Why a policy cannot be measured on a topology, as one line; None when it can.

    Isolated hosts belong to one job alone. So job two needs others, and each job an even number.
    """
    count = len(topology.managed_hosts())
    if policy == ISOLATED and count % 4:
        return (
            f"isolated hosts are the job's alone, so both jobs need hosts of their own, two or "
            f"another even number each: {topology.name} has {count} in all"
        )
    return None


def places(case: Case, topology: Topology) -> dict[str, list[str]]:
    """{job: its hosts}.

    Apart, every second host is one job's: on a fat tree both have hosts on every leaf then, and
    share the links between the switches.
    """
    hosts = topology.managed_hosts()
    if not case.apart:
        return dict.fromkeys(USERS, hosts)
    return dict(zip(USERS, (hosts[0::2], hosts[1::2]), strict=True))


def pairs_of(hosts: Sequence[str]) -> list[Pair]:
    """Who sends to whom of one job's hosts: the first half to the second."""
    return phases(PATTERN, hosts)[0]


def promised_bps(topology: Topology, policy: str) -> int:
    """The min_rate or the max_rate of a job at each of its hosts, in bit/s on the wire.

    It is half of the slowest NIC. Where networks have several switches, a min_rate is at most what
    one lane carries, whichever half of the hosts sends to the other half over its slowest link.
    """
    hosts = topology.managed_hosts()
    slowest = min(nic.rate_bps for name in hosts for nic in topology.hosts[name].nics)
    rate = round(RATE_SHARE * slowest)
    cables = [link.rate_bps for spec in topology.switches.values() for link in spec.links]
    if policy == MIN_RATE and cables:
        rate = min(rate, min(cables) // max(1, len(hosts) // 2))
    return max(1, rate)


def wishes(policy: str, topology: Topology) -> dict[str, tuple[str, ...]]:
    """{job: options of job-begin} with a policy for job one; empty without any."""
    if policy == NO_POLICY:
        return {}
    rate = str(promised_bps(topology, policy))
    shared = ("--policy", "shared")
    between = any(spec.links for spec in topology.switches.values())
    within = ("--max-rate", rate) if between else ()
    return {
        "one": {
            MIN_RATE: (*shared, "--min-rate", rate, *within),
            MAX_RATE: shared,
        }.get(policy, ("--policy", policy)),
        "two": (*shared, "--max-rate", rate) if policy == MAX_RATE else shared,
    }


def kept(case: Case, job: str, rate_bps: int, goodputs_bps: Mapping[Pair, float]) -> Json:
    """How far a promised rate was kept in the whole window: figures of a row, None without any.

    A rate is each host's, on the wire; each host sends to one other, which had so much goodput.
    """
    shares = [goodput_bps / GOODPUT_RATIO / rate_bps for goodput_bps in goodputs_bps.values()]
    least = case.policy == MIN_RATE and job == "one"
    most = case.policy == MAX_RATE and job == "two"
    return {
        "of_min_rate": round(min(shares), 4) if least else None,
        "of_max_rate": round(max(shares), 4) if most else None,
    }


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows."""
    return summarize(rows, GROUPS, FIGURES)


def compared(rows: Sequence[Json]) -> list[Json]:
    """The rows with `of_alone`: of what the job had alone, without a policy, on the same hosts.

    Of goodput, and of exchanges per second. Streams are compared with the median of the job's rows
    alone, exchanges with the row of the same round, since in real time a machine is not the same
    all the time. None where that was not measured.
    """
    same = ("topology", "mode", "job", "apart", "exchange")
    found = []
    for row in rows:
        names = same if row["exchange"] is None else (*same, "repeat")
        alone = [
            speed
            for other in rows
            if (other["policy"], other["beside"]) == (NO_POLICY, False)
            and all(other[name] == row[name] for name in names)
            and (speed := _speed(other)) is not None
        ]
        own = _speed(row)
        share = round(own / median(alone), 4) if alone and own is not None else None
        found.append({**row, "of_alone": share})
    return found


def _speed(row: Json) -> float | None:
    """Exchanges per second where a row has them, else goodput."""
    if row["seconds"] is not None:
        return 1 / float(row["seconds"])
    return None if row["goodput_bps"] is None else float(row["goodput_bps"])
