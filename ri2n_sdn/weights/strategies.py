# SPDX-License-Identifier: Apache-2.0
"""The weight strategies by name.

All of them have the same signature: `weights(sample, previous) -> Weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.weights import max_min, ri2n_plus, ri2n_plus_plus, round_robin
from ri2n_sdn.weights.sample import TrafficSample, Weights

__all__ = ["STRATEGIES", "Strategy", "strategy"]

Strategy: TypeAlias = Callable[[TrafficSample, FloatArray], Weights]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "round_robin": round_robin.weights,
        "ri2n_plus": ri2n_plus.weights,
        "ri2n_plus_plus": ri2n_plus_plus.weights,
        "max_min": max_min.weights,
    }
)


def strategy(name: str) -> Strategy:
    """The strategy called `name`. For an unknown name it raises BadInput, which lists all names."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise refusal("strategy_unknown", name=name, choices=list(STRATEGIES)) from None
