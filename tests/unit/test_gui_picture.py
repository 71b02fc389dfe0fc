# SPDX-License-Identifier: Apache-2.0
"""Tests of the picture of the network: where things stand, how they look, what is sent."""

from __future__ import annotations

import copy
import json
import random
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from ri2n_sdn.contract.documents import Documents, NicEntry
from ri2n_sdn.contract.fair import fair_entry
from ri2n_sdn.contract.names import natural
from ri2n_sdn.web.gui.explain_views import answer_view, nics_of, only, request_of
from ri2n_sdn.web.gui.hosts_table import (
    PAGE_ROWS,
    cells,
    details,
    found,
    nic_words,
    rate_cells,
    table,
)
from ri2n_sdn.web.gui.picture import changes, heat, paint, svg
from ri2n_sdn.web.gui.scene import (
    MAX_HOST_ROWS,
    WIDTH,
    Nic,
    Scene,
    scene_of,
    shape_of,
)
from ri2n_sdn.web.shape import EMPTY
from tests.sandbox.gui_answers import ANSWERS
from tests.unit.refused import refused
from tests.unit.web_state import cluster_state

GBIT = 10**9


def plain(hosts: int, nics: int = 2) -> Any:
    """A cluster without switches, where nothing is sent."""
    state = cluster_state(hosts, nics, switched=False)
    state["rates"] = {}
    return state


def fat_tree(leaves: int, hosts: int, spines: int = 2) -> Any:
    """A cluster of one network: `hosts` at each leaf, each leaf with a cable to each spine."""
    state = plain(leaves * hosts, 1)
    names = list(state["hosts"])
    for number, name in enumerate(names):
        state["hosts"][name]["nics"]["eth0"]["switch"] = f"leaf{number // hosts}"
    leaf_names = [f"leaf{leaf}" for leaf in range(leaves)]
    spine_names = [f"spine{spine}" for spine in range(spines)]
    state["networks"]["n0"]["switches"] = leaf_names + spine_names
    state["cables"] = {
        f"{leaf}/{spine}-{spine}/{leaf}": {
            "ends": [leaf, spine],
            "vlans": [1],
            "ports": [spine, leaf],
            "rate_bps": GBIT,
            "alive": True,
        }
        for leaf in leaf_names
        for spine in spine_names
    }
    return state


def switched(hosts: int, nics: int) -> Any:
    """A cluster of several networks, whose NICs are mixed up among the leaf switches of each."""
    state = plain(hosts, nics)
    chance = random.Random(hosts * nics)
    for index in range(nics):
        leaves = [f"leaf{index}-{leaf}" for leaf in range(4)]
        for host in state["hosts"].values():
            host["nics"][f"eth{index}"]["switch"] = chance.choice(leaves)
        state["networks"][f"n{index}"]["switches"] = [*leaves, f"spine{index}"]
        state["cables"] |= {
            f"{leaf}-spine{index}": {
                **{"ends": [leaf, f"spine{index}"], "ports": [1, 1]},
                **{"rate_bps": GBIT, "alive": True, "vlans": []},
            }
            for leaf in leaves
        }
    return state


# ---- Where things stand


Box = tuple[str, str, float, float, float, float]


def boxes_of(scene: Scene) -> list[Box]:
    """(kind, name, left, top, right, bottom) of all rows and bars."""
    x, width = scene.row_x, scene.row_width
    return [("row", row.label, x, row.y, x + width, row.y + row.height) for row in scene.rows] + [
        ("bar", bar.name, bar.x, bar.y, bar.x + bar.width, bar.y + bar.height) for bar in scene.bars
    ]


def crowded(scene: Scene) -> list[str]:
    """What stands on top of each other, or outside."""
    boxes = boxes_of(scene)
    wrong = [
        f"{one} on {other}"
        for place, one in enumerate(boxes)
        for other in boxes[:place]
        if one[2] < other[4] and other[2] < one[4] and one[3] < other[5] and other[3] < one[5]
    ]
    return wrong + [
        f"{box} is outside"
        for box in boxes
        if not (0 <= box[2] <= box[4] <= scene.width and 0 <= box[3] <= box[5] <= scene.height)
    ]


def run_through(scene: Scene) -> list[str]:
    """Which lines run through something that they neither begin nor end at."""
    return [
        f"{link.nics[:2]} through {name}"
        for link in scene.links
        for left, right in (sorted((link.x1, link.x2)),)
        for name, x, width, pieces in (
            *(
                (row.label, scene.row_x, scene.row_width, [(row.y, row.y + row.height)])
                for row in scene.rows
            ),
            *(
                (bar.name, bar.x, bar.width, bar.pieces)
                for number, bar in enumerate(scene.bars)
                if number != link.bar
            ),
        )
        if left < x + width and x < right
        if any(top < link.y < bottom for top, bottom in pieces)
    ]


