"""The house's rules: which folder may import which, who may touch os-ken, sockets and the clock, file length."""

from __future__ import annotations

import ast
import configparser
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "ri2n_sdn"
SHIPPED = ("topologies", "ovs-host-scripts", "lab-kernels")
"""Folders whose files are installed beside the package."""


# A folder may import itself, errors, addresses and __version__, and what is listed; folders to come are in it already.
ALLOWED = {
    "fabric": set[str](),
    "weights": {"fabric"},
    "vlan": {"fabric"},
    "jobs": {"fabric"},
    "pipeline": {"fabric", "weights", "vlan", "jobs"},
    "store": {"fabric", "jobs", "vlan"},
    "apps": {"fabric", "weights", "vlan", "jobs", "pipeline", "store"},
    "parallel": set[str](),
    # Labs and benches use the product as a user does: through commands and the controller's socket.
    "lab": {"fabric", "cli.client"},
    "bench": {"fabric", "weights", "lab", "parallel", "cli.client"},
    "api": {"fabric", "weights", "vlan", "jobs", "pipeline", "store", "apps"},
    "gui": {"api", "store"},
    "cli": {"fabric", "weights", "vlan", "jobs", "pipeline", "store", "apps", "api", "lab", "bench", "parallel"},
}
PURE = ("fabric", "weights", "vlan", "jobs", "pipeline")
IMPURE_MODULES = {
    *("os_ken", "socket", "time", "random", "secrets", "threading", "asyncio", "subprocess", "datetime"),
    *("select", "selectors", "signal", "ssl", "pyroute2", "ovs"),
}
MAX_LINES = 600


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import, at any depth of the file; relative ones resolved."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    package = ["ri2n_sdn", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def only_seeded_random(path: Path) -> bool:
    """Whether a file uses nothing of `random` but the class Random, whose seed is an argument."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
    ]
    names += [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "random"
        for alias in node.names
    ]
    bare = any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and ast.unparse(node.func) in ("random.Random", "Random")
        and not node.args
        for node in ast.walk(tree)
    )
    return set(names) <= {"Random"} and not bare


def violations(path: Path) -> Iterator[str]:
    parts = path.relative_to(PACKAGE).parts
    folder = parts[0] if len(parts) > 1 else ""
    for line, module in imports_of(path):
        top, _, rest = module.partition(".")
        if top == "os_ken" and folder != "apps":
            yield f"{path}:{line}: only apps/ may import os_ken"
        if folder in PURE and top in IMPURE_MODULES and not (top == "random" and only_seeded_random(path)):
            yield f"{path}:{line}: {folder}/ is pure and must not import {top}"
        if top != "ri2n_sdn" or not folder:
            continue
        target = rest.split(".")[0]
        if target in ("errors", "addresses", "__version__", folder) or not rest:
            continue
        allowed = ALLOWED[folder]
        if target not in allowed and ".".join(rest.split(".")[:2]) not in allowed:
            yield f"{path}:{line}: {folder}/ must not import {module}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    assert not list(violations(path))


def test_every_folder_has_a_rule() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in modules() if path.parent != PACKAGE}
    assert folders <= set(ALLOWED)


def test_files_start_with_a_docstring_and_are_not_too_long() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{path}: no docstring"
        assert text.count("\n") <= MAX_LINES, f"{path}: {text.count(chr(10))} lines"


@pytest.mark.parametrize("folder", SHIPPED)
def test_every_file_of_a_shipped_folder_is_installed(folder: str) -> None:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    listed = {line for files in config["options.data_files"].values() for line in files.split()}
    there = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / folder).rglob("*") if path.is_file()}
    assert there and there <= listed, there - listed


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        ("fabric", "import socket", "is pure"),
        ("pipeline", "def f():\n    from time import monotonic", "is pure"),
        ("weights", "import random\nx = random.random()", "is pure"),
        ("weights", "import random\nx = random.Random()", "is pure"),
        ("weights", "import random\nx = random.Random(1)", ""),
        ("lab", "from ri2n_sdn.apps import launcher", "must not import"),
        ("bench", "from ri2n_sdn.pipeline.dphash import slot_of", "must not import"),
        ("weights", "from ..pipeline import plan", "must not import"),
        ("cli", "import os_ken.lib", "only apps"),
        ("bench", "from ri2n_sdn.cli.client import Client", ""),
        ("cli", "from ri2n_sdn.errors import BadInput", ""),
    ],
)
def test_the_rule_sees_what_it_must(
    folder: str, text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    file = tmp_path / folder / "module.py"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    found = list(violations(file))
    assert (len(found) == 1 and expected in found[0]) if expected else not found
