# SPDX-License-Identifier: Apache-2.0
"""The script of docs/rest.md that reads all pages of a list, as a shell runs it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.unit.web_state import cluster_state
from tests.waiting import LONG_S

from .browser import FakeController, serving

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"


def test_a_script_reads_all_pages_of_a_list(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### All pages of a list")[2]
    script = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    state = cluster_state(events=5)
    with (
        FakeController(tmp_path, state) as controller,
        serving(controller.socket, tmp_path / "web.log") as url,
    ):
        script = script.replace("http://127.0.0.1:8420", url)
        script = script.replace("/tmp/headers", str(tmp_path / "headers"))
        done = subprocess.run(
            ["bash", "-eu", "-c", script], capture_output=True, text=True, timeout=LONG_S
        )
    assert (done.returncode, done.stderr) == (0, ""), done
    texts = [f'"text":"{each["text"]}"' for each in reversed(state["events"])]
    assert done.stdout.splitlines() == texts
