# SPDX-License-Identifier: Apache-2.0
"""How long one round of the controller takes, from asking for counters to acknowledged slot tables.

Many hosts of a sandbox connect to one controller, and frames make pairs of them active. Nothing in
it needs root. With `busy` every CPU has a program that spins, from before the controller starts;
with root, Open vSwitch and controller then have the priorities of their services.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from ri2n_lab.bench import priorities
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import Figure, Number
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.spinners import Spinners, cpu_seconds
from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["DEFAULT_PAIRS", "FIGURES", "Cycles", "run_cycle", "total_seconds", "troubles"]

DEFAULT_PAIRS = (31, 124, 496, 992)
NETWORKS = ("n0", "n1")
RATES_BPS = (1_000_000_000, 500_000_000)
START_S = 30.0
# Against hanging for ever.
WAIT_S = 240.0
MIN_ROUNDS = 3
CHANGES, NEARLY_ALL = 8, 0.95
FRAME = 15_000
PERIOD_S = 0.8
FIGURES = (
    Figure("cycle_s", "median", "ms", scale=1e3, kind=Number, required=True),
    Figure("cycle_max_s", "longest", "ms", scale=1e3, kind=Number, required=True),
    Figure("cpu_s", "CPU time", "ms", scale=1e3, kind=Number, required=True),
    Figure("changed_tables", "tables changed", kind=int, required=True),
    Figure("change_cycle_s", "the round that does", "ms", scale=1e3, kind=Number, required=True),
    Figure("change_cpu_s", "its CPU time", "ms", scale=1e3, kind=Number, required=True),
    Figure("settle_s", "settled after", "s", when_measured=True),
    Figure("connections_dropped", "connections dropped", kind=int | None, when_measured=True),
    Figure("handler_errors", "errors of handlers", kind=int | None, when_measured=True),
    Figure("nic_deaths", "NICs taken for dead", kind=int | None, when_measured=True),
)
WATCH = "from ri2n_lab.bench.cycle_rounds import watch\nwatch({rounds!r}, {turn!r})\n"
"""What the controller runs first."""


def total_seconds(pairs: Sequence[int], seconds: float) -> float:
    """About how many seconds a run takes."""
    return START_S + len(pairs) * (seconds + 10.0)


def troubles(counters: Mapping[str, int]) -> dict[str, int]:
    """What went wrong, from the counters of the controller's status.

    Connections that were lost, refused or not let in; exceptions of handlers and loops; NICs that
    were taken for dead.
    """
    lost = ("hosts_disconnected", "hosts_refused", "connections_overdue", "connections_turned_away")
    broken = ("handler_errors_", "loop_errors_", "host_faults")
    return {
        "connections_dropped": sum(counters.get(name, 0) for name in lost),
        "handler_errors": sum(count for name, count in counters.items() if name.startswith(broken)),
        "nic_deaths": counters.get("nic_deaths", 0),
    }


def run_cycle(
    hosts: int,
    pairs: Sequence[int],
    seconds: float,
    report: Report,
    progress: Progress,
    busy: bool = False,
) -> None:
    """Measure `seconds` of rounds, and one round that changes all tables, for each number of pairs.

    `pairs` are the numbers of active pairs. Raises BadInput for numbers that cannot be,
    NotAvailable when the hosts do not settle or the pairs do not become active.
    """
    if hosts < 2:
        raise BadInput(f"--hosts {hosts}: must be at least 2")
    for count in pairs:
        if not 1 <= count <= hosts * (hosts - 1):
            raise BadInput(f"--pairs {count}: {hosts} hosts have 1 to {hosts * (hosts - 1)} pairs")
    progress.say(f"{hosts} hosts")
    with Cycles(hosts, busy) as cycles:
        counters = cycles.sandbox.ask("status", pairs=False)["counters"]
        settled = {
            "settle_s": round(cycles.start_s, 2),
            "cpu_s": cycles.cpu_s(),
            **troubles(counters),
        }
        report.describe(priorities=cycles.priorities(), settled=settled)
        progress.say(f"settled after {cycles.start_s:.1f} s")
        progress.done(START_S)
        for count in pairs:
            progress.say(f"{count} active pairs")
            row, raw = cycles.measure(count, seconds)
            report.add(row, raw, [*report.rows, row])
            progress.done(seconds + 10.0)
    report.finish()


class Cycles:
    """A sandbox of hosts with two unequal NICs, its controller, and traffic between pairs."""

    def __init__(self, hosts: int, busy: bool = False, as_services: bool = False) -> None:
        """`busy`: programs spin on all CPUs meanwhile.

        `busy` or `as_services`: as root, Open vSwitch and the controller have the priorities of
        their services.
        """
        names = [f"h{number}" for number in range(1, hosts + 1)]
        self.sandbox = Sandbox(dict.fromkeys(names, NETWORKS))
        self.start_s = 0.0
        """Seconds from the controller's start until it had settled."""
        self._busy, self._as_services = busy, busy or as_services
        self._stack = ExitStack()
        self._spinners: Spinners | None = None
        self._controller = 0
        self._rounds = self.sandbox.folder / "rounds"
        self._pairs: list[tuple[str, str]] = []
        self._flag = self.sandbox.folder / "turn"
        self._stop = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Cycles:
        self.sandbox.__enter__()
        try:
            nics = {name: self._nics(name) for name in self.sandbox.hosts}
            config = "hosts:\n" + "".join(
                f"  {name}: {{nics: {{{text}}}}}\n" for name, text in nics.items()
            )
            if self._as_services:
                priorities.take_real_time(self._switches_pid(), priorities.OVS_REAL_TIME)
            if self._busy:
                self._spinners = self._stack.enter_context(Spinners())
            watch = WATCH.format(rounds=str(self._rounds), turn=str(self._flag))
            process = self.sandbox.start_controller(strategy="max_min", config=config, before=watch)
            self._controller = process.pid
            if self._as_services:
                priorities.renice(process.pid, priorities.CONTROLLER_NICE)
            self.start_s = float(
                self.sandbox.wait_settled(WAIT_S, hurry=False, pairs=False)["uptime_s"]
            )
            self._feeder.start()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._feeder.join()
        self._stop_all()

    def priorities(self) -> dict[str, str]:
        """The priorities of Open vSwitch and of the controller."""
        pids = {"ovs-vswitchd": self._switches_pid(), "controller": self._controller}
        return {name: priorities.priority(pid) for name, pid in pids.items()}

    @property
    def controller_pid(self) -> int:
        """The number of the controller's process."""
        return self._controller

    def cpu_s(self) -> float:
        """CPU seconds of all threads of the controller so far; other load has no part in them."""
        return round(cpu_seconds(Path(f"/proc/{self._controller}/stat").read_text()), 2)

    def _switches_pid(self) -> int:
        return int((self.sandbox.folder / "ovs-vswitchd.pid").read_text())

    def _stop_all(self) -> None:
        try:
            self._stack.close()
        finally:
            self.sandbox.stop()

    def steady(self, count: int, seconds: float) -> list[dict[str, Any]]:
        """The rounds of `seconds` or more with `count` active pairs.

        NotAvailable when so many never are.
        """
        every = list(permutations(self.sandbox.hosts, 2))
        self._pairs = [every[index * len(every) // count] for index in range(count)]
        self._wait(
            lambda rounds: bool(rounds) and rounds[-1]["active_pairs"] == count,
            f"{count} active pairs",
        )
        first = len(self.rounds())

        def steady() -> list[dict[str, Any]]:
            return [each for each in self.rounds()[first:] if each["active_pairs"] == count]

        time.sleep(seconds)  # the length of the measurement
        self._wait(
            lambda _: len(steady()) >= MIN_ROUNDS,
            f"{MIN_ROUNDS} rounds with {count} active pairs",
        )
        return steady()

    def measure(self, count: int, seconds: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One row, and the rounds that it was computed from.

        Times are wall clock, except for `cpu_s`.
        """
        found = self.steady(count, seconds)
        changing = self._change(count)
        row = {
            "hosts": len(self.sandbox.hosts),
            "active_pairs": count,
            "rounds": len(found),
            "cycle_s": median(each["cycle_s"] for each in found),
            "cycle_max_s": max(each["cycle_s"] for each in found),
            "cpu_s": median(each["cpu_s"] for each in found),
            "changed_tables": changing["group_mods"],
            "change_cycle_s": changing["cycle_s"],
            "change_cpu_s": changing["cpu_s"],
            "settle_s": round(self.start_s, 2),
            **troubles(self.sandbox.ask("status", pairs=False)["counters"]),
            "spinners": len(self._spinners.cpus) if self._spinners else 0,
        }
        return row, [*found, changing]

    def _change(self, count: int) -> dict[str, Any]:
        """The round that changed the most of the active pairs' tables.

        A host that is being audited at that moment gets its change outside of the round; then all
        tables are changed once more. Where rounds are slow and hosts are many, some hosts always
        are audited. Raises NotAvailable when no round changed half of the tables.
        """
        most: dict[str, Any] = {"group_mods": 0}
        for _ in range(CHANGES):
            before = len(self.rounds())
            self.turn()
            self._wait(lambda rounds, least=before + 2: len(rounds) > least, "rounds")  # type: ignore[misc]
            most = max([most, *self.rounds()[before:]], key=lambda each: int(each["group_mods"]))
            if most["group_mods"] >= NEARLY_ALL * count:
                return most
        if most["group_mods"] < count / 2:
            raise NotAvailable(
                f"no round changes the tables of {count} pairs, {most['group_mods']} at the most"
            )
        return most

    def turn(self) -> None:
        """Make the next round turn the table of every active pair by one slot."""
        self._flag.touch()

    def rounds(self) -> list[dict[str, Any]]:
        """Every round so far."""
        if not self._rounds.exists():
            return []
        lines = self._rounds.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _wait(self, condition: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not condition(self.rounds()):
            if time.monotonic() > deadline_s:
                raise NotAvailable(
                    f"no {what} within {WAIT_S:g} s; last rounds: {self.rounds()[-3:]}"
                )
            time.sleep(0.1)

    def _nics(self, name: str) -> str:
        return ", ".join(
            f"{name}-e{index}: {{rate_bps: {rate_bps}}}" for index, rate_bps in enumerate(RATES_BPS)
        )

    def _feed(self) -> None:
        """Send two large frames of a flow for every pair, again and again.

        That is little work for over 64 kbit/s.
        """
        mac = self.sandbox.mac
        while not self._stop.is_set():
            began_s = time.monotonic()
            frames: dict[str, list[str]] = {}
            for source, target in self._pairs:
                head = f"in_port(1),eth(src={mac(source)},dst={mac(target)}),eth_type(0x0800)"
                head += ",ipv4(src=10.77.0.1,dst=10.77.0.2,proto=17,tos=0,ttl=64,frag=no)"
                frames.setdefault(source, []).extend(
                    f"{head},udp(src={port},dst=9)" for port in (1, 2)
                )
            for source, flows in frames.items():
                if not self._stop.is_set():
                    self.sandbox.receive(
                        source, *(word for flow in flows for word in (flow, "--len", str(FRAME)))
                    )
            self._stop.wait(max(0.0, PERIOD_S - (time.monotonic() - began_s)))
