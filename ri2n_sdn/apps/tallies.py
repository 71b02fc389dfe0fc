# SPDX-License-Identifier: Apache-2.0
"""What the controller counts for monitoring, by host and NIC: slots, outages, lengths of rounds.

Everything here is bounded by the number of hosts and NICs, and nothing is read by the control loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ri2n_sdn.contract import documents
from ri2n_sdn.fabric.model import Fabric, PairKey, PathKey

__all__ = [
    "CYCLE_S",
    "OUTAGE_S",
    "Activity",
    "HelperSums",
    "Lengths",
    "Outage",
    "Outages",
    "Tallies",
]

CYCLE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The bounds in seconds by which rounds of the telemetry app are counted."""
OUTAGE_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""The bounds in seconds by which outages of NICs are counted."""

_MAX_GONE = 16


@dataclass
class Lengths:
    """How many times were at most as long as each bound, and longer than the bound before it.

    `counts` has one entry more than `bounds_s`, for those that are longer than all.
    """

    bounds_s: tuple[float, ...]
    counts: list[int] = field(init=False)
    sum_s: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds_s) + 1)

    def add(self, length_s: float) -> None:
        """Count one time of `length_s` seconds; a negative one counts as 0."""
        length_s = max(0.0, length_s)
        self.counts[bisect_left(self.bounds_s, length_s)] += 1
        self.sum_s += length_s

    def described(self) -> documents.Histogram:
        """The counts as JSON."""
        return {
            "bounds_s": list(self.bounds_s),
            "counts": list(self.counts),
            "sum_s": round(self.sum_s, 6),
        }


@dataclass(slots=True)
class Activity:
    """What one host's slot tables did since the controller began, and how they are now.

    `pairs` is the number of its pairs with a table of their own. `slots` are the slots of these
    tables by the port number of its own NIC. `reweights` counts the tables that changed, `moved`
    the slots that went to another path.
    """

    pairs: int = 0
    reweights: int = 0
    moved: int = 0
    slots: Counter[int] = field(default_factory=Counter)

    def replace(self, before: tuple[PathKey, ...] | None, after: tuple[PathKey, ...]) -> None:
        """Take in the table of one pair: what it was before, and what it is now; none is empty."""
        self.pairs += bool(after) - bool(before)
        if before:
            self.slots.subtract(path[0] for path in before)
        self.slots.update(path[0] for path in after)


@dataclass
class Outage:
    """The outages of one NIC.

    `count` are all, `seconds` the length of those that have ended. `since_s` is when the present
    one began, on the monotonic clock; None when there is none.
    """

    count: int = 0
    seconds: float = 0.0
    since_s: float | None = None


class Outages:
    """The outages of all NICs, by (host, NIC). A NIC is out while it does not send and receive.

    It says nothing of a host that is not connected: the outages of its NICs neither begin nor end
    meanwhile.
    """

    def __init__(self) -> None:
        self.nics: dict[tuple[str, str], Outage] = {}
        self.lengths = Lengths(OUTAGE_S)

    def look(self, now_s: float, fabric: Fabric) -> None:
        """Take in the fabric as it is from now on."""
        for name, host in fabric.hosts.items():
            if not host.connected:
                continue
            for nic in host.nics:
                outage = self.nics.get((name, nic.name))
                works = nic.sends and nic.receives
                if outage is None and works:
                    continue
                if outage is None:
                    outage = self.nics[name, nic.name] = Outage()
                if not works and outage.since_s is None:
                    outage.count += 1
                    outage.since_s = now_s
                elif works and outage.since_s is not None:
                    outage.seconds += now_s - outage.since_s
                    self.lengths.add(now_s - outage.since_s)
                    outage.since_s = None
        self._forget_gone(fabric)

    def forget(self, host: str) -> None:
        """Remove what is known of a host's NICs."""
        for key in [key for key in self.nics if key[0] == host]:
            del self.nics[key]

    def _forget_gone(self, fabric: Fabric) -> None:
        """Forget NICs that hosts do not have any more, but for the last few of each host.

        A device may come back, and its outages with it. But a host chooses the names of its NICs,
        and may choose others all the time.
        """
        gone: dict[str, list[tuple[str, str]]] = {}
        for name, nic in self.nics:
            host = fabric.hosts.get(name)
            if host is not None and host.connected and all(each.name != nic for each in host.nics):
                gone.setdefault(name, []).append((name, nic))
        for keys in gone.values():
            for key in keys[:-_MAX_GONE]:
                del self.nics[key]


