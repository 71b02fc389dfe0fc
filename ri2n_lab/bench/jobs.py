# SPDX-License-Identifier: Apache-2.0
"""Two jobs of two users: what each gets on the same hosts, with and without a policy.

Job `one` sends one TCP stream from each of its hosts, or exchanges messages by MPI; job `two` sends
several streams, and so takes most of what both share. Each is measured alone, then both at once
without a policy, and then with each policy for job `one`. Its rate of what it had alone says what a
policy is worth to it; job `two`'s says what that costs the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fast import await_all_fast, parts
from ri2n_lab.bench.figure import names
from ri2n_lab.bench.jobs_exchange import START_S, Exchange, choose_congestion_control
from ri2n_lab.bench.jobs_meter import LimitMeter
from ri2n_lab.bench.jobs_plan import (
    FIGURES,
    MAX_RATE,
    NO_POLICY,
    USERS,
    Case,
    JobsSettings,
    cases,
    check_topologies,
    compared,
    kept,
    pairs_of,
    places,
    promised_bps,
    refusal,
    summarized,
    wishes,
)
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.cluster import Lab, ovs
from ri2n_lab.cluster.run import CommandFailed
from ri2n_lab.traffic.iperf import NotTogether
from ri2n_lab.traffic.iperf_pairs import IperfPairs
from ri2n_lab.traffic.mpi import check_mpi
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.shipped import host_script

__all__ = ["as_user", "check", "run_jobs", "total_seconds"]

STRATEGY = "max_min"
STREAMS_OF_ONE = 1
FIRST_PORTS = {"one": 5301, "two": 6301}
ANSWER_S = 30
SCRIPT_S = ANSWER_S + 60.0
LAB_S, READY_S, EDGES_S = 15.0, 120.0, 5.0
# Job two begins first and ends last. Job one's window lies so far inside job two's.
MARGIN_S = 1.0
ATTEMPTS = 4

Json = dict[str, Any]


def check(settings: JobsSettings) -> None:
    """BadInput for a topology whose hosts cannot be halved, NotAvailable for what is missing.

    That is job-begin, and Open MPI where there are exchanges.
    """
    check_topologies(settings)
    if settings.exchanges:
        check_mpi()
    if any(policy != NO_POLICY for policy in settings.policies):
        host_script("job-begin")


def total_seconds(settings: JobsSettings) -> float:
    """About how long `run_jobs` takes, for the progress bar."""
    total_s = 0.0
    for topology in settings.topologies:
        runs = len(_cases(settings, topology)) * settings.repeat
        total_s += LAB_S + runs * max(1, len(settings.exchanges)) * _run_seconds(settings)
    return total_s


def run_jobs(settings: JobsSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding rows to `report` after each measurement.

    Labs are removed also when it is interrupted. A policy that the controller refuses or does not
    answer, or that the topology cannot have, has a row that says why.
    """
    check(settings)
    for topology in settings.topologies:
        progress.say(f"{topology.name}: building the lab")
        with Lab.create(topology, **parts(settings.mode)) as lab:
            start_and_wait(lab, STRATEGY, READY_S)
            await_all_fast(lab)
            report.describe_lab(lab)
            progress.done(LAB_S)
            bench = _Bench(lab, topology, settings, report, progress)
            if settings.exchanges:
                bench.exchanges()
            else:
                bench.streams()
    report.finish()


