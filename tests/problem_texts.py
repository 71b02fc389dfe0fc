# SPDX-License-Identifier: Apache-2.0
"""The problems that `ri2n status` tells of, as their texts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.problems import problems_of

__all__ = ["problem_texts"]


def problem_texts(of: Cluster | Mapping[str, Any]) -> list[str]:
    """Of a cluster, or of an answer to `status`; the worst first."""
    if isinstance(of, Cluster):
        return [problem.text for problem in problems_of(of)]
    return [problem["text"] for problem in of["problems"]]