class HelperSums:
    """What the links of one host's helper have counted since the first report that was heard.

    That report is a level: its counts may be from before this controller. They wrap round at 2**32,
    and links come and go. Without this, a sum that became smaller would look like a new start to
    Prometheus, which would then add all of it once more. `document` is another object after each
    report.
    """

    def __init__(self) -> None:
        self.document: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._running_s = 0.0

    def take(self, running_s: float, sums: dict[str, int]) -> None:
        """Take in the sums of a new report of a helper that has run for `running_s` seconds.

        What is lost when links come or go is less than what one report is about. Of a helper that
        began anew everything is new.
        """
        document = dict(sums)
        for key in _COUNTS:
            if running_s < self._running_s:
                growth = sums[key]
            elif sums["links"] != self._last.get("links"):
                growth = 0
            else:
                growth = (sums[key] - self._last[key]) % _WRAP
                growth = growth if growth < _WRAP // 2 else 0
            document[key] = self.document.get(key, 0) + growth
        self.document, self._last, self._running_s = document, sums, running_s


_COUNTS = ("sent", "received", "lost", "repeated")
_WRAP = 2**32


class Tallies:
    """All of it. The caller holds cluster.lock."""

    def __init__(self) -> None:
        self.activity: dict[str, Activity] = {}
        self.outages = Outages()
        self.cycles = Lengths(CYCLE_S)
        self.cycles_cpu = Lengths(CYCLE_S)

    def tables_changed(
        self,
        before: Mapping[PairKey, tuple[PathKey, ...]],
        after: Mapping[PairKey, tuple[PathKey, ...]],
        changed: Mapping[PairKey, int],
    ) -> None:
        """Take in a decision: the pairs' tables before and after it.

        `changed` are the pairs that have another table, and how many of their slots moved. The cost
        is that of these pairs, and of those that have no table any more.
        """
        for pair, moved in changed.items():
            activity = self.activity.setdefault(pair[0], Activity())
            activity.replace(before.get(pair), after[pair])
            if pair in before:
                activity.reweights += 1
                activity.moved += moved
        for pair in before.keys() - after.keys():
            if pair[0] in self.activity:
                self.activity[pair[0]].replace(before[pair], ())

    def forget(self, host: str) -> None:
        """Remove what is known of a host that has left the cluster."""
        self.outages.forget(host)
        self.activity.pop(host, None)

    def described_activity(
        self, nic_names: Mapping[str, Mapping[int, str]]
    ) -> dict[str, documents.Activity]:
        """What hosts' tables did, as JSON by host; `nic_names` are the NICs' names by port."""
        return {
            host: {
                "active_pairs": max(0, activity.pairs),
                "reweights": activity.reweights,
                "slots_moved": activity.moved,
                "slots": {
                    names[port]: count
                    for port, count in activity.slots.items()
                    if port in names and count > 0
                },
            }
            for host, activity in self.activity.items()
            if (names := nic_names.get(host)) is not None
        }

    def described_outages(
        self, hosts: Collection[str], since_epoch_s: float
    ) -> dict[str, dict[str, dict[str, float]]]:
        """NICs' outages as JSON, by host and NIC. `since_epoch_s` makes Unix time of the clock."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for (host, nic), outage in self.outages.nics.items():
            if host in hosts:
                entry = found.setdefault(host, {}).setdefault(nic, {})
                entry |= {"count": outage.count, "seconds": round(outage.seconds, 3)}
                if outage.since_s is not None:
                    entry["since_s"] = round(since_epoch_s + outage.since_s, 3)
        return found

    def described_lengths(self) -> dict[str, documents.Histogram]:
        """The lengths of rounds, of their CPU time and of outages, as JSON."""
        return {
            "cycle": self.cycles.described(),
            "cycle_cpu": self.cycles_cpu.described(),
            "outage": self.outages.lengths.described(),
        }
