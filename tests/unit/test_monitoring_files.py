"""The rules for Prometheus and the dashboards for Grafana are whole, and name what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from ri2n_sdn.web.metric_families import FAMILIES
from tests.unit.monitoring_files import (
    DASHBOARDS,
    PROMETHEUS,
    REPOSITORY,
    dashboard,
    expressions_of_panels,
    rules,
)

ALERTS = [rule for rule in rules() if "alert" in rule]
RECORDED = {rule["record"] for rule in rules() if "record" in rule}
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "info": (), "gauge": (), "counter": ()}
# Grafana's names of units, of those that are used here.
UNITS = {
    *("none", "short", "Bps", "bytes", "s", "percentunit", "ops", "pps", "mps"),
    *("dateTimeAsIso", "dateTimeFromNow"),
}


def known_names() -> set[str]:
    """All names of series that Prometheus can have: of /metrics, of hosts, of its own."""
    script = (REPOSITORY / "ovs-host-scripts" / "host-metrics").read_text(encoding="utf-8")
    names = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes", *RECORDED}
    names |= set(re.findall(r"\bri2n_node_\w+", script))
    for family in FAMILIES:
        names |= {family.full_name, *(family.name + each for each in SUFFIXES[family.kind])}
    return names


def metrics_in(expression: str) -> set[str]:
    """The names of series in an expression; labels and functions are left out."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", "", bare)
    return {
        word
        for word in re.findall(r"[a-zA-Z_:][\w:]*(?!\s*\()\b", bare)
        if word.startswith(("ri2n", "process_", "up")) or ":" in word
    }


# ---- Prometheus


