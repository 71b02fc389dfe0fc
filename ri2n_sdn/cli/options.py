# SPDX-License-Identifier: Apache-2.0
"""Groups of commands, whose parameters may be dataclasses of options that commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Group"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Group(typer.Typer):
    """A group of commands.

    Where a command has a dataclass as a parameter, the fields of that class are options of the
    command, and stand at the parameter's place in its help.
    """

    def __init__(self, help: str, **settings: Any) -> None:
        """`settings` are further arguments of `typer.Typer`."""
        super().__init__(no_args_is_help=True, help=help, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Command], _Command]:
        """As of `typer.Typer`."""
        register = super().command(name, **settings)

        def add(command: _Command) -> _Command:
            register(_with_options(command))
            return command

        return add


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command, as Typer takes it: with the fields of its dataclasses as its own parameters."""
    shared: dict[str, type[DataclassInstance]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in _parameters(command):
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            shared[parameter.name] = kind
            parameters += _parameters(kind)
        else:
            parameters.append(parameter)

    def run(**given: Any) -> Any:
        for name, kind in shared.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        return command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters(of: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """The parameters of a function or a dataclass, with their types and by name alone."""
    if isinstance(of, type):
        kinds = get_type_hints(of, include_extras=True)
    else:  # Before Python 3.11, get_type_hints hides Annotated where the default is None.
        kinds = inspect.get_annotations(of, eval_str=True)
    for name, parameter in inspect.signature(of).parameters.items():
        yield parameter.replace(annotation=kinds[name], kind=inspect.Parameter.KEYWORD_ONLY)
