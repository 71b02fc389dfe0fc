# SPDX-License-Identifier: Apache-2.0
"""Parameters that are changed while the controller runs: what is accepted, and what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from ri2n_sdn.apps.asker import Asker
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.parameters import (
    PARAMETERS,
    list_parameters,
    parameter_values,
    set_parameter,
)
from ri2n_sdn.contract.answers import ParameterSet
from ri2n_sdn.errors import BadInput
from ri2n_sdn.weights.loop import LoopSettings
from tests.unit.fake_hosts import FakeChannel, cluster_of


@pytest.fixture
def cluster() -> Cluster:
    return cluster_of({"A": FakeChannel(), "B": FakeChannel()})


def put(cluster: Cluster, name: object, value: object) -> ParameterSet:
    return set_parameter(cluster, {"name": name, "value": value})


def other(parameter: Mapping[str, Any]) -> Any:
    """A value that is allowed and is not the present one."""
    if parameter["kind"] == "choice":
        return next(each for each in parameter["choices"] if each != parameter["value"])
    low, high = parameter["min"], parameter["max"]
    middle = parameter["value"] * 2 or (low + high) / 2
    value = middle if low <= middle <= high else low
    return int(value) if parameter["kind"] == "integer" else value


def test_each_parameter_that_may_be_changed_is_changed(cluster: Cluster) -> None:
    for parameter in list_parameters(cluster)["parameters"]:
        name, before = parameter["name"], parameter_values(cluster)
        assert parameter["value"] == parameter["default"] == before[name]
        if not parameter["live"]:
            with pytest.raises(BadInput, match="cannot be changed while"):
                put(cluster, name, other(parameter))
            assert parameter_values(cluster) == before
            continue
        value = other(parameter)
        assert put(cluster, name, value) == {"name": name, "value": value}
        assert parameter_values(cluster) == {**before, name: value}, "no other one is changed"
        assert cluster.events[-1]["text"].startswith(f"{name} is ")
        put(cluster, name, parameter["value"])
        assert parameter_values(cluster) == before


def test_what_a_round_uses_follows(cluster: Cluster) -> None:
    put(cluster, "hbspan_min_s", 2.0)
    put(cluster, "hbspan_max_s", 3.0)
    assert cluster.loop.step(1.0, [], {}).hbspan_s == 2.0
    put(cluster, "strategy", "round_robin")
    assert cluster.loop.strategy_name == "round_robin"
    assert cluster.loop.settings.slots == 64
    put(cluster, "loss_min_part", 0.2)
    assert cluster.measured.losses.settings.min_part == 0.2


def test_the_least_time_is_never_above_the_greatest(cluster: Cluster) -> None:
    before = parameter_values(cluster)
    with pytest.raises(BadInput, match=r"^hbspan_min_s: the shortest HBSPAN would exceed"):
        put(cluster, "hbspan_min_s", 5.0)
    with pytest.raises(BadInput, match=r"^hbspan_max_s: the shortest HBSPAN would exceed"):
        put(cluster, "hbspan_max_s", 0.2)
    assert parameter_values(cluster) == before


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("colour", 1, "name: must be one of strategy, slots"),
        (None, 1, "name: must be one of"),
        (["strategy"], 1, "name: must be one of"),
        ("strategy", "best", "strategy: unknown 'best': choose one of"),
        ("strategy", 5, "strategy: unknown"),
        ("strategy", None, "strategy: unknown"),
        ("hysteresis", 0.51, "hysteresis: must be a number from 0 to 0.5"),
        ("hysteresis", "0.1", "hysteresis: must be a number"),
        ("hysteresis", True, "hysteresis: must be a number"),
        ("hysteresis", math.nan, "hysteresis: must be a number"),
        ("active_bps", math.inf, "active_bps: must be a number"),
        ("active_bps", 10**400, "active_bps: must be a number from 1000 to 1e+12 bit/s"),
        ("loss_min_packets", 10.5, "loss_min_packets: must be a whole number"),
        ("loss_min_packets", None, "loss_min_packets: must be a whole number"),
    ],
)
def test_a_wrong_value_is_one_line_and_changes_nothing(
    cluster: Cluster, name: object, value: object, fault: str
) -> None:
    before, events = parameter_values(cluster), len(cluster.events)
    with pytest.raises(BadInput) as caught:
        put(cluster, name, value)
    assert str(caught.value).startswith(fault) and "\n" not in str(caught.value)
    assert (parameter_values(cluster), len(cluster.events)) == (before, events)


def test_operators_are_told_who_changed_something_once(cluster: Cluster) -> None:
    request = {"name": "hysteresis", "value": 0.25}
    set_parameter(cluster, request, Asker(0, "carol"))
    set_parameter(cluster, request, Asker(0, "carol"))
    assert [event["text"] for event in cluster.events] == ["hysteresis is 0.25: carol has set it"]
    assert cluster.wake.telemetry.is_set()


def test_defaults_are_those_of_cluster_yaml() -> None:
    config = ClusterConfig.model_validate({"slots": 128, "hbspan_s": {"min": 1.0, "max": 2.0}})
    cluster = cluster_of({"A": FakeChannel()}, config)
    listed = {each["name"]: each for each in list_parameters(cluster)["parameters"]}
    assert listed["slots"]["value"] == listed["slots"]["default"] == 128
    assert listed["hbspan_min_s"]["default"] == 1.0 and listed["hbspan_max_s"]["value"] == 2.0


def test_all_constants_of_the_loop_are_parameters_but_one() -> None:
    known = set(PARAMETERS)
    assert {each.name for each in fields(LoopSettings)} - known == {"forget_after_s"}
