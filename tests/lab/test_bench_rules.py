# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench rules` on hosts: what it measures, in which order, and that nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.rules import METHODS, RulesSettings, run_rules
from ri2n_lab.bench.rules_pair import NAME, Pairs, sweep
from ri2n_lab.cluster import state
from ri2n_lab.cluster.namespaces import NETNS, add_namespaces, remove_namespaces
from ri2n_lab.cluster.run import in_namespace, run

MANY = 2000
SECONDS = 0.6  # one slice of each method in each turn


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert own() == []


def own() -> list[Path]:
    """The namespaces and folders of benches in this process."""
    return [
        path
        for folder in (NETNS, Path(tempfile.gettempdir()))
        for path in folder.glob(f"{NAME}.{os.getpid()}.*")
    ]


def measured(**settings: object) -> Report:
    chosen = RulesSettings(seconds=SECONDS, repeat=1, **settings)  # type: ignore[arg-type]
    report = Report("rules", None, chosen.described())
    run_rules(chosen, report, Progress(lambda *_: None))
    assert report.document["complete"]
    return report


def test_the_papers_rules_cost_more_with_every_user_and_the_map_does_not() -> None:
    report = measured(counts=(0, 10, MANY), over=("veth",))
    rows = {(row["method"], row["beside"]): row for row in report.rows}
    assert list(rows) == [(method, count) for count in (0, 10, MANY) for method in METHODS]
    for (method, count), row in rows.items():
        assert row.get("why_not") is None, row
        assert row["rtt_us"] > 0 and row["goodput_bps"] > 0 and row["cpu_s_per_gbit"] > 0
        assert row["rules"] == (count if method in ("map", "owner") else 0)
        assert (row["load_s"] is not None) is (row["rules"] > 0)
    # 2,000 rules cost what many round trips take; who is next on the CPU is a small matter.
    assert rows["owner", MANY]["rtt_of_none"] > 2 * rows["map", MANY]["rtt_of_none"]
    assert rows["owner", MANY]["rtt_us"] > 2 * rows["owner", 10]["rtt_us"]
    assert rows["owner", MANY]["goodput_of_none"] < rows["map", MANY]["goodput_of_none"] / 2
    assert rows["owner", MANY]["cpu_of_none"] > 2 * rows["map", MANY]["cpu_of_none"]


def test_every_link_has_every_method() -> None:
    rows = measured(counts=(0, 10), over=("gigabit", "bridge")).rows
    found = [(row["over"], row["beside"], row["method"]) for row in rows]
    assert found == [
        (over, count, method)
        for over in ("gigabit", "bridge")
        for count in (0, 10)
        for method in METHODS
    ]
    assert all(row["goodput_of_none"] > 0 and row.get("why_not") is None for row in rows)
    for row in rows:
        assert (row["cpu_of_none"] is None) is (row["over"] == "gigabit")
        # More than 1 Gbit/s of payload cannot be, however long a slice's end takes.
        assert row["over"] != "gigabit" or row["goodput_bps"] < 1.1e9


def test_packets_of_the_sender_have_a_class_and_those_of_others_none() -> None:
    with Pairs("veth", 1) as pairs:
        pairs.load(0, "map", 10)
        sent = pairs.measure(0, "round_trips", 0.01)
        host = f"{NAME}.{os.getpid()}.veth.0.ask"
        marked = run(in_namespace(host, ["nft", "list", "ruleset"])).stdout
        assert sent["count"] > 0 and "hook egress" in marked and "1000000 : goto class_" in marked
        counted = """
        add table netdev watch
        add chain netdev watch in { type filter hook ingress device "nic" priority 0; }
        add rule netdev watch in ether saddr & ff:ff:ff:ff:ff:c0 == 02:52:4a:00:00:00 counter
        add rule netdev watch in ip protocol icmp counter
        """
        server = f"{NAME}.{os.getpid()}.veth.0.serve"
        run(in_namespace(server, ["nft", "-f", "-"]), stdin=counted)
        sent = pairs.measure(0, "round_trips", 0.01)
        run(in_namespace(host, ["ping", "-c", "1", "10.83.0.2"]))
        text = run(in_namespace(server, ["nft", "list", "table", "netdev", "watch"])).stdout
        classes, pings = (
            int(line.split("packets ")[1].split()[0])
            for line in text.splitlines()
            if "packets" in line
        )
        assert (classes, pings) == (sent["count"], 1)
        pairs.unload(0)
        for name in (host, server):
            assert "ri2n_jobs" not in run(in_namespace(name, ["nft", "list", "ruleset"])).stdout


def test_the_papers_rules_are_gone_when_they_are_unloaded() -> None:
    with Pairs("veth", 1) as pairs:
        host = f"{NAME}.{os.getpid()}.veth.0.ask"
        before = run(["ip", "-n", host, "rule"]).stdout
        pairs.load(0, "owner", 10)
        assert len(run(["ip", "-n", host, "rule"]).stdout.splitlines()) == 10 + len(
            before.splitlines()
        )
        assert pairs.measure(0, "round_trips", 0.01)["count"] > 0
        pairs.unload(0)
        assert run(["ip", "-n", host, "rule"]).stdout == before
        assert (
            "10.83.0.0/24 dev nic table"
            not in run(["ip", "-n", host, "route", "show", "table", "all"]).stdout
        )


def test_nothing_is_left_when_it_is_interrupted() -> None:
    def stop(text: str, over_s: float) -> None:
        if "rules" in text:
            raise KeyboardInterrupt

    settings = RulesSettings(counts=(1,), over=("veth",), seconds=SECONDS, repeat=1)
    with pytest.raises(KeyboardInterrupt):
        run_rules(settings, Report("rules", None, {}), Progress(stop))


def test_what_a_killed_bench_left_goes_with_the_next_and_nothing_else() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead, alive = f"{NAME}.{ended.pid}.veth.0.ask", f"{NAME}.{os.getppid()}.veth.0.ask"
    folder = Path(tempfile.mkdtemp(prefix=f"{NAME}.{ended.pid}."))
    with state.locked(""):
        add_namespaces([dead, alive])
    try:
        sweep()
        assert not (NETNS / dead).exists() and not folder.exists()
        assert (NETNS / alive).exists()
    finally:
        remove_namespaces([dead, alive])