def promtool(*arguments: str) -> None:
    assert shutil.which("promtool"), "promtool is missing: run `./dev setup`"
    done = subprocess.run(
        ["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


def test_each_alert_fires_when_it_should_and_not_otherwise() -> None:
    promtool("test", "rules", "ri2n-rules-test.yaml")
    tests = yaml.safe_load((PROMETHEUS / "ri2n-rules-test.yaml").read_text("utf-8"))["tests"]
    fires, quiet = set[str](), set[str]()
    for test in tests:
        for each in test.get("alert_rule_test", ()):
            (fires if each["exp_alerts"] else quiet).add(each["alertname"])
    names = {alert["alert"] for alert in ALERTS}
    assert fires == quiet == names, "each alert needs a test of both"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_is_wrong_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert len(notes["summary"]) < 100 and len(notes["description"]) > 40
    file, _, anchor = notes["runbook_url"].partition("#")
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    assert anchor in {title.lower() for title in re.findall(r"^## (\w+)$", text, flags=re.M)}
    section = text.partition(f"## {alert['alert']}\n")[2].partition("\n## ")[0]
    assert alert["expr"] in section and f"`{alert['labels']['severity']}`" in section


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_metrics_that_there_are(rule: dict[str, Any]) -> None:
    named = metrics_in(rule["expr"])
    assert named and named <= known_names(), named - known_names()


def test_names_of_metrics_are_found_in_expressions() -> None:
    expression = (
        'sum by (host) (rate(ri2n_a_total{host=~"x ri2n_no"}[5m])) / on (ri2n_label) a:ri2n_b:c'
    )
    assert metrics_in(expression) == {"ri2n_a_total", "a:ri2n_b:c"}


# ---- Grafana
#
# The required keys and their values are those of Grafana's dashboard kind (the classic model, which
# Grafana 9 to 13 import): docs/sources/developers/kinds/core/dashboard/schema-reference.md there.


class Model(BaseModel):
    """A part of a dashboard; keys that are not listed are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Source(Model):
    """A data source. Only the variable is used, so a dashboard fits every Grafana."""

    type: Literal["prometheus"]
    uid: Literal["${datasource}"]


class Position(Model):
    """The place of a panel in a grid of 24 columns."""

    x: Annotated[int, Field(ge=0, lt=24)]
    y: Annotated[int, Field(ge=0)]
    w: Annotated[int, Field(gt=0, le=24)]
    h: Annotated[int, Field(gt=0)]


class Target(Model):
    """One query of a panel."""

    refId: Annotated[str, Field(pattern="^[A-Z]$")]
    datasource: Source
    editorMode: Literal["code"]
    expr: Annotated[str, Field(min_length=1)]
    legendFormat: str
    range: bool
    instant: bool = False
    format: Literal["table"] | None = None


class Threshold(Model):
    """From `value` on, the value has this color; None: the first one."""

    color: Literal["green", "orange", "red"]
    value: float | int | None


class Thresholds(Model):
    """All thresholds."""

    mode: Literal["absolute"]
    steps: Annotated[list[Threshold], Field(min_length=1)]


class Defaults(Model):
    """How a panel shows its values."""

    unit: str
    min: int | None = None
    max: int | None = None
    color: dict[str, str] | None = None
    custom: dict[str, Any] | None = None
    mappings: list[dict[str, Any]] = Field(default_factory=list)
    thresholds: Thresholds | None = None


class FieldConfig(Model):
    """How a panel shows its values, and exceptions to it."""

    defaults: Defaults
    overrides: list[dict[str, Any]]


class Panel(Model):
    """One panel."""

    id: Annotated[int, Field(gt=0)]
    type: Literal["timeseries", "stat", "table"]
    title: Annotated[str, Field(min_length=1)]
    description: Annotated[str, Field(min_length=1)]
    gridPos: Position
    datasource: Source
    targets: Annotated[list[Target], Field(min_length=1)]
    fieldConfig: FieldConfig
    options: dict[str, Any]
    transformations: list[dict[str, Any]] = Field(default_factory=list)


class Templating(Model):
    """The variables."""

    list: list[dict[str, Any]]


class Dashboard(Model):
    """A whole dashboard."""

    id: None
    uid: Annotated[str, Field(min_length=8, max_length=40, pattern="^[a-z0-9-]+$")]
    title: Annotated[str, Field(min_length=1)]
    description: Annotated[str, Field(min_length=1)]
    tags: list[str]
    timezone: str
    editable: bool
    graphTooltip: Annotated[int, Field(ge=0, le=2)]
    schemaVersion: Annotated[int, Field(ge=36, le=41)]
    version: int
    fiscalYearStartMonth: Annotated[int, Field(ge=0, le=11)]
    weekStart: str
    refresh: str
    time: dict[Literal["from", "to"], str]
    timepicker: dict[str, Any]
    templating: Templating
    annotations: dict[Literal["list"], list[dict[str, Any]]]
    links: list[dict[str, Any]]
    panels: Annotated[list[Panel], Field(min_length=1)]


def each(path: Path) -> str:
    return path.stem


def test_there_are_the_four_dashboards() -> None:
    assert [path.stem for path in DASHBOARDS] == ["control-plane", "host", "jobs", "overview"]
    assert len({dashboard(path)["uid"] for path in DASHBOARDS}) == 4


@pytest.mark.parametrize("path", DASHBOARDS, ids=each)
def test_a_dashboard_has_the_form_that_grafana_imports(path: Path) -> None:
    found = Dashboard.model_validate_json(path.read_text(encoding="utf-8"))
    assert len({panel.id for panel in found.panels}) == len(found.panels)
    for panel in found.panels:
        assert panel.gridPos.x + panel.gridPos.w <= 24, panel.title
        assert panel.fieldConfig.defaults.unit in UNITS, panel.title
        assert len({target.refId for target in panel.targets}) == len(panel.targets)
    for one, other in combinations((panel.gridPos for panel in found.panels), 2):
        apart = (
            one.x + one.w <= other.x
            or other.x + other.w <= one.x
            or one.y + one.h <= other.y
            or other.y + other.h <= one.y
        )
        assert apart, (one, other)


@pytest.mark.parametrize("path", DASHBOARDS, ids=each)
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


@pytest.mark.parametrize("path", DASHBOARDS, ids=each)
def test_a_dashboard_names_metrics_that_there_are(path: Path) -> None:
    for title, expression in expressions_of_panels(path):
        named = metrics_in(expression)
        assert named and named <= known_names(), (title, named - known_names())


def test_every_family_is_on_a_dashboard_or_in_a_rule() -> None:
    expressions = [rule["expr"] for rule in rules()]
    expressions += [text for path in DASHBOARDS for _, text in expressions_of_panels(path)]
    shown = set().union(*map(metrics_in, expressions))
    missing = {
        family.full_name
        for family in FAMILIES
        if not shown & {family.full_name, *(family.name + end for end in SUFFIXES[family.kind])}
    }
    assert missing <= {
        "ri2n_cable_speed_bytes_per_second",
        "ri2n_connection_changed_timestamp_seconds",
        "ri2n_store_epoch",
        "ri2n_store_info",
    }
