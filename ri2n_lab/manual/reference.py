# SPDX-License-Identifier: Apache-2.0
"""Pages of reference, made from what the software says of itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from ri2n_lab.manual.markdown import table
from ri2n_lab.manual.rest import rest_page
from ri2n_lab.manual.told import events_page
from ri2n_sdn.apps.asker import Asker
from ri2n_sdn.apps.audit import Audit
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.local_jobs import job_operations
from ri2n_sdn.apps.local_vlans import Leases
from ri2n_sdn.apps.schema import cluster_schema
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.cli.main import loaded_tree
from ri2n_sdn.contract.operations import OPERATIONS
from ri2n_sdn.web import rest

__all__ = ["cluster_page", "commands_page", "operations_page", "pages"]

MADE = "This page is made from the software itself by `./dev docs`.\n"

Schema = dict[str, Any]


def pages() -> dict[str, tuple[str, str]]:
    """The pages by their path in the site: (title in the navigation, Markdown)."""
    made: dict[str, tuple[str, Callable[[], str]]] = {
        "reference/commands.md": ("Commands", commands_page),
        "reference/cluster-yaml.md": ("cluster.yaml", cluster_page),
        "reference/operations.md": ("Operations of the controller", operations_page),
        "reference/events.md": ("Events", events_page),
        "reference/rest.md": ("REST", lambda: rest_page(rest.openapi())),
    }
    return {path: (title, f"{page()}\n{MADE}") for path, (title, page) in made.items()}


# ---- Commands


def commands_page() -> str:
    """All commands of `ri2n` with their arguments and options."""
    root = loaded_tree()
    parts = [
        "# Commands\n\nThis page is for everybody who types a command: what each one does, and all"
        " that it takes. `--help` says the same.\n\n"
    ]
    for words, command in _commands(("ri2n",), root):
        parts.append(_command(words, command))
    return "".join(parts)


def _commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, each with its words."""
    yield words, command
    below: Mapping[str, Any] = getattr(command, "commands", {})
    for name in sorted(below):
        if not below[name].hidden:
            yield from _commands((*words, name), below[name])


def _command(words: tuple[str, ...], command: Any) -> str:
    """A command's part of the page. A group has no usage of its own."""
    context = command.make_context(" ".join(words), [], resilient_parsing=True)
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    parts = [f"## {' '.join(words)}\n\n{_escaped(text)}\n\n"]
    if not hasattr(command, "commands"):
        usage = command.get_usage(context).partition(":")[2].split()
        parts.append(f"```\n{' '.join(usage)}\n```\n\n")
    rows: dict[str, list[tuple[str, ...]]] = {"argument": [], "option": []}
    for given in command.params:
        record = given.get_help_record(context)
        if record is not None and given.name != "help":
            about = re.sub(r"\[([^\[\]]*)\]$", r"(\1)", record[1])
            rows[given.param_type_name].append((f"`{record[0]}`", _escaped(about)))
    for kind, lines in rows.items():
        parts.append(table((kind, "meaning"), lines))
    if command.epilog:
        parts.append(f"```sh\n{command.epilog.removeprefix('Example: ')}\n```\n\n")
    return "".join(parts)


def _escaped(text: str) -> str:
    """Text of a command's help as Markdown: what looks like a tag or emphasis is neither."""
    return re.sub(r"([<*_\[])", r"\\\1", text)


# ---- cluster.yaml


def cluster_page() -> str:
    """The keys of cluster.yaml, from its JSON Schema."""
    schema = cluster_schema()
    rows = [
        (f"`{key}`", _kind(value), _default_of(value), _about(value))
        for key, value in _keys("", schema, schema)
    ]
    return (
        "# cluster.yaml\n\nThis page is for administrators: every key of the controller's"
        " configuration, with what it may hold. All keys are optional unless the last column says"
        " otherwise; [operations](../operations.md#clusteryaml) says what they are for."
        " `ri2n config schema` prints the JSON Schema that this is made of, and"
        " `ri2n check-config FILE` finds what does not fit together.\n\n"
        + table(("key", "value", "default", "meaning"), rows)
    )


def _keys(prefix: str, schema: Schema, root: Schema) -> Iterator[tuple[str, Schema]]:
    """Every key below a schema with its full name: `hosts.NAME.nics.NAME.rate_bps`."""
    required = schema.get("required", ())
    for name, value in schema.get("properties", {}).items():
        full = f"{prefix}{name}"
        inner = _resolved(value, root)
        yield full, {**inner, **value, "needed": name in required}
        items, others = inner.get("items"), inner.get("additionalProperties")
        if isinstance(others, dict):
            yield from _keys(f"{full}.NAME.", _resolved(others, root), root)
        elif isinstance(items, dict):
            yield from _keys(f"{full}[].", _resolved(items, root), root)
        else:
            yield from _keys(f"{full}.", inner, root)


def _resolved(schema: Schema, root: Schema) -> Schema:
    """A schema in place of a reference to it, or of a choice of it and null."""
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null" and len(schema["anyOf"]) == 2:
            return _resolved(choice, root)
    if "$ref" in schema:
        return cast(Schema, root["$defs"][schema["$ref"].rpartition("/")[2]])
    return schema


def _kind(schema: Schema) -> str:
    """What a value may be, with its limits."""
    choices = schema.get("enum")
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if "anyOf" in schema:
        kinds = [_kind(choice) for choice in schema["anyOf"] if choice.get("type") != "null"]
        return " or ".join(kinds)
    text = str(schema.get("type", "")).replace("array", "list").replace("object", "map")
    if isinstance(schema.get("items"), dict) and "type" in schema["items"]:
        text += f" of {schema['items']['type']}"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    if low is not None and high is not None:
        text += f", {low} to {high}"
    elif low is not None:
        text += f", more than {low}" if "exclusiveMinimum" in schema else f", {low} or more"
    return text


def _default_of(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value is None or value in ([], {}) else f"`{value}`"


def _about(schema: Schema) -> str:
    about = str(schema.get("description", "")).partition("\n\n")[0]
    return f"{about} Required.".strip() if schema.get("needed") else about


# ---- The controller's operations


def operations_page() -> str:
    """The operations of the controller's sockets: who may use them, and what they take."""
    # No operation is called: the functions alone are looked at.
    cluster = cast(Cluster, SimpleNamespace(memory=None))
    asker = Asker(0, "root")
    api = object.__new__(LocalApi)
    api._cluster, api._tokens, api._audit = cluster, cast(Tokens, Tokens), Audit()
    jobs = job_operations(cluster, asker)
    carried_out = api._operations(Leases(), asker, True, True)
    rows = []
    for name, operation in sorted(OPERATIONS.items()):
        run = carried_out[name]
        about = inspect.getdoc(run.func if isinstance(run, partial) else run)
        rows.append(
            (
                f"`{name}`",
                "all" if name in jobs else "root's, the web process's",
                "user, on what is the user's own" if operation.needs == "user" else operation.needs,
                ", ".join(f"`{key}`" for key in operation.keys),
                (about or "").partition("\n\n")[0],
            )
        )
    return (
        "# Operations of the controller\n\nThis page is for people who write programs against the"
        " controller's [sockets](../operations.md#the-controllers-sockets): one JSON object per"
        ' line, `{"op": NAME, ...}`. The role is the least one that may ask on the web process\'s'
        " socket.\n\n" + table(("operation", "sockets", "role", "takes", "does"), rows)
    )