@pytest.mark.parametrize(
    "state",
    [
        *(plain(hosts, nics) for hosts in (1, 2, 60, 61, 1000) for nics in (1, 2, 3, 4, 9)),
        *(switched(hosts, nics) for hosts in (4, 48) for nics in (2, 3, 5)),
        *(fat_tree(*shape) for shape in ((2, 2), (4, 15, 4), (32, 32, 8), (100, 10, 4))),
    ],
    ids=lambda state: f"{len(state['hosts'])} hosts, {len(state['cables'])} cables",
)
def test_nothing_stands_on_top_of_each_other(state: Documents) -> None:
    scene = scene_of(state)
    assert crowded(scene) == [] and run_through(scene) == []
    assert len(scene.rows) <= MAX_HOST_ROWS and scene.width == WIDTH
    drawn = [host for row in scene.rows for host in row.hosts]
    assert sorted(drawn) == sorted(state["hosts"])
    nics = [nic for link in scene.links for nic in link.nics]
    assert sorted(nics) == sorted(
        Nic(name, nic) for name, host in state["hosts"].items() for nic in host["nics"]
    )
    for link in scene.links:
        row, bar = scene.rows[link.row], scene.bars[link.bar]
        assert row.y < link.y < row.y + row.height and bar.y < link.y < bar.y + bar.height
        assert any(top <= link.y <= bottom for top, bottom in bar.pieces), "a NIC ends in a gap"


def test_a_host_is_a_row_as_long_as_there_is_room() -> None:
    assert [len(row.hosts) for row in scene_of(plain(MAX_HOST_ROWS)).rows] == [1] * MAX_HOST_ROWS
    many = scene_of(plain(MAX_HOST_ROWS + 1))
    assert [len(row.hosts) for row in many.rows] == [MAX_HOST_ROWS + 1]


def test_many_hosts_are_grouped_by_their_switches_and_at_last_by_their_networks() -> None:
    scene = scene_of(fat_tree(32, 32))
    assert [len(row.hosts) for row in scene.rows] == [32] * 32
    assert len(scene.cables) == 64 and len(scene.bars) == 34
    scene = scene_of(fat_tree(100, 10))
    assert [len(row.hosts) for row in scene.rows] == [1000]
    assert [bar.name for bar in scene.bars] == ["n0"] and scene.cables == ()


def test_switches_without_hosts_stand_behind_those_with_hosts() -> None:
    bars = {bar.name: bar for bar in scene_of(fat_tree(4, 2)).bars}
    assert {name for name, bar in bars.items() if bar.upper} == {"spine0", "spine1"}
    assert max(bars[f"leaf{leaf}"].x for leaf in range(4)) < min(
        bars[f"spine{spine}"].x for spine in range(2)
    ), "one network stands to the right"


def test_two_networks_stand_at_both_sides_of_the_hosts() -> None:
    scene = scene_of(plain(4, 2))
    left, right = (bar.x for bar in scene.bars)
    assert left < scene.row_x < scene.row_x + scene.row_width < right
    assert left + right + scene.bars[0].width == pytest.approx(WIDTH)


def test_a_ring_of_switches_is_one_column_with_bent_cables() -> None:
    state = fat_tree(4, 2, spines=0)
    state["cables"] = {
        f"c{leaf}": {"ends": [f"leaf{leaf}", f"leaf{(leaf + 1) % 4}"], "alive": True}
        for leaf in range(4)
    }
    scene = scene_of(state)
    assert len(scene.cables) == 4 and all(cable.bend for cable in scene.cables)
    assert len({bar.x for bar in scene.bars}) == 1


def test_the_order_of_the_keys_does_not_matter() -> None:
    state = fat_tree(4, 4)
    other = copy.deepcopy(state)
    for part in ("hosts", "networks", "cables"):
        keys = list(other[part])
        random.Random(7).shuffle(keys)
        other[part] = {key: other[part][key] for key in keys}
    assert scene_of(state) == scene_of(other)


def test_the_shape_changes_with_wiring_and_not_with_what_fails() -> None:
    state = fat_tree(2, 2)
    changed = copy.deepcopy(state)
    changed["hosts"]["h0001"]["nics"]["eth0"] |= {"up": False, "alive": False}
    changed["hosts"]["h0002"]["connected"] = False
    changed["rates"] = {"h0001": {"eth0": [GBIT, 0]}}
    for cable in changed["cables"].values():
        cable["alive"] = False
    assert shape_of(changed) == shape_of(state)
    changed["hosts"]["h0001"]["nics"]["eth0"]["switch"] = "leaf1"
    assert shape_of(changed) != shape_of(state)


