"""What doctor says of the helper, from what `ip` and OVSDB answer; what a lab tells host-up and the helper."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.cli.doctor_checks import Facts, NicFacts, examine
from ri2n_sdn.cli.doctor_helper import HelperFacts, collect_helper
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.taps import PLAIN_TAP, TAP_PORTS, WIRE_TAP
from ri2n_sdn.fabric.topology import parse_topology
from ri2n_sdn.lab import helpers

PROGRAM = "/usr/local/lib/ri2n/ri2n-reorder"


def device(name: str, **changes: Any) -> dict[str, Any]:
    """A TAP in the words of `ip -d -j link`, held by a process."""
    mtu = 1478 if name == PLAIN_TAP else 1526
    base = {"ifname": name, "flags": ["UP", "LOWER_UP"], "mtu": mtu, "txqlen": 82, "qdisc": "fq_codel"}
    return {**base, **changes}


GOOD = [device(name) for name in TAP_PORTS]
ROWS = [{"name": name, "ofport": port} for name, port in TAP_PORTS.items()]


def verdicts(
    links: list[dict[str, Any]],
    rows: list[dict[str, Any]] = ROWS,
    program: str | None = PROGRAM,
    bridge_mtu: int | None = 1478,
) -> dict[str, tuple[str, str, str]]:
    """The helper's rows of doctor: verdict, seen, advice."""
    facts = Facts(
        "A",
        datapath="netdev",
        bridge_mtu=bridge_mtu,
        nics=[NicFacts("eth0", mtu=1500), NicFacts("eth1", mtu=9000)],
        helper=collect_helper(json.dumps(links), rows, program),
    )
    found = {row.check: (row.verdict, row.seen, row.advice) for row in examine(facts)}
    return {name: found[name] for name in ("helper", "helper's MTU", "helper's queue")}


def test_a_host_that_was_not_asked_for_one_is_well() -> None:
    assert {row[0] for row in verdicts([], []).values()} == {"ok"}
    assert collect_helper(None, [], None) == collect_helper("no JSON", [], None) == HelperFacts()


def test_all_is_well() -> None:
    found = verdicts(GOOD)
    assert {row[0] for row in found.values()} == {"ok"}
    assert found["helper"][1] == "running"
    assert found["helper's queue"][1] == "82 frames, fq_codel"
    assert verdicts(GOOD, program=None)["helper"][0] == "ok"  # it runs, wherever it may be


def test_not_running_not_installed_half_there() -> None:
    idle = [device(name, flags=["NO-CARRIER", "UP"]) for name in TAP_PORTS]
    verdict, seen, advice = verdicts(idle)["helper"]
    assert (verdict, seen) == ("bad", f"not running ({PROGRAM})")
    assert "systemctl start ri2n-reorder" in advice
    assert "not installed" in verdicts(idle, program=None)["helper"][1]
    assert "somebody else holds ri2n-wire" in verdicts([idle[0], GOOD[1]])["helper"][1]
    halves: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
        (GOOD[:1], ROWS),  # the device is gone, its port is not
        (GOOD, ROWS[:1]),
        (GOOD, [ROWS[0], {"name": WIRE_TAP, "ofport": -1}]),
        (GOOD, [ROWS[0], {"name": WIRE_TAP, "ofport": 7}]),
        (GOOD, [ROWS[0], {"name": WIRE_TAP, "ofport": []}]),
    ]
    for links, rows in halves:
        verdict, seen, advice = verdicts(links, rows)["helper"]
        assert (verdict, seen) == ("bad", "the bridge has not got ri2n-wire as port 102")
        assert "host-up" in advice


@pytest.mark.parametrize(
    ("bridge", "plain", "wire", "verdict"),
    [
        (1478, 1478, 1526, "ok"),
        (1400, 1478, 9022, "ok"),
        (1479, 1479, 1526, "bad"),  # one byte more than a NIC carries
        (1478, 1477, 1526, "bad"),
        (1478, 1478, 1525, "bad"),
        (None, 1478, 1526, "warn"),
    ],
)
def test_mtus(bridge: int | None, plain: int, wire: int, verdict: str) -> None:
    links = [device(PLAIN_TAP, mtu=plain), device(WIRE_TAP, mtu=wire)]
    assert verdicts(links, bridge_mtu=bridge)["helper's MTU"][0] == verdict


def test_a_long_queue_is_warned_about() -> None:
    assert verdicts([device(PLAIN_TAP, txqlen=5000), GOOD[1]])["helper's queue"][0] == "warn"
    assert verdicts([{"ifname": PLAIN_TAP}, GOOD[1]])["helper's queue"][0] == "warn"


# ---- the lab

TOPOLOGY = """
name: t
switches: {s0: , s1: }
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 1000000000}, {name: eth1, switch: s1, rate_bps: 2500000}]}
  B: {helper: false, nics: [{name: eth0, switch: s0, rate_bps: 100000}]}
  C: {nics: [{name: eth0, switch: s0, rate_bps: 100000}]}
  R: {managed: false, nics: [{name: eth0, switch: s1, rate_bps: 100}]}
"""


def test_who_has_a_helper() -> None:
    topology = parse_topology(TOPOLOGY)
    assert topology.helper_hosts() == ["A", "C"]
    assert topology.managed_hosts() == ["A", "B", "C"]
    with pytest.raises(BadInput, match=r"hosts\.B\.helper: "):
        parse_topology(TOPOLOGY.replace("helper: false", "helper: perhaps"))


def test_what_host_up_and_the_helper_are_told() -> None:
    topology = parse_topology(TOPOLOGY)
    assert helpers.host_up_options(topology, "A") == ["--helper", "--rate-mbps", "1002"]
    assert helpers.host_up_options(topology, "C") == ["--helper", "--rate-mbps", "1"]
    options = helpers.autonomous_options(topology, "A")
    assert options[options.index("--wire") + 1] == "eth0=1000000000,eth1=2500000"
    commands = "\n".join(helpers.autonomous_commands(topology, "A"))
    assert "address 06:00:00:00:01:01 mtu 1478" in commands
    assert "txqueuelen 412" in commands  # 5 ms at 1.0025 Gbit/s, in full frames
    assert "10.77.0.1/24" in commands and "fd77::1/64" in commands
    assert "txqueuelen 16" in "\n".join(helpers.autonomous_commands(topology, "C"))


def test_where_the_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(folder: str) -> Path:
        path = tmp_path / folder / "ri2n-reorder"
        path.parent.mkdir()
        path.touch(0o755)
        return path

    monkeypatch.delenv("RI2N_REORDER", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    with pytest.raises(NotAvailable, match=r"^ri2n-reorder is missing: [^\n]*$"):
        helpers.find_program()
    on_path = program("on-path")
    assert helpers.find_program() == on_path
    beside = program("beside")
    assert helpers.find_program() == beside
    named = program("named")
    monkeypatch.setenv("RI2N_REORDER", str(named))
    assert helpers.find_program() == named
    monkeypatch.setenv("RI2N_REORDER", str(tmp_path / "none"))
    with pytest.raises(NotAvailable, match=r"^RI2N_REORDER=[^\n]*: there is no such program$"):
        helpers.find_program()
