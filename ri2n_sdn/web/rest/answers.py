# SPDX-License-Identifier: Apache-2.0
"""The models of answers that are documents of the contract, or pages of them.

Keys that a later controller adds are left out of answers, and no answer fails because of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import Field, create_model
from typing_extensions import NotRequired, is_typeddict

from ri2n_sdn.contract.answers import LinkReport, TrafficClass
from ri2n_sdn.contract.schema import meanings
from ri2n_sdn.web.rest.pages import Page

__all__ = ["answer", "page"]

_IF_ABSENT: Mapping[str, Any] = {
    "severity": {"default": "info"},
    "subject": {"default_factory": dict},
    "args": {"default_factory": dict},
    "by_flows": {"default_factory": list},
    "services": {"default_factory": dict},
}
"""What an answer says for keys that an earlier controller leaves out. Other keys are null then."""

_OPEN: Mapping[Any, Any] = {
    LinkReport: dict[str, Any],
    TrafficClass: dict[str, Any],
    list[int]: list[Any],
}
"""What an answer promises in place of documents whose keys are the helper's or the pipeline's."""


@functools.cache
def answer(form: Any) -> Any:
    """The model of a document. Keys that may be null need not be in what it is made of."""
    fields: dict[str, Any] = {}
    for key, hint in get_type_hints(form, include_extras=True).items():
        of = _modelled(hint)
        default: dict[str, Any] = {}
        if get_origin(hint) is NotRequired:
            default = _IF_ABSENT.get(key, {"default": None})
        elif type(None) in get_args(of):
            default = {"default": None}
        if default == {"default": None}:
            of |= None
        fields[key] = of, Field(description=meanings(form).get(key), **default)
    return create_model(form.__name__, __doc__=form.__doc__, __module__=form.__module__, **fields)


@functools.cache
def page(form: Any) -> Any:
    """The model of a page of documents."""
    return Page.__class_getitem__(answer(form))


def _modelled(hint: Any) -> Any:
    """A type with models in place of documents, and without the bounds that input has."""
    if hint in _OPEN:
        return _OPEN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return answer(hint)
    if origin in (Annotated, NotRequired):
        return _modelled(inner[0])
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, map(_modelled, inner))
    if origin in (list, dict):
        return origin[tuple(map(_modelled, inner))]
    return hint
