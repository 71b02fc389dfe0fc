# SPDX-License-Identifier: Apache-2.0
"""What is read off a lab besides the figures of traffic programs: drops, order, round trips."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from ri2n_lab.cluster import Lab
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "Pings",
    "Window",
    "netstat_value",
    "out_of_order",
    "parse_drops",
    "parse_pings",
    "round_trips_row",
    "switch_drops",
]

PING_INTERVAL_S = 0.1
IDLE_S = 2.0
PERCENTILE = 0.99


def switch_drops(lab: Lab) -> int:
    """Frames that the ports of switches have dropped since the lab was made (`tc -s`)."""
    return parse_drops(lab.exec("sw", ["tc", "-s", "-j", "qdisc", "show"]).stdout)


def parse_drops(text: str) -> int:
    """The frames that all root queues in tc's JSON have dropped.

    Those of the queues inside are counted there as well.
    """
    return sum(int(qdisc.get("drops", 0)) for qdisc in json.loads(text) if qdisc.get("root"))


def out_of_order(lab: Lab, host: str) -> int:
    """TCP segments that came to a host before one that belongs in front of them.

    After GRO, so some may be merged ones. The kernel's TCPOFOQueue: segments that were put into a
    connection's out-of-order queue, since the host was made.
    """
    return netstat_value(
        lab.exec(host, ["cat", "/proc/net/netstat"]).stdout, "TcpExt", "TCPOFOQueue"
    )


def netstat_value(text: str, group: str, name: str) -> int:
    """One counter of /proc/net/netstat, whose lines come in pairs of names and values.

    0 where there is none.
    """
    lines = [line.split() for line in text.splitlines() if line.startswith(f"{group}:")]
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if name in names:
            return int(values[names.index(name)])
    return 0


class Pings:
    """A ping that runs until `times_ms` ends it."""

    def __init__(
        self, lab: Lab, host: str, address: str, interval_s: float = PING_INTERVAL_S
    ) -> None:
        """Start it on `host`, one request per `interval_s`."""
        argv = ["ping", "-n", "-i", f"{interval_s:g}", address]
        self._child = lab.popen(
            host, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def times_ms(self) -> list[float]:
        """End it; returns the round trips of all answers in ms. NotAvailable without any."""
        self._child.terminate()
        output, _ = self._child.communicate(timeout=10)
        times = parse_pings(output)
        if not times:
            raise NotAvailable(f"no ping was answered: {' '.join(output.split())[-200:]}")
        return times

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()


def parse_pings(output: str) -> list[float]:
    """The round trips in ms of what ping printed."""
    return [float(text) for text in re.findall(r" time=([\d.]+) ms", output)]


def round_trips_row(idle_ms: Sequence[float], load_ms: Sequence[float]) -> dict[str, Any]:
    """Medians of both and the 99th percentile under load, in ms."""
    ordered = sorted(load_ms)
    return {
        "ping_idle_ms": round(statistics.median(idle_ms), 3),
        "ping_load_ms": round(statistics.median(ordered), 3),
        "ping_load_p99_ms": round(
            ordered[min(len(ordered) - 1, int(len(ordered) * PERCENTILE))], 3
        ),
    }


class Window:
    """Counts during a measurement: call `begin`, then `end`, and in any case `stop`."""

    def __init__(
        self, lab: Lab, receiver: str, pinger: str | None = None, address: str | None = None
    ) -> None:
        """With `pinger`, a host, and the receiver's `address`, round trips are measured too.

        First without load, for 2 s.
        """
        self._lab, self._receiver, self._pinger, self._address = (
            lab,
            receiver,
            pinger,
            address or lab.address(receiver),
        )
        self._pings: Pings | None = None
        self._drops = self._out_of_order = 0
        self._idle_ms: list[float] = []
        if pinger is not None:
            pings = Pings(lab, pinger, self._address)
            time.sleep(IDLE_S)  # the length of the measurement
            self._idle_ms = pings.times_ms()

    def begin(self) -> None:
        """Note the counters; start the pings under load."""
        self._drops, self._out_of_order = (
            switch_drops(self._lab),
            out_of_order(self._lab, self._receiver),
        )
        if self._pinger is not None:
            self._pings = Pings(self._lab, self._pinger, self._address)

    def end(self) -> dict[str, Any]:
        """Return `switch_drops` and `out_of_order` since `begin`, and with a pinger `ping_...`."""
        figures: dict[str, Any] = {
            "switch_drops": switch_drops(self._lab) - self._drops,
            "out_of_order": out_of_order(self._lab, self._receiver) - self._out_of_order,
        }
        if self._pings is not None:
            figures |= round_trips_row(self._idle_ms, self._pings.times_ms())
        return figures

    def stop(self) -> None:
        """End the pings, if they still run."""
        if self._pings is not None:
            self._pings.stop()
