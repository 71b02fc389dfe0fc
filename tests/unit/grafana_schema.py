# SPDX-License-Identifier: Apache-2.0
"""Grafana's schema of dashboards, taken strictly: unknown keys and wrong types are faults.

The classes of Grafana's SDK are generated from Grafana's own schemas. They say which keys there are
and of which types; but their `from_json` checks no type and drops unknown keys. So models of
pydantic are made from them. What these schemas leave open is not checked here: the options of
transformations, and how a data source reads the query of a variable.
"""

from __future__ import annotations

import json
import operator
import types
import typing
from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

__all__ = ["SCHEMA_VERSION", "faults"]

SCHEMA_VERSION = 41
"""The version of the model of dashboards that the SDK describes."""

_SDK = "grafana_foundation_sdk"
_STRICT = ConfigDict(extra="forbid", strict=True)
# What a field of a panel is called in an override: `unit` as in `defaults`, or `custom.width`.
_CUSTOM = "custom."


def faults(dashboard: Mapping[str, Any]) -> list[str]:
    """What is wrong with a dashboard, one line each, `PLACE: FAULT`; nothing when it is right."""
    found = _faults(_dashboard_model(), dashboard)
    for number, panel in enumerate(dashboard.get("panels", ())):
        kind = str(panel.get("type")) if isinstance(panel, dict) else ""
        if not found and kind in _kinds():
            found += [
                f"panels.{number}.fieldConfig.overrides.{place}"
                for place in _faults_of_overrides(kind, panel.get("fieldConfig") or {})
            ]
    return found


def _faults(model: type[BaseModel], document: object) -> list[str]:
    try:
        model.model_validate_json(json.dumps(document))
    except ValidationError as error:
        return [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
    return []


def _faults_of_overrides(kind: str, field_config: Mapping[str, Any]) -> list[str]:
    """Of each override, its properties are values of the same fields as the defaults have."""
    found = []
    for number, override in enumerate(field_config.get("overrides", ())):
        fields: dict[str, Any] = {}
        for each in override["properties"]:
            if each["id"].startswith(_CUSTOM):
                custom = fields.setdefault("custom", {})
                custom[each["id"].removeprefix(_CUSTOM)] = each.get("value")
            else:
                fields[each["id"]] = each.get("value")
        found += [f"{number}.{fault}" for fault in _faults(_field_model(kind), fields)]
    return found


# ---- the models


@cache
def _kinds() -> Mapping[str, Any]:
    """What the SDK knows of each kind of panel, by its name."""
    import_module(f"{_SDK}.cog.plugins").register_default_plugins()
    found: dict[str, Any] = import_module(f"{_SDK}.cog.runtime").Runtime().panelcfg_variants
    return found


@cache
def _query_class() -> type:
    """The class of queries to Prometheus; the dashboards have no others."""
    found: type = import_module(f"{_SDK}.models.prometheus").Dataquery
    return found


@cache
def _dashboard_model() -> Any:
    sdk = import_module(f"{_SDK}.models.dashboard")
    panels = [_panel_model(kind) for kind in _kinds()]
    panel: Any = Annotated[
        _any_of(*panels, _model(sdk.RowPanel)), Field(discriminator="f_type_val")
    ]
    return _model(sdk.Dashboard, panels=list[panel] | None)


@cache
def _panel_model(kind: str) -> Any:
    """The panels of one kind: the kind says what `options` and `custom` have."""
    sdk = import_module(f"{_SDK}.models.dashboard")
    hook = _kinds()[kind].options_from_json_hook
    return _model(
        sdk.Panel,
        type_val=Literal[kind],
        options=_model(hook.__self__) | None if hook is not None else None,
        field_config=_model(sdk.FieldConfigSource, defaults=_field_model(kind)) | None,
    )


@cache
def _field_model(kind: str) -> Any:
    """How panels of a kind show a field."""
    sdk = import_module(f"{_SDK}.models.dashboard")
    hook = _kinds()[kind].field_config_from_json_hook
    custom = _model(hook.__self__) | None if hook is not None else None
    return _model(sdk.FieldConfig, unit=Literal[_units()] | None, custom=custom)


def _units() -> tuple[str, ...]:
    """The units that Grafana knows by name."""
    sdk = import_module(f"{_SDK}.models.units")
    return tuple(
        value
        for name, value in vars(sdk).items()
        if isinstance(value, str) and not name.startswith("_")
    )


# The models by class. That of a class which is being made is any map: a class that has itself as a
# part, as the folders of a canvas, is not followed any further.
_MADE: dict[type, Any] = {}


def _model(of: type, **replaced: Any) -> Any:
    """The model of a class of the SDK. `replaced` gives attributes another type than it says."""
    if not replaced:
        if of in _MADE:
            return _MADE[of]
        _MADE[of] = dict[str, Any]
    fields: dict[str, Any] = {}
    for key, (attribute, hint, fixed) in _fields(of).items():
        if attribute in replaced:
            hint = replaced[attribute]
        elif fixed is not None:
            hint = Literal[fixed]
        else:
            hint = _translated(hint)
        optional = type(None) in typing.get_args(hint) or hint is None
        fields[f"f_{attribute}"] = (hint, Field(None if optional else ..., alias=key))
    made = create_model(of.__name__, __config__=_STRICT, **fields)
    if not replaced:
        _MADE[of] = made
    return made


def _fields(of: Any) -> dict[str, tuple[str, Any, str | None]]:
    """By key in JSON: (attribute of a class, its type, its value where it is always the same).

    Only the class's own code knows which attribute becomes which key. So an object is made whose
    attributes are marks, and the keys are found by them.
    """
    hints = typing.get_type_hints(of)
    parameters = of.__init__.__code__.co_varnames[: of.__init__.__code__.co_argcount]
    usual, marked = of(), of.__new__(of)
    marks = {name: object() for name in hints}
    for name, mark in marks.items():
        setattr(marked, name, mark)
    names = {id(mark): name for name, mark in marks.items()}
    found = {key: names[id(value)] for key, value in marked.to_json().items()}
    assert sorted(found.values()) == sorted(hints), f"{of.__name__} has attributes without a key"
    return {
        key: (name, hints[name], None if name in parameters else str(getattr(usual, name)))
        for key, name in found.items()
    }


def _any_of(*hints: Any) -> Any:
    return reduce(operator.or_, hints)


def _translated(hint: Any) -> Any:
    """A type of the SDK with models in place of its classes."""
    arguments = tuple(_translated(each) for each in typing.get_args(hint))
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _any_of(*arguments)
    if origin in (list, dict):
        return origin[arguments]
    if hint is object:
        return Any
    if hint is import_module(f"{_SDK}.cog.variants").Dataquery:
        return _model(_query_class())
    return _model(hint) if hasattr(hint, "to_json") else hint
