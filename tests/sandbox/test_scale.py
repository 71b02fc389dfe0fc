"""32 hosts with two NICs each: all settle, all pairs get tables of their own, and a round changes every one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ri2n_sdn.bench.cycle import Cycles

from .frames import Capture, udp

HOSTS = 32


@pytest.fixture(scope="module")
def cycles() -> Iterator[Cycles]:
    with Cycles(HOSTS) as made:
        yield made


def test_all_hosts_settle_on_two_networks(cycles: Cycles) -> None:
    status = cycles.sandbox.ask("status")
    assert len([host for host in status["hosts"] if host["connected"]]) == HOSTS
    assert sorted(len(network["nics"]) for network in status["networks"]) == [HOSTS, HOSTS]
    assert len(status["pairs"]) == HOSTS * (HOSTS - 1)
    assert status["warnings"] == []


def test_rounds_with_all_pairs_active(cycles: Cycles) -> None:
    few, _ = cycles.measure(124, 1.0)
    all_pairs, _ = cycles.measure(HOSTS * (HOSTS - 1), 1.0)
    print(f"\n{few}\n{all_pairs}")
    assert all_pairs["changed_tables"] == HOSTS * (HOSTS - 1)
    # Linear or less: eight times the pairs. Times of a busy machine are no test; `ri2n bench cycle` measures them.
    assert all_pairs["cpu_s"] < 8 * few["cpu_s"]
    status = cycles.sandbox.wait_settled()
    assert sum(pair["active"] for pair in status["pairs"]) == HOSTS * (HOSTS - 1)
    assert all(path["alive"] for pair in status["pairs"] for path in pair["paths"])
    # A probe that is read late is no dead link, however busy the controller is.
    assert not [entry for entry in cycles.sandbox.ask("events")["events"] if "nothing" in entry["text"]]
    assert "Traceback" not in cycles.sandbox.log()


def test_frames_of_all_hosts_arrive_while_all_that_goes_on(cycles: Cycles) -> None:
    sandbox = cycles.sandbox
    capture = Capture(sandbox)
    names = list(sandbox.hosts)
    wanted: dict[str, list[str]] = {}
    for index, source in enumerate(names):
        target = names[(index + 7) % HOSTS]
        frames = [udp(sandbox.mac(source), sandbox.mac(target), (port, 77)) for port in range(16)]
        sandbox.receive(source, *frames)
        wanted[target] = frames
    capture.expect(wanted, timeout_s=20)