class _Bench:
    """One lab, and what is measured in it."""

    def __init__(
        self,
        lab: Lab,
        topology: Topology,
        settings: JobsSettings,
        report: Report,
        progress: Progress,
    ) -> None:
        self.lab, self.topology, self.settings = lab, topology, settings
        self.report, self.progress = report, progress
        self._refused: set[tuple[Case, str | None]] = set()

    def streams(self) -> None:
        """Case after case, each as often as it is repeated."""
        repeats = range(1, self.settings.repeat + 1)
        for case in _cases(self.settings, self.topology):
            self._run(case, None, repeats)

    def exchanges(self) -> None:
        """Round after round, since other programs make a machine slower for a while."""
        choose_congestion_control(self.lab, self.topology.managed_hosts())
        for repeat in range(1, self.settings.repeat + 1):
            for exchange in self.settings.exchanges:
                for case in _cases(self.settings, self.topology):
                    self._run(case, exchange, range(repeat, repeat + 1))

    def _run(self, case: Case, exchange: str | None, repeats: Sequence[int]) -> None:
        keys = {job: self._key(case, job, exchange) for job in case.sending}
        planned_s = len(repeats) * _run_seconds(self.settings)
        if (case, exchange) in self._refused:
            self.progress.done(planned_s)
            return
        why_not = refusal(case.policy, self.topology)
        try:
            if why_not is None:
                with self._declared(case):
                    for repeat in repeats:
                        self._measure(case, exchange, keys, repeat)
                        self.progress.done(_run_seconds(self.settings))
                return
        except CommandFailed as error:
            if case.policy == NO_POLICY:
                raise
            why_not = str(error)
        self._refused.add((case, exchange))
        self._add([missing_row(keys[job], why_not, names(FIGURES)) for job in case.sending])
        self.progress.done(planned_s)

    def _measure(
        self, case: Case, exchange: str | None, keys: dict[str, Json], repeat: int
    ) -> None:
        words = f"{case.policy}, {' and '.join(case.sending)}{' apart' if case.apart else ''}"
        words = f"{words}{f', {exchange}' if exchange else ''}, {repeat}/{self.settings.repeat}"
        self.progress.say(f"{self.topology.name} {words}")
        self.lab.wait_ready(READY_S)
        limited = [sender for sender, _ in pairs_of(places(case, self.topology)["two"])]
        meter = LimitMeter(self.lab, limited if case.policy == MAX_RATE else ())
        with meter.running():
            found = self._together(case, exchange)
        if meter.fullest_bps:
            fullest = max(meter.fullest_bps.values()) / promised_bps(self.topology, case.policy)
            found["two"]["second_of_max_rate"] = round(fullest, 4)
        blanks: Json = dict.fromkeys(names(FIGURES))
        self._add([{**keys[job], "repeat": repeat, **blanks, **found[job]} for job in case.sending])

    def _key(self, case: Case, job: str, exchange: str | None) -> Json:
        return {
            **{"topology": self.topology.name, "mode": self.settings.mode, "policy": case.policy},
            **{"job": job, "beside": case.beside, "apart": case.apart, "exchange": exchange},
        }

    def _add(self, rows: Sequence[Json]) -> None:
        every = compared([*self.report.rows, *rows])
        self.report.replace(every, self.report.document["raw"], summarized(every))

    # ---- jobs

    @contextmanager
    def _declared(self, case: Case) -> Iterator[None]:
        """Inside, the hosts have both jobs, as the case's policy wants them.

        Without a policy there are no jobs. Raises CommandFailed when one does not begin or is
        refused.
        """
        wanted = wishes(case.policy, self.topology)
        hosts = places(case, self.topology)
        try:
            # A job is whole when all of its hosts have declared it, so nobody waits before that. To
            # begin a job once more is no error, and waits for the answer.
            for wait in ((), ("--wait", str(ANSWER_S))):
                for job, options in wanted.items():
                    for host in hosts[job]:
                        self._script(
                            *(host, "job-begin", "--id", f"bench-{job}"),
                            *("--user", str(USERS[job]), "--hosts", ",".join(hosts[job])),
                            *(*options, *wait),
                        )
            yield
        finally:
            for job in wanted:
                for host in hosts[job]:
                    self._script(host, "job-end", "--id", f"bench-{job}", "--if-known")

    def _script(self, host: str, name: str, *arguments: str) -> None:
        where = ("--db", ovs.database(self.lab.run_dir / host))
        self.lab.exec(host, [str(host_script(name)), *arguments, *where], timeout_s=SCRIPT_S)

    # ---- traffic

    def _together(self, case: Case, exchange: str | None) -> dict[str, Json]:
        """The figures of each job that sends."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # iperf3 makes a file there for each stream, and the users are not the owner.
                with TemporaryDirectory(prefix="ri2n-jobs-") as folder:
                    Path(folder).chmod(0o1777)
                    return self._attempt(case, exchange, folder, attempt)
            except NotTogether:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _attempt(
        self, case: Case, exchange: str | None, folder: str, attempt: int
    ) -> dict[str, Json]:
        """The figures of each job, with temporary files in a folder that every user can write.

        A further attempt gives MPI more time to begin.
        """
        warmup_s = self.settings.warmup + (START_S * attempt if exchange else 0.0)
        hosts = places(case, self.topology)
        streams: dict[str, IperfPairs] = {}
        messages: Exchange | None = None
        began_s: dict[str, float] = {}
        try:
            for job in reversed(case.sending):
                inner = job == "one"
                if inner and exchange:
                    window = (warmup_s + MARGIN_S, float(self.settings.seconds))
                    messages = Exchange(self.lab, hosts[job], exchange, USERS[job], *window)
                else:
                    streams[job] = IperfPairs(
                        self.lab,
                        pairs_of(hosts[job]),
                        warmup_s=warmup_s + (MARGIN_S if inner else 0.0),
                        window_s=self.settings.seconds + (0.0 if inner else 2 * MARGIN_S),
                        streams=STREAMS_OF_ONE if inner else self.settings.streams,
                        first_port=FIRST_PORTS[job],
                        prefix=("env", f"TMPDIR={folder}", *as_user(USERS[job])),
                    )
                began_s[job] = time.monotonic()
            if max(began_s.values()) - min(began_s.values()) > MARGIN_S:
                raise NotTogether("job one began too long after job two")
            figures = {"one": messages.result()} if messages else {}
            return figures | {job: self._row(case, job, run) for job, run in streams.items()}
        finally:
            if messages:
                messages.stop()
            for run in streams.values():
                run.stop()

    def _row(self, case: Case, job: str, run: IperfPairs) -> Json:
        """The figures of a job's streams."""
        result = run.result()
        goodputs_bps = {
            pair: count * 8 / result.window_s for pair, count in result.received.items()
        }
        return {
            "goodput_bps": round(sum(goodputs_bps.values())),
            "retransmits": result.retransmits,
            **kept(case, job, promised_bps(self.topology, case.policy), goodputs_bps),
        }


def as_user(uid: int) -> tuple[str, ...]:
    """The words that make a program a user's, who may choose every congestion control."""
    capabilities = ("--inh-caps", "+net_admin", "--ambient-caps", "+net_admin")
    return ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *capabilities)


def _cases(settings: JobsSettings, topology: Topology) -> list[Case]:
    return cases(settings.policies, topology, with_cost=bool(settings.exchanges))


def _run_seconds(settings: JobsSettings) -> float:
    more_s = START_S if settings.exchanges else 0.0
    return settings.warmup + settings.seconds + 2 * MARGIN_S + EDGES_S + more_s
