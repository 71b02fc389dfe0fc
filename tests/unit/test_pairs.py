# SPDX-License-Identifier: Apache-2.0
"""Pages of pairs: the same as a slow obvious model gives, and no more work than a page needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.measured import PathRates
from ri2n_sdn.apps.pairs import MAX_PAIRS, pairs_page
from ri2n_sdn.contract import answers
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.refused import refused

HOSTS = "ABCDE"
PATH = (1, 1, 0)
EVERY = list(permutations(HOSTS, 2))


def no_paths(sender: str, receiver: str, fabric: Fabric) -> list[answers.Path]:
    return []


def cluster_with(rates: dict[tuple[str, str], int], lonely: str = "") -> Cluster:
    """A cluster whose active pairs send at these rates; `lonely` hosts share no network."""
    cluster = cluster_of({name: FakeChannel() for name in HOSTS})
    cluster.pair_slots.update(dict.fromkeys(rates, (PATH,) * 64))
    cluster.measured.rates = {
        pair: {PATH: PathRates(tx_bps=float(rates.get(pair, 0)))} for pair in EVERY
    }
    for name in lonely:
        del cluster.members[name].ports[1], cluster.members[name].ports[2]
    cluster.topology_changed()
    return cluster


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    sort = draw(st.sampled_from(["rate", "src", "dst"]))
    asked: dict[str, Any] = {"sort": sort, "offset": draw(st.integers(0, 25))}
    asked["limit"] = draw(st.integers(1, 25))
    for key in ("host", "src", "dst"):
        if draw(st.booleans()):
            asked[key] = draw(st.sampled_from(HOSTS))
    active = draw(st.sampled_from([None, True, False]))
    if active is not None:
        asked["active"] = active
    if sort != "rate" or active:
        asked["descending"] = draw(st.booleans())
    return asked


def model(asked: dict[str, Any], rates: dict[tuple[str, str], int], lonely: str) -> list[Any]:
    """All pairs that fit, in order."""
    found = [
        (src, dst)
        for src, dst in EVERY
        if not {src, dst} & set(lonely)
        and asked.get("src", src) == src
        and asked.get("dst", dst) == dst
        and asked.get("host", src) in (src, dst)
        and asked.get("active", (src, dst) in rates) == ((src, dst) in rates)
    ]
    if asked["sort"] == "rate":
        sign = -1 if asked.get("descending", True) else 1
        return sorted(found, key=lambda pair: (pair not in rates, sign * rates.get(pair, 0), pair))
    return sorted(
        found,
        key=lambda pair: pair[::-1] if asked["sort"] == "dst" else pair,
        reverse=asked.get("descending", False),
    )


@given(
    questions(),
    st.dictionaries(st.sampled_from(EVERY), st.integers(0, 3), max_size=8),
    st.sampled_from(["", "C", "BE"]),
)
def test_a_page_is_what_a_slow_model_gives(
    asked: dict[str, Any], rates: dict[tuple[str, str], int], lonely: str
) -> None:
    answer = pairs_page(cluster_with(rates, lonely), asked)
    every = model(asked, rates, lonely)
    page = [(pair["src"], pair["dst"]) for pair in answer["pairs"]]
    assert page == every[asked["offset"] : asked["offset"] + asked["limit"]]
    assert answer["total"] == len(every) and answer["offset"] == asked["offset"]
    for pair in answer["pairs"]:
        assert pair["active"] == ((pair["src"], pair["dst"]) in rates)
        assert pair["tx_bps"] == rates.get((pair["src"], pair["dst"]), 0)


@given(st.lists(st.frozensets(st.sampled_from(["n1", "n2", "n3"])), max_size=7))
def test_pairs_without_a_network_are_those_without_a_path(networks: list[frozenset[str]]) -> None:
    hosts = {
        f"h{number}": Host(
            f"h{number}",
            number,
            "m",
            tuple(
                Nic(f"h{number}", f"e{port}", port, "m", 1, network=name)
                for port, name in enumerate([*sorted(own), None], 1)
            ),
        )
        for number, own in enumerate(networks)
    }
    fabric = Fabric(hosts)
    assert fabric.unconnected_pairs == tuple(
        (a, b) for a, b in combinations(sorted(hosts), 2) if not fabric.paths(a, b)
    )


def test_a_page_of_active_pairs_looks_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with({("A", "B"): 5, ("B", "A"): 7})
    looked: set[tuple[str, str]] = set()
    real = Fabric.paths

    def paths(self: Fabric, sender: str, receiver: str) -> Any:
        looked.add((sender, receiver))
        return real(self, sender, receiver)

    monkeypatch.setattr(Fabric, "paths", paths)
    answer = pairs_page(cluster, {"active": True, "sort": "rate"})
    assert [pair["tx_bps"] for pair in answer["pairs"]] == [7.0, 5.0]
    assert looked == {("A", "B"), ("B", "A")}


@pytest.mark.parametrize(
    ("asked", "key", "code", "values"),
    [
        ({"limit": 0}, "limit", "out_of_range", {"low": 1, "high": 500}),
        ({"limit": MAX_PAIRS + 1}, "limit", "out_of_range", {"low": 1, "high": 500}),
        ({"limit": True}, "limit", "out_of_range", {}),
        ({"offset": -1}, "offset", "out_of_range", {"low": 0}),
        ({"offset": 1.5}, "offset", "out_of_range", {}),
        ({"sort": "share"}, "sort", "not_one_of", {"choices": ["rate", "src", "dst"]}),
        ({"sort": ["rate"]}, "sort", "not_one_of", {}),
        ({"host": 5}, "host", "not_host_name", {}),
        ({"host": "Z"}, None, "no_such_host", {"name": "Z"}),
        ({"src": ""}, None, "no_such_host", {"name": ""}),
        ({"active": 1}, "active", "not_flag", {}),
        ({"active": "yes"}, "active", "not_flag", {}),
        ({"descending": 0}, "descending", "not_flag", {}),
        ({"sort": "rate", "descending": False}, "descending", "lowest_first", {}),
        ({"colour": "red"}, None, "unknown_key", {"name": "'colour'"}),
    ],
)
def test_a_wrong_question_is_one_line_that_names_the_key(
    asked: dict[str, Any], key: str | None, code: str, values: dict[str, Any]
) -> None:
    with refused(code, key, **values):
        pairs_page(cluster_with({}), asked)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[LocalApi]:
    cluster = cluster_with({("A", "B"): 5})
    cluster.socket_path = tmp_path / "s"
    made = LocalApi(cluster)
    yield made
    made.close()


def test_a_pair_is_the_same_as_in_the_status(api: LocalApi) -> None:
    def ask(op: str, **values: Any) -> dict[str, Any]:
        return api.answer(json.dumps({"op": op, **values}).encode())

    assert ask("pairs", limit=MAX_PAIRS)["pairs"] == ask("status")["pairs"] != []
