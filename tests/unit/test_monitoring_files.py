# SPDX-License-Identifier: Apache-2.0
"""The rules for Prometheus are whole, and name metrics that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from ri2n_lab.manual import runbooks
from ri2n_sdn.cli.web import DEFAULT_LISTEN
from ri2n_sdn.contract.metrics import FAMILIES
from ri2n_sdn.web.manual import PATH
from tests.unit.monitoring_files import (
    DASHBOARDS,
    PROMETHEUS,
    REPOSITORY,
    SUFFIXES,
    dashboard,
    expressions_of_panels,
    known_names,
    metrics_in,
    rules,
)

ALERTS = [rule for rule in rules() if "alert" in rule]


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
    page, _, anchor = notes["runbook_url"].partition("#")
    assert page == f"{runbooks.DOCS_URL}alerts.html"
    text = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8")
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


def test_one_setting_leads_all_alerts_to_the_documentation() -> None:
    """What the files have is what the tool writes, with its default and with any address."""
    links = 0
    for name in runbooks.FILES:
        text = (PROMETHEUS / name).read_text(encoding="utf-8")
        assert runbooks.with_docs(text, runbooks.DOCS_URL) == text
        other = runbooks.with_docs(text, "https://ri2n.example.org/manual")
        links += other.count("runbook_url: https://ri2n.example.org/manual/alerts.html#")
        assert runbooks.DOCS_URL not in other
        assert runbooks.with_docs(other, runbooks.DOCS_URL) == text
    assert links >= 2 * sum("alert" in rule for rule in rules())


def test_the_address_in_the_rules_is_where_the_web_process_serves_the_documentation() -> None:
    assert f"http://{DEFAULT_LISTEN}{PATH}/" == runbooks.DOCS_URL
    mkdocs = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert "use_directory_urls: false" in mkdocs  # so a page ends with .html


def test_dashboards_show_rates_in_bits() -> None:
    """As the commands and the GUI do."""
    shown = 0
    for path in DASHBOARDS:
        text = path.read_text(encoding="utf-8")
        assert '"Bps"' not in text, path.name
        for panel in dashboard(path)["panels"]:
            if panel.get("fieldConfig", {}).get("defaults", {}).get("unit") == "bps":
                shown += 1
                assert all("8 * " in each["expr"] for each in panel["targets"])
    assert shown >= 4
