# SPDX-License-Identifier: Apache-2.0
"""One version: `ri2n_sdn.__version__`. Whatever cannot read it there is held equal here.

tests/unit/test_cli.py runs `ri2n --version`, and reorder/tests/program.rs `ri2n-reorder --version`.
"""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

ROOT = Path(__file__).resolve().parents[2]


def toml(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))


def test_the_product_takes_its_version_from_its_code() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["metadata"]["version"] == "attr: ri2n_sdn.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_three_distributions_have_one_version() -> None:
    for package in ("ri2n_lab", "ri2n_parallel"):
        assert toml(f"{package}/pyproject.toml")["project"]["version"] == __version__
    needed = toml("ri2n_lab/pyproject.toml")["project"]["dependencies"]
    ours = [f"ri2n-sdn == {__version__}", f"ri2n-parallel == {__version__}"]
    assert [each for each in needed if "ri2n" in each] == ours


@pytest.mark.parametrize("lock", ["Cargo.lock", "reorder/fuzz/Cargo.lock"])
def test_the_helper_has_it_too(lock: str) -> None:
    assert toml("reorder/Cargo.toml")["package"]["version"] == __version__
    locked = [each for each in toml(lock)["package"] if each["name"] == "ri2n-reorder"]
    assert [each["version"] for each in locked] == [__version__]


def test_the_packages_have_it_too() -> None:
    newest = (ROOT / "debian" / "changelog").read_text(encoding="utf-8").partition("\n")[0]
    assert newest.startswith(f"ri2n ({__version__}) ")


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.M)
    assert len(sections) == len(re.findall(r"^## ", text, re.M))
    assert sections[0] == ("Unreleased", "") and sections[1][0] == __version__ and sections[1][1]


@pytest.mark.parametrize("tag", ["", "v9.9.9"])
def test_packages_of_a_checkout_have_it_and_no_tag_matters(tag: str, tmp_path: Path) -> None:
    """In a folder without git it is the version alone; with git the commit's time and name follow.

    So a later commit is an upgrade.
    """
    product = tmp_path / "ri2n_sdn"
    product.mkdir()
    (product / "__init__.py").write_bytes((ROOT / "ri2n_sdn" / "__init__.py").read_bytes())
    found = re.search(r"^deb_version\(\) \{\n.*?^\}$", (ROOT / "dev").read_text(), re.M | re.S)
    assert found is not None

    def said() -> str:
        script = f"{found[0]}\ncd {shlex.quote(str(tmp_path))}\ndeb_version"
        env = {"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        return subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True, env=env
        ).stdout

    assert said() == __version__
    commands = ["git init -q", "git add .", "git commit -qm first", tag and f"git tag {tag}"]
    author = "-c user.name=somebody -c user.email=somebody@example.org -c commit.gpgsign=false"
    for command in filter(None, commands):
        whole = command.replace("git ", f"git {author} ", 1)
        subprocess.run(shlex.split(whole), cwd=tmp_path, check=True)
    assert re.fullmatch(re.escape(__version__) + r"\+git\d{14}\.[0-9a-f]{7,}", said())
