# SPDX-License-Identifier: Apache-2.0
"""The rules of this repository for its files.

They say which folder may import which one, that no modules import each other, which modules may use
os-ken, sockets and the clock, and how long a file may be.
"""

from __future__ import annotations

import ast
import configparser
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

REPOSITORY = Path(__file__).parents[2]
SHIPPED = ("topologies", "ovs-host-scripts")
"""Folders whose files are installed beside the product."""

# A folder may import itself, the single files of BESIDE, and what is listed here. Folders that do
# not exist yet are listed already.
ALLOWED: dict[str, set[str]] = {
    "ri2n_sdn.contract": set(),
    "ri2n_sdn.fabric": set(),
    "ri2n_sdn.discovery": {"ri2n_sdn.fabric", "ri2n_sdn.vlan"},
    "ri2n_sdn.rates": set(),
    "ri2n_sdn.weights": {"ri2n_sdn.fabric", "ri2n_sdn.rates"},
    "ri2n_sdn.vlan": {"ri2n_sdn.fabric", "ri2n_sdn.rates"},
    "ri2n_sdn.jobs": {"ri2n_sdn.fabric"},
    "ri2n_sdn.pipeline": {
        f"ri2n_sdn.{each}" for each in ("fabric", "discovery", "weights", "vlan", "jobs")
    },
    "ri2n_sdn.store": {f"ri2n_sdn.{each}" for each in ("fabric", "jobs", "vlan")},
    "ri2n_sdn.apps": {
        f"ri2n_sdn.{each}"
        for each in ("fabric", "discovery", "weights", "vlan", "jobs", "pipeline", "store")
    },
    # The web process talks to the controller as any client does.
    "ri2n_sdn.web": set(),
    "ri2n_sdn.cli": {"ri2n_sdn"},
    "ri2n_parallel": set(),
    "ri2n_parallel.copy": {"ri2n_parallel"},
    "ri2n_parallel.cli": {"ri2n_parallel", "ri2n_parallel.copy"},
    # Labs use the product as a user does: its commands, its controller's socket, its topology
    # files.
    "ri2n_lab.cluster": {"ri2n_sdn.fabric"},
    "ri2n_lab.guests": {"ri2n_sdn.fabric", "ri2n_lab.cluster"},
    "ri2n_lab.traffic": {"ri2n_lab.cluster"},
    # Benches also watch the controller from inside (apps.telemetry's Watcher), and know the names
    # of the strategies.
    "ri2n_lab.bench": {
        *(
            "ri2n_sdn.fabric",
            "ri2n_sdn.rates",
            "ri2n_sdn.weights",
            "ri2n_sdn.apps",
            "ri2n_parallel",
        ),
        *("ri2n_lab.cluster", "ri2n_lab.guests", "ri2n_lab.traffic"),
    },
    # The reference shows everything that the software says of itself.
    "ri2n_lab.manual": {"ri2n_sdn", "ri2n_lab"},
    "ri2n_lab.cli": {"ri2n_sdn.fabric", "ri2n_sdn.cli", "ri2n_lab"},
}
BESIDE = {
    "ri2n_sdn.errors",
    "ri2n_sdn.addresses",
    "ri2n_sdn.certificates",
    "ri2n_sdn.client",
    "ri2n_sdn.imports",
    "ri2n_sdn.logs",
    "ri2n_sdn.service",
    "ri2n_sdn.shipped",
    "ri2n_sdn.__version__",
}
FOR_ALL = {*BESIDE, "ri2n_sdn.contract"}
"""What every folder of the product and of the lab may import."""
PURE = tuple(
    f"ri2n_sdn.{each}"
    for each in (
        *("contract", "fabric", "rates", "discovery", "weights", "vlan", "jobs", "pipeline"),
    )
)
IMPURE_MODULES = {
    *(
        "os_ken",
        "socket",
        "time",
        "random",
        "secrets",
        "threading",
        "asyncio",
        "subprocess",
    ),
    *("select", "selectors", "signal", "ssl", "pyroute2", "ovs"),
    *("ri2n_sdn.client", "ri2n_sdn.shipped"),
}
PACKAGES = ("ri2n_sdn", "ri2n_lab", "ri2n_parallel")
MAX_LINES = 600

Modules = Mapping[str, Path]


