"""The files of deploy/prometheus and deploy/grafana, and the expressions in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = ["DASHBOARDS", "PROMETHEUS", "RULES", "dashboard", "expressions_of_panels", "rules"]

REPOSITORY = Path(__file__).parents[2]
PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
RULES = PROMETHEUS / "ri2n-rules.yaml"
DASHBOARDS = sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))

# What Grafana puts in place of the variables of a dashboard.
_VARIABLES = {"$instance": ".*", "$host": ".*", "$__rate_interval": "1m"}


def dashboard(path: Path) -> dict[str, Any]:
    """One dashboard."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    """All recording and alert rules."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions_of_panels(path: Path) -> Iterator[tuple[str, str]]:
    """(title of the panel, expression without variables) of each target of a dashboard."""
    for panel in dashboard(path)["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in _VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in re.sub(r'"[^"]*"', "", expression), expression
            yield panel["title"], expression
