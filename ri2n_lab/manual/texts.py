# SPDX-License-Identifier: Apache-2.0
"""Texts for people, as they stand in the source of the product: the findings of the doctors.

An f-string is read without running it: what is filled in becomes its variable's name in capitals,
so `f"{name} is not connected"` gives `NAME is not connected`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["blank", "findings_in", "rows_in", "templates_of", "texts_in"]

Names = dict[str, list[ast.expr]]

# What people would call a value whose variable has one of these names.
_PLAINER = {"MEMBER": "HOST", "DESCRIBED": "NIC", "LEN": "NUMBER", "JOIN": "LIST", "SELF": "VALUE"}


def blank(expression: ast.expr) -> str:
    """The word that stands for a value that is filled in."""
    name = ""
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr != "name":
            name = node.attr
        elif isinstance(node, ast.Name):
            name = node.id
        if name:
            break
    word = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
    return _PLAINER.get(word, word or "VALUE")


def templates_of(expression: ast.expr, names: Names, depth: int = 4) -> list[str]:
    """All texts that an expression may be; a value that is no text of the source is a blank.

    `names` are the expressions that the function gives to its variables.
    """
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return [expression.value]
    if isinstance(expression, ast.IfExp):
        return [
            *templates_of(expression.body, names, depth),
            *templates_of(expression.orelse, names, depth),
        ]
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        return [
            left + right
            for left in templates_of(expression.left, names, depth)
            for right in templates_of(expression.right, names, depth)
        ]
    if isinstance(expression, ast.JoinedStr):
        texts = [""]
        for part in expression.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            texts = [text + more for text in texts for more in templates_of(inner, names, depth)]
        return texts
    if isinstance(expression, ast.Name) and depth and names.get(expression.id):
        # A variable whose values are no texts of the source is a blank itself.
        written = [value for value in names[expression.id] if _is_text(value)]
        found = [text for value in written for text in templates_of(value, names, depth - 1)]
        if found:
            return found
    return [blank(expression)]


def rows_in(file: Path) -> Iterator[tuple[str, str]]:
    """(function, text) of each `yield VERDICT, TEXT, ADVICE` whose verdict may be bad or a warning.

    Or of a choice of two such rows.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    for scope in tree.body:
        if not isinstance(scope, ast.FunctionDef):
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Yield) and node.value is not None:
                value, names = node.value, _names_in(scope, node)
                for row in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                    if isinstance(row, ast.Tuple) and len(row.elts) == 3:
                        verdict, text, _ = row.elts
                        if not isinstance(verdict, ast.Constant) or verdict.value != "ok":
                            for each in templates_of(text, names):
                                yield scope.name.strip("_"), each


def texts_in(file: Path, function: str) -> Iterator[str]:
    """All texts of at least two words in a function, but for its docstring."""
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef) and scope.name == function:
            body = scope.body[1:] if ast.get_docstring(scope) else scope.body
            inner = {
                id(part)
                for statement in body
                for node in ast.walk(statement)
                if isinstance(node, ast.JoinedStr | ast.BinOp)
                for part in ast.walk(node)
                if part is not node
            }
            names = _names_in(scope)
            for statement in body:
                for node in ast.walk(statement):
                    if id(node) not in inner and isinstance(node, ast.expr) and _is_text(node):
                        for text in templates_of(node, names):
                            if len(text.split()) > 1:
                                yield text


def findings_in(script: str) -> Iterator[tuple[str, str, str]]:
    """(check, text, advice) of each `finding` of a host script that is a warning or bad.

    Variables become their names in capitals. An advice that a function gives is empty.
    """
    call = re.compile(
        r'\bfinding\s+(?:warning|bad|"\$\([^)]*\)")\s+(\w+|"[^"]*")\s+(?:\\\n\s*)?"((?:[^"\\]|\\.)*)"'
        r'(?:\s+(?:\\\n\s*)?"((?:[^"\\(]|\\.)*)")?'
    )
    for check, seen, advice in call.findall(script):
        yield check.strip('"'), _shell_blanks(seen), _shell_blanks(advice)


def _shell_blanks(text: str) -> str:
    """A text of bash with its variables' names in capitals."""
    text = re.sub(r"\$\{(\w+):\+([^}]*)\}", lambda found: _shell_blanks(found[2]), text)
    text = re.sub(r"\$\{(\w+)[^}]*\}+", lambda found: found[1].upper(), text)
    return re.sub(r"\$(\w+)", lambda found: found[1].upper(), text)


def _names_in(function: ast.AST, before: ast.expr | None = None) -> Names:
    """The expressions that a function gives to its variables.

    With `before`, only those that may hold there: of each variable the last ones, back to one that
    does not depend on an `if`, which is not further to the right.
    """
    found: dict[str, list[tuple[ast.stmt, ast.expr]]] = {}
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AugAssign)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        targets, values = [target], [node.value]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            # Elsewhere it is not known which values belong together.
            targets, values = (target.elts, node.value.elts) if before is not None else ([], [])
        for each, value in zip(targets, values, strict=False):
            if isinstance(each, ast.Name):
                earlier = found.setdefault(each.id, [])
                if isinstance(node, ast.AugAssign) and earlier:
                    value = ast.BinOp(earlier[-1][1], node.op, value)
                earlier.append((node, value))
    names: Names = {}
    for name, given in found.items():
        if before is not None:
            given = [one for one in given if one[0].lineno < before.lineno]
            sure = [
                at for at, (node, _) in enumerate(given) if node.col_offset <= before.col_offset
            ]
            given = given[sure[-1] :] if sure else given
        names[name] = [value for _, value in given]
    return names


def _is_text(expression: ast.expr) -> bool:
    """Whether an expression is a text of the source, with or without values that are filled in."""
    if isinstance(expression, ast.Constant):
        return isinstance(expression.value, str)
    if isinstance(expression, ast.IfExp):
        return _is_text(expression.body) or _is_text(expression.orelse)
    if isinstance(expression, ast.BinOp):
        return _is_text(expression.left) or _is_text(expression.right)
    return isinstance(expression, ast.JoinedStr)