@functools.cache
def modules(root: Path = REPOSITORY) -> Mapping[str, Path]:
    """The file of every module, by the module's name; copies that `pip install` leaves are none."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "build" in parts[:-1]:
            continue
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, known: Modules) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import at any depth of the file.

    Imports for types only are included. Relative imports are resolved.
    """
    path = known[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield node.lineno, full if full in known or module in PACKAGES else module


def folder_of(name: str, known: Modules) -> str:
    """The folder of a module: `ri2n_sdn.vlan` for all modules in that folder.

    For single files of a package it is the package itself, but files of BESIDE are their own
    folder.
    """
    if name in BESIDE:
        return name
    parts = name.split(".")
    below = len(parts) > 2 or (name in known and known[name].name == "__init__.py")
    return ".".join(parts[:2] if below else parts[:1])


def only_seeded_random(path: Path) -> bool:
    """Whether a file uses only the class Random of `random`, whose seed is an argument."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
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


def reads_the_clock(path: Path) -> Iterator[int]:
    """The lines of a file that ask `datetime` for the time of now; dates alone are pure."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("now", "today", "utcnow")
            and ast.unparse(node.value).rpartition(".")[2] in ("datetime", "date")
        ):
            yield node.lineno


def wrong_form(path: Path) -> Iterator[str]:
    """What is wrong with the form of a file: it has no docstring, or it is too long."""
    text = path.read_text(encoding="utf-8")
    if not ast.get_docstring(ast.parse(text)):
        yield f"{path}: no docstring"
    if text.count("\n") > MAX_LINES:
        yield f"{path}: {text.count(chr(10))} lines, more than {MAX_LINES}"


def violations(name: str, known: Modules) -> Iterator[str]:
    path, folder = known[name], folder_of(name, known)
    if folder in PURE:
        for line in reads_the_clock(path):
            yield f"{path}:{line}: {folder} is pure and must not ask for the time"
    for line, imported in imports_of(name, known):
        top = imported.split(".")[0]
        if top == "os_ken" and folder != "ri2n_sdn.apps":
            yield f"{path}:{line}: only ri2n_sdn/apps/ may import os_ken"
        if folder in PURE and (
            {top, imported} & IMPURE_MODULES or top in ("ri2n_lab", "ri2n_parallel")
        ):
            if not (top == "random" and only_seeded_random(path)):
                yield f"{path}:{line}: {folder} is pure and must not import {imported}"
            continue
        if top not in PACKAGES or name == top or folder in BESIDE:
            continue
        target = folder_of(imported, known)
        own = target in (folder, f"{top}.__version__") or (
            target in FOR_ALL and name.split(".")[0] != "ri2n_parallel"
        )
        allowed = ALLOWED[folder]
        if not own and target not in allowed and not (top in allowed and top != "ri2n_parallel"):
            yield f"{path}:{line}: {folder} must not import {imported}"


def circles(known: Modules) -> list[list[str]]:
    """Modules that import each other, directly or by way of others."""
    graph: dict[str, set[str]] = {}
    for name in known:
        found = set()
        for _, imported in imports_of(name, known):
            while imported and imported not in known:
                imported = imported.rpartition(".")[0]
            found.add(imported)
        graph[name] = found - {name, ""}
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen, waiting = set[str](), [name]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[name] = seen
    found_circles = {
        tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph
    }
    return [list(circle) for circle in sorted(found_circles) if circle]


@pytest.mark.parametrize("name", modules())
def test_imports_point_one_way(name: str) -> None:
    assert not list(violations(name, modules()))


def test_there_is_no_circle() -> None:
    assert circles(modules()) == []


def test_every_folder_has_a_rule() -> None:
    known = modules()
    single = {"ri2n_sdn", "ri2n_lab"}  # of the product, the files of BESIDE alone
    assert {folder_of(name, known) for name in known} - BESIDE <= {*ALLOWED, *single}
    assert {name for name in known if folder_of(name, known) in single} <= single


def test_files_start_with_a_docstring_and_are_not_too_long() -> None:
    # Empty files only make a folder a package.
    tests = [path for path in (REPOSITORY / "tests").rglob("*.py") if path.stat().st_size]
    assert Path(__file__) in tests
    assert [each for path in (*modules().values(), *tests) for each in wrong_form(path)] == []


# ---- Distributions


