# SPDX-License-Identifier: Apache-2.0
"""The page of reference about REST, from its OpenAPI document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ri2n_lab.manual.markdown import table

__all__ = ["rest_page"]

Document = Mapping[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")


def rest_page(document: Document) -> str:
    """Every path with what it takes and answers, and every schema. `document` is OpenAPI 3.1."""
    info = document["info"]
    prefix = document.get("servers", [{"url": ""}])[0]["url"].rstrip("/")
    parts = [
        "# REST\n\nThis page is for people who write programs against the web process. All paths"
        f" begin with `{prefix}`. A running web process shows the same at `{prefix}/docs`, and the"
        f" OpenAPI document at `{prefix}/openapi.json`.\n\n",
        f"{info.get('description', '').strip()}\n\n",
    ]
    usual = _usual_answers(document)
    parts.append("These answers are possible nearly everywhere:\n\n")
    parts.append(table(("answer", "body", "when"), sorted(usual)))
    tags = {tag["name"]: tag.get("description", "") for tag in document.get("tags", ())}
    by_tag: dict[str, list[str]] = {name: [] for name in tags}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = methods[method].get("tags", ["others"])[0]
                by_tag.setdefault(tag, []).append(_operation(method, path, methods[method], usual))
    for tag, operations in by_tag.items():
        if operations:
            about = f"{tags[tag]}\n\n" if tags.get(tag) else ""
            parts.append(f"## {tag[:1].upper()}{tag[1:]}\n\n{about}{''.join(operations)}")
    parts.append("## Schemas\n\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(_schema(name, schema))
    return "".join(parts)


def _usual_answers(document: Document) -> set[tuple[str, ...]]:
    """The answers of three quarters of all requests: those of errors that any request may have."""
    operations = [
        methods[method]
        for methods in document["paths"].values()
        for method in _METHODS
        if method in methods
    ]
    seen = Counter(row for each in operations for row in _answers(each))
    return {row for row, count in seen.items() if 4 * count >= 3 * len(operations)}


def _answers(operation: Document) -> Iterator[tuple[str, ...]]:
    """(status, body, when) of each answer."""
    for status, answer in sorted(operation["responses"].items()):
        kinds = [_kind(each.get("schema", {})) for each in answer.get("content", {}).values()]
        about = answer.get("description", "")
        yield (
            status,
            next(filter(None, kinds), ""),
            "" if about == "Successful Response" else about,
        )


def _operation(
    method: str, path: str, operation: Document, usual: Collection[tuple[str, ...]]
) -> str:
    """What one request takes and answers, but for the `usual` answers."""
    open_to_all = {} in operation.get("security", [{}])
    who = (
        "With any token, or without one on the web process's machine."
        if open_to_all
        else "A token is needed, with the role that does this."
    )
    lines = [f"### {method.upper()} {path}\n\n{operation.get('description', '').strip()}\n\n"]
    rows = [
        (
            f"`{given['name']}`",
            given["in"] + (", needed" if given.get("required") else ""),
            _kind(given.get("schema", {})),
            given.get("description", given.get("schema", {}).get("description", "")),
        )
        for given in operation.get("parameters", ())
    ]
    lines.append(table(("parameter", "in", "value", "meaning"), rows))
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        lines.append(
            f"Body: {', '.join(_kind(each.get('schema', {})) for each in body.values())}.\n\n"
        )
    answers = [row for row in _answers(operation) if row not in usual]
    lines.append(table(("answer", "body", "when"), answers))
    lines.append(who)
    return "".join(lines).rstrip() + "\n\n"


def _schema(name: str, schema: Document) -> str:
    """A schema with its keys."""
    needed = schema.get("required", ())
    rows = [
        (
            f"`{key}`" + (" (needed)" if key in needed else ""),
            _kind(value),
            value.get("description", ""),
        )
        for key, value in schema.get("properties", {}).items()
    ]
    about = schema.get("description", "").partition("\n\n")[0]
    if not rows:
        about = f"{about} {_kind({**schema, 'description': ''})}".strip()
    return f"### {name}\n\n{about}\n\n" + table(("key", "value", "meaning"), rows)


def _kind(schema: Document) -> str:
    """What a value may be: a schema's name with a link, or a type with its limits."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            kinds = [_kind(each) for each in schema[key] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(filter(None, kinds)))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {})) or 'anything'}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"map to {_kind(schema['additionalProperties']) or 'anything'}"
    return ", ".join([str(schema.get("type", "")), *_limits(schema)]).strip(", ")


def _limits(schema: Document) -> Iterator[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        yield f"{'' if low is None else low} to {'' if high is None else high}".strip()
    if "maxLength" in schema:
        yield f"at most {schema['maxLength']} characters"
    if schema.get("default") is not None:
        yield f"default `{schema['default']}`"


def _anchor(name: str) -> str:
    """The anchor of a schema's heading."""
    return re.sub(r"[^\w\- ]", "", name.lower())
