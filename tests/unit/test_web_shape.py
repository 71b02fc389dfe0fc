# SPDX-License-Identifier: Apache-2.0
"""A controller's lines that are strange in one place: pages, metrics and REST go on without it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ri2n_sdn.contract import documents
from ri2n_sdn.contract.documents import MAX_NAME, MAX_TEXT
from ri2n_sdn.contract.metrics import Own
from ri2n_sdn.contract.state import merge
from ri2n_sdn.web import metrics
from ri2n_sdn.web.age import Age
from ri2n_sdn.web.gui import (
    banner,
    event_views,
    fair_views,
    hosts_table,
    job_views,
    picture,
    scene,
    setting_views,
    traffic_views,
    tree_views,
)
from ri2n_sdn.web.history import History
from ri2n_sdn.web.rest import fabric
from ri2n_sdn.web.rest.answers import answer
from ri2n_sdn.web.shape import EMPTY, checked
from ri2n_sdn.web.who import Who
from tests.unit.rest_controller import controller
from tests.unit.web_state import NOW_S, cluster_state

Json = dict[str, Any]
Place = tuple[str | int, ...]

ABSENT = object()
ODD: tuple[Any, ...] = (
    *(ABSENT, None, -1, 1.5, True, "", "\ud800", "<b>", [], {}, [None], {"a": None}),
    *(float("nan"), 10**400, 10**20),
)


def places(document: Any, place: Place = ()) -> Iterator[Place]:
    """Where there is something in a document."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield (*place, key)
        yield from places(value, (*place, key))


def with_odd(document: Json, place: Place, odd: object) -> Json:
    """A document that is odd in one place, as it comes out of JSON."""
    made = copy.deepcopy(document)
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    if odd is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = odd
    return made


def look_at_all(state: Any) -> None:
    """Make everything of a state that the web process shows."""
    who, names = Who("root", "admin", "alice"), sorted(state["hosts"])
    banner.banner(state, connected=True, why=None, age=Age(None, False))
    for search in ("", "x"):
        hosts_table.found(state, search)
        for job in job_views.jobs_found(state, search):
            job_views.job_row(job, who, NOW_S)
        job_views.reservation_rows(state, who, NOW_S, search)
    hosts_table.cells(state, names)
    shown: list[object] = [hosts_table.details(state, name) for name in names]
    job_views.policy_rows(state, who)
    job_views.right_rows(state, who)
    setting_views.consequences(state, "max_min")
    setting_views.fact_rows(state, "1")
    setting_views.audit_rows(state["events"])
    for sort in traffic_views.HOST_SORTS:
        for name in traffic_views.host_names(state, sort):
            traffic_views.host_row(state, name)
    fair_views.worst_client(state)
    for event in event_views.events_found(state):
        event_views.event_row(event, state)
    event_views.problem_rows(state)
    event_views.cures(state)
    fair_views.lines_of(state)
    fair_views.marks_of(state["events"], 0.0)
    drawn = scene.scene_of(state)
    scene.shape_of(state)
    shown.append(picture.svg(drawn, picture.paint(drawn, state)))
    tree_views.tree_choices(state)
    tree_views.said_of(state, 1)
    for openmetrics in (False, True):
        metrics.page(metrics.families(state, Own(0.0, True, 0.0, 0.0, "1")), openmetrics)
    History().add(1.0, state)
    json.dumps(state, allow_nan=False, ensure_ascii=False).encode()
    # What REST answers.
    valid: list[tuple[Any, Any]] = [
        (
            documents.Host,
            [fabric._host(name, state["hosts"][name], state["rates"]) for name in names],
        ),
        (documents.Network, [{"id": key, **each} for key, each in state["networks"].items()]),
        (documents.Cable, [{"id": key, **each} for key, each in state["cables"].items()]),
        (documents.FaultOf, [{"id": key, **each} for key, each in state["problems"].items()]),
        (documents.Event, state["events"]),
        (documents.Job, state["jobs"].values()),
        (documents.Reservation, state["reservations"].values()),
        (documents.Right, state["rights"].values()),
        (documents.NamedPolicy, state["policies"].values()),
    ]
    for form, found in valid:
        for document in found:
            answer(form).model_validate(document)


def small() -> Any:
    return cluster_state(hosts=1, nics=1, jobs=1, events=1, dead=(("h0001", "eth0"),))


@pytest.mark.parametrize("part", sorted(small()))
def test_what_is_odd_in_one_place_breaks_nothing(part: str) -> None:
    """Every place of a state is odd in every way."""
    whole = small()
    seen = set[str]()
    for place in places(whole[part]):
        for odd in ODD:
            good, _ = checked(with_odd(whole, (part, *place), odd))
            text = json.dumps(good[part], sort_keys=True)
            if text in seen:
                continue  # the entry was left out, as before
            seen.add(text)
            try:
                look_at_all(merge(EMPTY, good))
            except Exception as error:
                raise AssertionError((place, odd)) from error


def test_names_and_texts_are_bounded() -> None:
    host = small()["hosts"]["h0001"]
    long: Callable[[int], str] = lambda size: size * "x"  # noqa: E731
    for document, dropped in (
        ({"hosts": {long(MAX_NAME): host}}, 0),
        ({"hosts": {long(MAX_NAME + 1): host}}, 1),
        ({"hosts": {"h": {**host, "nics": {long(MAX_NAME + 1): host["nics"]["eth0"]}}}}, 1),
        ({"hosts": {"h": {**host, "ovs": long(MAX_TEXT)}}}, 0),
        ({"hosts": {"h": {**host, "ovs": long(MAX_TEXT + 1)}}}, 1),
        ({"hosts": {"\udc80": host, "\U0001f600": host}}, 1),
    ):
        assert checked(document)[1] == dropped


def test_what_a_real_controller_says_is_good() -> None:
    with controller() as feed:
        line = {"op": "job_begin", "job": {"id": "o1", "user": "alice", "uid": 20001}}
        line["job"] |= {"hosts": ["A", "B"], "policy": "paths", "paths": ["n1"]}  # type: ignore[operator]
        assert feed.api.answer(json.dumps(line).encode())["ok"]
        feed.refresh()
        state = json.loads(json.dumps(feed.state))
        assert state["jobs"] and state["hosts"] and checked(state) == (state, 0)


@pytest.mark.parametrize(
    ("place", "odd"),
    [
        (("nics", "eth0", "port"), "1"),
        (("nics", "eth0", "port"), True),
        (("nics", "eth0", "port"), 1.0),
        (("nics", "eth0", "port"), 1 << 63),
        (("nics", "eth0", "up"), 1),
        (("nics", "eth0", "up"), "true"),
        (("certificate_ends_s",), "7"),
        (("certificate_ends_s",), float("inf")),
    ],
)
def test_no_value_passes_for_one_of_another_type(place: Place, odd: object) -> None:
    host = small()["hosts"]["h0001"]
    assert checked({"hosts": {"A": host}})[1] == 0
    assert checked({"hosts": {"A": with_odd(host, place, odd)}}) == ({"hosts": {}}, 1)
