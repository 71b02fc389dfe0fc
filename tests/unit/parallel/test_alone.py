# SPDX-License-Identifier: Apache-2.0
"""The library needs Python alone.

Every module but those of the commands is imported without any installed package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
IMPORT_ALL = """
import importlib, sys
from pathlib import Path
root = Path(sys.argv[1])
sys.path.append(str(root))
all_files = (root / "ri2n_parallel").rglob("*.py")
files = [each for each in all_files if not {"cli", "build"} & {*each.relative_to(root).parts}]
for file in files:
    importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))
print(len(files))
"""


def test_the_library_is_imported_without_any_other_package() -> None:
    alone = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(REPOSITORY)]  # no site-packages
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25


def test_the_command_says_what_it_needs() -> None:
    command = (
        "import sys; sys.path.append(sys.argv.pop(1)); from ri2n_parallel.cli.main import "
        "main; main()"
    )
    alone = [sys.executable, "-I", "-S", "-c", command, str(REPOSITORY), "serve", "."]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ri2n-parallel: typer is missing: pip install 'ri2n-parallel[cli]'\n"
