"""Helpers on a VLAN fat tree: stripes over NICs and VLANs, nothing lost when a switch dies or a table changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ri2n_sdn.cli.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.flooding import flooded_frames
from ri2n_sdn.lab.traffic import Stream, StreamResult

from .fat_trees import until_sent, vbft
from .packets import all_reach_each_other, stalled

pytestmark = pytest.mark.usefixtures("reorder_program")

WaitUntil = Callable[..., None]
SIZE = 1000
TRIES = 3  # where nothing ran on the machine for a while


@pytest.fixture(scope="module", params=["spread", "adaptive"])
def shared(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab.create(vbft(2, 2, 2, table=request.param), helpers=True) as lab:
        lab.start_controller()
        lab.wait_ready()
        yield lab


@pytest.fixture
def lab(shared: Lab, wait_until: WaitUntil) -> Iterator[Lab]:
    wait_until(lambda: striped(shared), lambda: described(shared), timeout_s=20)
    yield shared
    shared.restore_all()
    wait_until(lambda: striped(shared), lambda: described(shared), timeout_s=20)


def peer_links(lab: Lab) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What each helper says of its links to each peer."""
    macs = {host["mac"]: host["name"] for host in call(lab.controller_socket, "status")["hosts"]}
    return {
        (host, macs[peer["mac"]]): peer["links"] if peer["striped"] else []
        for host in lab.helpers.hosts
        for peer in lab.helpers.status(host)["peers"]
    }


def striped(lab: Lab) -> bool:
    """Whether all pairs stripe, over two VLANs between switches and one on a switch, and the controller agrees."""
    try:
        links = peer_links(lab)
        settled = call(lab.controller_socket, "status")["settled"]
    except (NotAvailable, KeyError):
        return False
    wanted = {
        (a, b): 1 if {a, b} in ({"n1", "n2"}, {"n3", "n4"}) else 2 for a in lab.hosts for b in lab.hosts if a != b
    }
    return bool(settled) and {p: sum(bool(link["usable"]) for link in found) for p, found in links.items()} == wanted


def described(lab: Lab) -> str:
    return json.dumps([{str(pair): links} for pair, links in peer_links(lab).items()])[:3000]


def flawless(lab: Lab, wait_until: WaitUntil, pps: float, run: Callable[[], list[StreamResult]]) -> None:
    """`run` sends streams of which nothing is lost, doubled or overtaken; again where the machine stood still."""
    for _ in range(TRIES):
        results = run()
        assert not any(got.duplicates for got in results), results
        if not any(got.lost or got.out_of_order for got in results):
            return
        if not any(stalled(got, pps) for got in results):
            break
        wait_until(lambda: striped(lab), lambda: described(lab), timeout_s=20)
    pytest.fail(f"{results}\n{described(lab)}")


def test_all_reach_each_other(lab: Lab) -> None:
    all_reach_each_other(lab)


@pytest.mark.parametrize("switch", ["up1", "up2"])
def test_nothing_is_lost_when_an_upper_switch_dies(
    lab: Lab, switch: str, stream_pps: float, wait_until: WaitUntil
) -> None:
    before = flooded_frames(lab)

    def run() -> list[StreamResult]:
        stream = Stream(lab, "n1", "n3", pps=stream_pps, seconds=5, size=SIZE)
        other = Stream(lab, "n4", "n2", pps=stream_pps, seconds=5, size=SIZE, port=5700)
        until_sent(lab, "n1", stream_pps, wait_until)
        lab.fault("switch_down", switch=switch)
        until_sent(lab, "n1", 1.5 * stream_pps, wait_until)
        lab.restore_all()
        return [stream.result(), other.result()]

    flawless(lab, wait_until, stream_pps, run)
    assert flooded_frames(lab) == before


def test_streams_stay_in_order_while_programs_change_their_table(
    lab: Lab, stream_pps: float, wait_until: WaitUntil
) -> None:
    before = flooded_frames(lab)
    used: set[frozenset[int | None]] = set()

    def vlans(source: str, target: str) -> frozenset[int | None]:
        pairs = call(lab.controller_socket, "status")["pairs"]
        paths = next(pair["paths"] for pair in pairs if (pair["src"], pair["dst"]) == (source, target))
        return frozenset(path["vlan"] for path in paths if path["share"] > 0)

    def run() -> list[StreamResult]:
        used.clear()
        streams = [
            Stream(lab, *pair, pps=stream_pps / 2, seconds=7, size=SIZE, port=5600 + number)
            for number, pair in enumerate((("n1", "n3"), ("n4", "n2")))
        ]
        for vlan in (101, 102, 101, 102):
            table = [["n1", "n3", vlan], ["n4", "n2", vlan]]
            call(lab.controller_socket, "vlan_table", owner="test", pairs=table)
            wanted = frozenset({None if vlan == 101 else vlan})
            wait_until(lambda wanted=wanted: vlans("n1", "n3") == wanted == vlans("n4", "n2"), "the table is not used")
            used.add(wanted)
        call(lab.controller_socket, "vlan_table", owner="test", pairs=[])
        return [stream.result() for stream in streams]

    flawless(lab, wait_until, stream_pps / 2, run)
    assert used == {frozenset({None}), frozenset({102})}
    assert flooded_frames(lab) == before
