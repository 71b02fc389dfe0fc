"""Two jobs of two users on the same hosts: what each gets, with and without a policy.

Job `one` sends one TCP stream from each of its hosts; job `two` sends several, and so takes most of
what both share. Each is measured alone, then both at once without a policy, and then with each
policy for job `one`. Its rate of what it had alone says what a policy is worth to it; job `two`'s
says what that costs the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.bench.patterns import Pair, phases
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import missing_row, summarize
from ri2n_lab.cluster import Lab, ovs
from ri2n_lab.cluster.run import CommandFailed
from ri2n_lab.traffic.iperf import NotTogether
from ri2n_lab.traffic.iperf_pairs import IperfPairs
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.shipped import host_script

__all__ = [
    "FIGURES",
    "NO_POLICY",
    "POLICIES",
    "USERS",
    "JobsSettings",
    "cases",
    "check",
    "compared",
    "run_jobs",
    "summarized",
    "total_seconds",
]

NO_POLICY = "none"
POLICIES = (NO_POLICY, "exclusive")
"""none: no job is declared, everybody uses everything."""

USERS = {"one": 20001, "two": 20002}
"""{job: its user's id}."""

STRATEGY = "max_min"
PATTERN = "bisection"
STREAMS_OF_ONE = 1
FIRST_PORTS = {"one": 5301, "two": 6301}
ANSWER_S = 30
SCRIPT_S = ANSWER_S + 60.0
LAB_S, READY_S, EDGES_S = 15.0, 120.0, 5.0
# Job two begins first and ends last. Job one's window lies so far inside job two's.
MARGIN_S = 1.0
ATTEMPTS = 4
GROUPS = ("topology", "mode", "policy", "job", "beside")

FIGURES = (
    Figure("goodput_bps", "goodput", "Mbit/s", show=".1f", scale=1e-6),
    Figure("of_alone", "of alone", show=".3f"),
    Figure("retransmits", "retransmits"),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class JobsSettings:
    """What to run; times in whole seconds.

    `streams`: TCP connections of job two for each pair of hosts.
    """

    topologies: list[Topology]
    policies: tuple[str, ...] = POLICIES
    mode: str = "flow"
    streams: int = 8
    seconds: int = 10
    warmup: int = 3
    repeat: int = 3

    def described(self) -> Json:
        """As JSON, with the topologies whole: a file may change later."""
        return {
            **asdict(self),
            "topologies": [topology.model_dump(mode="json") for topology in self.topologies],
        }


@dataclass(frozen=True)
class Case:
    """One measurement: a policy for job one, and the jobs that send."""

    policy: str
    sending: tuple[str, ...]


def cases(policies: Sequence[str]) -> list[Case]:
    """Each job alone without a policy, then both at once with each policy."""
    alone = [Case(NO_POLICY, (job,)) for job in USERS]
    return [*alone, *(Case(policy, tuple(USERS)) for policy in policies)]


def check(settings: JobsSettings) -> None:
    """BadInput for a topology whose hosts cannot be halved, NotAvailable without job-begin."""
    for topology in settings.topologies:
        phases(PATTERN, topology.managed_hosts())
    if any(policy != NO_POLICY for policy in settings.policies):
        host_script("job-begin")


def total_seconds(settings: JobsSettings) -> float:
    """About how long `run_jobs` takes, for the progress bar."""
    runs = settings.repeat * len(cases(settings.policies))
    return len(settings.topologies) * (LAB_S + runs * _run_seconds(settings))


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows."""
    return summarize(rows, GROUPS, FIGURES)


def compared(rows: Sequence[Json]) -> list[Json]:
    """The rows with `of_alone`: goodput of what the job had alone, without a policy.

    Alone is the median of its rows of the same topology and mode. None where that was not measured.
    """
    found = []
    for row in rows:
        alone = [
            other["goodput_bps"]
            for other in rows
            if not other["beside"]
            and other["goodput_bps"] is not None
            and all(other[name] == row[name] for name in ("topology", "mode", "job"))
        ]
        rate_bps = row["goodput_bps"]
        share = round(rate_bps / median(alone), 4) if alone and rate_bps is not None else None
        found.append({**row, "of_alone": share})
    return found


def run_jobs(settings: JobsSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding rows to `report` after each measurement.

    Labs are removed also when it is interrupted. A policy that the controller refuses or does not
    answer has a row that says why.
    """
    check(settings)
    for topology in settings.topologies:
        progress.say(f"{topology.name}: building the lab")
        with Lab.create(topology, helpers=settings.mode == "packet") as lab:
            start_and_wait(lab, STRATEGY, READY_S)
            report.describe_lab(lab)
            progress.done(LAB_S)
            for case in cases(settings.policies):
                _run_case(lab, topology, case, settings, report, progress)
    report.finish()


def _run_case(
    lab: Lab,
    topology: Topology,
    case: Case,
    settings: JobsSettings,
    report: Report,
    progress: Progress,
) -> None:
    beside = len(case.sending) > 1
    keys = {
        job: {
            **{"topology": topology.name, "mode": settings.mode, "policy": case.policy},
            **{"job": job, "beside": beside},
        }
        for job in case.sending
    }
    try:
        with _declared(lab, topology, case):
            for repeat in range(1, settings.repeat + 1):
                words = f"{case.policy}, {' and '.join(case.sending)}"
                progress.say(f"{topology.name} {words}, {repeat}/{settings.repeat}")
                lab.wait_ready(READY_S)
                figures = _measured(lab, topology, case, settings)
                rows = [{**keys[job], "repeat": repeat, **figures[job]} for job in case.sending]
                _add(report, rows)
                progress.done(_run_seconds(settings))
    except CommandFailed as error:
        if case.policy == NO_POLICY:
            raise
        _add(report, [missing_row(keys[job], str(error), names(FIGURES)) for job in case.sending])
        progress.done(settings.repeat * _run_seconds(settings))


def _add(report: Report, rows: Sequence[Json]) -> None:
    every = compared([*report.rows, *rows])
    report.replace(every, report.document["raw"], summarized(every))


# ---- jobs


@contextmanager
def _declared(lab: Lab, topology: Topology, case: Case) -> Iterator[None]:
    """Inside, the hosts have both jobs: job one with the policy, job two with the common paths.

    Without a policy there are no jobs. Raises CommandFailed when one does not begin or is refused.
    """
    if case.policy == NO_POLICY:
        yield
        return
    hosts = topology.managed_hosts()
    policies = dict(zip(USERS, (case.policy, "shared"), strict=True))
    try:
        # A job is whole when all of its hosts have declared it, so nobody waits before that. To
        # begin a job once more is no error, and waits for the answer.
        for wait in ((), ("--wait", str(ANSWER_S))):
            for job, policy in policies.items():
                for host in hosts:
                    _script(
                        *(lab, host, "job-begin", "--id", f"bench-{job}"),
                        *("--user", str(USERS[job]), "--hosts", ",".join(hosts)),
                        *("--policy", policy, *wait),
                    )
        yield
    finally:
        for host in hosts:
            for job in USERS:
                _script(lab, host, "job-end", "--id", f"bench-{job}", "--if-known")


def _script(lab: Lab, host: str, name: str, *arguments: str) -> None:
    where = ("--db", ovs.database(lab.run_dir / host))
    lab.exec(host, [str(host_script(name)), *arguments, *where], timeout_s=SCRIPT_S)


# ---- traffic


def _measured(lab: Lab, topology: Topology, case: Case, settings: JobsSettings) -> dict[str, Json]:
    """The figures of each job that sends."""
    pairs = phases(PATTERN, topology.managed_hosts())[0]
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return _attempt(lab, pairs, case, settings)
        except NotTogether:
            if not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises")


def _attempt(lab: Lab, pairs: list[Pair], case: Case, settings: JobsSettings) -> dict[str, Json]:
    with TemporaryDirectory(prefix="ri2n-jobs-") as folder:
        # iperf3 makes a file there for each stream, and the users are not the owner.
        Path(folder).chmod(0o1777)
        return _together(lab, pairs, case, settings, folder)


def _together(
    lab: Lab, pairs: list[Pair], case: Case, settings: JobsSettings, folder: str
) -> dict[str, Json]:
    """The figures of each job, with temporary files in a folder that every user can write."""
    runs: dict[str, IperfPairs] = {}
    began_s: dict[str, float] = {}
    try:
        for job in reversed(case.sending):
            inner = job == "one"
            runs[job] = IperfPairs(
                lab,
                pairs,
                warmup_s=settings.warmup + (MARGIN_S if inner else 0.0),
                window_s=settings.seconds + (0.0 if inner else 2 * MARGIN_S),
                streams=STREAMS_OF_ONE if inner else settings.streams,
                first_port=FIRST_PORTS[job],
                prefix=("env", f"TMPDIR={folder}", *_as_user(USERS[job])),
            )
            began_s[job] = time.monotonic()
        if max(began_s.values()) - min(began_s.values()) > MARGIN_S:
            raise NotTogether("job one began too long after job two")
        results = {job: run.result() for job, run in runs.items()}
    finally:
        for run in runs.values():
            run.stop()
    return {
        job: {
            "goodput_bps": round(sum(result.received.values()) * 8 / result.window_s),
            "retransmits": result.retransmits,
        }
        for job, result in results.items()
    }


def _as_user(uid: int) -> tuple[str, ...]:
    """The words that make a program a user's, who may choose every congestion control."""
    capabilities = ("--inh-caps", "+net_admin", "--ambient-caps", "+net_admin")
    return ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *capabilities)


def _run_seconds(settings: JobsSettings) -> float:
    return settings.warmup + settings.seconds + 2 * MARGIN_S + EDGES_S