def test_cables_to_switches_that_nobody_declared_are_left_out() -> None:
    state = fat_tree(2, 2)
    state["cables"]["odd"] = {"ends": ["leaf0", "nowhere"], "alive": True}
    state["cables"]["loop"] = {"ends": ["leaf0", "leaf0"], "alive": True}
    assert {cable.name for cable in scene_of(state).cables}.isdisjoint({"odd", "loop"})


@pytest.mark.parametrize("state", [EMPTY, plain(0)])
def test_an_empty_state_is_an_empty_picture(state: Documents) -> None:
    assert scene_of(state).rows == ()
    ElementTree.fromstring(svg(scene_of(state), {}))


def test_natural_order() -> None:
    names = ["", "2", "10", "a2b", "a10b", "h1", "h2", "h10", "h10x"]
    shuffled = random.Random(7).sample(names, len(names))
    assert sorted(shuffled, key=natural) == names


# ---- How things look


@pytest.mark.parametrize(
    ("tx", "rx", "expected"),
    [(0, 0, 0), (0.01, 0, 1), (0.2, 0.25, 2), (0.5, 0, 3), (0, 0.8, 4), (3, 0, 4)],
)
def test_heat_is_that_of_the_busier_direction(tx: float, rx: float, expected: int) -> None:
    assert heat(tx * GBIT, rx * GBIT, GBIT) == expected


def test_heat_without_a_speed_is_none() -> None:
    assert heat(GBIT, GBIT, 0) == 0


def look(state: Documents, **facts: Any) -> dict[str, list[str]]:
    return paint(scene_of(state), state, **facts)


def nic(state: Documents, host: str, name: str = "eth0") -> NicEntry:
    return state["hosts"][host]["nics"][name]


def test_dead_nics_away_hosts_and_busy_links_look_so() -> None:
    state = plain(5)
    nic(state, "h0001")["up"] = False
    nic(state, "h0002")["alive"] = False
    for each in state["hosts"]["h0003"]["nics"].values():
        each["up"] = each["alive"] = None
    state["hosts"]["h0003"]["connected"] = False
    state["rates"] = {"h0004": {"eth0": [0.6 * GBIT, 0]}, "h0001": {"eth0": [GBIT, 0]}}
    painted = look(state)
    assert [painted[f"l{number}"][0] for number in range(0, 10, 2)] == [
        *("link dead", "link dead", "link away", "link heat-3", "link heat-0")
    ]
    assert [painted[f"r{number}"] for number in range(5)] == [
        *(["row dead", "1 dead"], ["row dead", "1 dead"], ["row away", "away"]),
        *(["row", ""], ["row", ""]),
    ]
    notes = [painted[f"t{number}"] for number in range(0, 10, 2)]
    assert notes == [
        *(["nic dead", "eth0 dead"], ["nic dead", "eth0 dead"], ["nic away", "eth0"]),
        *(["nic heat-3", "eth0 ↑600.0M ↓0"], ["nic heat-0", "eth0 ↑0 ↓0"]),
    ]
    old = look(state, old=True)
    assert old["t0"][1] == "eth0 was dead" and old["r0"][1] == "had 1 dead"
    assert old["r2"][1] == "was away"


def test_a_row_says_what_part_of_what_is_fair_its_host_gets() -> None:
    state = plain(3)
    state["fair"] = {
        "h0001": fair_entry([("h0002", 40e6, 50e6), ("h0003", 50e6, 50e6)]),
        "h0002": fair_entry([("h0001", 10e6, 50e6)]),
    }
    nic(state, "h0002")["alive"] = False
    assert [look(state)[f"r{number}"][1] for number in range(3)] == [
        *("90% of fair", "1 dead, 20% of fair", "")
    ]


def test_of_many_hosts_one_dead_nic_shows_and_heat_is_that_of_all() -> None:
    state = plain(100, 1)
    state["rates"] = {name: {"eth0": [0.3 * GBIT, 0]} for name in state["hosts"]}
    assert look(state)["l0"] == ["link heat-2"]
    nic(state, "h0042")["alive"] = False
    assert look(state)["l0"] == ["link some-dead"]
    assert look(state)["t0"] == ["nic some-dead", "1 of 100 NICs dead"]
    assert look(state)["r0"] == ["row dead", "100 hosts, 1 dead"]
    for name in state["hosts"]:
        nic(state, name)["alive"] = False
    assert look(state)["l0"] == ["link dead"]


