# SPDX-License-Identifier: Apache-2.0
"""Reports of fast paths, by real bridges to a live controller.

`ovs-ofctl packet-out` takes the place of `ri2n-fast`: both use the bridge's management socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.pipeline.dphash import Flow
from ri2n_sdn.pipeline.fast_hash import fast_slot_of
from ri2n_sdn.pipeline.fast_reports import FastRow
from ri2n_sdn.pipeline.layout import path_register
from tests.unit.fast_frames import counts_frame, state_frame
from tests.waiting import wait_until

WIRING = {"A": ["n0", "n1"], "B": ["n0", "n1"]}
FLOW = Flow(6, "10.77.0.1", 40001, "10.77.0.2", 5201)
ASKED = vars(FLOW)
MBYTE = 1_000_000


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(WIRING) as made:
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made
        counters = made.ask("status")["counters"]
        assert not [name for name in counters if "errors" in name], counters
        assert "Traceback" not in made.log()


class FastPath:
    """The fast path of A, whose bytes on its first path to B grow with each report."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox, self.octets = sandbox, 0

    def send(self, frame: bytes) -> None:
        what = f"in_port=controller,packet={frame.hex()},actions=controller:65535"
        self._sandbox.ovs.ofctl("packet-out", "A", what)

    def report(self, *, programs: int = 1) -> None:
        mac, peer = self._sandbox.mac("A"), self._sandbox.mac("B")
        self.octets += MBYTE
        row = FastRow(30, path_register(1, 1, 0), peer, 0)
        self.send(state_frame([(peer, 0)], programs=programs, mac=mac))
        self.send(counts_frame([(row, self.octets // 1000, self.octets)], mac=mac))


def status(sandbox: Sandbox) -> dict[str, Any]:
    answer: dict[str, Any] = sandbox.ask("status")
    return answer


def fast_of(sandbox: Sandbox, host: str) -> Any:
    return status(sandbox)["state"]["hosts"][host]["fast"]


def pair(sandbox: Sandbox) -> dict[str, Any]:
    found = (p for p in status(sandbox)["pairs"] if (p["src"], p["dst"]) == ("A", "B"))
    return next(found)


def codes(sandbox: Sandbox) -> set[str]:
    return {problem["code"] for problem in status(sandbox)["problems"]}


def test_a_fast_path_is_counted_explained_and_missed(sandbox: Sandbox) -> None:
    fast = FastPath(sandbox)
    assert fast_of(sandbox, "A") is None

    def counted() -> bool:
        fast.report()
        rate_bps = pair(sandbox)["tx_bps"]
        return bool(rate_bps)

    wait_until(counted, lambda: f"it is not counted: {pair(sandbox)}")
    assert fast_of(sandbox, "A") == {
        **{"state": "in_force", "filter": "in_force", "peers": {"carried": 1}, "dropped": 0}
    }
    assert fast_of(sandbox, "B") is None

    answers: list[dict[str, Any]] = []

    def explained() -> bool:
        fast.report()
        answers.append(sandbox.ask("explain", src="A", dst="B", flow=ASKED))
        return bool(answers[-1]["way"] == "beside")

    wait_until(explained, lambda: str(answers[-1]))
    assert answers[-1]["slot"] == fast_slot_of(FLOW)
    # Nothing comes any more.
    wait_until(lambda: "fast_silent" in codes(sandbox), lambda: f"{codes(sandbox)}")
    wait_until(lambda: pair(sandbox)["tx_bps"] is None, lambda: f"{pair(sandbox)}")
    assert sandbox.ask("explain", src="A", dst="B", flow=ASKED)["way"] is None
    # It comes back, and ends for good.
    wait_until(counted, lambda: f"it is not counted again: {pair(sandbox)}")
    fast.report(programs=0)
    wait_until(lambda: "fast_silent" not in codes(sandbox), lambda: f"{codes(sandbox)}")


def test_nobody_on_the_wire_and_no_process_of_a_host_can_report(sandbox: Sandbox) -> None:
    before = status(sandbox)["counters"].get("fast_reports", 0)
    frame = state_frame([(sandbox.mac("B"), 0)], mac=sandbox.mac("B"))
    for port in ("LOCAL", "1", "2"):
        what = f"in_port={port},packet={frame.hex()},actions=table"
        sandbox.ovs.ofctl("packet-out", "B", what)
    # A report by the right way, of another host, comes after them and is refused.
    foreign = state_frame([], mac=sandbox.mac("A"))
    what = f"in_port=controller,packet={foreign.hex()},actions=controller:65535"
    sandbox.ovs.ofctl("packet-out", "B", what)
    wait_until(
        lambda: status(sandbox)["counters"].get("dropped_fast_report_of_stranger", 0) == 1,
        lambda: str(status(sandbox)["counters"]),
    )
    assert status(sandbox)["counters"].get("fast_reports", 0) == before
    assert fast_of(sandbox, "B") is None
