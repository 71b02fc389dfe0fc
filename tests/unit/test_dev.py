# SPDX-License-Identifier: Apache-2.0
"""What `./dev` asks uv and pip for, where both only write that down.

`./dev test` builds the guests' kernel meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.dev_checkout import dev, make_checkout
from tests.waiting import wait_until


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path)


RUN = "--no-deps --require-hashes -r requirements-run.lock"
REST = "-r requirements.lock"
OURS = "--no-deps --no-build-isolation -e ."
OF_LABS = f"{OURS} -e ./ri2n_lab -e ./ri2n_parallel"
COMPILE = "compileall -q -j 0 .venv/lib ri2n_sdn"
DEMO = "ri2n_sdn.cli.main demo"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="the demo needs root")


def uv(*installed: str) -> list[str]:
    return [f"uv {each}" for each in installed]


def test_a_controllers_machine_gets_nothing_for_tests(checkout: Path) -> None:
    """But bytecode: a service that may not write in the checkout would compile at each start."""
    helper = checkout / ".venv/bin/ri2n-reorder"
    assert dev(checkout, "install", "--no-helper")[0] == [*uv(RUN, OURS), COMPILE]
    assert not helper.exists()
    assert dev(checkout, "install", "--no-helper")[0] == []
    assert "build ri2n-reorder" in dev(checkout, "install")[1]
    assert helper.exists()


def test_setup_adds_the_rest_and_install_is_content_with_it(checkout: Path) -> None:
    assert dev(checkout, "install")[0] == [*uv(RUN, OURS), COMPILE]
    assert dev(checkout, "setup")[0] == uv(RUN, REST, OF_LABS)
    assert dev(checkout, "install")[0] == [COMPILE]
    assert dev(checkout, "setup")[0] == []


@ROOT_ONLY
def test_the_demo_gets_what_it_needs_without_a_helper_and_setup_adds_the_rest(
    checkout: Path,
) -> None:
    asked, said = dev(checkout, "demo", "--seconds", "5")
    assert asked == [*uv(RUN, OF_LABS), f"{DEMO} --seconds 5"]
    assert "ri2n-reorder" not in said and not (checkout / ".venv/bin/ri2n-reorder").exists()
    assert dev(checkout, "demo")[0] == [DEMO]
    assert dev(checkout, "install", "--no-helper")[0] == [COMPILE]
    assert dev(checkout, "setup")[0] == uv(RUN, REST, OF_LABS)
    assert (checkout / ".venv/bin/ri2n-reorder").exists()
    assert dev(checkout, "demo")[0] == [DEMO]


@ROOT_ONLY
def test_the_demo_builds_a_helper_again_that_is_there(checkout: Path) -> None:
    dev(checkout, "setup")
    (checkout / "reorder/src/main.rs").write_text("// changed")
    assert "build ri2n-reorder" in dev(checkout, "demo")[1]


@pytest.mark.parametrize("broken", ["fetch-fails", "uv-fails"])
def test_pip_installs_what_uv_cannot(checkout: Path, broken: str) -> None:
    (checkout / broken).touch()
    asked, said = dev(checkout, "setup")
    assert asked == [
        *(uv(RUN) if broken == "uv-fails" else []),
        *(f"pip install --no-compile {each}" for each in (RUN, REST, OF_LABS)),
    ]
    assert "pip" in said and "ready" in said


def test_checkouts_share_one_uv(checkout: Path) -> None:
    dev(checkout, "install", "--no-helper")
    (checkout / "requirements.lock").write_text("changed==1\n")
    (checkout / "fetch-fails").touch()
    assert dev(checkout, "setup")[0] == uv(RUN, REST, OF_LABS)


def test_without_a_registry_nothing_is_taken_for_installed(checkout: Path) -> None:
    for name in ("uv-fails", "pip-fails"):
        (checkout / name).touch()
    assert "registry" in dev(checkout, "setup", code=2)[1]
    for name in ("uv-fails", "pip-fails"):
        (checkout / name).unlink()
    assert dev(checkout, "setup")[0] == uv(RUN, REST, OF_LABS)


def test_a_helper_that_does_not_build_is_told(checkout: Path) -> None:
    (checkout / "programs/cargo").write_text("#!/bin/sh\n[ $1 = --version ] && echo cargo 1.99.0\n")
    said = dev(checkout, "install", code=2)[1]
    assert "ri2n-reorder or ri2n-fast does not build" in said


def test_an_unknown_argument_changes_nothing(checkout: Path) -> None:
    asked, said = dev(checkout, "install", "--no-helpers", code=2)
    assert asked == [] and "--no-helpers" in said


KERNEL = """#!/bin/bash
[[ ${1-} != --print-path ]] || exec echo kernel
[[ ${1-} != --print-packages ]] || exit 0
echo $$ >building
exec sleep 1000
"""
WAITS = """#!/bin/bash
[[ $1 != -m ]] || printf '%s\\n' "${*:2}" >>asked
[[ $2 != pip || -e kernel ]] || while [[ ! -e building ]]; do sleep 0.01; done
"""
"""pip, which waits until the kernel is being built."""


@pytest.fixture
def building(checkout: Path) -> Path:
    """The file with the pid of what builds the guests' kernel, in a checkout that has none."""
    script = checkout / "ri2n_lab/guests/kernel/build-guest-kernel"
    script.parent.mkdir(parents=True)
    script.write_text(KERNEL)
    script.chmod(0o755)
    return checkout / "building"


@pytest.mark.skipif(os.geteuid() != 0, reason="no guest boots without root")
def test_the_guests_kernel_is_built_while_pip_installs_and_no_longer_than_the_tests(
    checkout: Path, building: Path
) -> None:
    (checkout / ".venv/bin/python").write_text(WAITS)
    (checkout / "fetch-fails").touch()
    asked, said = dev(checkout, "test", "--seed", "2")
    assert "kernel is missing" in said
    assert any(line.startswith("pip") for line in asked) and asked[-1] == "tests.run --seed 2"
    pid = int(building.read_text())
    # Its output has ended, or `dev` had not returned.
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), "the build goes on")


@pytest.mark.parametrize(
    "argv", [["setup"], ["test", "--tier", "unit"], ["test", "--tier=rust"], ["test", "tests/unit"]]
)
def test_no_kernel_is_built_where_no_guest_is_wanted(
    checkout: Path, building: Path, argv: list[str]
) -> None:
    dev(checkout, *argv)
    assert not building.exists()


def test_a_kernel_that_is_there_is_not_built(checkout: Path, building: Path) -> None:
    kernel = checkout / "kernel"
    kernel.touch()
    kernel.chmod(0o755)
    assert "kernel" not in dev(checkout, "test")[1]
    assert not building.exists()
