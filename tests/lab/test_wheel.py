# SPDX-License-Identifier: Apache-2.0
"""The wheel with the helper, in a virtual environment that has nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from ri2n_sdn import __version__

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]


def run(*argv: str | Path, cwd: Path) -> str:
    """Run a command in an environment without our own paths; what it says."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=clean,
        check=False,
    )
    assert done.returncode == 0, (argv, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def test_the_wheel_brings_the_command_the_helper_and_the_web_process(tmp_path: Path) -> None:
    if shutil.which("cargo") is None and not Path("~/.cargo/bin/cargo").expanduser().exists():
        pytest.skip("needs cargo")
    tree = tmp_path / "tree"
    tree.mkdir()
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in names.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    for name in ("made", "used"):
        venv.create(tmp_path / name, with_pip=True)
    pip = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
    run(tmp_path / "made/bin/python", *pip, "wheel", "--no-deps", "-w", tmp_path, ".", cwd=tree)
    (wheel,) = tmp_path.glob("ri2n_sdn-*.whl")
    # The helper is a program of one kind of machine, so the wheel is, too.
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = packed.namelist()
    for program in ("ri2n-fast", "ri2n-reorder"):
        assert [name for name in held if name.endswith(f".data/scripts/{program}")]
    assert [name for name in held if name.endswith("ovs-host-scripts/ri2n-web.service")]
    assert "ri2n_sdn/store/ri2n.ovsschema" in held

    used = tmp_path / "used/bin"
    lock = ["--constraint", str(ROOT / "requirements.lock")]
    run(used / "python", *pip, "install", *lock, f"{wheel}[web]", cwd=tmp_path)
    assert run(used / "ri2n", "--version", cwd=tmp_path) == f"ri2n {__version__}\n"
    for program in ("ri2n-fast", "ri2n-reorder"):
        assert re.match(rf"{program} \d", run(used / program, "--version", cwd=tmp_path))
    assert "--listen" in run(used / "ri2n", "web", "--help", cwd=tmp_path)
    script = "from ri2n_sdn.shipped import *; "
    script += "print(host_script('host-up'), find_topology_file('fig4/d'))"
    found = run(used / "python", "-c", script, cwd=tmp_path).split()
    assert all(Path(path).is_file() and path.startswith(str(tmp_path)) for path in found)
