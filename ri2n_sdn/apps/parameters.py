# SPDX-License-Identifier: Apache-2.0
"""The controller's parameters: their values, their ranges, and how they are changed while it runs.

A change lasts until the controller starts again. What shall last is in cluster.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.contract import operations
from ri2n_sdn.contract.operations import ParameterSet, Value
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.weights.loop import LoopSettings
from ri2n_sdn.weights.losses import LossSettings
from ri2n_sdn.weights.strategies import STRATEGIES

__all__ = ["PARAMETERS", "Parameter", "list_parameters", "parameter_values", "set_parameter"]


@dataclass(frozen=True)
class Parameter:
    """A parameter with a number or one of `choices` as its value.

    `where` is the object that holds it, and `field` its name there. A parameter that is not `live`
    is changed in cluster.yaml alone. `kind` is the type of its value.
    """

    name: str
    about: str
    where: str = "loop"
    field: str = ""
    unit: str = ""
    kind: type = float
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    live: bool = True


_S = "s"
PARAMETERS = {
    each.name: each
    for each in (
        Parameter(
            *("strategy", "how weights are computed (docs/algorithms.md)"),
            kind=str,
            choices=tuple(STRATEGIES),
        ),
        Parameter(
            *("slots", "slots per table", "loop", "slots"),
            kind=int,
            low=16,
            high=256,
            live=False,
        ),
        Parameter(
            "hbspan_min_s",
            "the shortest time between two readings of the counters",
            *("loop", "hbspan_min_s", _S),
            low=0.1,
            high=60.0,
        ),
        Parameter(
            "hbspan_max_s",
            "the longest time between two readings of the counters",
            *("loop", "hbspan_max_s", _S),
            low=0.1,
            high=60.0,
        ),
        Parameter(
            "hbspan_idle_s",
            "the longest time between two readings while no pair is active",
            *("loop", "hbspan_idle_s", _S),
            low=0.1,
            high=60.0,
        ),
        Parameter(
            "active_bps",
            "a pair that sends at this rate or more has a slot table of its own",
            *("loop", "active_bps", "bit/s"),
            low=1e3,
            high=1e12,
        ),
        Parameter(
            "inactive_after_s",
            "a pair keeps its own slot table for this long after its traffic ends",
            *("loop", "inactive_after_s", _S),
            low=1.0,
            high=3600.0,
        ),
        Parameter(
            "hysteresis",
            "shares that differ by less from those in force are not followed",
            *("loop", "hysteresis"),
            low=0.0,
            high=0.5,
        ),
        Parameter(
            "settle_s",
            "after slots moved, the counters show the new shares only after this time",
            *("loop", "settle_s", _S),
            low=0.0,
            high=60.0,
        ),
        Parameter(
            "loss_min_part",
            "the smallest part of lost packets that is reported",
            *("losses", "min_part"),
            low=0.001,
            high=1.0,
        ),
        Parameter(
            "loss_window_s",
            "losses are judged over this time",
            *("losses", "window_s", _S),
            low=5.0,
            high=3600.0,
        ),
        Parameter(
            "loss_min_packets",
            "a path is judged when so many packets were sent over it in that time",
            *("losses", "min_packets"),
            kind=int,
            low=10,
            high=1e9,
        ),
        Parameter(
            "loss_max_load",
            "paths over links that carry more than this part of their rate are not judged",
            *("losses", "max_load"),
            low=0.1,
            high=1.0,
        ),
    )
}
"""All parameters by name, in the order in which they are shown."""

_KINDS: dict[type, Literal["choice", "integer", "number"]] = {
    str: "choice",
    int: "integer",
    float: "number",
}


def parameter_values(cluster: Cluster) -> dict[str, Value]:
    """The value of each parameter (cluster.lock is held)."""
    return {name: _value(cluster, parameter) for name, parameter in PARAMETERS.items()}


def list_parameters(cluster: Cluster) -> operations.Parameters:
    """All parameters, with what a change needs to know."""
    with cluster.lock:
        values = parameter_values(cluster)
    defaults = {"strategy": cluster.strategy, **_configured(cluster)}
    return {
        "parameters": [
            {
                "name": name,
                "value": values[name],
                "default": defaults[name],
                "kind": _KINDS[parameter.kind],
                "unit": parameter.unit,
                "min": None if parameter.choices else parameter.kind(parameter.low),
                "max": None if parameter.choices else parameter.kind(parameter.high),
                "choices": list(parameter.choices),
                "live": parameter.live,
                "about": parameter.about,
            }
            for name, parameter in PARAMETERS.items()
        ]
    }


def set_parameter(cluster: Cluster, request: dict[str, Any], asker: Asker = ROOT) -> ParameterSet:
    """Change a parameter from the next round on, and tell operators who did it.

    `request` has `name` and `value`. Raises BadInput, and then changes nothing, when one of them is
    wrong.
    """
    name, value = request.get("name"), request.get("value")
    parameter = PARAMETERS.get(name) if isinstance(name, str) else None
    if parameter is None:
        raise refusal("not_one_of", "name", choices=list(PARAMETERS))
    if not parameter.live:
        raise refusal("parameter_not_live", name=name)
    checked = _checked(parameter, value)
    with cluster.lock:
        if checked != _value(cluster, parameter):
            _apply(cluster, parameter, checked)
            said = {"by": asker.name} if asker != ROOT else {}
            code = "parameter_set_by" if said else "parameter_set"
            cluster.note(code, {}, parameter=parameter.name, value=_shown(checked), **said)
    cluster.wake.telemetry.set()
    return {"name": parameter.name, "value": checked}


def _checked(parameter: Parameter, value: object) -> Any:
    """A new value in the parameter's own type. Raises BadInput."""
    if parameter.choices:
        if value not in parameter.choices:
            raise refusal(
                "parameter_unknown_choice",
                parameter.name,
                value=shown(value),
                choices=list(parameter.choices),
            )
        return value
    types: tuple[type, ...] = (int,) if parameter.kind is int else (int, float)
    low, high = parameter.kind(parameter.low), parameter.kind(parameter.high)
    if type(value) not in types or not low <= value <= high:
        code = "parameter_not_whole" if parameter.kind is int else "parameter_not_number"
        unit = f" {parameter.unit}" if parameter.unit else ""
        raise refusal(code, parameter.name, low=low, high=high, unit=unit)
    return parameter.kind(value)


