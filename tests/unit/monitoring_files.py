# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/prometheus and deploy/grafana, and the expressions in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ri2n_sdn.contract.metrics import FAMILIES

__all__ = [
    "DASHBOARDS",
    "PROMETHEUS",
    "REPOSITORY",
    "RULES",
    "SUFFIXES",
    "dashboard",
    "expressions_of_panels",
    "known_names",
    "metrics_in",
    "rules",
]

REPOSITORY = Path(__file__).parents[2]
PROMETHEUS = REPOSITORY / "deploy" / "prometheus"
RULES = PROMETHEUS / "ri2n-rules.yaml"
DASHBOARDS = sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))

# What the name of a family gets in the names of its series.
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "info": (), "gauge": (), "counter": ()}
# What Grafana puts in place of the variables of a dashboard.
_VARIABLES = {"$instance": ".*", "$host": ".*", "$__rate_interval": "1m"}


def dashboard(path: Path) -> dict[str, Any]:
    """One dashboard."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@cache
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


@cache
def known_names() -> set[str]:
    """All names of series that Prometheus can have: of /metrics, of hosts, of its own."""
    script = (REPOSITORY / "ovs-host-scripts" / "host-metrics").read_text(encoding="utf-8")
    names = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
    names |= {rule["record"] for rule in rules() if "record" in rule}
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
