# SPDX-License-Identifier: Apache-2.0
"""The controller's parameters: their values, their ranges, and how they are changed while it runs.

A change lasts until the controller starts again. What shall last is in cluster.yaml.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.contract.answers import Parameters, ParameterSet, Value
from ri2n_sdn.contract.operations import Request
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.weights.loop import LoopSettings
from ri2n_sdn.weights.losses import LossSettings
from ri2n_sdn.weights.strategies import STRATEGIES

__all__ = ["PARAMETERS", "Parameter", "list_parameters", "parameter_values", "set_parameter"]


@dataclass(frozen=True)
class Parameter:
    """A parameter with a number from `low` to `high` or one of `choices` as its value.

    A parameter that is not `live` is changed in cluster.yaml alone. `kind` is the type of its
    value.
    """

    name: str
    about: str
    unit: str = ""
    low: float = 0.0
    high: float = 0.0
    kind: type = float
    choices: tuple[str, ...] = ()
    live: bool = True


PARAMETERS = {
    each.name: each
    for each in (
        Parameter(
            "strategy",
            "how weights are computed (docs/algorithms.md)",
            kind=str,
            choices=tuple(STRATEGIES),
        ),
        Parameter("slots", "slots per table", low=16, high=256, kind=int, live=False),
        Parameter(
            "hbspan_min_s", "the shortest time between two readings of the counters", "s", 0.1, 60.0
        ),
        Parameter(
            "hbspan_max_s", "the longest time between two readings of the counters", "s", 0.1, 60.0
        ),
        Parameter(
            "hbspan_idle_s",
            "the longest time between two readings while no pair is active",
            *("s", 0.1, 60.0),
        ),
        Parameter(
            "active_bps",
            "a pair that sends at this rate or more has a slot table of its own",
            *("bit/s", 1e3, 1e12),
        ),
        Parameter(
            "inactive_after_s",
            "a pair keeps its own slot table for this long after its traffic ends",
            *("s", 1.0, 3600.0),
        ),
        Parameter(
            "hysteresis",
            "shares that differ by less from those in force are not followed",
            high=0.5,
        ),
        Parameter(
            "settle_s",
            "after slots moved, the counters show the new shares only after this time",
            *("s", 0.0, 60.0),
        ),
        Parameter(
            "loss_min_part",
            "the smallest part of lost packets that is reported",
            low=0.001,
            high=1.0,
        ),
        Parameter("loss_window_s", "losses are judged over this time", "s", 5.0, 3600.0),
        Parameter(
            "loss_min_packets",
            "a path is judged when so many packets were sent over it in that time",
            low=10,
            high=1e9,
            kind=int,
        ),
        Parameter(
            "loss_max_load",
            "paths over links that carry more than this part of their rate are not judged",
            low=0.1,
            high=1.0,
        ),
    )
}
"""All parameters by name, in the order in which they are shown."""

# What begins the names of parameters by which losses are judged.
_OF_LOSSES = "loss_"
_KINDS: dict[type, Literal["choice", "integer", "number"]] = {
    str: "choice",
    int: "integer",
    float: "number",
}


def parameter_values(cluster: Cluster) -> dict[str, Value]:
    """The value of each parameter (cluster.lock is held)."""
    loop, losses = cluster.loop, cluster.measured.losses
    return _values(loop.strategy_name, loop.settings, losses.settings)


def list_parameters(cluster: Cluster) -> Parameters:
    """All parameters, with what a change needs to know."""
    with cluster.lock:
        values = parameter_values(cluster)
    config = cluster.config
    loop = LoopSettings(
        slots=config.slots, hbspan_min_s=config.hbspan_s.min, hbspan_max_s=config.hbspan_s.max
    )
    defaults = _values(cluster.strategy, loop, LossSettings())
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


def set_parameter(cluster: Cluster, request: Request, asker: Asker = ROOT) -> ParameterSet:
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
        if checked != parameter_values(cluster)[parameter.name]:
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


def _values(strategy: str, loop: LoopSettings, losses: LossSettings) -> dict[str, Value]:
    """The value of each parameter in these settings."""
    of_losses = {f"{_OF_LOSSES}{name}": value for name, value in asdict(losses).items()}
    settings = {**asdict(loop), **of_losses, "strategy": strategy}
    return {name: parameter.kind(settings[name]) for name, parameter in PARAMETERS.items()}


def _apply(cluster: Cluster, parameter: Parameter, value: Any) -> None:
    name, watch = parameter.name, cluster.measured.losses
    if name == "strategy":
        cluster.loop.set_strategy(value)
        return
    if name.startswith(_OF_LOSSES):
        watch.settings = replace(watch.settings, **{name.removeprefix(_OF_LOSSES): value})
        return
    settings = replace(cluster.loop.settings, **{name: value})
    low, high = settings.hbspan_min_s, settings.hbspan_max_s
    if low > high:
        raise refusal("parameter_span_crossed", name=name, low=low, high=high)
    cluster.loop.configure(settings)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
