# SPDX-License-Identifier: Apache-2.0
"""uv asks whom pip asks, and installs what the locks say."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.dev_checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

SETTINGS = """
set -euo pipefail
CACHE=/cache RI2N=1
source setup/python.sh
pip() { cat "$SAID"; }
PIP=(pip)
uv_settings
env | grep -E '^(UV_|SSL_|HTTPS?_)' || true
"""
ALWAYS = {
    "UV_CACHE_DIR": "/cache/uv",
    "UV_SYSTEM_CERTS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_PROGRESS": "1",
    "UV_BUILD_CONSTRAINT": "requirements-run.lock",
}


@pytest.mark.parametrize(
    ("pip", "environment", "expected"),
    [
        ("", {}, {}),
        ("global.index-url='http://a/simple'", {}, {"UV_DEFAULT_INDEX": "http://a/simple"}),
        (
            ":env:.index-url='http://e'\nglobal.index-url='http://a'\ninstall.index-url='http://b'",
            {},
            {"UV_DEFAULT_INDEX": "http://e"},
        ),
        (
            "global.index-url='http://a'\ninstall.index-url='http://b?c=d'",
            {},
            {"UV_DEFAULT_INDEX": "http://b?c=d"},
        ),
        (
            r"global.extra-index-url='\nhttp://a\nhttp://b'",
            {},
            {"UV_INDEX": "http://a http://b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        (
            ":env:.cert='/pip.pem'",
            {"REQUESTS_CA_BUNDLE": "/requests.pem"},
            {"SSL_CERT_FILE": "/pip.pem"},
        ),
        ("", {"REQUESTS_CA_BUNDLE": "/requests.pem"}, {"SSL_CERT_FILE": "/requests.pem"}),
        ("global.trusted-host='a b:8080'", {}, {"UV_INSECURE_HOST": "a b:8080"}),
        (
            "global.proxy='http://p:1'",
            {},
            {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://p:1"},
        ),
        ("global.timeout='7'\n:env:.default-timeout='9'", {}, {"UV_HTTP_TIMEOUT": "9"}),
        ("global.no-index='true'", {}, {"UV_NO_INDEX": "1"}),
        ("global.no-index='false'", {}, {}),
        (
            "install.find-links='/nowhere /usr http://a/wheels'",
            {},
            {"UV_FIND_LINKS": "/usr,http://a/wheels"},
        ),
        (
            "global.index-url='http://a'",
            {"UV_DEFAULT_INDEX": "http://mine"},
            {"UV_DEFAULT_INDEX": "http://mine"},
        ),
    ],
)
def test_uv_asks_whom_pip_asks(
    pip: str, environment: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    said = tmp_path / "said"
    said.write_text(f"{pip}\n" if pip else "")
    done = subprocess.run(
        ["bash", "-c", SETTINGS],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "SAID": str(said)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert found == ALWAYS | expected


# ---- the locks


def locked(name: str) -> dict[str, str]:
    """The version of each package in a lock, but for packages of other systems than Linux."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [re.match(r"([\w.-]+)==(\S+)", line) for line in lines if "== 'win32'" not in line]
    return {canonicalize_name(one[1]): one[2] for one in found if one}


TESTS, RUN, UV = (f"requirements{each}.lock" for each in ("", "-run", "-uv"))
ONLY_NEWER = {"legacy-cgi"}
"""What newer Pythons need alone, so that the lock for tests does not know it."""


def test_the_locks_name_the_same_versions() -> None:
    run, tests = locked(RUN), locked(TESTS)
    assert len(run) > 60 and len(tests) > len(run)
    assert {name: run[name] for name in run.keys() - ONLY_NEWER} == {
        name: tests.get(name) for name in run.keys() - ONLY_NEWER
    }


@pytest.mark.parametrize("name", [RUN, UV])
def test_each_package_of_a_lock_with_hashes_has_some(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"^(?=\S+==)", text, flags=re.M)[1:]
    assert entries
    assert [one for one in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", one)] == []


def required() -> Iterator[Requirement]:
    """What the three packages of this checkout need at run time and for being installed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = config["options"]["install_requires"].split("\n")
    texts += config["options.extras_require"]["web"].split("\n")
    for name in ("ri2n_lab", "ri2n_parallel"):
        about = tomllib.loads((ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))
        texts += about["project"]["dependencies"]
        texts += about["project"].get("optional-dependencies", {}).get("cli", [])
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    texts += built["build-system"]["requires"]
    for text in texts:
        if text.strip() and not text.startswith("ri2n"):
            yield Requirement(text)


def test_the_lock_has_all_that_the_demo_needs_and_no_plots() -> None:
    """As the packages say that are installed here: uv and pip ask for nothing else."""
    versions = locked(RUN)
    waiting, seen = list(required()), set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, *sorted(wanted.extras)) in seen:
            continue
        seen.add((name, *sorted(wanted.extras)))
        assert wanted.specifier.contains(versions[name], prereleases=True), str(wanted)
        for text in distribution(name).requires or []:
            need = Requirement(text)
            extras = ({"extra": extra} for extra in {"", *wanted.extras})
            if need.marker is None or any(map(need.marker.evaluate, extras)):
                waiting.append(need)
    assert len(seen) > 60 and "matplotlib" not in versions


def test_debians_python_can_install_the_lock() -> None:
    """Debian 12 has Python 3.11.2, and some packages need a later one of 3.11."""
    wants = {
        name: Requirement(f"python{distribution(name).metadata['Requires-Python'] or ''}")
        for name in locked(TESTS)
    }
    assert [name for name, python in wants.items() if "3.11.2" not in python.specifier] == []