def _value(cluster: Cluster, parameter: Parameter) -> Any:
    if parameter.name == "strategy":
        return cluster.loop.strategy_name
    return parameter.kind(getattr(_SETTINGS[parameter.where](cluster), parameter.field))


def _apply(cluster: Cluster, parameter: Parameter, value: Any) -> None:
    if parameter.name == "strategy":
        cluster.loop.set_strategy(value)
        return
    if parameter.where == "losses":
        watch = cluster.measured.losses
        watch.settings = replace(watch.settings, **{parameter.field: value})
        return
    settings = replace(cluster.loop.settings, **{parameter.field: value})
    if settings.hbspan_min_s > settings.hbspan_max_s:
        raise refusal(
            "parameter_span_crossed",
            name=parameter.name,
            low=settings.hbspan_min_s,
            high=settings.hbspan_max_s,
        )
    cluster.loop.configure(settings)


_SETTINGS: dict[str, Callable[[Cluster], LoopSettings | LossSettings]] = {
    "loop": lambda cluster: cluster.loop.settings,
    "losses": lambda cluster: cluster.measured.losses.settings,
}


def _configured(cluster: Cluster) -> dict[str, Any]:
    """The values that a start gives the parameters."""
    config = cluster.config
    of_file = {
        "slots": config.slots,
        "hbspan_min_s": config.hbspan_s.min,
        "hbspan_max_s": config.hbspan_s.max,
    }
    made: dict[str, Any] = {"loop": LoopSettings(), "losses": LossSettings()}
    return {
        name: parameter.kind(
            of_file[name] if name in of_file else getattr(made[parameter.where], parameter.field)
        )
        for name, parameter in PARAMETERS.items()
        if parameter.field
    }


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
