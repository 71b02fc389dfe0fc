# SPDX-License-Identifier: Apache-2.0
"""The dashboards follow Grafana's own schema, and show metrics that there are."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.grafana_schema import SCHEMA_VERSION, faults
from tests.unit.monitoring_files import (
    DASHBOARDS,
    dashboard,
    expressions_of_panels,
    known_names,
    metrics_in,
)

# Grafana's SDK, which knows the schema, needs Python 3.11.
needs_sdk = pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's SDK: Python >= 3.11")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Document = dict[str, Any]


def stem(path: Path) -> str:
    return path.stem


def test_there_are_the_four_dashboards() -> None:
    assert [path.stem for path in DASHBOARDS] == ["control-plane", "host", "jobs", "overview"]
    assert len({dashboard(path)["uid"] for path in DASHBOARDS}) == 4


# ---- Grafana's schema


@needs_sdk
@pytest.mark.parametrize("path", DASHBOARDS, ids=stem)
def test_a_dashboard_follows_the_schema_of_grafana(path: Path) -> None:
    assert faults(dashboard(path)) == []


def setting(*place: str | int, to: object) -> Callable[[Document], None]:
    """Sets one value of a dashboard."""

    def change(document: Document) -> None:
        part: Any = document
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = to

    return change


def without(*place: str | int) -> Callable[[Document], None]:
    """Removes one key of a dashboard."""

    def change(document: Document) -> None:
        part: Any = document
        for key in place[:-1]:
            part = part[key]
        del part[place[-1]]

    return change


def override(name: str, value: object) -> Callable[[Document], None]:
    """Gives the first panel with curves an override."""
    matcher = {"id": "byName", "options": "x"}
    properties = [{"id": name, "value": value}]

    def change(document: Document) -> None:
        panel = next(each for each in document["panels"] if each["type"] == "timeseries")
        panel["fieldConfig"]["overrides"] = [{"matcher": matcher, "properties": properties}]

    return change


# Of the overview, panel 0 is a number, and panel 6 has curves.
NUMBER, CURVES = ("panels", 0), ("panels", 6)
CUSTOM = (*CURVES, "fieldConfig", "defaults", "custom")
MISTAKES: dict[str, tuple[Callable[[Document], None], str]] = {
    "a key of the dashboard": (setting("refreshs", to="5s"), "refreshs: Extra inputs"),
    "a type of the dashboard": (setting("refresh", to=5), "refresh: Input should be a valid str"),
    "text for a number": (setting("schemaVersion", to="39"), "schemaVersion: Input should be a"),
    "a number of a list": (setting("graphTooltip", to=7), "graphTooltip: Input should be 0, 1 or"),
    "a missing key": (without("annotations"), "annotations: Field required"),
    "a key of the times": (setting("time", "till", to="now"), "time.till: Extra inputs"),
    "a kind of panel": (setting(*NUMBER, "type", to="speedometer"), "Input tag 'speedometer'"),
    "no kind of panel": (without(*NUMBER, "type"), "panels.0: Unable to extract tag"),
    "a key of a panel": (setting(*NUMBER, "titel", to="x"), "panels.0.stat.titel: Extra inputs"),
    "a place": (setting(*NUMBER, "gridPos", "w", to=4.5), "panels.0.stat.gridPos.w: Input should"),
    "an option": (
        setting(*NUMBER, "options", "colourMode", to="value"),
        "panels.0.stat.options.colourMode: Extra inputs",
    ),
    "an option of another kind": (
        setting(*CURVES, "options", "textMode", to="auto"),
        "panels.6.timeseries.options.textMode: Extra inputs",
    ),
    "the value of an option": (
        setting(*NUMBER, "options", "colorMode", to="rainbow"),
        "panels.0.stat.options.colorMode: Input should be",
    ),
    "a missing option": (
        without(*CURVES, "options", "legend", "placement"),
        "panels.6.timeseries.options.legend.placement: Field required",
    ),
    "a unit": (
        setting(*NUMBER, "fieldConfig", "defaults", "unit", to="Bsp"),
        "panels.0.stat.fieldConfig.defaults.unit: Input should be",
    ),
    "a color": (
        setting(*NUMBER, "fieldConfig", "defaults", "color", to={"mode": "threshold"}),
        "panels.0.stat.fieldConfig.defaults.color.mode: Input should be",
    ),
    "how curves are drawn": (
        setting(*CUSTOM, "drawStyle", to="lines"),
        "panels.6.timeseries.fieldConfig.defaults.custom.drawStyle: Input should be",
    ),
    "a key of how curves are drawn": (
        setting(*CUSTOM, "linewidth", to=1),
        "panels.6.timeseries.fieldConfig.defaults.custom.linewidth: Extra inputs",
    ),
    "a key of a query": (
        setting(*NUMBER, "targets", 0, "legend", to=""),
        "panels.0.stat.targets.0.legend: Extra inputs",
    ),
    "a flag of a query": (
        setting(*NUMBER, "targets", 0, "instant", to="yes"),
        "panels.0.stat.targets.0.instant: Input should be a valid bool",
    ),
    "a threshold": (
        setting(*NUMBER, "fieldConfig", "defaults", "thresholds", "steps", 1, "value", to="1"),
        "steps.1.value: Input should be a valid number",
    ),
    "a mapping": (
        setting(*NUMBER, "fieldConfig", "defaults", "mappings", 0, "type", to="exact"),
        "panels.0.stat.fieldConfig.defaults.mappings.0",
    ),
    "a kind of variable": (
        setting("templating", "list", 1, "type", to="list"),
        "templating.list.1.type: Input should be",
    ),
    "an override's name": (override("custom.linewidth", 2), "0.custom.linewidth: Extra inputs"),
    "an override's value": (override("unit", "Bsp"), "0.unit: Input should be"),
}


@needs_sdk
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_dashboard_is_found_where_it_is(name: str) -> None:
    change, expected = MISTAKES[name]
    (overview,) = (path for path in DASHBOARDS if path.stem == "overview")
    document = copy.deepcopy(dashboard(overview))
    change(document)
    found = faults(document)
    assert [fault for fault in found if expected in fault], found


@needs_sdk
def test_an_override_that_is_right_is_no_fault() -> None:
    document = dashboard(DASHBOARDS[-1])
    for name, value in (("unit", "Bps"), ("custom.lineWidth", 2), ("displayName", "x")):
        override(name, value)(document)
        assert faults(document) == []


# ---- what the schema says nothing about


@pytest.mark.parametrize("path", DASHBOARDS, ids=stem)
def test_a_dashboard_can_be_imported_into_any_grafana(path: Path) -> None:
    """It has no number of its own, and uses the data source that its variable names."""
    found = dashboard(path)
    assert found["id"] is None and re.fullmatch(r"[a-z0-9-]{8,40}", found["uid"])
    assert found["title"] and found["description"]
    assert 36 <= found["schemaVersion"] <= SCHEMA_VERSION
    numbers = [panel["id"] for panel in found["panels"]]
    assert len(set(numbers)) == len(numbers) > 0 and min(numbers) > 0
    for panel in found["panels"]:
        assert panel["title"] and panel["description"], panel
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names) > 0, panel["title"]
        for source in (panel["datasource"], *(each["datasource"] for each in panel["targets"])):
            assert source == SOURCE, panel["title"]
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        assert all(step["value"] is None for step in steps[:1]), panel["title"]
        values = [step["value"] for step in steps[1:]]
        assert all(one < other for one, other in pairwise(values)), panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=stem)
def test_panels_have_places_that_do_not_overlap(path: Path) -> None:
    places = [panel["gridPos"] for panel in dashboard(path)["panels"]]
    for place in places:
        assert place["x"] >= 0 and place["w"] > 0 and place["x"] + place["w"] <= 24, place
        assert place["y"] >= 0 and place["h"] > 0, place
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@pytest.mark.parametrize("path", DASHBOARDS, ids=stem)
def test_the_variables_of_a_dashboard_are_declared_and_used(path: Path) -> None:
    found = dashboard(path)
    variables = {each["name"]: each for each in found["templating"]["list"]}
    source = variables.pop("datasource")
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    text = " ".join(target["expr"] for panel in found["panels"] for target in panel["targets"])
    used = set(re.findall(r"\$(\w+)", text)) - {"__rate_interval"}
    assert used == set(variables)
    for name, variable in variables.items():
        assert variable["type"] == "query" and variable["datasource"]["uid"] == "${datasource}"
        metric = re.match(r"label_values\((\w+)", variable["query"]["query"])
        assert metric and metric[1] in known_names(), name


@pytest.mark.parametrize("path", DASHBOARDS, ids=stem)
def test_a_dashboard_names_metrics_that_there_are(path: Path) -> None:
    for title, expression in expressions_of_panels(path):
        named = metrics_in(expression)
        assert named and named <= known_names(), (title, named - known_names())