def project(package: str) -> dict[str, object]:
    """The pyproject.toml of a package that is a distribution of its own."""
    return tomllib.loads((REPOSITORY / package / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", SHIPPED)
def test_every_file_of_a_shipped_folder_is_installed(folder: str) -> None:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    listed = {line for files in config["options.data_files"].values() for line in files.split()}
    there = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file()
    }
    assert there and there <= listed, there - listed


def test_every_other_file_of_the_product_is_installed() -> None:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    product = REPOSITORY / "ri2n_sdn"
    there = {
        str(path.relative_to(product))
        for path in product.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert there == set(config["options.package_data"]["ri2n_sdn"].split())


@pytest.mark.parametrize("package", ["ri2n_lab", "ri2n_parallel"])
def test_a_distribution_has_all_its_folders_and_files(package: str) -> None:
    tools = project(package)["tool"]["setuptools"]  # type: ignore[index]
    folder = REPOSITORY / package
    kept = [
        path
        for path in folder.rglob("*")
        if not re.search(r"__pycache__|egg-info|/build/", str(path))
    ]
    with_code = {path.parent for path in kept if path.suffix == ".py"}
    assert set(tools["packages"]) == {
        ".".join(path.relative_to(REPOSITORY).parts) for path in with_code
    }
    data = {path for pattern in tools["package-data"][package] for path in folder.glob(pattern)}
    rest = {
        path
        for path in kept
        if path.is_file() and path.suffix != ".py" and path.name != "pyproject.toml"
    }
    assert data == rest


# ---- The rules see what they must see


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        ("ri2n_sdn/fabric", "import socket", "is pure"),
        ("ri2n_sdn/contract", "from datetime import datetime\nx = datetime.now()", "is pure"),
        ("ri2n_sdn/contract", "import datetime\nx = datetime.date.today()", "is pure"),
        ("ri2n_sdn/contract", "from datetime import datetime\nx = datetime.min", ""),
        ("ri2n_sdn/contract", "from ri2n_sdn.fabric.model import Nic", "must not import"),
        ("ri2n_sdn/web", "from ri2n_sdn.contract.wording import fill", ""),
        ("ri2n_sdn/pipeline", "def f():\n    from time import monotonic", "is pure"),
        ("ri2n_sdn/weights", "import random\nx = random.random()", "is pure"),
        ("ri2n_sdn/weights", "import random\nx = random.Random()", "is pure"),
        ("ri2n_sdn/weights", "import random\nx = random.Random(1)", ""),
        ("ri2n_sdn/weights", "from ..pipeline import plan", "must not import"),
        ("ri2n_sdn/vlan", "from ri2n_sdn.client import call", "is pure"),
        ("ri2n_sdn/cli", "import os_ken.lib", "only ri2n_sdn/apps"),
        ("ri2n_sdn/cli", "from ri2n_sdn.errors import BadInput", ""),
        ("ri2n_sdn/cli", "from ri2n_lab.cluster import Lab", "must not import"),
        ("ri2n_sdn/apps", "def f():\n    from ri2n_lab.cluster.lab import Lab", "must not import"),
        ("ri2n_sdn/apps", "from ri2n_sdn.cli import main", "must not import"),
        ("ri2n_lab/cluster", "from ri2n_sdn.apps import launcher", "must not import"),
        ("ri2n_lab/cluster", "from ri2n_lab.bench.fig4 import run", "must not import"),
        ("ri2n_lab/bench", "from ri2n_sdn.pipeline.dphash import slot_of", "must not import"),
        ("ri2n_lab/bench", "from ri2n_sdn.client import call", ""),
        ("ri2n_lab/cli", "from ri2n_lab.bench.fig4 import run", ""),
        ("ri2n_parallel", "from ri2n_sdn.errors import BadInput", "must not import"),
        ("ri2n_parallel", "from ri2n_parallel.copy.blocks import BLOCK_BYTES", "must not import"),
        ("ri2n_parallel/copy", "from ri2n_parallel.errors import BadInput", ""),
    ],
)
def test_the_rule_sees_what_it_must(folder: str, text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / folder / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    known = modules(tmp_path)
    found = list(violations(next(iter(known)), known))
    assert (len(found) == 1 and expected in found[0]) if expected else not found


def test_a_circle_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "ri2n_sdn" / "vlan"
    folder.mkdir(parents=True)
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        lines = [
            "from typing import TYPE_CHECKING",
            "if TYPE_CHECKING:",
            f"    from ri2n_sdn.vlan import {other}",
        ]
        (folder / f"{name}.py").write_text("\n".join(lines))
    assert circles(modules(tmp_path)) == [[f"ri2n_sdn.vlan.{name}" for name in "abc"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""What it is."""\n' + "\n" * (MAX_LINES - 1), []),
        ('"""What it is."""\n' + "\n" * MAX_LINES, ["601 lines, more than 600"]),
        ("import json\n", ["no docstring"]),
    ],
    ids=["good", "too long", "no docstring"],
)
def test_a_wrong_form_is_seen(text: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(text, encoding="utf-8")
    assert list(wrong_form(file)) == [f"{file}: {each}" for each in expected]
