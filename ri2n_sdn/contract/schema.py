# SPDX-License-Identifier: Apache-2.0
"""What keys of documents mean, and the documents as JSON Schema, for programs in any language."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from itertools import pairwise
from typing import Any

from typing_extensions import get_original_bases, is_typeddict

__all__ = ["json_schema", "meanings"]


@functools.cache
def meanings(form: Any) -> dict[str, str]:
    """What stands under the keys of a document, by key; those of its bases, too."""
    found: dict[str, str] = {}
    for base in get_original_bases(form):
        if is_typeddict(base):
            found |= meanings(base)
    return found | _written(form.__module__)[form.__name__]


@functools.cache
def _written(module: str) -> dict[str, dict[str, str]]:
    """What stands under the keys of each class of a module."""
    return {
        node.name: {
            key.target.id: str(text.value.value)
            for key, text in pairwise(node.body)
            if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        }
        for node in ast.parse(inspect.getsource(sys.modules[module])).body
        if isinstance(node, ast.ClassDef)
    }


def json_schema(form: Any) -> dict[str, Any]:
    """The JSON Schema of a document, with the meanings of its keys."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core.core_schema import TypedDictSchema

    class Described(GenerateJsonSchema):
        def typed_dict_schema(self, schema: TypedDictSchema) -> dict[str, Any]:
            made = super().typed_dict_schema(schema)
            form: Any = schema["cls"]
            for key, text in meanings(form).items():
                made["properties"][key]["description"] = text
            return made

    made = TypeAdapter(form).json_schema(schema_generator=Described)
    return {"$schema": Described.schema_dialect, **made}
