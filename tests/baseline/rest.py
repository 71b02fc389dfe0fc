# SPDX-License-Identifier: Apache-2.0
"""The documents of the web process that others rely on: openapi.json, and names of metrics."""

from __future__ import annotations

from ri2n_sdn.contract.metrics import FAMILIES
from ri2n_sdn.web.metrics import families
from ri2n_sdn.web.rest import openapi as document
from tests.baseline.text import pretty
from tests.unit.metrics_state import full_state, own

__all__ = ["metrics", "openapi"]


def openapi() -> str:
    """The document of the REST application, its keys in order."""
    return pretty(document()) + "\n"


def metrics() -> str:
    """The families in their order, and the samples of a state that has something of everything."""
    lines = [
        f"{family.full_name} {family.kind} {{{', '.join(family.labels)}}}"
        f"{' web' * family.web}{' charge' * family.charge}\n"
        for family in FAMILIES
    ]
    lines.append("\n")
    for metric in families(full_state(), own()):
        shown = {
            f"{sample.name}{{{', '.join(f'{k}={v}' for k, v in sample.labels.items())}}}\n"
            for sample in metric.samples
        }
        lines += sorted(shown)
    return "".join(lines)
