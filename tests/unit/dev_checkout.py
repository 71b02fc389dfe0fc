# SPDX-License-Identifier: Apache-2.0
"""A checkout in which `./dev` works, where uv, pip, cargo and apt-get only write down their work.

A file in the checkout changes what they do: `fetch-fails` (uv cannot be had), `uv-fails`,
`pip-fails`, and `pip-config` (what `pip config list` says).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ROOT", "dev", "environment", "make_checkout"]

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    *("dev", "setup/packages.sh", "setup/python.sh", "setup/root.sh", "setup/uninstall.sh"),
    *("requirements.lock", "requirements-run.lock", "requirements-uv.lock"),
    *("setup.cfg", "pyproject.toml", "ri2n_lab/pyproject.toml", "ri2n_parallel/pyproject.toml"),
    *("Cargo.toml", "Cargo.lock", "wire/Cargo.toml", "reorder/Cargo.toml", "fast/Cargo.toml"),
)
PYTHON = """#!/bin/bash
[[ $1 == -m ]] || exit 0
case "$*" in
*' config list') if [[ -e pip-config ]]; then cat pip-config; fi ;;
*' --target '*' -r requirements-uv.lock')
    [[ ! -e fetch-fails ]] || exit 1
    while [[ $1 != --target ]]; do shift; done
    mkdir "$2/bin"
    printf '%s\\n' '#!/bin/bash' 'echo "uv ${*:5}" >>asked; [[ ! -e uv-fails ]]' >"$2/bin/uv"
    chmod 755 "$2/bin/uv"
    ;;
'-m pip '*) echo "pip ${*:5}" >>asked && [[ ! -e pip-fails ]] ;;
*) echo "${*:2}" >>asked ;;
esac
"""


def make_checkout(folder: Path) -> Path:
    """Fill an empty folder with what `./dev` reads, and with the programs that it calls."""
    for name in NEEDED:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("wire", "reorder"):
        (folder / name / "src").mkdir()
    for name in ("src", "bpf"):
        (folder / "fast" / name).mkdir()
    programs = {
        ".venv/bin/python": PYTHON,
        "programs/apt-get": "#!/bin/sh\nexit 1\n",
        "programs/cargo": "#!/bin/sh\n[ $1 != --version ] || echo cargo 1.99.0\n",
    }
    for name, text in programs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (folder / "target/release").mkdir(parents=True)
    for name in ("ri2n-reorder", "ri2n-fast"):
        (folder / "target/release" / name).touch()
    return folder


def environment(checkout: Path) -> dict[str, str]:
    """The environment of its `./dev`: of this machine, it sees only the programs."""
    return {
        "PATH": f"{checkout}/programs:{os.environ['PATH']}:/usr/sbin:/sbin",
        "HOME": str(checkout),
        "RI2N_DEV_MACHINE": str(checkout / "machine"),
    }


def dev(
    checkout: Path, *argv: str, code: int = 0, more: Mapping[str, str] | None = None
) -> tuple[list[str], str]:
    """What it asked uv, pip and Python for, and what it said."""
    asked = checkout / "asked"
    asked.unlink(missing_ok=True)
    done = subprocess.run(
        ["./dev", *argv],
        cwd=checkout,
        capture_output=True,
        text=True,
        env=environment(checkout) | dict(more or {}),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == code, done
    return asked.read_text().splitlines() if asked.exists() else [], done.stdout + done.stderr
