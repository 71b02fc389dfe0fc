# SPDX-License-Identifier: Apache-2.0
"""`ri2n ...` in this process, as a user runs it without a terminal.

Starting Python for each takes most of a second.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ri2n_lab.cluster import state
from ri2n_sdn.cli.main import main

__all__ = ["REPOSITORY", "Ended", "ri2n"]

REPOSITORY = Path(__file__).parents[2]
NO_LABS = Path("/nonexistent/ri2n-labs")


@dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def ri2n(*arguments: str, cwd: Path = REPOSITORY, **env: str) -> Ended:
    """Run a command, which sees no lab of this machine, and undo its changes to this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    terminate = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"COLUMNS": "200", "RI2N_LAB_ROOT": str(NO_LABS), **env}.items():
            patch.setenv(name, value)
        patch.setattr(state, "ROOT", NO_LABS)
        patch.setattr(sys, "argv", ["ri2n", *arguments])
        patch.setattr(sys, "stdin", io.StringIO())
        patch.chdir(cwd)
        try:
            with (
                contextlib.redirect_stdout(stdout),
                contextlib.redirect_stderr(stderr),
                pytest.raises(SystemExit) as ended,
            ):
                main()
        finally:
            signal.signal(signal.SIGTERM, terminate)
    code = ended.value.code
    assert isinstance(code, int)
    return Ended(code, stdout.getvalue(), stderr.getvalue())