def test_what_is_emphasized_is_the_way_alone() -> None:
    state = fat_tree(2, 2)
    painted = look(
        state, nics={Nic("h0001", "eth0")}, cables={"leaf0/spine0-spine0/leaf0"}, chosen="h0003"
    )
    ways = {key for key, (kind, *_) in painted.items() if "way" in kind.split()}
    assert ways == {"l0", "d0", "t0", "r0", "b0", "c0"}
    assert painted["r2"] == ["row chosen", ""]


def test_a_dead_cable_looks_so() -> None:
    state = fat_tree(2, 2)
    state["cables"]["leaf0/spine0-spine0/leaf0"]["alive"] = False
    assert [painted for key, (painted, *_) in look(state).items() if key[0] == "c"].count(
        "cable dead"
    ) == 1


def test_changes_lead_from_one_look_to_the_other_and_are_few() -> None:
    state = plain(40)
    before = look(state)
    nic(state, "h0007", "eth1")["up"] = False
    after = look(state)
    changed = changes(before, after)
    assert before | changed == after
    assert set(changed) == {"l13", "d13", "t13", "r6"}
    assert changes(after, after) == {}
    assert len(json.dumps(changed)) < 250


def test_the_svg_is_well_formed_and_shows_hostile_names_as_text() -> None:
    state = fat_tree(2, 2)
    hostile = "<script>alert('x')</script>\"&\u2028]]>"
    state["hosts"][hostile] = copy.deepcopy(state["hosts"]["h0001"])
    nic(state, hostile)["switch"] = hostile
    state["networks"][hostile] = {"nics": [], "switches": [hostile]}
    scene = scene_of(state)
    root = ElementTree.fromstring(svg(scene, paint(scene, state)))
    assert {element.tag for element in root.iter()} == {
        *("svg", "g", "rect", "text", "title", "line", "circle", "path")
    }
    names = [each.get("aria-label") for each in root.iter("g") if each.get("role") == "button"]
    assert f"host {hostile}" in names
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids)) == len(paint(scene, state))
    assert set(ids) == {f"net-{key}" for key in paint(scene, state)}


def test_a_picture_of_a_thousand_hosts_is_small() -> None:
    state = fat_tree(32, 32, 8)
    scene = scene_of(state)
    assert len(svg(scene, paint(scene, state))) < 120_000


def test_switches_without_any_host_have_their_places() -> None:
    state = cluster_state(hosts=0)
    bars = scene_of(state).bars
    assert {bar.name for bar in bars} == {"s0", "t0", "s1", "t1"}
    assert all(bar.height > 0 and bar.y >= 0 for bar in bars)
    for network in ("n0", "n1"):
        one, other = sorted((bar for bar in bars if bar.network == network), key=lambda b: b.y)
        assert one.x != other.x or one.y + one.height <= other.y


def test_a_row_of_several_hosts_has_room_for_what_is_wrong() -> None:
    assert scene_of(cluster_state(hosts=2)).row_width < scene_of(plain(61)).row_width


# ---- The table and the details


def test_the_search_finds_names_and_addresses_in_natural_order() -> None:
    state = plain(120)
    assert found(state, "") == sorted(state["hosts"])
    assert found(state, " H000") == [f"h000{number}" for number in range(1, 10)]
    address = state["hosts"]["h0042"]["address"]
    assert "h0042" in found(state, address)
    assert found(state, "", {"h0003", "h0002"}) == ["h0002", "h0003"]
    assert found(state, "<nothing>") == []
    assert found(state, "", only_bad=True) == []
    state = cluster_state(hosts=9, dead=(("h0003", "eth1"),), away=("h0007",))
    assert found(state, "", only_bad=True) == ["h0003", "h0007"]
    assert found(state, "h0003", only_bad=True) == ["h0003"]


def test_a_page_of_the_table_has_all_cells_by_their_ids() -> None:
    state = plain(120)
    nic(state, "h0002")["alive"] = False
    state["hosts"]["h0003"]["connected"] = False
    names = found(state, "")[:PAGE_ROWS]
    shown = cells(state, names)
    root = ElementTree.fromstring(table(names, shown))
    assert len(root.findall("tbody/tr")) == PAGE_ROWS
    assert {each.get("id") for each in root.iter("td")} == {f"cell-{key}" for key in shown}
    assert [shown[f"{row}-1"][1] for row in range(3)] == ["good", "1 dead NIC", "away"]
    assert shown["1-2"][1] == "1 of 2" and shown["2-3"][1] == "-"


