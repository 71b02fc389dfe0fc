# SPDX-License-Identifier: Apache-2.0
"""`explain` where the sender has a fast path: by which way a flow leaves, and by which slot."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.contract.choices import FastPeer
from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.pipeline.dphash import slot_of
from ri2n_sdn.pipeline.explain import IN_BRIDGE, Flow, JobView, Pair, Way, addresses_decide, explain
from ri2n_sdn.pipeline.fast_hash import fast_hash, fast_slot_of
from ri2n_sdn.pipeline.fast_path import SILENT_S, FastPath
from ri2n_sdn.pipeline.fast_way import striped_way, way_of
from tests.unit.test_explain import FIRST, FLOW, SECOND, api, ask, fabric, pair

__all__ = ["api"]

MAC_A = fabric().hosts["A"].mac
BESIDE = Way("beside", "it passes beside the bridge")
UNKNOWN = Way(None, "nobody knows")


def fast_path(peer: FastPeer | None = "carried", heard_s: float = 100.0, **more: Any) -> FastPath:
    peers: dict[str, FastPeer] = {} if peer is None else {MAC_A: peer}
    return FastPath(**{"state": "in_force", "heard_s": heard_s, "peers": peers, **more})


def way(
    path: FastPath | None,
    flow: Flow = FLOW,
    *,
    of: Pair | None = None,
    by_row: bool = False,
    now_s: float = 100.0,
) -> Way:
    return way_of(path, of or pair(fabric()), flow, by_row, now_s)


# By which way


def test_without_a_fast_path_in_force_there_is_one_way_alone() -> None:
    for path in (None, FastPath(), *(fast_path(state=s) for s in ("off", "refused", "no_device"))):
        assert way(path, now_s=1e6) is IN_BRIDGE


@pytest.mark.parametrize(
    "peer", [None, "striped", "undecided", "unsupported", "too_many", "striped_tcp"]
)
def test_what_the_fast_path_leaves_passes_the_bridge(peer: FastPeer | None) -> None:
    found = way(fast_path(peer))
    assert found.way == "bridge" and (peer or "unknown") in found.why


@pytest.mark.parametrize("protocol", [1, 6, 17, 47, 132])
def test_what_it_carries_passes_beside_the_bridge(protocol: int) -> None:
    assert way(fast_path(), replace(FLOW, protocol=protocol)).way == "beside"


@pytest.mark.parametrize("state", ["in_force", "silent"])
@pytest.mark.parametrize("peer", ["carried", "undecided", None])
def test_after_three_seconds_without_a_report_nobody_knows(
    state: str, peer: FastPeer | None
) -> None:
    path = fast_path(peer, state=state)
    assert way(path, now_s=100.0 + SILENT_S + 0.1).way is None


def test_rows_that_name_a_flow_keep_it_in_the_bridge() -> None:
    path, whole = fast_path(), fabric()
    controlled = pair(
        replace(
            whole,
            hosts={**whole.hosts, "B": replace(whole.hosts["B"], control_port=6653)},
        )
    )
    for flow in (replace(FLOW, sport=6653), replace(FLOW, dport=6653)):
        assert way(path, flow, of=controlled).way == "bridge"
        assert way(path, replace(flow, protocol=17), of=controlled).way == "beside"
        assert way(path, flow).way == "beside"
    assert way(path, replace(FLOW, protocol=58)).way == "bridge"
    assert way(path, by_row=True).way == "bridge"
    job = replace(pair(whole), jobs=JobView(text="job 7", own_paths=True))
    assert way(path, of=job).way == "bridge"
    narrow = replace(pair(whole), slots=(FIRST, SECOND) * 8)
    assert way(path, of=narrow).way == "bridge"
    late = 200.0
    assert way(path, replace(FLOW, protocol=58), now_s=late).way == "bridge", "whatever is reported"


def test_a_class_that_keeps_one_link_stays_in_the_bridge_of_a_host_with_a_helper() -> None:
    classes = (TrafficClass("tcp", 5201),)
    for helpers, expected in ((True, "bridge"), (False, "beside")):
        of = pair(fabric(helpers=helpers, by_flows=classes))
        assert way(fast_path(), of=of).way == expected


def striped(
    path: FastPath | None, flow: Flow = FLOW, *, of: Pair | None = None, now_s: float = 100.0
) -> Way:
    found = of or pair(fabric(helpers=True))
    return striped_way(path, found, flow, found.paths, now_s)


def test_striped_tcp_passes_beside_the_bridge_and_its_links_are_named() -> None:
    found = striped(fast_path("striped_tcp"))
    assert found.way == "beside" and "over links eth0 -> eth0, eth1 -> eth1 (fast" in found.why
    for path in (None, FastPath(), fast_path("striped_tcp", state="refused")):
        assert striped(path) is IN_BRIDGE
    for peer in (None, "striped", "undecided"):
        assert striped(fast_path(peer)).way == "bridge"
    late = striped(fast_path("striped_tcp"), now_s=100.0 + SILENT_S + 0.1)
    assert late.way is None and late.why


def test_what_is_not_plain_tcp_is_left_to_the_helper() -> None:
    path, whole = fast_path("striped_tcp"), fabric(helpers=True)
    for protocol in (1, 17, 58, 132):
        assert striped(path, replace(FLOW, protocol=protocol)).way == "bridge"
    hosts = {**whole.hosts, "B": replace(whole.hosts["B"], control_port=FLOW.dport)}
    assert striped(path, of=pair(replace(whole, hosts=hosts))).way == "bridge"
    job = replace(pair(whole), jobs=JobView(text="job 7", own_paths=True, striped=True))
    assert striped(path, of=job).way == "bridge"


# By which slot


def test_beside_the_bridge_the_documented_hash_decides_on_any_datapath() -> None:
    slots = [FIRST] * 64
    slots[fast_slot_of(FLOW)] = SECOND
    of = replace(pair(fabric()), slots=tuple(slots))
    assert fast_slot_of(FLOW) != slot_of(FLOW, slots=64)
    for datapath in ("netdev", "system", None):
        verdict = explain(of, FLOW, datapath=datapath, way=BESIDE)
        assert (verdict.way, verdict.slot) == ("beside", fast_slot_of(FLOW))
        assert verdict.path is not None and verdict.path.key == SECOND
        said = "\n".join(verdict.why)
        assert BESIDE.why in said and f"{fast_hash(FLOW):#018x}" in said
        assert addresses_decide(of, False, datapath, BESIDE)
    assert explain(of, FLOW, datapath="netdev").path != verdict.path
    assert not addresses_decide(of, False, "system")


def test_beside_the_bridge_the_next_live_slot_is_taken_too() -> None:
    slots = [FIRST] * 64
    slots[fast_slot_of(FLOW)] = SECOND
    of = replace(pair(fabric(second_lives=False)), slots=tuple(slots))
    verdict = explain(of, FLOW, datapath="netdev", way=BESIDE)
    assert verdict.slot == fast_slot_of(FLOW)
    assert verdict.path is not None and verdict.path.key == FIRST


def test_where_the_way_is_not_known_both_are_said() -> None:
    slots = [FIRST] * 64
    of = replace(pair(fabric()), slots=tuple(slots))
    verdict = explain(of, FLOW, datapath="netdev", way=UNKNOWN)
    assert (verdict.way, verdict.slot) == (None, None)
    assert verdict.path is not None and verdict.path.key == FIRST, "by both ways"
    for slot in (fast_slot_of(FLOW), slot_of(FLOW, slots=64)):
        assert any(f"slot {slot} of 64" in line for line in verdict.why)
    slots[fast_slot_of(FLOW)] = SECOND
    other = replace(of, slots=tuple(slots))
    assert explain(other, FLOW, datapath="netdev", way=UNKNOWN).path is None
    assert explain(of, FLOW, datapath="system", way=UNKNOWN).path is None, "the bridge's is unknown"


# As a request


def test_the_answer_names_the_way(api: LocalApi) -> None:
    flow = {"protocol": 6, "sport": 40001, "dport": 5201}
    assert ask(api, flow=flow)["way"] == "bridge"
    assert "way" not in ask(api)
    cluster = api._cluster
    mac, now_s = cluster.members["A"].mac.lower(), time.monotonic()
    path = FastPath(state="in_force", heard_s=now_s + 1000.0, peers={mac: "carried"})
    cluster.measured.fast["B"] = path
    answer = ask(api, flow={**flow, "datapath": "system"})
    assert (answer["way"], answer["slot"]) == ("beside", fast_slot_of(FLOW))
    assert answer["path"] is not None
    path.heard_s = now_s - 1000.0
    answer = ask(api, flow=flow)
    assert answer["ok"] and answer["way"] is answer["slot"] is None
