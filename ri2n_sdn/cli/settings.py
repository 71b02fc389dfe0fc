# SPDX-License-Identifier: Apache-2.0
"""`ri2n strategy`, `ri2n config ls` and `ri2n config set`: settings of a controller that runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ri2n_sdn.cli.common import print_answer
from ri2n_sdn.cli.labs import Asked
from ri2n_sdn.client import call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.contract.choices import STRATEGIES, one_of

if TYPE_CHECKING:
    from ri2n_sdn.contract.answers import Parameter, Value

__all__ = ["list_settings", "set_setting", "strategy"]

_STRATEGY = "strategy"


def strategy(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"One of {', '.join(STRATEGIES)}.")
    ] = None,
    *,
    at: Asked,
) -> None:
    """Show how weights are computed, or change it.

    Without NAME, the strategy in use is marked. With NAME, the controller computes weights by that
    strategy from its next round on, until it starts again. The strategy after a start is that of
    cluster.yaml or of the controller's option `--strategy`.
    """
    if name is not None:
        set_setting(_STRATEGY, one_of(name, STRATEGIES, "NAME"), at)
        return
    listed = call(at.path, ops.PARAMETERS)["parameters"]
    found = next(each for each in listed if each["name"] == _STRATEGY)
    marked = [f"{'*' if one == found['value'] else ' '} {one}" for one in found["choices"]]
    print_answer(found, "\n".join(marked), at.as_json)


def list_settings(at: Asked) -> None:
    """Show the settings of the controller that runs: values, limits, and what they are for."""
    listed = call(at.path, ops.PARAMETERS)["parameters"]
    # No table: five columns, two of them with sentences, fit no terminal.
    print_answer(listed, "\n".join(map(_described, listed)), at.as_json)


def set_setting(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As `ri2n config ls` shows it.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="A number or a word.")],
    at: Asked,
) -> None:
    """Change a setting of the controller that runs, until it starts again.

    What shall last belongs into cluster.yaml.
    """
    answer = call(at.path, ops.PARAMETERS_SET, name=key, value=_typed(value))
    print_answer(
        answer,
        f"{answer['name']} is {_shown(answer['value'])} until the controller starts again",
        at.as_json,
    )


def _typed(text: str) -> Value:
    """A number where the text is one. The controller refuses what does not fit the setting."""
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return value if type(value) in (int, float) else text


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _described(row: Parameter) -> str:
    """Two lines: a setting with its value and limits, and what it is."""
    low, high = row["min"], row["max"]
    limits = ", ".join(row["choices"])
    if low is not None and high is not None:
        limits = f"{low:g} to {high:g}"
    value = f"{_shown(row['value'])} {row['unit']}".strip()
    if row["default"] != row["value"]:
        limits += f"; {_shown(row['default'])} at the start"
    about = row["about"] + ("" if row["live"] else "; only cluster.yaml changes it")
    return f"{row['name']}: {value}  ({limits})\n    {about}"