def test_details_say_what_is_wrong_with_each_nic() -> None:
    state = plain(3)
    nic(state, "h0001")["up"] = False
    nic(state, "h0001", "eth1")["alive"] = False
    said = details(state, "h0001")
    assert "dead: no link" in said and "dead: nothing arrives" in said
    assert "no longer known" in details(state, "<gone>") and "<gone>" not in details(
        state, "<gone>"
    )
    assert '<a href="/traffic?host=h0001">Its traffic</a>' in said
    assert nic_words({**nic(state, "h0002"), "alive": None, "up": None})[0] == "host away"
    assert nic_words(nic(state, "h0002")) == ("good", "")


def test_only_the_cells_of_rates_change_with_the_rates() -> None:
    """What somebody reads or has marked in the details is not sent anew each second."""
    state = plain(3)
    later: Any = {**state, "rates": {"h0001": {"eth0": [5e6, 7e6]}}}
    look = rate_cells(later, "h0001")
    assert look["nic-0-tx"] == ["num", "5.00 Mbit/s"] and look["nic-1-tx"] == ["num", "-"]
    shown = str(details(later, "h0001"))
    for key, (_, said) in look.items():
        assert f'id="cell-{key}" class="num">{said}</td>' in shown
        shown = shown.replace(f'id="cell-{key}" class="num">{said}', f'id="cell-{key}">')
    before = str(details(state, "h0001"))
    for key, (_, said) in rate_cells(state, "h0001").items():
        before = before.replace(f'id="cell-{key}" class="num">{said}', f'id="cell-{key}">')
    assert shown == before
    assert rate_cells(state, "gone") == {}


# ---- Explain


def test_the_question_as_a_request() -> None:
    assert request_of(" a ", "b", "tcp", "", "80", " j1 ") == {
        "src": "a",
        "dst": "b",
        "flow": {"protocol": 6, "dport": 80},
        "job": "j1",
    }
    assert request_of("a", "b", "tcp", "", "", "") == {"src": "a", "dst": "b"}
    assert request_of("a", "b", "", "", "", "") == {"src": "a", "dst": "b"}
    assert request_of("a", "b", "icmp", "", "", "")["flow"] == {"protocol": 1}
    asked = request_of("a", "b", "udp", "", "", "", " 10.0.0.1 ", "10.0.0.2")
    assert asked["flow"] == {"protocol": 17, "src_ip": "10.0.0.1", "dst_ip": "10.0.0.2"}


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        (("", "b", "", "", "", ""), "From host", "name_a_host"),
        (("a", " ", "", "", "", ""), "To host", "name_a_host"),
        (("a", "b", "", "1", "", ""), "Source port", "ports_need_protocol"),
        (("a", "b", "icmp", "", "2", ""), "Destination port", "ports_need_protocol"),
        (("a", "b", "", "", "", "", "", "::1"), "Destination address", "address_needs_protocol"),
        *(
            (("a", "b", "tcp", port, "", ""), "Source port", "not_number_up_to")
            for port in ("-1", "65536", "x", "1.5", "٣", "9" * 50)
        ),
    ],
)
def test_a_wrong_question_is_refused_with_its_field(fields: Any, field: str, code: str) -> None:
    with refused(code, field):
        request_of(*fields)


def test_the_way_of_a_flow_is_one_path_and_of_a_pair_all_living_ones() -> None:
    asked = {"src": "h0001", "dst": "h0002"}
    pair = ANSWERS["explain"](asked)
    flow = ANSWERS["explain"](asked | {"flow": {"protocol": 6}})
    assert nics_of(flow) == {Nic("h0001", "eth1"), Nic("h0002", "eth1")}
    assert {each.nic for each in nics_of(pair)} == {"eth0", "eth1"}
    pair["paths"][0]["alive"] = False
    assert {each.nic for each in nics_of(pair)} == {"eth1"}


def test_the_answer_says_the_way_and_every_reason() -> None:
    asked = {"src": "h0001", "dst": "h0002", "flow": {"protocol": 6}}
    answer = ANSWERS["explain"](asked)
    said = answer_view(answer)
    assert "h0001 eth1 → network n1 → h0002 eth1" in said
    assert said.count("<li>") == len(answer["why"]) and said.count("(this one)") == 1
    answer["why"].append("<b>hostile</b>")
    assert "<b>" not in answer_view(answer)


def test_of_many_hosts_only_the_two_in_question_are_drawn() -> None:
    state = fat_tree(100, 10)
    scene = scene_of(only(state, ("h0001", "h0999")))
    assert [row.label for row in scene.rows] == ["h0001", "h0999"]
    assert {bar.name for bar in scene.bars} >= {"leaf0", "leaf99", "spine0"}
