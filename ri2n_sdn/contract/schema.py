# SPDX-License-Identifier: Apache-2.0
"""What stands under the keys of documents."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from itertools import pairwise
from typing import Any

from typing_extensions import get_original_bases, is_typeddict

__all__ = ["meanings"]


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
