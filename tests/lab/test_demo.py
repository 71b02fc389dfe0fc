"""`ri2n demo` as README.md has it: it shows every strategy, and Ctrl-C removes everything."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

from .conftest import PATIENCE_S
from .test_lab import remains

DEMO = ("env", "--default-signal=INT", sys.executable, "-m", "ri2n_sdn.cli.main", "demo")


def lab_of(stderr: str) -> str:
    found = re.search(r"building lab (\S+):", stderr)
    assert found, stderr
    return found[1]


def test_every_strategy_is_shown_and_nothing_stays() -> None:
    argv = [*DEMO, "--seconds", "1", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert list(shown["strategies"]) == ["round_robin", "ri2n_plus", "ri2n_plus_plus", "max_min"]
    for row in shown["strategies"].values():
        assert set(row["clients"]) == {"B", "C", "D"} and min(row["clients"].values()) > 0
    assert remains(lab_of(done.stderr)) == []


def test_ctrl_c_removes_everything() -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        said = ""
        try:
            for line in demo.stderr:
                said += line
                if "now traffic" in line:
                    break
            name = lab_of(said)
            assert remains(name)
            demo.send_signal(signal.SIGINT)
            said += demo.stderr.read()
            code = demo.wait(PATIENCE_S)
        finally:
            demo.kill()
    assert code == 130 and "Traceback" not in said, said
    assert remains(name) == []
