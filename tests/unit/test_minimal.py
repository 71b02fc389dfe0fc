# SPDX-License-Identifier: Apache-2.0
"""What runs a cluster needs no compiler, no MPI and no test tool, neither by pip nor by apt."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]

# Compilers and what is for building, MPI, tools for tests and documents, and what labs need. Not
# cffi and setuptools, which os-ken's own needs bring: they are there ready-made, as wheels.
UNWANTED = re.compile(
    r"(^|[-_.])(gcc|g\+\+|clang|llvm|rustc|cargo|make|cmake|ninja|cython|pybind11|numba)($|-)|"
    r"build-essential|-dev$|openmpi|mpi4py|mpich|libopenmpi|"
    r"pytest|hypothesis|schemathesis|playwright|selenium|chromium|ruff|mypy|stubs$|^types-|"
    r"networkx|matplotlib|pandas|jupyter|sphinx|mkdocs|setuptools-rust|"
    r"iperf3|tcpdump|slurm|piuparts|lintian|shellcheck",
    re.IGNORECASE,
)


def required(extra: str | None) -> list[Requirement]:
    """What setup.cfg asks for, with the extra or without one."""
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    text = config["options"]["install_requires"]
    if extra is not None:
        text += "\n" + config["options.extras_require"][extra]
    return [Requirement(line) for line in text.splitlines() if line.strip()]


def closure(wanted: list[Requirement]) -> dict[str, str]:
    """All distributions that pip would install for these, by name, and who wants each.

    As they are installed here: pip installs the same, by the same metadata.
    """
    found: dict[str, str] = {}
    waiting = [(each, "setup.cfg") for each in wanted]
    while waiting:
        requirement, by = waiting.pop()
        extras = {*requirement.extras, ""}
        key = f"{requirement.name.lower()}[{','.join(sorted(requirement.extras))}]"
        if key in found:
            continue
        found[key] = by
        try:
            needs = distribution(requirement.name).requires or []
        except PackageNotFoundError:  # pragma: no cover (an extra that is not installed here)
            pytest.skip(f"{requirement.name} is not installed")
        for text in needs:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in extras):
                waiting.append((need, requirement.name))
    return found


@pytest.mark.parametrize("extra", [None, "web"])
def test_pip_installs_nothing_that_a_cluster_does_not_need(extra: str | None) -> None:
    found = closure(required(extra))
    assert len(found) > 8
    names = {key.partition("[")[0]: by for key, by in found.items()}
    assert {name: by for name, by in names.items() if UNWANTED.search(name)} == {}


def fields(package: str) -> dict[str, str]:
    """The fields of a package in debian/control."""
    text = (REPOSITORY / "debian" / "control").read_text(encoding="utf-8")
    (paragraph,) = [
        each for each in text.split("\n\n") if re.search(rf"^Package: {package}$", each, re.M)
    ]
    found = re.findall(r"^([A-Z][\w-]*):((?:.*)(?:\n[ \t].*)*)", paragraph, re.M)
    return {name: " ".join(value.split()) for name, value in found}


@pytest.mark.parametrize("package", ["ri2n-controller", "ri2n-host"])
def test_apt_installs_nothing_that_a_cluster_does_not_need(package: str) -> None:
    about = fields(package)
    wanted = [
        re.split(r"[ (|]", each.strip())[0]
        for field in ("Depends", "Pre-Depends", "Recommends")
        for alternative in about.get(field, "").split(",")
        for each in alternative.split("|")
        if each.strip() and not each.strip().startswith("$")
    ]
    assert len(wanted) >= 3
    assert [name for name in wanted if UNWANTED.search(name)] == []
    assert "ri2n-lab" not in wanted


@pytest.mark.parametrize(
    ("name", "unwanted"),
    [
        *(("gcc", True), ("g++", True), ("build-essential", True), ("libssl-dev", True)),
        *(("openmpi-bin", True), ("mpi4py", True), ("pytest-xdist", True), ("cargo", True)),
        *(("python3-pytest", True), ("scipy-stubs", True), ("make", True), ("iperf3", True)),
        *(("numpy", False), ("libgcc-s1", False), ("openvswitch-switch", False)),
        *(("ethtool", False), ("markupsafe", False), ("libstdc++6", False), ("starlette", False)),
    ],
)
def test_what_counts_as_unwanted(name: str, unwanted: bool) -> None:
    assert bool(UNWANTED.search(name)) == unwanted
