# SPDX-License-Identifier: Apache-2.0
"""The documents of the contract: their JSON Schema, and the models of REST made of them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from ri2n_sdn.contract import documents
from ri2n_sdn.contract.schema import meanings
from ri2n_sdn.web.rest.answers import answer
from tests.unit.commands import REPOSITORY
from tests.unit.rest_controller import controller
from tests.unit.web_state import cluster_state

Json = dict[str, Any]

SCHEMA = json.loads((REPOSITORY / "docs" / "contract.schema.json").read_text())
EARLIER = {"seq": 1, "time_s": 2.0, "text": "A has come"}
"""An event of a controller that gives no codes."""


def whole(state: Any) -> Json:
    """A state as it comes out of JSON."""
    return dict(json.loads(json.dumps(state)))


def test_a_real_state_is_as_the_schema_says() -> None:
    valid = jsonschema_rs.validator_for(SCHEMA)
    with controller() as feed:
        state = whole(feed.state)
    for each in (state, whole(cluster_state(hosts=2, nics=2, jobs=2, events=2))):
        valid.validate(each)
    assert state["hosts"] and state["counters"]


@pytest.mark.parametrize(
    ("place", "odd"),
    [
        (("hosts", "h0001", "nics", "eth0", "port"), "1"),
        (("hosts", "h0001", "address"), 7),
        (("jobs", "j1", "policy"), "all"),
        (("events", 0, "time_s"), -1),
        (("rates", "h0001", "eth0"), [1.0]),
        (("controller", "in_charge"), None),
    ],
)
def test_the_schema_refuses_what_is_odd(place: tuple[Any, ...], odd: object) -> None:
    state = whole(cluster_state(hosts=1, nics=1, jobs=1, events=1))
    valid = jsonschema_rs.validator_for(SCHEMA)
    assert valid.is_valid(state)
    inner = state
    for key in place[:-1]:
        inner = inner[key]
    assert place[-1] in inner if isinstance(inner, dict) else inner
    inner[place[-1]] = odd
    assert not valid.is_valid(state)


def test_keys_that_a_later_controller_adds_are_left_out_of_answers() -> None:
    event = {**EARLIER, "code": "host_connected", "more": 1}
    assert "more" not in answer(documents.Event).model_validate(event).model_dump()


def test_an_event_of_an_earlier_controller_has_what_clients_look_for() -> None:
    assert answer(documents.Event).model_validate(EARLIER).model_dump() == {
        **EARLIER,
        **{"severity": "info", "code": None, "advice": None, "subject": {}, "args": {}},
    }


def test_arguments_keep_their_types() -> None:
    args = {"count": 5, "flag": True, "wait_s": 1.0, "hosts": ["A", 2], "name": "7"}
    made = answer(documents.Event).model_validate({**EARLIER, "args": args})
    assert repr(made.model_dump()["args"]) == repr(args)


def test_an_answer_of_an_entry_is_without_bounds_and_with_its_meanings() -> None:
    shown = answer(documents.Cable).model_json_schema()["properties"]
    assert shown["vlans"]["description"] == meanings(documents.Cable)["vlans"]
    assert meanings(documents.CableEntry).items() < meanings(documents.Cable).items()
    assert shown["ends"].keys() == {"title", "type", "items", "description"}
